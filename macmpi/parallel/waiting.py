"""A rank that waits for the others polls, and between two polls leaves its core to those that work."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from macmpi.parallel.launchers import ranks_here

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


def sharing() -> float:
    """Ranks of this launch on this machine for each of its cores, the same on all of them.  Collective: no."""
    return ranks_here(os.environ) / (os.cpu_count() or 1)


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
