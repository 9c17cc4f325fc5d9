"""The program with a fault in one rank: python faulty.py KIND PHASE RANK TIMES [the program's own arguments].

The fault strikes when rank RANK enters PHASE (a method of Mac, or a row of PLACES) for the TIMES-th time.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

RANK_VARIABLE = "PMI_RANK"


def fail(error: BaseException) -> NoReturn:
    raise error


def numerical() -> NoReturn:
    from macmpi import NumericalError

    raise NumericalError("the fault of the test")


KINDS: dict[str, Callable[[], Any]] = {
    "exception": lambda: fail(ValueError("the fault of the test")),
    "memory": lambda: fail(MemoryError("the fault of the test")),
    "exit": lambda: sys.exit(0),
    "interrupt": lambda: fail(KeyboardInterrupt("the fault of the test")),
    "known": numerical,
    "full": lambda: fail(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "hang": lambda: time.sleep(1000.0),
}


def place(phase: str) -> tuple[Any, str]:
    """The module or class, and the name there."""
    if phase == "read":
        from macmpi import config

        return config, "read"
    if phase == "plan":
        from macmpi import plan

        return plan, "make_plan"
    if phase == "checkpoint":
        from macmpi import checkpoint

        return checkpoint, "save"
    if phase == "model":
        from macmpi import model

        return model, "save"
    from macmpi.mac import Mac

    return Mac, phase


def sabotage(kind: str, phase: str, times: int) -> None:
    owner, name = place(phase)
    whole = getattr(owner, name)
    calls = 0

    def faulty(*args: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls >= times:
            KINDS[kind]()
        return whole(*args, **named)

    setattr(owner, name, faulty)


if __name__ == "__main__":
    kind, phase, rank, times, *arguments = sys.argv[1:]
    sys.argv[1:] = arguments
    if os.environ.get(RANK_VARIABLE, "0") == rank:
        sabotage(kind, phase, int(times))
    from macmpi import run

    run.main()
