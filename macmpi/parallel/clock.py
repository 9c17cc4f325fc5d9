"""Clocks: the time now, and the seconds spent in each phase."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

PHASES = ("z", "w", "comm", "wait")


class Clock:
    """Seconds spent in each phase since the last `take`: `with clock("z"): ...`; not those of a phase inside it."""

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._inside = 0.0

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        began, outside, self._inside = time.perf_counter(), self._inside, 0.0
        try:
            yield
        finally:
            took = time.perf_counter() - began
            self._seconds[phase] += took - self._inside
            self._inside = outside + took

    def take(self) -> dict[str, float]:
        """The seconds of each phase, starting again from zero."""
        taken, self._seconds = self._seconds, dict.fromkeys(PHASES, 0.0)
        return {f"seconds_{phase}": seconds for phase, seconds in taken.items()}


def now() -> float:
    return time.perf_counter()
