"""The program in this process: what it prints and how it ends, without the second that a launch needs to start."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from unittest.mock import patch

from launch.launching import THREAD_VARIABLES, Outcome

from macmpi import MacmpiError, run
from macmpi.parallel.team import Team
from macmpi.plan import estimate
from macmpi.training.process import STOP_SIGNALS

MEASURED = estimate.steady_rate
RATE = cache(MEASURED)
"""The rate of this machine, which --check measures, measured once."""


def run_here(*arguments: object, cwd: Path, code: int | None = None) -> Outcome:
    """As run_program with ranks = 0.  An error that the program does not know is raised here."""
    out, err = io.StringIO(), io.StringIO()
    with _undisturbed(cwd), redirect_stdout(out), redirect_stderr(err):
        try:
            ended = run.run(Team(), [str(word) for word in arguments])
        except MacmpiError as error:
            ended = error.exit_code
            if str(error):
                print(f"macmpi: {error}", file=err if ended else out)
    assert code is None or ended == code, f"exit code {ended}, not {code}\n{out.getvalue()}\n{err.getvalue()}"
    return Outcome(ended, out.getvalue(), err.getvalue(), [], [])


@contextmanager
def _undisturbed(cwd: Path) -> Iterator[None]:
    """In a folder; the folder, the signal handlers and the thread variables are afterwards what they were."""
    back, threads = Path.cwd(), {name: os.environ.get(name) for name in THREAD_VARIABLES}
    handlers = {name: signal.getsignal(name) for name in STOP_SIGNALS}
    os.chdir(cwd)
    try:
        rate = RATE if estimate.steady_rate is MEASURED else estimate.steady_rate  # a test may say another
        with patch.object(estimate, "steady_rate", rate):
            yield
    finally:
        os.chdir(back)
        for name, handler in handlers.items():
            signal.signal(name, handler)
        for variable, value in threads.items():
            if value is None:
                os.environ.pop(variable, None)
            else:
                os.environ[variable] = value
