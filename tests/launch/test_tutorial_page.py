"""The commands of docs/tutorial/index.md, in order, in a fresh folder: they run, and give what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from launch.launching import ROOT
from launch.tutorial import shell

for library in ("matplotlib", "pandas", "pyarrow", "narwhals", "sklearn"):
    pytest.importorskip(library)

PAGE = ROOT / "docs" / "tutorial" / "index.md"


@pytest.mark.long
@pytest.mark.launch
@pytest.mark.timeout(300)  # a third of a minute on a free core
def test_the_page_runs_in_a_fresh_folder(tmp_path: Path) -> None:
    home, work = tmp_path / "tools", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    environment = shell(home)
    said = ""
    for language, text in re.findall(r"^```(\w*)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S):
        command = [sys.executable, "-c", text] if language == "python" else ["bash", "-e", "-c", text]
        done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, text + done.stdout + done.stderr
        said += done.stdout
    named = (work / "named.csv").read_text().split()
    assert [word.strip('"') for word in named] == ["prediction", *["malignant"] * 5]
    assert "['malignant' 'malignant' 'malignant' 'malignant' 'malignant']" in said
    assert {path.name for path in (work / "runs").iterdir()} == {"tumours", "smaller", "both"}
    for picture in re.findall(r"!\[.*?\]\((.*?)\)", PAGE.read_text(encoding="utf-8")):
        assert (PAGE.parent / picture).stat().st_size < 100_000
        assert (work / "runs" / "tumours" / "report" / picture).exists()
