"""Trainers of single layers whose weights are points of their input space: no derivatives, no targets.

To add a trainer, write one class here and add a row to TRAINERS, or give it by an entry point of the group
"macmpi.trainers"; the contract tests pick it up.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from macmpi.nets.design import squared_distances
from macmpi.parallel.streams import Stream
from macmpi.reductions import OverPoints, Rows
from macmpi.typing import Array


class Trainer(Protocol):
    """Finds the weights of one layer from what the layer reads.

    copies -- the weights are rows of the inputs: every rank takes them by itself, and nothing is exchanged.
    by_sums -- (inputs, found, over_points) -> weights, of some: those for points of which no process holds all, by sums
        over them, from those `found` for some.  Without it these stay.
    """

    copies: ClassVar[bool]

    def fit(self, inputs: Array, count: int, start: Array | None, random: Stream) -> Array:
        """`count` weights (count, D) for inputs (N, D), float64.

        start: the present ones, or None at first.  random: the same stream each time.
        """
        ...


@dataclass(frozen=True)
class Points:
    """Every point is a centre: as many units as points."""

    copies: ClassVar[bool] = True

    def fit(self, inputs: Array, count: int, start: Array | None, random: Stream) -> Array:
        return inputs.astype(np.float64)


@dataclass(frozen=True)
class Subset:
    """The first `count` points of one random order: a smaller layer's centres are some of a larger one's."""

    copies: ClassVar[bool] = True

    def fit(self, inputs: Array, count: int, start: Array | None, random: Stream) -> Array:
        return inputs[random.permutation(len(inputs))[:count]].astype(np.float64)


@dataclass(frozen=True)
class KMeans:
    """Lloyd's algorithm from the present centres, at first from k-means++; on one rank.

    Cost: 2 N M D flops an iteration.
    """

    iterations: int = 10
    copies: ClassVar[bool] = False

    def fit(self, inputs: Array, count: int, start: Array | None, random: Stream) -> Array:
        from scipy.cluster.vq import kmeans2

        inputs = inputs.astype(np.float64)
        # A cluster without points keeps its centre; where all distances are 0, k-means++ takes the first point.
        with warnings.catch_warnings(action="ignore", category=UserWarning), np.errstate(invalid="ignore"):
            if start is None:
                return kmeans2(inputs, count, iter=self.iterations, minit="++", seed=random)[0]
            return kmeans2(inputs, start, iter=self.iterations, minit="matrix")[0]

    def by_sums(self, inputs: Rows, found: Array, over_points: OverPoints) -> Array:
        """Lloyd's algorithm from the centres found, each iteration a sum over points.

        Collective: where `over_points` is.
        """

        def part(rows: slice) -> tuple[Array]:
            A = np.asarray(inputs[rows], dtype=np.float64)
            sums = np.zeros((len(found), A.shape[1] + 1))
            np.add.at(sums, squared_distances(A, found).argmin(axis=1), np.column_stack([A, np.ones(len(A))]))
            return (sums,)

        for _ in range(self.iterations):
            (sums,) = over_points(part)
            there = sums[:, -1] > 0.0  # a cluster without points keeps its centre
            found = np.where(there[:, None], sums[:, :-1] / np.maximum(sums[:, -1:], 1.0), found)
        return found


TRAINERS: dict[str, Callable[[], Trainer]] = {"kmeans": KMeans, "subset": Subset, "points": Points}
