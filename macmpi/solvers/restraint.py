"""Restraints on the weights of a regression, besides its ridge: l1, groups, bounds, zeros that stay."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from macmpi.typing import Array


@dataclass(frozen=True)
class Restraint:
    """l1 sum |v| + group sum_j ||V[:, j]||, with least <= v <= most, added to a regression; biases are left alone.

    A column j is what all units make of one input.  kept: weights that are 0 stay 0.
    """

    l1: float = 0.0
    group: float = 0.0
    least: float = -math.inf
    most: float = math.inf
    kept: bool = False

    @property
    def active(self) -> bool:
        """It asks for anything."""
        return self != FREE

    @property
    def joins(self) -> bool:
        """The units of a layer do not separate."""
        return self.group > 0.0

    def penalty(self, W: Array, penalised: Array) -> Array:
        """Value of l1 and of the groups, (w,): of each row, or where groups join the rows their sum in the first."""
        V = np.where(penalised, W, 0.0)
        found: Array = self.l1 * np.abs(V).sum(axis=1)
        if self.joins:
            found[0] = found.sum() + self.group * np.sqrt(np.square(V).sum(axis=0)).sum()
            found[1:] = 0.0
        return found

    def limits(self, W: Array, penalised: Array) -> tuple[Array, Array]:
        """Bounds of each weight, of the shape of W: those of biases are infinite."""
        held = penalised & (W == 0.0) if self.kept else np.zeros(W.shape, dtype=bool)
        bounds = ((self.least, -math.inf), (self.most, math.inf))
        low, high = (np.where(held, 0.0, np.where(penalised, inside, free)) for inside, free in bounds)
        return low, high

    def inside(self, W: Array, penalised: Array) -> Array:
        """The weights at the nearest place within the bounds."""
        return np.where(penalised, np.clip(W, self.least, self.most), W)


FREE = Restraint()


def together(joins: bool, values: Array, by: Callable[[Array], Any] = np.sum) -> Array:
    """The values of rows; where a restraint joins these, what they are together for each of them."""
    return np.full(len(values), by(values)) if joins else values


def zeros(weights: Sequence[Array], penalised: Sequence[Array]) -> tuple[int, int]:
    """Count the penalised weights that are exactly 0, and all of them."""
    found = sum(int(np.count_nonzero(mark & (W == 0.0))) for W, mark in zip(weights, penalised, strict=True))
    return found, sum(int(np.count_nonzero(mark)) for mark in penalised)
