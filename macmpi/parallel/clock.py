"""Clocks: the time now, and the seconds spent in each phase."""

from __future__ import annotations

import time
from typing import Any

PHASES = ("z", "w", "comm", "wait")


class Clock:
    """Seconds spent in each phase since the last `take`: `with clock("z"): ...`; not those of a phase inside it."""

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._open: list[list[Any]] = []

    def __call__(self, phase: str) -> Clock:
        """Names the phase that `with` then times.  Collective: no."""
        self._phase = phase
        return self

    def __enter__(self) -> None:
        self._open.append([self._phase, time.perf_counter(), 0.0])

    def __exit__(self, *_: object) -> None:
        phase, began, inside = self._open.pop()
        took = time.perf_counter() - began
        self._seconds[phase] += took - inside
        if self._open:
            self._open[-1][2] += took

    def take(self) -> dict[str, float]:
        """The seconds of each phase, starting again from zero."""
        taken, self._seconds = self._seconds, dict.fromkeys(PHASES, 0.0)
        return {f"seconds_{phase}": seconds for phase, seconds in taken.items()}


def now() -> float:
    return time.perf_counter()
