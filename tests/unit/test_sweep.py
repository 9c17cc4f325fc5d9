"""`python -m macmpi.sweep`: what is trained, what is refused before anything starts, what is made of the results."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import shlex
import signal
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from launch.here import run_here
from launch.launching import THREAD_VARIABLES, environment, launched
from numpy.testing import assert_array_equal

from macmpi import UsageError, config
from macmpi.config.writing import toml
from macmpi.machine.lock import Lock
from macmpi.results.reading import read_curve
from macmpi.sweep import __main__ as sweep
from macmpi.sweep import processes
from macmpi.sweep.checked import Run
from macmpi.sweep.grid import SEEDS, Axis, Combination, axes, axis, combinations
from macmpi.sweep.outcome import Scored, best_of, groups
from macmpi.sweep.picture import drawn
from macmpi.training.process import STOP_SIGNALS

BRIEF = ("--set", "run.max_iterations=2", "--set", "run.refit=false")


@pytest.fixture
def folder(table: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with points.toml; runs find this source tree, and signals do afterwards what they did."""
    monkeypatch.chdir(table)
    for name in ("PYTHONPATH", *THREAD_VARIABLES):
        monkeypatch.setenv(name, environment()[name])
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield table
    for number, handler in handlers.items():
        signal.signal(number, handler)


def main(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["macmpi sweep", *words])
    try:
        sweep.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def table_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


# --- values and combinations ------------------------------------------------------------------------------------------

SCALARS = st.integers(-(2**40), 2**40) | st.floats(allow_nan=False, allow_infinity=False) | st.text() | st.booleans()


@given(st.lists(SCALARS | st.lists(SCALARS, max_size=3), min_size=1, max_size=4, unique_by=toml))
def test_values_that_are_joined_by_commas_are_told_apart(values: list[Any]) -> None:
    assert axis(f"model.hidden={', '.join(map(toml, values))}") == Axis("model.hidden", tuple(values))


@pytest.mark.parametrize(
    ("setting", "key", "values"),
    [
        ("model.hidden=[50],[100,50]", "model.hidden", ([50], [100, 50])),
        ("model.activation=relu,tanh", "model.activation", ("relu", "tanh")),
        ("data=a.npz,b.npz", "data.source", ("a.npz", "b.npz")),
        ('data.source="a,b.npz",c.npz', "data.source", ("a,b.npz", "c.npz")),
        ("run.refit=auto,true", "run.refit", ("auto", True)),
        ("model.activation=[\"relu\",'tanh'],relu", "model.activation", (["relu", "tanh"], "relu")),
        (" start.seed = 1 , 2 ", "start.seed", (1, 2)),
    ],
)
def test_values_as_people_write_them(setting: str, key: str, values: tuple[Any, ...]) -> None:
    assert axis(setting) == Axis(key, values)


@pytest.mark.parametrize(
    "setting",
    [
        *("", "a", "=1", "a.b=", "a.b=1,,2", "a.b=1,", "a.b=,", "a.b=[1,2", "a.b=1,1", "a=1", "a={b=1,c=2}"),
        *("a.b={c=1}", "a.b=1\na.c=2", "a.b=1 2", 'a.b="x'),
    ],
)
def test_settings_that_are_none(setting: str) -> None:
    with pytest.raises(UsageError, match="--set"):
        axis(setting)


def test_a_key_is_given_once() -> None:
    with pytest.raises(UsageError, match=r"model.hidden=value,value"):
        axes(["model.hidden=[1]", "model.hidden=[2]"])


def names(found: list[Combination]) -> list[str]:
    return [one.name for one in found]


