"""The ridge on the weights of a stochastic run: (lambda / 2) ||W||^2 for each point's loss, never on the biases.

It begins at SHARE D / N for D columns of X, at most at MOST / N, the prior of a weight that is worth about MOST
points, and falls by FALL an epoch: a path from small weights to those that the points alone ask for. Early stopping,
on the validation points, ends it where more freedom no longer helps, and the weights that are kept are the best on
the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from macmpi.typing import Array

SHARE, MOST, FALL = 0.5, 10.0, 0.9
"""The first ridge times the number of points, for each column of X and at most; its factor from epoch to epoch."""


@dataclass(frozen=True)
class RidgeSchedule:
    """The ridge of each epoch: `asked`, or where nothing is (None) one that falls from `first`."""

    first: float
    asked: float | None = None

    def at(self, epoch: int) -> float:
        """lambda of an epoch, counted from 0."""
        return self.first * FALL**epoch if self.asked is None else self.asked

    @property
    def words(self) -> str:
        if self.asked is None:
            return f", ridge {self.first:.2g} falling"
        return f", ridge {self.asked:g}" if self.asked else ""


def schedule_of(asked: float | str, n: int, columns: int, autoencoder: bool) -> RidgeSchedule:
    """The ridge of a config, a number or "auto", for n points (columns,).

    An autoencoder has none: its code holds its weights back.
    """
    first = min(SHARE * columns, MOST) / n
    if asked == "auto":
        return RidgeSchedule(first, 0.0 if autoencoder else None)
    return RidgeSchedule(first, float(asked))


def add_slopes(ridge: float, weights: Sequence[Array], out: Sequence[Array]) -> None:
    """Adds lambda W to the blocks of a gradient (h, d), but for the biases, in their last column."""
    if ridge:
        for W, G in zip(weights, out, strict=True):
            G[:, :-1] += np.asarray(ridge, G.dtype) * W[:, :-1]


def along(weights: Array, way: Array, held: Array) -> float:
    """W . P for some weights and a way P of theirs (n,), those that are `held` (n,): the slope of ||W||^2 / 2 along it.

    Ranks add up what each makes of its share, for processors round it in different ways.
    """
    return float(np.vdot(weights * held, way))
