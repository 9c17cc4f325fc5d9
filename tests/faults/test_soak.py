"""Two hundred starts and stops, each by another number of ranks and ended in another way: the bits of one run."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from faults.conftest import Tally
from faults.struck import OF_MORE, OF_SHARDED, PHASES, assert_nothing_left, here
from faults.test_checkpoints import LONG, iterations
from launch.cases import assert_same_run, checkpoints, write_case
from launch.launching import launched
from striking import ARRAYS, FILES, KINDS, VARIABLE

from macmpi import run
from macmpi.parallel.team import Team
from macmpi.training import checkpoint

pytestmark = pytest.mark.launch

CYCLES = 200
HUNG = 60.0
DONE, STOPPED = 0, 75
DEADLINE = ("--set", "run.deadline=1.0")
COMING = [phase for phase in PHASES if phase not in OF_SHARDED | OF_MORE]
"""Phases that the runs here come to: one that is never struck goes on to its end."""


def reached(folder: Path) -> int:
    saved = checkpoints(folder / "run")
    return int(saved[0].stem.split("-")[1]) if saved else 0


@pytest.mark.timeout(3600)
def test_soak(tmp_path: Path, tally: Tally) -> None:
    """A launch is ended by a fault of any kind in any phase, within its first three iterations, or by its time."""
    tally.row(f"soak: {CYCLES} cycles")
    random = np.random.default_rng(7)
    write_case(tmp_path, "long")
    began, ends = time.monotonic(), dict.fromkeys((*KINDS, "time"), 0)
    for cycle in range(CYCLES):
        ranks, before = int(random.choice([1, 2, 3, 5])), reached(tmp_path)
        kind, phase = str(random.choice([*KINDS, "time"])), str(random.choice(COMING))
        if kind == "nan":
            phase = str(random.choice([verb for verb in ARRAYS if verb in COMING]))
        rank = 0 if phase in FILES else int(random.integers(ranks))
        words: tuple[object, ...] = (*LONG, "--resume", "auto", *DEADLINE)
        env = {VARIABLE: f"{rank}:{phase}:{before + int(random.integers(1, 4))}:{kind}"}
        words += ("--max-time", 0.001 if kind == "time" else 3.0)
        with launched(words, ranks, tmp_path, env={} if kind == "time" else env) as running:
            running.process.wait(HUNG)
            outcome = running.outcome()
        told = f"cycle {cycle}: {kind} in {phase} of rank {rank} of {ranks}\n{outcome.err}"
        assert outcome.code != DONE, told
        assert kind != "time" or outcome.code == STOPPED, told
        assert_nothing_left(outcome)
        assert reached(tmp_path) >= before, told
        for path in checkpoints(tmp_path / "run")[:1]:
            checkpoint.read(path)
        ends[kind] += 1
    length = reached(tmp_path) + 2
    with here(tmp_path):
        for name, resume in (("run", "auto"), ("straight", "no")):
            words_ = ["long.toml", "--output", name, "--iterations", str(length), *DEADLINE, "--resume", resume]
            assert run.run(Team(), words_) == DONE
    assert_same_run(tmp_path / "run", tmp_path / "straight")
    assert iterations(tmp_path) == length + 1
    assert min(ends.values()) > 0
    tally.seconds((time.monotonic() - began) / CYCLES)
    assert length > CYCLES / 4, "the run has got somewhere"