def test_combinations_are_all_of_them_each_with_a_name_of_its_own() -> None:
    found = axes(["model.hidden=[5],[5,3]", "start.seed=1,2", "data.seed=1,2", "model.activation=relu,a/b"])
    every = combinations(found, config.Config())
    assert len(every) == len(set(names(every))) == 2 * 2 * 2 * 2
    assert every[0].name == "hidden=5,start.seed=1,data.seed=1,activation=relu"
    assert every[0].words[:4] == ["--set", "model.hidden=[5]", "--set", "start.seed=1"]
    assert all(re.fullmatch(r"[\w=,.~+-]+", one.name) for one in every)
    (alone,) = combinations([], config.Config())
    assert (alone.name, alone.words) == ("run", [])
    (long,) = combinations(axes([f"data.source={'x' * 400}"]), config.Config())
    assert len(long.name) < 200


def test_a_larger_number_drawn_has_those_of_a_smaller_one() -> None:
    found = axes(["model.hidden=[1],[2],[3],[4]", "start.seed=1,2,3"])
    every = names(combinations(found, config.Config()))
    drawn_names = [names(combinations(found, config.Config(), n)) for n in (1, 4, 11, 12, 50)]
    assert [len(some) for some in drawn_names] == [1, 4, 11, 12, 12]
    for some, more in pairwise(drawn_names):
        assert [name for name in every if name in some] == some, "in the order of the grid"
        assert set(some) <= set(more)


def test_seeds_move_together_from_those_of_the_config() -> None:
    base = config.validate({"data": {"seed": 7}, "start": {"seed": 3}}, "test")
    found = combinations(axes(["model.hidden=[1],[2]"]), base, repetitions=2)
    assert [one.seeds for one in found] == [dict(zip(SEEDS, (7 + i, 3 + i), strict=True)) for i in (0, 1, 0, 1)]
    assert names(found)[:2] == ["hidden=1,seed=0", "hidden=1,seed=1"]
    with pytest.raises(UsageError, match="leave out --set start"):
        combinations(axes(["start.seed=1,2"]), base, repetitions=2)


