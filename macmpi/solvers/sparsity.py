"""A penalty on coordinates that draws most of them to 0: a smoothed absolute value of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from macmpi.typing import Array

SMOOTHING = 0.01
"""|z| is taken as sqrt(z^2 + s^2) - s with this s: outputs of activations are of the order of 1."""

NEAR = SMOOTHING
"""A number of at most this size is near 0."""


@dataclass(frozen=True)
class Sparsity:
    """size sum_h (sqrt(z_h^2 + s^2) - s), s = SMOOTHING: size sum_h |z_h| but near 0."""

    size: float

    def value(self, z: Array) -> Array:
        """The penalty of each row of z (n, H): (n,); as z^2 / (sqrt(z^2 + s^2) + s), so that no digits cancel."""
        found: Array = self.size * (z * z / (np.hypot(z, SMOOTHING) + SMOOTHING)).sum(axis=1)
        return found

    def curvature(self, z: Array) -> Array:
        """c (n, H) of the parabola c z^2 / 2 + constant, which touches the penalty at z and lies nowhere below it.

        Its slope at z, c z, is that of the penalty.
        """
        found: Array = self.size / np.hypot(z, SMOOTHING)
        return found


def near_zero(z: Array) -> int:
    """Counts numbers that are near 0."""
    return int(np.count_nonzero(np.abs(z) <= NEAR))
