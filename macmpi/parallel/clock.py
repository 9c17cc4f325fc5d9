"""A rank's clocks tell the time, the seconds of each phase and of waiting; here is also how a rank waits.

A rank that waits for the others polls, and between two polls leaves its core to those that work.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

PHASES = ("z", "w", "comm", "wait")


class Clock:
    """Counts the seconds in each phase since `take`, `with clock("z"): ...`, without inner phases.

    It is a context manager itself, since a generator would cost more in every exchange.
    """

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._inside = 0.0
        self._open: list[tuple[str, float, float]] = []

    def __call__(self, phase: str) -> Clock:
        """Begins a phase, which `with` ends.  Collective: no."""
        self._open.append((phase, self._inside, time.perf_counter()))
        self._inside = 0.0
        return self

    def __enter__(self) -> None:
        """Does nothing: the call has begun the phase already."""

    def __exit__(self, *_: object) -> None:
        phase, outside, began = self._open.pop()
        took = time.perf_counter() - began
        self.seconds[phase] += took - self._inside
        self._inside = outside + took

    def take(self) -> dict[str, float]:
        """Returns the seconds of each phase, and counts again from zero."""
        taken, self.seconds = self.seconds, dict.fromkeys(PHASES, 0.0)
        return {f"seconds_{phase}": seconds for phase, seconds in taken.items()}


def now() -> float:
    """Returns seconds on a clock that goes on while the process or the machine is suspended, as a job's limit may.

    Collective: no.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


# --- waiting ----------------------------------------------------------------------------------------------------------


AWAKE, NAP = 0.02, 5e-5
"""For AWAKE seconds a rank polls without a long sleep; if it shares its core, it sleeps for NAP between two polls."""

DROWSY, LONGEST = 0.005, 0.02
"""Afterwards it sleeps between two polls for the share DROWSY of the time that it has waited, at most LONGEST seconds:
many ranks that poll on few cores would keep the one that they wait for from working."""

FEW = 4.0
"""If more ranks than this share a core, DROWSY grows with their number, as the cost of their polls does."""

STEP = 0.1
"""Time between two looks counts as waiting up to this number of seconds; a rank that can run looks more often."""


class Waited:
    """Counts the seconds that this process has waited, without those in which it was suspended itself.

    It is called often, and the time between two calls counts as at most `step` seconds.  So the waiting time does not
    grow while a whole job is suspended.  Collective: no.
    """

    def __init__(self, step: float = STEP) -> None:
        self._step, self._seconds, self._looked = step, 0.0, time.monotonic()

    def __call__(self) -> float:
        before, self._looked = self._looked, time.monotonic()
        self._seconds += min(self._looked - before, self._step)
        return self._seconds


def pauses(per_core: float) -> Callable[[float], None]:
    """Returns a function that a rank calls between two polls, with the seconds that it has waited.

    per_core: the number of ranks that share a core.  Collective: no.
    """
    drowsy = DROWSY * max(1.0, per_core / FEW)

    def pause(waited: float) -> None:
        if waited >= AWAKE:
            time.sleep(min(max(0.001, drowsy * waited), LONGEST))
        elif per_core > 1.0:
            time.sleep(NAP)
        else:
            os.sched_yield()

    return pause
