"""run/bench/compare.py's figures: what a curve reaches when, whom a grid keeps; peers start with macmpi's own bits."""

from __future__ import annotations

import importlib
import json
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from launch.cases import write_case
from launch.launching import ROOT, run_program

import macmpi


@pytest.fixture(scope="module", autouse=True)
def scripts() -> Any:
    """The scripts of run/ as modules."""
    sys.path.insert(0, str(ROOT / "run" / "bench"))
    yield
    sys.path.remove(str(ROOT / "run" / "bench"))


def module(name: str) -> ModuleType:
    return importlib.import_module(name)


def falling(rate: float, end: float = 1.0) -> list[list[float]]:
    """E1 = end + 9 exp(-rate t), a record a second; validation 1 more."""
    errors = [(float(t), end + 9.0 * math.exp(-rate * t)) for t in range(21)]
    return [[t, e, e + 1.0, 0.0, t] for t, e in errors]


def test_a_level_is_reached_at_the_first_record_below_it() -> None:
    contest = module("contest")
    curve = [[0.0, 9.0, 9.5, 0, 0], [1.0, 6.0, 7.0, 0, 1], [2.0, 4.0, 5.0, 0, 2], [3.0, 4.5, 4.8, 0, 3]]
    assert contest.reached(curve, 6.0) == (1.0, 7.0)
    assert contest.reached(curve, 5.0, contest.VALIDATION) == (2.0, 5.0)
    assert contest.reached(curve, 3.0)[0] == math.inf
    assert contest.lowest(curve) == 4.0
    assert contest.lowest([[0.0, math.nan, math.nan, 0, 0]]) == math.inf


def test_peers_start_with_the_bits_of_a_run(tmp_path: Path) -> None:
    config = write_case(tmp_path, "regression")
    settings = ('method.name="sgd"', "start.range=3.0", f'data.source="{tmp_path}/points.npz"')
    task = module("starts").write_task(tmp_path, str(config), settings)
    options = [word for s in settings for word in ("--set", s)]
    run_program("regression.toml", *options, "--iterations", 0, "--output", "run", cwd=tmp_path, code=0)
    ours = macmpi.load(str(tmp_path / "run" / "start.h5")).weights
    with np.load(task["start"]) as theirs:
        assert all(np.array_equal(W, theirs[f"W{i}"]) for i, W in enumerate(ours))
    assert task["activations"] == ["tanh", "tanh"] and task["loss"] == "squared"


@pytest.mark.parametrize("optimiser", ["adam", "sgd", "lbfgs"])
def test_a_peer_has_macmpis_error_at_the_start_and_lowers_it(optimiser: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    config = write_case(tmp_path, "regression")
    settings = ('method.name="sgd"', f'data.source="{tmp_path}/points.npz"')
    task = module("starts").write_task(tmp_path, str(config), settings)
    candidate = {"optimiser": optimiser, "precision": "float64", "start": task["start"], "lr": 0.01, "batch": 10}
    job = {**task, "seconds": 0.1, "ranks": 1, "clock": "wall", "records": 4}
    curve = module("peers").train(job, candidate | {"beta2": 0.99, "memory": 5})
    options = [word for s in settings for word in ("--set", s)]
    run_program("regression.toml", *options, "--iterations", 0, "--output", "run", cwd=tmp_path, code=0)
    record = json.loads((tmp_path / "run" / "curve.jsonl").read_text().splitlines()[0])
    assert curve[0][1:3] == pytest.approx([record["E1_train"], record["E1_val"]], rel=1e-9)
    assert curve[-1][1] < curve[0][1]


@pytest.mark.parametrize(
    ("program", "words", "says"),
    [
        ("compare", ["paper", "--repeats", "0"], "--repeats 0: at least 1"),
        ("compare", ["adam", "--torch-python", "/bin/false"], "has no torch"),
        ("compare", ["shapes", "--clock", "cpu", "--slices", "nan"], "--slices nan: seconds above 0"),
        ("compare", ["shapes", "--clock", "cpu", "--slices", "inf"], "--slices inf: seconds above 0"),
        ("compare", ["shapes", "--slices", "10"], "add --clock cpu"),
        ("compare", ["parallel", "--clock", "cpu", "--slices", "10"], "of single processes"),
        ("compare", ["shapes", "--pause", "nan"], "--pause nan: seconds from 0 on"),
        ("cost", ["nothing.toml"], "there is no such config"),
        ("choices", ["nothing.toml", "", "--iterations", "1"], "at least 2"),
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


def test_a_program_that_fails_ends_a_benchmark_with_its_code_and_words(capsys: pytest.CaptureFixture[str]) -> None:
    words = [sys.executable, "-c", "import sys; print('why', file=sys.stderr); sys.exit(74)"]
    with pytest.raises(SystemExit) as end:
        module("programs").output_of(words)
    assert end.value.code == 74
    assert "why" in capsys.readouterr().err
