"""Runs that a fault strikes, and what must be true of them afterwards."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from launch.cases import assert_same_run, checkpoints, write_case
from launch.launching import Outcome, launched
from striking import FILES, PLACES, VARIABLE, VERBS

from macmpi import Done, run
from macmpi.parallel.team import Team
from macmpi.training import checkpoint

CASE = "hasty"
ITERATIONS = 5
OFTEN = ("--set", "run.checkpoint_minutes=1e-9")
"""A checkpoint every iteration."""

STOPPED = 75
STARTUP, HUNG = 20.0, 10.0
"""Seconds that a launch may need to come to the fault; how many times what is promised a case may take."""

DEADLINES = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds, of a rank that waits: the first one that lasts until the fault."""

BEFORE = dict.fromkeys(("read", "plan", "data", "start", "share_memory", "array", "share_array"), 0)
"""Phases that come before the first iteration alone."""

PHASES = (*PLACES, *VERBS)

OF_SHARDED = frozenset({"all_or_raise", "shift_to_next"})
"""Verbs that only runs of sharded points come to."""


def iteration_of(phase: str) -> int:
    return BEFORE.get(phase, 3)


OF_MORE = frozenset({"gather_columns"})
"""Verbs that two ranks never come to: they exchange both sums in whole."""


def places(ranks: int) -> list[tuple[str, int]]:
    """Every phase, on rank 0 (2 ranks) and on the last one, where the phase is not rank 0's alone."""
    phases = [phase for phase in PHASES if ranks > 2 or phase not in OF_MORE]
    first = [(phase, 0) for phase in phases if ranks == 2 or phase in FILES]
    return first + [(phase, ranks - 1) for phase in phases if phase not in FILES]


WALK = [(ranks, phase, rank) for ranks in (2, 3) for phase, rank in places(ranks)]


@dataclass(frozen=True)
class Struck:
    """How it ended, and the seconds from the fault to the end of the launcher."""

    outcome: Outcome
    seconds: float


def strike(folder: Path, fault: str, ranks: int, limit: float, *arguments: object) -> Struck:
    """Launch a run with a fault.  limit: seconds after which it counts as hung."""
    outcome, seconds = _launch(folder, fault, ranks, limit, *arguments)
    assert seconds is not None, (
        f"the fault {fault} never struck; exit code {outcome.code}\n{outcome.out}\n{outcome.err}"
    )
    return Struck(outcome, seconds)


def stop_rank(folder: Path, fault: str, ranks: int, *arguments: object) -> tuple[Struck, float]:
    """A fault of the kind "stop", and the deadline of the ranks that wait: 1 s where the machine is free.

    On a busy one a rank may be late by more before the fault: the run ends, is thrown away, and gets twice as long.
    """
    for deadline in DEADLINES:
        own = ("--set", f"run.deadline={deadline}")
        outcome, seconds = _launch(folder, fault, ranks, STARTUP + HUNG * (deadline + 5.0), *own, *arguments)
        assert outcome.code == STOPPED, outcome.err
        assert "no answer from the other ranks for " in outcome.err
        assert " while waiting for " in outcome.err
        if seconds is not None:
            assert seconds < HUNG * (deadline + 5.0)
            return Struck(outcome, seconds), deadline
        shutil.rmtree(folder / "run", ignore_errors=True)
    raise AssertionError(f"the fault {fault} never struck; exit code {outcome.code}\n{outcome.out}\n{outcome.err}")


def _launch(folder: Path, fault: str, ranks: int, limit: float, *arguments: object) -> tuple[Outcome, float | None]:
    """How it ended, and the seconds from the fault to the end; None where it never struck."""
    write_case(folder, CASE)
    words = (f"{CASE}.toml", "--output", "run", "--iterations", ITERATIONS, *OFTEN, *arguments)
    with launched(words, ranks, folder, env={VARIABLE: fault}) as running:
        running.process.wait(limit)
        ended = time.time()
        outcome = running.outcome()
    moments = re.findall(r"^fault: .*, ([\d.]+)$", outcome.err, re.MULTILINE)
    return outcome, ended - float(moments[0]) if moments else None


@contextlib.contextmanager
def here(folder: Path) -> Iterator[None]:
    """In a folder, without the console."""
    back = Path.cwd()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        os.chdir(back)


def go_on(folder: Path, *arguments: str, name: str = "run") -> None:
    """The same command again, in this process."""
    words = [f"{CASE}.toml", "--output", name, "--iterations", str(ITERATIONS), *OFTEN, "--resume", "auto"]
    with here(folder), contextlib.suppress(Done):
        assert run.run(Team(), [*words, *arguments]) == 0


def assert_nothing_left(outcome: Outcome) -> None:
    assert outcome.left == [], "processes outlived the run"
    assert outcome.shared == [], "shared memory outlived the run"


def assert_no_work_lost(folder: Path, straight: Path, *arguments: str) -> None:
    """The newest checkpoint verifies, and the same command gives the bits of the run that was never struck."""
    saved = checkpoints(folder / "run")
    if saved:
        checkpoint.read(saved[0])
    go_on(folder, *arguments)
    assert_same_run(folder / "run", straight)
    assert not list((folder / "run").rglob("*.tmp"))
