"""A line search by cubics through values and slopes, for one function of many variables.

It ends where the strong Wolfe conditions hold, f(t) <= f(0) + ARMIJO t f'(0) and |f'(t)| <= bend |f'(0)|; Rasmussen's
minimize.m, which the paper compares with, is of this kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from macmpi.solvers.descent import ARMIJO
from macmpi.typing import Array

GROW, WITHIN = (1.1, 10.0), 0.1
"""Bounds of an extrapolation, times the step before; the share of a bracket that a trial keeps from its ends."""


@dataclass(frozen=True)
class Trial:
    """A step t with the value and the slope there, and the gradient (P,)."""

    t: float
    value: float
    slope: float
    gradient: Array


def search(at: Callable[[float], Trial], start: Trial, first: float, bend: float, trials: int) -> Trial:
    """A step that satisfies the conditions, or the lowest of `trials` steps that satisfies the first one.

    start: t = 0, with a slope below 0; it is returned where no trial lowers the value enough.
    """
    low, high, t = start, None, first
    for _ in range(trials):
        new = at(t)
        if not (new.value <= start.value + ARMIJO * t * start.slope and new.value < low.value):
            high = new
        elif abs(new.slope) <= -bend * start.slope:
            return new
        else:
            ahead = high is None or high.t > low.t
            if (new.slope >= 0.0) == ahead:
                high = low
            before, low = low, new
        t = _outside(before, low) if high is None else _inside(low, high)
    return low


def _outside(before: Trial, last: Trial) -> float:
    least, most = (last.t + f * (last.t - before.t) for f in GROW)
    t = cubic_minimum(before, last)
    return min(max(t, least), most) if t > last.t else most


def _inside(low: Trial, high: Trial) -> float:
    margin = WITHIN * (high.t - low.t)
    a, b = sorted((low.t + margin, high.t - margin))
    t = cubic_minimum(low, high)
    return min(max(t, a), b) if math.isfinite(t) else 0.5 * (a + b)


def cubic_minimum(a: Trial, b: Trial) -> float:
    """The cubic through two values and slopes is least here.

    NaN where it has no minimum, a value is not finite, or both are of one step, which a bracket shrinks to at last.
    """
    width = b.t - a.t
    if not (width and math.isfinite(b.value) and math.isfinite(b.slope)):
        return math.nan
    d = a.slope + b.slope - 3.0 * (b.value - a.value) / width
    inside = d * d - a.slope * b.slope
    if inside < 0.0:
        return math.nan
    root = math.copysign(math.sqrt(inside), width)
    below = b.slope - a.slope + 2.0 * root
    return b.t - width * (b.slope + root - d) / below if below else math.nan
