"""Fitters: any algorithm that fits one layer to inputs and targets, and the W-solver that is made of one.

Trainers, of layers whose weights are points of their input space, need no targets.

To add one, write a class in a file of this package and add a row with its place to FITTERS, or the class itself to
TRAINERS, or give it by an entry point of the group "macmpi.fitters" or "macmpi.trainers" (docs/extending/fitter.md,
trainer.md); the contract tests pick it up.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, cast

import numpy as np

from macmpi.nets.design import squared_distances
from macmpi.nets.layers import Map
from macmpi.parallel.streams import Stream, stream
from macmpi.reductions import OverPoints, Rows
from macmpi.solvers import Table, WSolver, improved
from macmpi.solvers.w_problem import SegmentProblem
from macmpi.typing import Array


class Fitter(Protocol):
    """Fits the weights of one map to what its segment should give.

    kinds -- the kinds of map that it fits;
    targets -- what it can be fitted to, some of "numbers", "labels" (one-hot rows, the outputs are those of a
        classifier), "bits" (0 or 1, of units that are thresholded behind the map);
    descends -- it never raises the segment's error; others keep their old weights where they would;
    library -- the library that it imports, or "";
    handles -- what may be demanded of it (macmpi/demand.py), nothing where it does not say: WEIGHTED where `fit`, and
        `fit_rows`, take the weights of points too, as the keyword `weights` (N,).
    """

    kinds: ClassVar[frozenset[str]]
    targets: ClassVar[frozenset[str]]
    descends: ClassVar[bool]
    library: ClassVar[str]

    def fit(self, map: Map, inputs: Array, targets: Array, start: Array | None, random: Stream) -> Array:
        """Weights of map.parameter_shape for inputs (N, map.n_in) and targets (N, map.n_out).

        start: the present ones, or None at first.  random: the same stream each time.
        """
        ...


class FitsRows(Protocol):
    """A fitter of rows of weights that do not depend on each other, as the trees of a forest: ranks share them."""

    def fit_rows(self, map: Map, rows: slice, inputs: Array, targets: Array, random: Stream) -> Array:
        """Some rows of the weights that `fit` gives from nothing."""
        ...


@dataclass(frozen=True)
class ByFitter(WSolver):
    """Hands inputs, targets and the points' weights, if there are some, to a fitter; its weights are kept where the
    objective falls, or where it descends.

    The random stream is the same in each W-step, so that what a fitter draws moves no coordinates.
    Cost: the fitter's, and two passes.
    """

    fitter: Fitter

    takes: ClassVar[frozenset[str]] = frozenset({"segment"})

    def solve(self, problem: SegmentProblem, over_points: OverPoints) -> Array:
        map_, inputs, targets, random, weighing = _given(problem)
        (shape,) = problem.shapes
        start = np.array(problem.start, dtype=np.float64).reshape(shape)
        weights = self.fitter.fit(map_, inputs, targets, start if start.any() else None, random, **weighing)
        theta = _checked(map_, weights, shape).reshape(1, -1)
        return theta if self.fitter.descends else improved(problem, theta, over_points)

    def rows(self, problem: SegmentProblem, rows: slice) -> Array:
        """New weights of some rows by a fitter that `FitsRows`, kept or not once all are known.  Cost: the fitter's."""
        map_, inputs, targets, random, weighing = _given(problem)
        ((count, width),) = problem.shapes
        weights = cast(FitsRows, self.fitter).fit_rows(map_, rows, inputs, targets, random, **weighing)
        return _checked(map_, weights, (len(range(count)[rows]), width))


def _given(problem: SegmentProblem) -> tuple[Map, Array, Array, Stream, dict[str, Array]]:
    """Gives what `fit` and `fit_rows` ask for: the map, inputs, targets, a stream, and points' weights by name."""
    seed, _, k = problem.key
    inputs, weights = problem.segment.features([], problem.inputs[:]), problem.point_weights
    weighing = {} if weights is None else {"weights": weights}
    return problem.segment.fitted[0], inputs, problem.targets[:], stream(seed, "fitter", k), weighing


def _checked(map_: Map, weights: Any, shape: tuple[int, int]) -> Array:
    """The weights that a fitter has given, in float64.  Raises ValueError where they are not of this shape."""
    if np.shape(weights) != shape:
        raise ValueError(f"the fitter of {map_.spec()['kind']} gave weights of shape {np.shape(weights)}, not {shape}")
    return np.asarray(weights, dtype=np.float64)


FITTERS = Table(
    forest="macmpi.solvers.fitters.by_scikit_learn:Forest",
    boosted="macmpi.solvers.fitters.by_scikit_learn:Boosted",
    kernel_ridge="macmpi.solvers.fitters.by_scikit_learn:KernelRidge",
    nearest_neighbours="macmpi.solvers.fitters.by_scikit_learn:Nearest",
    linear_svm="macmpi.solvers.fitters.by_scikit_learn:LinearSVM",
    logistic="macmpi.solvers.fitters.by_scikit_learn:Logistic",
)


# --- trainers ---------------------------------------------------------------------------------------------------------


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

    def by_sums(self, inputs: Rows, centres: Array, over_points: OverPoints) -> Array:
        """Lloyd's algorithm from these centres, each iteration a sum over points.

        Collective: where `over_points` is.
        """

        def part(rows: slice) -> tuple[Array]:
            A = np.asarray(inputs[rows], dtype=np.float64)
            sums = np.zeros((len(centres), A.shape[1] + 1))
            np.add.at(sums, squared_distances(A, centres).argmin(axis=1), np.column_stack([A, np.ones(len(A))]))
            return (sums,)

        for _ in range(self.iterations):
            (sums,) = over_points(part)
            there = sums[:, -1] > 0.0  # a cluster without points keeps its centre
            centres = np.where(there[:, None], sums[:, :-1] / np.maximum(sums[:, -1:], 1.0), centres)
        return centres


TRAINERS: dict[str, Callable[[], Trainer]] = {"kmeans": KMeans, "subset": Subset, "points": Points}
