"""Losses that grow as |y - f|, so that a few targets far off decide little.

Their curvature is the majoriser slope / r of iteratively reweighted least squares.  The Hessian is 0 or nearly so where
|r| is large: q = -slope / sqrt(0) would not exist, and a Gauss-Newton step would be far too long.  The loss lies below
the majoriser's parabola, so that whatever lowers this lowers the loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from macmpi.nets.losses.by_output import ByOutput
from macmpi.typing import Array


@dataclass(frozen=True)
class Huber(ByOutput):
    """r^2 / 2 for |r| <= threshold, else threshold (|r| - threshold / 2), r = y - f.

    Curvature min(1, threshold / |r|).  threshold: in units of the scaled targets.
    """

    threshold: float = 1.0
    curvature: ClassVar[str] = "majoriser"

    def values(self, Y: Array, F: Array) -> Array:
        size = np.abs(Y - F)
        near = np.minimum(size, self.threshold)
        return near * (size - 0.5 * near)

    def slopes(self, Y: Array, F: Array) -> Array:
        return np.clip(F - Y, -self.threshold, self.threshold)

    def curvatures(self, Y: Array, F: Array) -> Array:
        return self.threshold / np.maximum(np.abs(Y - F), self.threshold)


@dataclass(frozen=True)
class Absolute(ByOutput):
    """sqrt(r^2 + smoothing^2) - smoothing, r = y - f: |r| but near 0.  Curvature 1 / sqrt(r^2 + smoothing^2).

    smoothing: in units of the scaled targets.
    """

    smoothing: float = 0.05
    curvature: ClassVar[str] = "majoriser"

    @property
    def stiffness(self) -> float:  # type: ignore[override]
        return 1.0 / self.smoothing

    def values(self, Y: Array, F: Array) -> Array:
        """r^2 / (sqrt(r^2 + smoothing^2) + smoothing), so that no digits cancel."""
        R = Y - F
        return R * R / (np.hypot(R, self.smoothing) + self.smoothing)

    def slopes(self, Y: Array, F: Array) -> Array:
        return (F - Y) / np.hypot(Y - F, self.smoothing)

    def curvatures(self, Y: Array, F: Array) -> Array:
        return 1.0 / np.hypot(Y - F, self.smoothing)
