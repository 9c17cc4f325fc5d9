"""run/bench/compare.py's figures: what a curve reaches when, and mistakes are refused."""

from __future__ import annotations

import importlib
import math
import sys
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


@pytest.mark.parametrize(
    ("program", "words", "says"),
    [
        ("compare", ["paper", "--repeats", "0"], "--repeats 0: at least 1"),
        ("compare", ["shapes", "--clock", "cpu", "--slices", "inf"], "--slices inf: seconds above 0"),
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
