"""Time as a rank sees it: now, the seconds of each phase, those that it has waited, and what it does as it waits.

A rank that waits for the others polls, and between two polls leaves its core to those that work.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

PHASES = ("z", "w", "comm", "wait")


class Clock:
    """Seconds spent in each phase since the last `take`: `with clock("z"): ...`; not those of a phase inside it.

    It is a context manager itself: a generator would cost more, in every exchange.
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
        """Enters the phase that the call has begun already."""

    def __exit__(self, *_: object) -> None:
        phase, outside, began = self._open.pop()
        took = time.perf_counter() - began
        self.seconds[phase] += took - self._inside
        self._inside = outside + took

    def take(self) -> dict[str, float]:
        """The seconds of each phase, starting again from zero."""
        taken, self.seconds = self.seconds, dict.fromkeys(PHASES, 0.0)
        return {f"seconds_{phase}": seconds for phase, seconds in taken.items()}


def now() -> float:
    """Seconds on a clock that goes on while the process or the machine is suspended, as the limit of a job may.

    Collective: no.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


# --- waiting ----------------------------------------------------------------------------------------------------------


AWAKE, NAP = 0.02, 5e-5
"""Seconds in which a rank polls without a sleep, and the sleep between two polls where it shares its core."""

DROWSY, LONGEST = 0.005, 0.02
"""The share of what it has waited that a rank then sleeps between two polls, and the most: many ranks that wait for one
to read, on few cores, would keep it from reading."""

FEW = 4.0
"""From this number of ranks a core on that share grows with it, as the cost of their polls does."""

STEP = 0.1
"""Seconds between two looks that count as waiting at most; a rank looks every LONGEST seconds where it can run."""


class Waited:
    """Seconds that this process has waited, without those in which it was suspended itself.

    It is asked often, and time between two looks counts as `step` at most.  A job that is suspended as a whole, for
    however long, so has waited for nobody.  Collective: no.
    """

    def __init__(self, step: float = STEP) -> None:
        self._step, self._seconds, self._looked = step, 0.0, time.monotonic()

    def __call__(self) -> float:
        before, self._looked = self._looked, time.monotonic()
        self._seconds += min(self._looked - before, self._step)
        return self._seconds


def pauses(per_core: float) -> Callable[[float], None]:
    """Takes what a rank does between two polls when it has waited for so long, in seconds.  Collective: no."""
    drowsy = DROWSY * max(1.0, per_core / FEW)

    def pause(waited: float) -> None:
        if waited >= AWAKE:
            time.sleep(min(max(0.001, drowsy * waited), LONGEST))
        elif per_core > 1.0:
            time.sleep(NAP)
        else:
            os.sched_yield()

    return pause
