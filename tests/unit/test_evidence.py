"""Steps of a benchmark are kept once they are done, and made again where they are of another commit or command."""

from __future__ import annotations

import json
from pathlib import Path

import evidence
import paper
import pytest
import results
import results_page
from evidence import Benchmark, Folders, Found, Step, carry_out

PROGRAM = """
import sys, pathlib
count = pathlib.Path(sys.argv[2])
count.write_text(str(int(count.read_text()) + 1 if count.exists() else 1))
pathlib.Path(sys.argv[1], "left").write_text("7")
print(sys.argv[3])
"""


def read(output: Path, printed: str) -> Found:
    return {"left": int((output / "left").read_text()), "said": printed.strip()}


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folders:
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.setattr(evidence, "commit", lambda: "c0ffee00")
    return Folders(tmp_path / "kept", tmp_path / "files")


def step(tmp_path: Path, name: str, word: str = "hello") -> Step:
    count = tmp_path / f"{name}.count"
    return Step(name, (str(tmp_path / "program.py"), "{OUTPUT}", str(count), word), read)


def test_a_benchmark_is_one_file_of_its_steps(tmp_path: Path, folders: Folders, capsys: pytest.CaptureFixture) -> None:
    carry_out([Benchmark("both", [step(tmp_path, "one"), step(tmp_path, "two", "bye")])], folders)
    found = json.loads((folders.files / "both.json").read_text())
    assert (found["benchmark"], found["commit"]) == ("both", "c0ffee00")
    assert {"date", "machine", "blas", "versions"} <= found.keys()
    assert [(s["left"], s["said"]) for s in found["steps"].values()] == [(7, "hello"), (7, "bye")]
    assert all(s["processor_seconds"] > 0.0 and s["command"].startswith("python ") for s in found["steps"].values())
    said = capsys.readouterr().out
    assert "[1/2] both: one; left about" in said
    assert "[2/2] both: two; left about" in said


@pytest.mark.parametrize("module", [paper, results])
def test_each_benchmark_has_a_section_and_each_config_is_there(module: object) -> None:
    """And a step has one name for one command: steps are kept by their names."""
    benchmarks: list[Benchmark] = module.BENCHMARKS  # type: ignore[attr-defined]
    sections = (results_page if module is results else __import__("paper_page")).SECTIONS
    assert {b.name for b in benchmarks} == set(sections)
    commands: dict[str, tuple[str, ...]] = {}
    for own in (s for b in benchmarks for s in b.steps):
        assert commands.setdefault(own.name, own.command) == own.command
        for word in own.command:
            if word.endswith((".toml", ".py")):
                assert (evidence.ROOT / word).is_file(), word
