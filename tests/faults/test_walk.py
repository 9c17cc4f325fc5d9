"""Every kind of fault in every phase and every verb of the team, on 2 and 3 ranks."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from faults.conftest import Tally
from faults.struck import (
    CASE,
    HUNG,
    STARTUP,
    STOPPED,
    WALK,
    assert_no_work_lost,
    assert_nothing_left,
    checkpoints,
    go_on,
    iteration_of,
    stop_rank,
    strike,
)
from launch.cases import curve, write_case

pytestmark = pytest.mark.launch

INTERNAL = 70
KILLED, FAILED = 5.0, 2.0
"""Seconds promised after a kill and after an exception; HUNG times as many fail, and the table shows them."""

SHARDED = ("--set", 'parallel.data="sharded"')
NODE = ("--set", 'parallel.data="node"')
KEYS = {
    "all_or_raise": SHARDED,
    "shift_to_next": (*SHARDED, "--set", 'w_step.schedule="ring"'),
    "gather_columns": ("--set", "model.hidden=[64]"),
    **dict.fromkeys(("share_memory", "array", "fence"), NODE),
}

EARLY, AFTER = ("read", "plan", "data", "share_memory", "array", "share_array"), ("postprocess", "model")
"""Before training has begun there is nothing to save; after its last iteration all is."""


def limit(promise: float) -> float:
    return STARTUP + HUNG * promise


Straight = Callable[..., Path]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Straight:
    """The run that nothing strikes, with some settings, which checkpoints hold."""

    @cache
    def found(*settings: str) -> Path:
        folder = tmp_path_factory.mktemp("straight")
        write_case(folder, CASE)
        go_on(folder, *settings)
        return folder / "run"

    return found


def keys_of(phase: str) -> tuple[str, ...]:
    """Settings of a run that comes to the phase."""
    return KEYS.get(phase, ())


every_place = pytest.mark.parametrize(("ranks", "phase", "rank"), WALK)


@every_place
def test_kill(ranks: int, phase: str, rank: int, tmp_path: Path, straight: Straight, tally: Tally) -> None:
    tally.row("kill -9")
    struck = strike(tmp_path, f"{rank}:{phase}:{iteration_of(phase)}:kill", ranks, limit(KILLED), *keys_of(phase))
    tally.seconds(struck.seconds)
    assert struck.outcome.code not in (0, STOPPED)
    assert struck.seconds < HUNG * KILLED
    assert_nothing_left(struck.outcome)
    assert_no_work_lost(tmp_path, straight(*keys_of(phase)), *keys_of(phase))


@every_place
@pytest.mark.parametrize("kind", ["exception", "memory", "exit"])
def test_raise(kind: str, ranks: int, phase: str, rank: int, tmp_path: Path, straight: Straight, tally: Tally) -> None:
    tally.row("exception, MemoryError, sys.exit")
    struck = strike(tmp_path, f"{rank}:{phase}:{iteration_of(phase)}:{kind}", ranks, limit(FAILED), *keys_of(phase))
    tally.seconds(struck.seconds)
    error = {"exception": "ValueError", "memory": "MemoryError", "exit": "SystemExit"}[kind]
    assert struck.outcome.code == INTERNAL
    assert struck.outcome.err.count(f"macmpi: rank {rank}/{ranks} failed") == 1
    assert struck.outcome.err.count("macmpi: ") == 1
    assert error in struck.outcome.err
    assert struck.seconds < HUNG * FAILED
    assert_nothing_left(struck.outcome)
    assert_no_work_lost(tmp_path, straight(*keys_of(phase)), *keys_of(phase))


@pytest.mark.parametrize(("ranks", "phase", "rank"), [place for place in WALK if place[1] != "read"])
def test_stop(ranks: int, phase: str, rank: int, tmp_path: Path, straight: Straight, tally: Tally) -> None:
    """Before the config is read nobody knows the deadline: a rank then waits `team.PATIENCE` seconds."""
    tally.row("SIGSTOP (deadline 1 s)")
    struck, deadline = stop_rank(tmp_path, f"{rank}:{phase}:{iteration_of(phase)}:stop", ranks, *keys_of(phase))
    tally.row(f"SIGSTOP (deadline {deadline:g} s)")
    tally.seconds(struck.seconds)
    assert_nothing_left(struck.outcome)
    keys = ("--set", f"run.deadline={deadline}", *keys_of(phase))
    assert_no_work_lost(tmp_path, straight(*keys), *keys)


@every_place
@pytest.mark.parametrize("kind", ["usr1", "term", "int"])
def test_signal(kind: str, ranks: int, phase: str, rank: int, tmp_path: Path, straight: Straight, tally: Tally) -> None:
    """One rank alone gets it.  After the last iteration the run is complete but for its last file, and ends."""
    tally.row("SIGUSR1, SIGTERM, SIGINT")
    struck = strike(tmp_path, f"{rank}:{phase}:{iteration_of(phase)}:{kind}", ranks, limit(FAILED), *keys_of(phase))
    tally.seconds(struck.seconds)
    assert struck.outcome.code == (0 if phase in AFTER else STOPPED), struck.outcome.err
    assert struck.seconds < HUNG * FAILED
    if phase not in (*AFTER, *EARLY):
        last = curve(tmp_path / "run")[-1]["iteration"]
        assert checkpoints(tmp_path / "run")[0].name == f"iteration-{last:06d}.h5"
    assert_nothing_left(struck.outcome)
    assert_no_work_lost(tmp_path, straight(*keys_of(phase)), *keys_of(phase))
