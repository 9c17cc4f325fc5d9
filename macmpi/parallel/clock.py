"""Clocks: the time now, and the seconds spent in each phase."""

from __future__ import annotations

import time

PHASES = ("z", "w", "comm", "wait")


class Clock:
    """Seconds spent in each phase since the last `take`: `with clock("z"): ...`; not those of a phase inside it."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.inside = 0.0

    def __call__(self, phase: str) -> Timed:
        """A phase to be timed by `with`.  Collective: no."""
        return Timed(self, phase)

    def take(self) -> dict[str, float]:
        """The seconds of each phase, starting again from zero."""
        taken, self.seconds = self.seconds, dict.fromkeys(PHASES, 0.0)
        return {f"seconds_{phase}": seconds for phase, seconds in taken.items()}


class Timed:
    """A phase that is timed.  A class with slots costs less than a generator, in every exchange."""

    __slots__ = ("_began", "_clock", "_name", "_outside")

    def __init__(self, clock: Clock, name: str) -> None:
        self._clock, self._name = clock, name

    def __enter__(self) -> None:
        self._outside, self._clock.inside = self._clock.inside, 0.0
        self._began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        took = time.perf_counter() - self._began
        self._clock.seconds[self._name] += took - self._clock.inside
        self._clock.inside = self._outside + took


def now() -> float:
    """Seconds on a clock that goes on while the process or the machine is suspended, as the limit of a job may.

    Collective: no.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)
