"""run/bench/compare.py's figures: what a curve reaches when, whom a grid keeps; peers start with macmpi's own bits."""

from __future__ import annotations

import importlib
import json
import math
import signal
import sys
import threading
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


def test_what_is_reached_too_late_does_not_count() -> None:
    contest = module("contest")
    curve = [[0.0, 9.0, 9.5, 0, 0], [1.0, 6.0, 7.0, 0, 1], [2.0, 4.0, 5.0, 0, 2]]
    assert [contest.lowest(contest.within(curve, seconds)) for seconds in (0.5, 1.5, 2.0)] == [9.0, 6.0, 4.0]


def test_a_program_is_told_to_stop_once_it_has_trained_for_its_seconds(tmp_path: Path) -> None:
    """By complete lines of its curve."""
    contest = module("contest")
    curve = tmp_path / "curve.jsonl"
    seen = [contest.trained(curve)]
    for text in ('{"seconds": 0.0}\n{"seco', '{"seconds": 0.0}\n{"seconds": 3.5}\n', ""):
        curve.write_text(text)
        seen.append(contest.trained(curve))
    assert seen == [0.0, 0.0, 3.5, 0.0]
    curve.write_text('{"seconds": 3.5}\n')
    waits = [sys.executable, "-c", "import sys, time; print('begun', flush=True); time.sleep(600)"]
    done = contest.Contest(tmp_path, "")._measure(waits, lambda: contest.trained(curve) > 3.0)
    assert done.returncode == -signal.SIGTERM
    assert contest.Contest(tmp_path, "")._measure([sys.executable, "-c", "print(1)"]).stdout == "1\n"


def test_results_are_found_wherever_their_folder_lies(tmp_path: Path) -> None:
    contest = module("contest")
    names = set()
    for folder in (tmp_path / "a", tmp_path / "b"):
        candidate = contest.Candidate("a.toml", (f'data.source="{folder}/x.npz"',))
        names.add(contest.Contest(folder, "")._path(candidate, 1.0, 0).name)
    assert len(names) == 1


def test_turns_of_the_same_arithmetic_take_the_median_of_each_iterations_seconds() -> None:
    contest = module("contest")
    turns = [
        [[t, 9.0 - i, 9.5 - i, 0.0, i] for i, t in enumerate(times)]
        for times in ((0.0, 1.0, 2.0), (0.0, 5.0, 6.5, 7.0), (0.0, 2.0, 9.0))
    ]
    assert contest.merged(turns) == [[s, 9.0 - i, 9.5 - i, 0.0, i] for i, s in enumerate((0.0, 2.0, 3.5, 4.0))]


def test_a_contenders_figure_is_that_of_its_soonest_finalist() -> None:
    contest = module("contest")
    slow, fast = ([[t, 1.0, t + 2.0, 0, 1]] for t in (5.0, 4.0))
    assert contest.to_level([slow, fast], 1.0) == (4.0, 6.0)
    assert contest.to_level([slow], 0.5)[0] == math.inf


def test_halving_keeps_the_lowest_and_whoever_is_soonest_at_the_lowest_levels(monkeypatch: Any, capsys: Any) -> None:
    contest = module("contest")
    curves = {0.9: falling(0.9, 3.0), 0.3: falling(0.3, 1.0), 0.2: falling(0.2, 2.0), 0.1: falling(0.1, 5.0)}
    candidates = {contest.Candidate("a.toml", (f"x={rate}",)): curve for rate, curve in curves.items()}
    asked: list[tuple[int, float]] = []

    def measured(self: Any, some: Any, seconds: float, repeat: int = 0) -> Any:
        asked.append((len(some), seconds))
        return [candidates[c] for c in some]

    monkeypatch.setattr(contest.Contest, "curves", measured)
    contender = contest.Contender("a", list(candidates), ((2.0, 3), (20.0, 1)), 2)
    match = contest.Contest(Path(), "python")
    winners = match.tune(contender, [8.0, 6.0, 4.0, 3.5, 1.5])
    assert asked == [(4, 2.0), (3, 20.0)]
    assert [c.settings for c in winners] == [("x=0.3",), ("x=0.9",)]
    assert match.spent["a"] == (4 + 3) * 20, "what they have taken"
    assert "4 x 2 s" in capsys.readouterr().out


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


class Process:
    """Notes the signals that it is sent, until it has been sent enough of them."""

    def __init__(self, name: str, seen: list[tuple[str, int]], enough: int) -> None:
        self.name, self.seen, self.enough = name, seen, enough
        self.ended = threading.Event()

    def send_signal(self, number: int) -> None:
        self.seen.append((self.name, number))
        if sum(name == self.name for name, _ in self.seen) > self.enough:
            self.ended.set()


def test_processes_have_their_slices_one_at_a_time() -> None:
    """Each begins stopped; then the one that goes on is stopped before the next, and one that has ended is let go."""
    seen: list[tuple[str, int]] = []
    long, short = Process("long", seen, 12), Process("short", seen, 4)

    def lives(process: Process, share: float) -> None:
        with turns.hold(process, share):
            assert process.ended.wait(60.0)

    with module("slices").Slices(0.01) as turns:
        threads = [threading.Thread(target=lives, args=of) for of in ((long, 3.0), (short, 1.0))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    going: set[str] = set()
    for name, number in seen[: max(i for i, (name, _) in enumerate(seen) if name == "short") - 1]:
        going = going | {name} if number == signal.SIGCONT else going - {name}
        assert len(going) < 2
    firsts = [next(number for who, number in seen if who == name) for name in ("long", "short")]
    assert firsts == [signal.SIGSTOP, signal.SIGSTOP]
    assert seen[-1] == ("long", signal.SIGCONT)


def test_runs_in_slices_are_the_runs_alone(tmp_path: Path) -> None:
    """A process that is stopped now and then has the errors of one that is not; and its own clock stands still."""
    config = write_case(tmp_path, "regression")
    contest = module("contest")
    data = f'data.source="{tmp_path}/points.npz"'
    some = [contest.Candidate(str(config), ('method.name="stochastic"', data, f"start.seed={seed}")) for seed in (1, 2)]
    alone, sliced = (contest.Contest(tmp_path, "", clock="cpu", turn=turn) for turn in (0.0, 0.1))
    sliced.in_slices([(c, 0.3) for c in some])
    for one, other in zip(alone.curves(some, 0.3), sliced.curves(some, 0.3), strict=True):
        n = min(len(one), len(other))
        assert n > 3
        assert [row[1:] for row in one[:n]] == [row[1:] for row in other[:n]]
