"""The commands and programs that pages print run as they are printed, in a folder with the files that they name."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launch.launching import ROOT
from launch.tutorial import shell

pytestmark = pytest.mark.timeout(600)

LIMIT = 200.0
"""Seconds of a line: none needs ten on a free core."""

FIRST = "docs/commands.md"
"""Its own commands make my.toml and runs/my, which the other pages name."""

TUTORIAL = sorted({path.name for path in (ROOT / "docs" / "tutorial").glob("*.md")} - {"index.md"})
"""Its pages but the first, which test_tutorial_page.py runs."""

PAGES = ("docs/data.md", "docs/export.md", "docs/python.md", *(f"docs/tutorial/{name}" for name in TUTORIAL))

NEEDS = {"--to onnx": "onnx"} | {
    word: word for word in ("onnxruntime", "onnx2torch", "tensorboardX", "mlflow", "optuna")
}
"""Text of a line or a block -> the library that it needs."""

BEFORE = {
    "docs/export.md": "import numpy as np\nX = np.load('my.npz')['X']\n",
    "docs/python.md": "import numpy as np\nimport macmpi\nheld = np.load('my.npz')\nX, Y = held['X'], held['Y']\n"
    "X_new, y = X, Y\n",
}
"""What a page's programs take for granted."""

FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"(macmpi|python -m macmpi\.\w+|mpiexec) ")


def printed(page: str) -> Iterator[tuple[bool, str]]:
    """The commands and the programs of a page, in their order; whether each is a program."""
    for language, text in FENCED.findall((ROOT / page).read_text(encoding="utf-8")):
        if language == "python":
            yield True, text
        elif not language:
            yield from ((False, line) for line in text.splitlines() if COMMAND.match(line))


def libraries(text: str) -> list[str]:
    """The libraries that it needs."""
    return [library for words, library in NEEDS.items() if words in text]


def run_page(page: str, folder: Path, variables: dict[str, str], library: str = "") -> int:
    """Runs what a page prints and needs no library, or this one and the files of onnx that it reads; counts it."""
    ran = 0
    for is_program, text in printed(page):
        needed = libraries(text)
        if library not in needed and needed != (["onnx"] if library else []):
            continue
        if is_program:
            (folder / "printed.py").write_text(BEFORE.get(page, "") + text)
        words = [sys.executable, "printed.py", "runs/my"] if is_program else ["bash", "-c", text]
        done = subprocess.run(
            words, cwd=folder, env=variables, capture_output=True, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL
        )
        assert done.returncode == 0, f"{page}: {text}\n{done.stdout}\n{done.stderr}"
        ran += 1
    return ran


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return shell(tmp_path_factory.mktemp("shell"))


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, variables: dict[str, str]) -> Path:
    """A folder with my.npz, 200 points of two classes, and what docs/commands.md makes of it; new.csv has new ones."""
    for library in ("matplotlib", "pyarrow", "narwhals", "sklearn"):
        pytest.importorskip(library)
    folder, random = tmp_path_factory.mktemp("pages"), np.random.default_rng(0)
    X = random.normal(size=(200, 3))
    np.savez(folder / "my.npz", X=X, Y=np.where(X[:, 0] * X[:, 1] > 0.0, "same", "other"))
    np.savetxt(folder / "new.csv", random.normal(size=(9, 3)), delimiter=",", header="a,b,c", comments="")
    assert run_page(FIRST, folder, variables) >= 4
    return folder


@pytest.mark.long
@pytest.mark.launch
def test_the_commands_make_what_other_pages_name(first: Path) -> None:
    assert (first / "runs" / "my" / "model.h5").exists()
    assert (first / "runs" / "my" / "report" / "report.html").exists()
    assert (first / "my.toml").exists()


def cases() -> Iterator[Any]:
    """Pages, each without a library and with each that some of its lines need; FIRST is run without one as it is."""
    for page in (FIRST, *PAGES):
        needed = {library for _, text in printed(page) for library in libraries(text)}
        for library in sorted(needed | ({""} if page != FIRST else set())):
            yield pytest.param(page, library, marks=[pytest.mark.examples] * (library == "onnx2torch"))


@pytest.mark.long
@pytest.mark.launch
@pytest.mark.parametrize(("page", "library"), cases())
def test_what_a_page_prints_runs(
    page: str, library: str, first: Path, variables: dict[str, str], tmp_path: Path
) -> None:
    if library:
        pytest.importorskip(library)
    folder = tmp_path / "fresh"
    shutil.copytree(first, folder)
    assert run_page(page, folder, variables, library)


def test_exceptions_are_printed_somewhere() -> None:
    """A line that is gone from the pages needs no exception."""
    texts = "\n".join(text for page in (FIRST, *PAGES) for _, text in printed(page))
    assert [words for words in NEEDS if words not in texts] == []
