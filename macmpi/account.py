"""An account of a training method: how it trains and ends, in the words of the console."""

from __future__ import annotations

from dataclasses import dataclass

COORDINATES = frozenset({"mu", "E_Q", "constraint"})
"""Columns that mean nothing where there are no coordinates."""

FLAT = "the validation error falls no more"
"""Why a run ends by itself that waits for the validation error to fall."""

SETTLED = "settled at the largest mu"
"""Why a run ends by itself whose mu grows each time the validation error has settled."""


STILL = "its bits are those of the net, or settled at the largest mu"
"""A run of bits may end by itself before mu is the largest: once they change no more."""


@dataclass(frozen=True)
class Account:
    """The console says this of a method: how it trains, which weights it ends with, what ends it before the last
    iteration; the columns that mean nothing of it; what moves weights, should they come to be no numbers; what may
    help where a run diverges."""

    how: str
    end: str = "after postprocessing"
    settled: str = SETTLED
    without: frozenset[str] = frozenset()
    stepped: str = "the W-step"
    remedy: str = "a smaller start.range or a larger penalty.ridge"