def test_a_grid_may_be_too_large() -> None:
    many = Axis("start.seed", tuple(range(1001)))
    with pytest.raises(UsageError, match="1,002,001 combinations"):
        combinations([many, Axis("data.seed", many.values)], config.Config(), 3)


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["points.toml", "--set", "model.hidden=[3],[0]"], "1 of 2 runs are refused, none was started:\n  hidden=0: "),
        (["points.toml", "--set", "model.hiden=3,4"], "did you mean model.hidden?"),
        (["points.toml", "--set", "model.activation=relu,softsign"], "activation=softsign: "),
        (["points.toml", "--set", "data.source=points.npz,gone.npz"], "gone.npz does not exist"),
        (["points.toml", "--set", "model.loss=squared,cross_entropy"], "loss=cross_entropy: "),
        (["points.toml", "--set", "z_step.solver=auto,binary"], "solver=binary: "),
        (["points.toml", "--set", "start.method=model", "--set", "start.model=a.h5,b.h5"], "a.h5"),
        (["gone.toml"], "cannot read the config gone.toml"),
        (["digits_mca"], "did you mean digits_mac"),
        (["points.toml", "--output", "points.npz"], "points.npz is no folder"),
        (["points.toml", "--seeds", "0"], "a whole number from 1 on"),
        (["points.toml", "--jobs", "many"], "a whole number from 1 on"),
    ],
)
def test_nothing_is_created_where_a_run_is_refused(
    words: list[str], says: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(folder.rglob("*"))
    assert main(monkeypatch, *words) == 2
    done = capsys.readouterr()
    assert says in done.err
    assert sorted(folder.rglob("*")) == before


def test_it_is_not_for_mpiexec(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.setenv("PMI_RANK", "0")
    assert main(monkeypatch, "points.toml") == 2
    assert "start macmpi sweep without mpiexec" in capsys.readouterr().err


def test_ranks_need_an_mpiexec(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(processes, "mpiexec", lambda: None)
    assert main(monkeypatch, "points.toml", "--ranks", "2") == 2
    assert "there is no mpiexec" in capsys.readouterr().err
    assert not (folder / "sweeps").exists()


def test_check_lists_the_runs_and_writes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(monkeypatch, "points", "--set", "model.hidden=[3],[4]", "--seeds", "2", "--check") == 0
    out = capsys.readouterr().out
    assert out.startswith("macmpi sweep: 4 runs of points.toml, ")
    assert out.count(": new\n") == 4
    assert not (folder / "sweeps").exists()


def test_the_cores_there_are_decide_how_many_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(9)))
    assert [processes.places(ranks, threads) for ranks, threads in ((1, 1), (2, 1), (2, 2), (12, 1))] == [9, 4, 2, 1]


# --- a sweep ----------------------------------------------------------------------------------------------------------


@pytest.mark.launch
def test_a_sweep_its_table_and_how_it_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["points.toml", "--set", "model.hidden=[3],[2,2]", *BRIEF]
    busy = folder / "sweeps" / "points" / "hidden=2-2,max_iterations=2,refit=false"
    busy.mkdir(parents=True)
    with Lock(busy / "lock") as lock:
        lock.claim()
        assert main(monkeypatch, *words) == 70
    done = capsys.readouterr()
    assert f"{busy.name}: exit code 2: sweeps/points/{busy.name} is in use by the run of host" in done.out
    assert "1 of 2 runs have failed" in done.err
    (csv_path,) = folder.rglob("sweep.csv")
    assert [row["state"] for row in table_of(csv_path)] == ["finished", "failed"]

    assert main(monkeypatch, *words) == 2
    assert "holds 1 of these runs already: --resume auto" in capsys.readouterr().err

    alone = {path: path.stat().st_mtime_ns for path in csv_path.parent.glob("hidden=3*/*")}
    words[2] = "model.hidden=[3],[2,2],[4]"
    assert main(monkeypatch, *words, "--resume", "auto", "--jobs", "2") == 0
    out = capsys.readouterr().out
    assert "3 runs of points.toml, 1 of them finished already, 2 at once" in out
    assert {path: path.stat().st_mtime_ns for path in csv_path.parent.glob("hidden=3*/*")} == alone
    rows = table_of(csv_path)
    assert [(row["model.hidden"], row["state"]) for row in rows] == [
        (toml(hidden), "finished") for hidden in ([3], [2, 2], [4])
    ]
    for row in rows:
        records, _ = read_curve(csv_path.parent / row["run"] / "curve.jsonl")
        assert float(row["E1_val"]) == min(record["E1_val"] for record in records)
        assert config.read(csv_path.parent / row["run"] / "config.toml", []).model.hidden == json.loads(
            row["model.hidden"]
        )
    best = min(rows, key=lambda row: float(row["E1_val"]))
    assert f"best: sweeps/points/{best['run']}/model.h5" in out
    page = (csv_path.parent / "sweep.html").read_text()
    assert page.count("<img") == 1
    assert "<script" not in page

    (line,) = re.findall(r"^the command: (.*)$", out, re.MULTILINE)
    command = shlex.split(line)
    assert command[:2] == ["macmpi", "run"]
    run_here(*command[2:], "--output", "again", cwd=folder, code=0)
    again, _ = read_curve(folder / "again" / "curve.jsonl")
    assert min(record["E1_val"] for record in again) == float(best["E1_val"]), "the command trains that one"

    (folder / "points.toml").write_text('data = "points.npz"\nstart.seed = 5\n')
    assert main(monkeypatch, *words, "--resume", "auto") == 2
    err = capsys.readouterr().err
    assert "3 of 3 runs are refused" in err
    assert "holds a run of another config: start.seed (was 0, is 5)" in err


@pytest.mark.launch
def test_a_stopped_sweep_leaves_checkpoints_and_goes_on(folder: Path) -> None:
    """The signal comes while both are in their iterations."""
    words = ["points.toml", "--set", "model.hidden=[3],[2,2],[4]", "--jobs", "2", "--set", "run.refit=false"]
    words += ["--set", "run.max_iterations=1000000", "--set", "stochastic.patience=1000000"]
    output = folder / "sweeps" / "points"
    with launched(words, 0, folder, ("-m", "macmpi.sweep")) as running:
        running.until(lambda: len(list(output.glob("*/curve.jsonl"))) == 2, "curves")
        running.until(lambda: all(path.read_text().count("\n") > 3 for path in output.glob("*/curve.jsonl")), "lines")
        running.process.send_signal(signal.SIGINT)
        outcome = running.outcome()
    assert outcome.code == 75
    assert outcome.left == []
    assert outcome.out.count(": stopped, ") == 2
    assert outcome.err == "macmpi: stopped; the same command with --resume auto goes on\n"
    assert len(list(output.glob("*/checkpoints/*"))) >= 2
    assert len(list(output.glob("hidden=*"))) == 2, "the third one was not started"
    with launched([*words, "--check"], 0, folder, ("-m", "macmpi.sweep")) as running:
        listed = running.outcome().out
    assert (listed.count(": stopped\n"), listed.count(": new\n")) == (2, 1)


@pytest.mark.launch
def test_ranks_of_each_run(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    if processes.mpiexec() is None:
        pytest.skip("no mpiexec")
    assert main(monkeypatch, "points.toml", *BRIEF, "--ranks", "2", "--jobs", "1") == 0
    assert "mpiexec -n 2 macmpi run points.toml" in capsys.readouterr().out
    (path,) = folder.rglob("curve.jsonl")
    records, _ = read_curve(path)
    assert {record["ranks"] for record in records} == {2}


# --- means, the best, the picture -------------------------------------------------------------------------------------

ERRORS = {1: (1.0, 3.0), 2: (1.5, 1.5), 3: (0.1, None)}
"""Validation errors of two seeds, by the value of a key; one run has failed."""


def results() -> list[Scored]:
    found = []
    for value, errors in ERRORS.items():
        for i, error in enumerate(errors):
            one = Combination(
                {"stochastic.batch": value, "model.activation": "relu"}, i, {"start.seed": i}, f"{value}-{i}"
            )
            run = Run(one, Path(one.name), config.Config(), "new")
            numbers = {} if error is None else {"E1_val": error, "E1_train": 0.0, "iterations": 1.0, "seconds": 1.0}
            found.append(Scored(run, "finished" if numbers else "failed", numbers))
    return found


def test_the_best_has_the_lowest_mean_over_all_of_its_seeds() -> None:
    found = groups(results())
    assert [group.settings["stochastic.batch"] for group in found] == [3, 2, 1]
    by_value = {group.settings["stochastic.batch"]: group for group in found}
    assert by_value[1].mean("E1_val") == fmean((1.0, 3.0))
    assert by_value[1].deviation("E1_val") == stdev((1.0, 3.0))
    assert math.isnan(by_value[3].deviation("E1_val"))
    best = best_of(found)
    assert best is not None
    assert best.settings["stochastic.batch"] == 2, "of 3 one seed is missing"
    assert best_of([by_value[3]]) is None


def test_the_picture_has_a_panel_for_each_key_of_several_values() -> None:
    found = groups(results())
    both = [Axis("stochastic.batch", (1, 2, 3)), Axis("model.activation", ("relu",))]
    figure = drawn(found, both, best_of(found))
    (ax,) = [ax for ax in figure.axes if ax.axison]
    assert ax.get_xlabel() == "stochastic.batch"
    points, lowest, best = ax.lines
    assert_array_equal(np.sort(points.get_ydata()), [0.1, 1.5, 2.0])
    assert_array_equal(lowest.get_xydata(), [[1.0, 2.0], [2.0, 1.5], [3.0, 0.1]])
    assert_array_equal(best.get_xydata(), [[2.0, 1.5]])
    figure.draw_without_rendering()
