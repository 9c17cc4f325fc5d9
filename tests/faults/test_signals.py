"""Signals in any order, whole jobs that are suspended, launchers and fits that are killed."""

from __future__ import annotations

import os
import random
import signal
import time
from itertools import product
from pathlib import Path

import pytest
from faults.conftest import Tally
from faults.struck import DEADLINES, STOPPED, assert_nothing_left
from launch.cases import assert_same_run, checkpoints, curve, write_case
from launch.here import run_here
from launch.launching import LAUNCHER, Running, launched, run_program
from launch.test_fit import kill_a_fit
from launch.test_signals import AT_THE_END, words

from macmpi.training.process import STOP_SIGNALS

pytestmark = pytest.mark.launch

SEED, TRIED = 7, 12
TRIPLES = random.Random(SEED).sample(list(product(STOP_SIGNALS, repeat=3)), TRIED)
LONG = ("long.toml", "--output", "run", "--iterations", 100_000)


def under_way(running: Running, folder: Path) -> None:
    path = folder / "run" / "curve.jsonl"
    running.until(lambda: path.exists() and path.read_bytes().count(b"\n") > 3, "three iterations")


def assert_goes_on_undisturbed(folder: Path) -> None:
    """To two iterations beyond the stop, and compared with a run of that length."""
    length = int(checkpoints(folder / "run")[0].stem.split("-")[1]) + 2
    run_here("long.toml", "--output", "run", "--iterations", length, "--resume", "auto", cwd=folder, code=0)
    run_here("long.toml", "--output", "straight", "--iterations", length, cwd=folder, code=0)
    assert_same_run(folder / "run", folder / "straight", every_checkpoint=False)


@pytest.mark.parametrize("gap", [0.0, 0.02])
@pytest.mark.parametrize("signals", TRIPLES, ids=lambda three: "-".join(one.name[3:] for one in three))
def test_signals_in_any_order(signals: tuple[signal.Signals, ...], gap: float, tmp_path: Path, tally: Tally) -> None:
    """To each rank, as a batch system sends them: a checkpoint, and 75."""
    tally.row("three stop signals in any order")
    write_case(tmp_path, "long")
    with launched(LONG, 2, tmp_path) as running:
        under_way(running, tmp_path)
        ranks = running.ranks()
        assert len(ranks) == 2
        for number in signals:
            for pid in ranks:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    continue
            time.sleep(gap)
        outcome = running.outcome()
    assert outcome.code == STOPPED, outcome.err
    assert_nothing_left(outcome)
    assert_goes_on_undisturbed(tmp_path)


def test_signals_to_all_ranks_of_a_run_that_is_complete(tmp_path: Path, tally: Tally) -> None:
    tally.row("signals to a run that is complete")
    line, program = words(tmp_path, AT_THE_END)
    run_program(*line, ranks=2, cwd=tmp_path, program=program, code=0)


@pytest.mark.parametrize("number", sorted({*STOP_SIGNALS} - {signal.SIGINT}), ids=lambda number: number.name)
def test_a_signal_that_does_not_cease(number: signal.Signals, tmp_path: Path, tally: Tally) -> None:
    """Until no rank is left; the second of two SIGINT a second apart ends a run without a checkpoint."""
    tally.row("a stop signal that does not cease")
    write_case(tmp_path, "long")
    with launched(LONG, 2, tmp_path) as running:
        under_way(running, tmp_path)
        ranks = set(running.ranks())
        while ranks:
            time.sleep(0.0002)
            for pid in tuple(ranks):
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    ranks.remove(pid)
        outcome = running.outcome()
    assert outcome.code == STOPPED, outcome.err
    assert_nothing_left(outcome)
    assert_goes_on_undisturbed(tmp_path)


@pytest.mark.parametrize("times", [1, 2])
def test_all_ranks_are_suspended_for_longer_than_the_deadline(times: int, tmp_path: Path, tally: Tally) -> None:
    """One after the other, and continued in the same order: the first one to go on waits for the others."""
    tally.row("all ranks suspended")
    write_case(tmp_path, "long")
    for deadline in DEADLINES:
        with launched((*LONG, "--set", f"run.deadline={deadline}"), 2, tmp_path) as running:
            try:
                under_way(running, tmp_path)
            except pytest.fail.Exception:  # too short a deadline for a machine this busy
                continue
            ranks = running.ranks()
            for _ in range(times):
                for pid in reversed(ranks):
                    os.kill(pid, signal.SIGSTOP)
                    time.sleep(0.05)
                time.sleep(2.0 * deadline + 1.0)
                for pid in ranks:
                    os.kill(pid, signal.SIGCONT)
                    time.sleep(0.05)
                done = len(curve(tmp_path / "run"))
                running.until(lambda done=done: len(curve(tmp_path / "run")) > done + 2, "iteration after it")  # type: ignore[misc]
            running.process.send_signal(signal.SIGUSR1)
            outcome = running.outcome()
        assert outcome.code == STOPPED
        assert "no answer" not in outcome.err
        assert_nothing_left(outcome)
        assert_goes_on_undisturbed(tmp_path)
        return
    raise AssertionError("the run never got under way")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
@pytest.mark.parametrize(("lines", "wait"), [(1, 0.0), (1, 0.3), (1, 0.6), (2, 0.0)])
def test_a_fit_that_is_killed_leaves_nothing(
    number: signal.Signals, lines: int, wait: float, tmp_path: Path, tally: Tally
) -> None:
    """At once, while its ranks start, and while they train."""
    tally.row("the process of fit(ranks=2) killed")
    kill_a_fit(tmp_path, number, lines, wait)


def test_ranks_end_where_their_launcher_is_killed(tmp_path: Path, tally: Tally) -> None:
    """Of MPICH its proxy, on whose pipe the ranks write: an exit code that says so, and the newest checkpoint."""
    tally.row("kill -9 of the launcher's proxy")
    write_case(tmp_path, "long")
    with launched(LONG, 2, tmp_path) as running:
        under_way(running, tmp_path)
        told = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2] for pid in running.ranks()]
        parents = {int(text.split()[1]) for text in told}
        for pid in parents:
            os.kill(pid, signal.SIGKILL)
        outcome = running.outcome()
    assert outcome.code not in (0, 2, 70, 74, STOPPED)
    assert outcome.left == []
    assert outcome.shared == [] or LAUNCHER.removes
    assert_goes_on_undisturbed(tmp_path)
