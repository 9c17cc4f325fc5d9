"""The table of README.md names tests by words of pytest: each row has tests of its own, and no other row's."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"[|] (test_\w+)(?: -k (\w+|\"[\w ]+\"))? [|]")


def test_a_row_alone_can_be_run() -> None:
    command = [sys.executable, "-m", "pytest", "tests/faults", "--collect-only", "-p", "no:cacheprovider"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    tests = re.findall(r"^tests/faults/(\w+)[.]py::(.*)$", listed, re.MULTILINE)
    rows = ROW.findall((ROOT / "tests" / "faults" / "README.md").read_text())
    assert len(rows) > 20
    taken: dict[tuple[str, str], str] = {}
    for file, words in rows:
        for word in words.strip('"').split(" or "):
            found = {(of, name) for of, name in tests if of == file and word in name}
            assert found, f"{file} -k {word} runs nothing"
            assert all(taken.setdefault(one, words) == words for one in found), f"{file} -k {word}: another row's, too"
