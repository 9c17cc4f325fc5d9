"""The learning curve: one record an iteration on the disk, one line on the console, and neither ends a run."""

from __future__ import annotations

import io
import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from launch.here import run_here
from sampled import examples

from macmpi import report
from macmpi.console import duration
from macmpi.half_steps.method import MethodText
from macmpi.parallel.clock import PHASES, Clock
from macmpi.results.reading import Result
from macmpi.results.scores import Level
from macmpi.state import Errors, MacState, State
from macmpi.training.end import Best
from macmpi.training.record import COLUMNS, Curve, closing, record_of, say

often = examples(100)


def record(iteration: int, phase: str = "iteration", **changes: Any) -> dict[str, Any]:
    values = {"mu": 10.0, "E1_train": 3.5, "E1_val": 3.75, "E_Q": 2.0, "constraint": 1e-3, "seconds": 1.5 * iteration}
    seconds = {f"seconds_{p}": 0.25 for p in PHASES}
    return {"iteration": iteration, "phase": phase, **values, **seconds, "ranks": 2, **changes}


def filled(path: Path, last: int, finished: bool = False) -> list[dict[str, Any]]:
    """A curve of a run of `last` iterations."""
    records = [record(0, "start"), *(record(i) for i in range(1, last + 1))]
    if finished:
        records.append(record(last, "postprocess"))
    curve = Curve(path)
    for r in records:
        curve.add(r, None)
    curve.close()
    return records


def on_disk(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_end_is_recorded_at_the_mu_of_the_last_iteration(table: Path) -> None:
    """Where mu grows behind every iteration, the last one included."""
    keys = ("--set", "method.name=mac", "--set", "penalty.mu_every=1", "--iterations", 3)
    run_here("points.toml", *keys, "--output", "run", cwd=table, code=0)
    start, *iterations, end = on_disk(table / "run" / "curve.jsonl")
    assert (start["phase"], end["phase"]) == ("start", "postprocess")
    assert iterations[0]["mu"] < iterations[1]["mu"] < iterations[2]["mu"] == end["mu"]


# --- curve.jsonl ------------------------------------------------------------------------------------------------------


def test_records_are_on_the_disk_as_soon_as_they_are_added(tmp_path: Path) -> None:
    path, records = tmp_path / "curve.jsonl", [record(0, "start"), record(1, E1_val=0.1 + 0.2)]
    curve = Curve(path)
    for count, r in enumerate(records, start=1):
        curve.add(r, None)
        assert on_disk(path) == records[:count]
    assert curve.records == records
    curve.close()


@pytest.mark.parametrize("resume_at", [0, 1, 3, 5])
@pytest.mark.parametrize("finished", [False, True])
def test_resuming_drops_what_came_later(finished: bool, resume_at: int, tmp_path: Path) -> None:
    path = tmp_path / "curve.jsonl"
    records = filled(path, 5, finished)
    curve = Curve(path, resume_at)
    expected = records[: resume_at + 1]
    assert curve.records == on_disk(path) == expected
    curve.add(record(resume_at + 1), None)
    curve.close()
    assert on_disk(path) == [*expected, record(resume_at + 1)]


def test_a_torn_last_line_is_dropped(tmp_path: Path) -> None:
    """The run was killed while it wrote."""
    path = tmp_path / "curve.jsonl"
    records = filled(path, 3)
    whole = path.read_text()
    for lost in (1, 2, 30):
        path.write_text(whole[:-lost])
        curve = Curve(path, 3)
        curve.close()
        kept = records if lost == 1 else records[:-1]
        assert on_disk(path) == curve.records == kept
        assert path.read_text().endswith("}\n")


@pytest.mark.parametrize("torn", ['{"iteration": 3, "centres": {}', '{"a": 1}', "[3]", "\0" * 40, '{"iteration": 3}'])
def test_what_a_crash_has_left_in_the_middle_is_dropped(torn: str, tmp_path: Path) -> None:
    path = tmp_path / "curve.jsonl"
    records = filled(path, 4)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], torn, *lines[2:]]) + "\n")
    Curve(path, 4).close()
    assert on_disk(path) == records


# --- what a record says -----------------------------------------------------------------------------------------------

PLAIN = Errors(train=3.5, validation=3.75, E_Q=2.0, constraint=0.125)
FURTHER = {
    "error_train": "wrong_train",
    "error_val": "wrong_validation",
    "zeros": "zeros",
    "lagrangian": "lagrangian",
    "multiplier": "multiplier",
}
"""Keys that only some records have, and the errors that they are."""


