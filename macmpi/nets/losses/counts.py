"""Losses of truth values and of counts: half deviances, whose outputs are the logarithms of odds and of means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from macmpi.nets.losses.by_output import ByOutput
from macmpi.nets.losses.links import LINKS
from macmpi.typing import Array


@dataclass(frozen=True)
class Logistic(ByOutput):
    """log(1 + exp f) - y f for each output, y in [0, 1]: several labels a point, or shares.  p = 1 / (1 + exp(-f)).

    Slope p - y, curvature p (1 - p).
    """

    link: ClassVar[str] = "sigmoid"
    scaled: ClassVar[bool] = False
    targets: ClassVar[str] = "0 and 1, or shares between them"
    stiffness: ClassVar[float] = 0.25

    def admits(self, Y: Array) -> Array:
        return (Y >= 0.0) & (Y <= 1.0)

    def values(self, Y: Array, F: Array) -> Array:
        """max(f, 0) - y f + log(1 + exp(-|f|)), its first part as (1 - y) f or -y f, so that no digits cancel."""
        return np.where(F > 0.0, 1.0 - Y, -Y) * F + np.log1p(np.exp(-np.abs(F)))

    def slopes(self, Y: Array, F: Array) -> Array:
        """p - y as (1 - y) - (1 - p) where f > 0, so that what is left of 1 has digits."""
        small = LINKS["sigmoid"](-np.abs(F))
        return np.where(F > 0.0, (1.0 - Y) - small, small - Y)

    def curvatures(self, Y: Array, F: Array) -> Array:
        small = LINKS["sigmoid"](-np.abs(F))
        return small * (1.0 - small)


LARGEST = 30.0
"""Logarithms of means beyond this, 1e13, are no counts: exp goes on as its parabola there, and overflows nowhere."""


@dataclass(frozen=True)
class Poisson(ByOutput):
    """exp f - y f + y log y - y for each output, y >= 0: half the deviance of counts of mean exp f.

    Slope exp f - y, curvature max(exp f, y): with exp f alone, the Hessian, a Newton step from far below log y would be
    exponentially too long; with this one no step is longer than 1.
    """

    link: ClassVar[str] = "exp"
    scaled: ClassVar[bool] = False
    targets: ClassVar[str] = "counts, numbers from 0 to 1e12"
    curvature: ClassVar[str] = "bound"
    stiffness: ClassVar[float] = float("inf")

    def admits(self, Y: Array) -> Array:
        return (Y >= 0.0) & (Y <= 1e12)

    def values(self, Y: Array, F: Array) -> Array:
        mean, beyond = _exp(F)
        whole = mean * (1.0 + beyond * (1.0 + 0.5 * beyond))
        return np.maximum(whole - Y - Y * (F - np.log(np.where(Y > 0.0, Y, 1.0))), 0.0)

    def slopes(self, Y: Array, F: Array) -> Array:
        mean, beyond = _exp(F)
        return mean * (1.0 + beyond) - Y

    def curvatures(self, Y: Array, F: Array) -> Array:
        return np.maximum(_exp(F)[0], Y)


def _exp(F: Array) -> tuple[Array, Array]:
    """exp of f, at most of LARGEST, and how far f is beyond that."""
    return np.exp(np.minimum(F, LARGEST)), np.maximum(F - LARGEST, 0.0)
