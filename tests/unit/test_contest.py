"""run/bench/compare.py's figures: what a curve reaches when, and mistakes are refused."""

from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from launch.launching import ROOT


@pytest.fixture(scope="module", autouse=True)
def scripts() -> Any:
    """The scripts of run/ as modules."""
    sys.path.insert(0, str(ROOT / "run" / "bench"))
    yield
    sys.path.remove(str(ROOT / "run" / "bench"))


def module(name: str) -> ModuleType:
    return importlib.import_module(name)


def test_a_level_is_reached_at_the_first_record_below_it() -> None:
    contest = module("contest")
    curve = [[0.0, 9.0, 9.5, 0, 0], [1.0, 6.0, 7.0, 0, 1], [2.0, 4.0, 5.0, 0, 2], [3.0, 4.5, 4.8, 0, 3]]
    assert contest.reached(curve, 6.0) == (1.0, 7.0)
    assert contest.reached(curve, 5.0, contest.VALIDATION) == (2.0, 5.0)
    assert contest.reached(curve, 3.0)[0] == math.inf
    assert contest.lowest(curve) == 4.0
    assert contest.lowest([[0.0, math.nan, math.nan, 0, 0]]) == math.inf


PEERS = """
import json, pathlib, sys
path = pathlib.Path(sys.argv[2])
job = json.loads(path.read_text())
found = {"seconds": 0.5, "error": 2.0} if job.get("paces") else [[0.0, 9.0, 9.0, 0, 0], [0.1, 1.0, 0.1, 0, 1]]
out = {"curves": [found for _ in job["candidates"]], "facts": {"torch": "none"}}
path.with_suffix(".out.json").write_text(json.dumps(out))
with open(path.parent / "asked", "a") as asked:
    asked.write("x")
"""
"""Stands for run/bench/peers.py where there is no torch: every rival is at 1 after a record."""


@pytest.mark.parametrize(
    ("study", "row"),
    [
        ("family", "| K-FAC | K-FAC, all points, adaptive |"),
        ("machine", "| digits, Adam, 100 points, rate 0.003 | 0.500 (0.500-0.500) |"),
    ],
)
def test_a_study_writes_its_tables_and_measures_nothing_twice(
    study: str, row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(module("machine"), "CORES", 1)
    (tmp_path / "peers.py").write_text(PEERS)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\n[ "$1" = -c ] && exit 0\nexec {sys.executable} {tmp_path}/peers.py "$@"\n')
    python.chmod(0o755)
    words = ["--quick", "--torch-python", str(python), "--output", str(tmp_path / "out"), "--repeats", "1"]
    monkeypatch.setattr(sys, "argv", ["compare", study, *words])
    said, asked = [], []
    for _ in range(2):
        module("compare").main()
        said.append([line for line in capsys.readouterr().out.splitlines() if line.startswith("|")])
        asked.append([path.read_text() for path in tmp_path.glob("out/**/asked")])
    assert asked[0] == asked[1] != []
    assert said[0] == said[1]
    assert any(row in line for line in said[0])
    assert any("(the lowest of" in line for line in said[0])


def test_on_all_cores_a_rival_has_its_epochs_times_the_pace_of_its_best_way() -> None:
    machine, contest = module("machine"), module("contest")
    curve = [[0.0, 9.0, 9.0, 0, 0], [1.0, 5.0, 6.0, 0, 1], [2.0, 3.0, 4.0, 0, 2], [3.0, 2.5, 3.5, 0, 3]]
    seconds = {100: {"threads": [4.0], "processes": [8.0]}, 500: {"threads": [2.0], "processes": [1.0, 3.0, 1.0]}}
    rivals = [
        machine.Trained(
            "Adam",
            contest.Candidate("c", (), (("batch", batch), ("lr", 0.01))),
            [curve],
            {way: [contest.Pace(s, 1.0) for s in each] for way, each in paces.items()},
        )
        for batch, paces in seconds.items()
    ]
    own = {1: [[0.0, 9.0, 9.0, 0, 0], [1.0, 4.0, 4.0, 0, 1]], 2: [[0.0, 9.0, 9.0, 0, 0], [0.5, 2.4, 4.0, 0, 1]]}
    net = machine.Net("c", (), 4.0, 1.0, 1.0, 1.0, (5.0, 2.0), ())
    assert machine.rows("n", net, own, rivals, records=4) == [
        "| n, train 5 | 1.00 s on 1, 0.50 s on 2 | 0.25 s (processes, 500, 0.5) | - | - | 0.5 |",
        "| n, train 2 | never: 2.4 at best | > 3.00 s | - | - | - |",
        "| n, validation 3.5 (the lowest of Adam) | never: 4 at best | 0.75 s (processes, 500) | - | - | - |",
    ]


@pytest.mark.parametrize(
    ("program", "words", "says"),
    [
        ("compare", ["paper", "--repeats", "0"], "--repeats 0: at least 1"),
        ("compare", ["shapes", "--clock", "cpu", "--slices", "inf"], "--slices inf: seconds above 0"),
        ("compare", ["machine", "--only", "usps", "digits"], "machine has usps, classification, large"),
        ("compare", ["machine", "--clock", "cpu"], "--clock cpu: machine is by the wall clock"),
        ("compare", ["shapes", "--pause", "nan"], "--pause nan: seconds from 0 on"),
        ("cost", ["nothing.toml"], "there is no such config"),
        ("growth", ["0"], "from 1 on"),
    ],
)
def test_a_benchmark_refuses_mistakes_at_once(
    program: str, words: list[str], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", [program, *words])
    with pytest.raises(SystemExit) as end:
        module(program).main()
    assert end.value.code == 2
    assert says in capsys.readouterr().err
