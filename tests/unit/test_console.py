"""What is printed may be lost; how the program goes on and ends may not depend on it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from macmpi import NumericalError, console
from macmpi.parallel import mpi
from macmpi.parallel.team import Team

FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")


@contextmanager
def lost(how: str) -> Iterator[None]:
    """Standard output and standard error take nothing.  No fixture: pytest puts its own back before each test."""
    stream = None if how == "none" else FULL.open("w", buffering=1)
    if stream is not None and how == "closed":
        stream.close()
    kept = sys.stdout, sys.stderr
    sys.stdout = sys.stderr = stream  # type: ignore[assignment]
    try:
        yield
    finally:
        console._drop_unwritten()  # else it fails once more as it is closed
        sys.stdout, sys.stderr = kept
        if stream is not None:
            stream.close()


ways = pytest.mark.parametrize("how", [*(pytest.param(h, marks=needs_full) for h in ("full", "closed")), "none"])


@ways
def test_lines_that_nobody_takes_are_left_out(how: str) -> None:
    with lost(how):
        console.say("a line")
        console.warn("a warning")
        console.flush()


class Alone(Team):
    """Notes how it was ended, which a team does not survive."""

    code = -1

    def abort(self, code: int) -> Any:
        self.code = code


@ways
@pytest.mark.parametrize("error", [ValueError("x"), NumericalError("x")])
def test_a_rank_that_fails_ends_the_others_whoever_reads_its_message(error: Exception, how: str) -> None:
    alone = Alone()
    with lost(how):
        mpi.die(alone, error)
    assert alone.code == 70


def ended(*words: str, cwd: Path | None = None) -> int:
    """The exit code of Python with its usual buffers, whose output nobody takes."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with FULL.open("w") as full:
        done = subprocess.run([sys.executable, *words], stdout=full, stderr=full, cwd=cwd, env=env, timeout=120)
    return done.returncode


@needs_full
@pytest.mark.parametrize("code", [0, 75])
def test_python_does_not_change_the_exit_code_for_what_was_never_printed(code: int) -> None:
    script = "import sys; from macmpi.console import *; guard(); say('a'); warn('b'); sys.exit(int(sys.argv[1]))"
    assert ended("-c", script, str(code)) == code