def state(**changes: Any) -> State:
    return State(
        np.zeros(3), np.zeros((2, 2)), own=MacState(), **{"mu": 10.0, "iteration": 7, "seconds": 1.5, **changes}
    )


def test_a_record_names_iteration_phase_and_errors() -> None:
    assert record_of(state(), "start", PLAIN) == {
        **{"iteration": 7, "phase": "start", "mu": 10.0, "E1_train": 3.5, "E1_val": 3.75},
        **{"E_Q": 2.0, "constraint": 0.125, "seconds": 1.5},
    }


@pytest.mark.parametrize("values", [(0.0, 0.0, 0.0, 0.0, 0.0), (0.5, 0.25, 3.0, 0.125, 4.0)])
@pytest.mark.parametrize("there", [(), *((name,) for name in FURTHER), tuple(FURTHER)], ids=str)
def test_a_record_has_the_further_errors_that_there_are_also_where_they_are_0(
    there: tuple[str, ...], values: tuple[float, ...]
) -> None:
    given = {name: value for name, value in zip(FURTHER, values, strict=True) if name in there}
    plain = record_of(state(), "iteration", PLAIN)
    found = record_of(state(), "iteration", PLAIN._replace(**{FURTHER[name]: v for name, v in given.items()}))
    assert found == plain | given


def test_a_record_with_its_times_fills_the_columns_and_survives_the_file(tmp_path: Path) -> None:
    errors = PLAIN._replace(wrong_train=0.5, wrong_validation=0.25, zeros=0.5)
    record = {**record_of(state(), "iteration", errors), **Clock().take()}
    assert {key for key, _, _ in COLUMNS} <= record.keys()
    curve = Curve(tmp_path / "curve.jsonl", columns=COLUMNS)
    curve.add(record, None)
    curve.close()
    assert on_disk(tmp_path / "curve.jsonl") == [record]


# --- console ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [999_999.0, 1e6, 1.23456e150, math.inf, math.nan])
def test_a_run_that_diverges_keeps_its_table_readable(
    error: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    curve = Curve(tmp_path / "curve.jsonl", columns=COLUMNS[:4])
    curve.add(record(1, E1_train=error, E1_val=error), None)
    curve.close()
    cell = capsys.readouterr().out.split()[2]
    assert len(cell) <= len("999999.0000")
    np.testing.assert_allclose(float(cell), error, rtol=1e-3)
    errors = Errors(error, error, 1.0, 1.0)
    last = State(np.zeros(1), np.zeros((1, 1)), 1.0, MacState())
    for line in (
        *closing(last, errors, MethodText(""), Best(np.zeros(0), 1, errors, last=True)),
        str(Level("predict the mean", error)),
    ):
        assert len(line) <= 80
    result = Result(tmp_path, "run", [record(1, E1_train=error, E1_val=error)])
    assert report.row(result)[-4:] == [cell, cell, "", "no"]


class Broken(io.StringIO):
    """The reader of a pipe has gone (`| head`)."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


class BrokenAtFlush(io.StringIO):
    def flush(self) -> None:
        raise BrokenPipeError(32, "Broken pipe")


class TerminalGone(io.StringIO):
    """The window was closed, or the disk that the output goes to is full: an OSError, but not a broken pipe."""

    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("stream", [Broken, BrokenAtFlush, TerminalGone, closed, lambda: None])
def test_a_console_that_is_gone_does_not_end_a_run(
    stream: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as gone:
        gone.setattr(sys, "stdout", stream())
        say("a line")
        filled(tmp_path / "curve.jsonl", 2)
    assert len(on_disk(tmp_path / "curve.jsonl")) == 3


# --- time -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((0.0, "0:00"), (0.4, "0:00"), (7.2, "0:07"), (59.4, "0:59"), (59.6, "1:00"), (750.0, "12:30")),
        *((3599.6, "1:00:00"), (11100.0, "3:05:00"), (360000.0, "100:00:00")),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_clock_counts_each_phase_without_those_inside_it_and_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter((0.0, 1.0, 3.0, 7.0, 10.0, 15.0))
    monkeypatch.setattr("macmpi.parallel.clock.time", SimpleNamespace(perf_counter=lambda: next(readings)))
    clock = Clock()
    with clock("z"), pytest.raises(KeyError), clock("w"):
        raise KeyError("phases end even so")
    with clock("z"):
        pass
    first, second = clock.take(), clock.take()
    assert first == {"seconds_z": 5.0 + 5.0, "seconds_w": 2.0, "seconds_comm": 0.0, "seconds_wait": 0.0}
    assert set(second.values()) == {0.0}
