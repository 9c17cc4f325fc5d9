"""The tutorial runs as it stands, and its outputs are those that it shows."""

from __future__ import annotations

import copy
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
from launch.launching import ROOT
from launch.tutorial import NOTEBOOK, executed, words

for library in ("nbclient", "ipykernel", "matplotlib", "pandas", "pyarrow", "narwhals", "sklearn"):
    pytest.importorskip(library)

import nbformat  # noqa: E402

MOST = 300_000
"""Bytes of the notebook, pictures included."""


@pytest.mark.long
@pytest.mark.launch
@pytest.mark.timeout(600)  # half a minute on a free core
def test_the_tutorial_runs_in_a_fresh_folder_and_says_what_it_shows(tmp_path: Path) -> None:
    """Words and pictures are compared: numbers differ in their last digits from kernel to kernel of BLAS."""
    shown = nbformat.read(NOTEBOOK, as_version=4)
    now = executed(copy.deepcopy(shown), tmp_path)
    with_onnx = find_spec("onnx") and find_spec("onnxruntime")
    for before, after in zip(shown.cells, now.cells, strict=True):
        if with_onnx or "onnx" not in before.metadata.get("tags", ()):
            assert words(after) == words(before), before.source
    assert {path.name for path in tmp_path.iterdir()} == {"bin", "home"}  # all else goes to a folder of its own


def test_the_tutorial_is_light_and_shows_what_it_gives() -> None:
    assert NOTEBOOK.stat().st_size < MOST
    cells = [cell for cell in nbformat.read(NOTEBOOK, as_version=4).cells if cell.cell_type == "code"]
    assert sum("picture" in words(cell) for cell in cells) >= 3
    kinds = {output.output_type for cell in cells for output in cell.outputs}
    assert "error" not in kinds
    assert not any(str(ROOT) in str(cell.outputs) for cell in cells)


def test_a_fresh_clone_has_the_tutorial(tmp_path: Path) -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("no git, or no repository")
    command = ["git", "-c", "safe.directory=*", "ls-files", "docs/tutorial", "run/bench/tutorial.py"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    there = {f"docs/tutorial/{path.name}" for path in (ROOT / "docs" / "tutorial").iterdir() if path.is_file()}
    assert {*listed} == {*there, "run/bench/tutorial.py"}
