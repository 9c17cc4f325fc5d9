"""Fitters, which fit one layer to inputs and targets by any algorithm, and trainers, which need no targets.

Trainers find weights that are points of the layer's input space, such as centres.

To add a fitter, write a class in a file of this package, and add its place to FITTERS; a trainer is added to TRAINERS.
Other packages have entry points of the groups "macmpi.fitters" and "macmpi.trainers" (docs/extending/fitter.md,
trainer.md).  The contract tests then include them by themselves.
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
    """Fits the weights of one map to the targets of its segment.

    kinds -- the kinds of maps that it fits;
    targets -- the kinds of targets that it can be fitted to: "numbers"; "labels" (one-hot rows, outputs of a
        classifier); "bits" (0 or 1, for units that are thresholded after the map);
    descends -- whether it never raises the error of the segment; otherwise the old weights are kept where it would;
    library -- the library that it imports, or "";
    handles -- the demands that it handles (macmpi/demand.py), none by default: WEIGHTED where `fit`, and `fit_rows`,
        also take the weights of points, as the keyword `weights` (N,).
    """

    kinds: ClassVar[frozenset[str]]
    targets: ClassVar[frozenset[str]]
    descends: ClassVar[bool]
    library: ClassVar[str]

    def fit(self, map: Map, inputs: Array, targets: Array, start: Array | None, random: Stream) -> Array:
        """Fits weights, of map.parameter_shape, to inputs (N, map.n_in) and targets (N, map.n_out).

        start: the present weights, None at first; random: a stream with the same numbers in each W-step.
        """
        ...


class FitsRows(Protocol):
    """A fitter whose rows of weights are independent, such as the trees of a forest; ranks share the rows."""

    def fit_rows(self, map: Map, rows: slice, inputs: Array, targets: Array, random: Stream) -> Array:
        """Computes some rows of the weights that `fit` computes without a start."""
        ...


@dataclass(frozen=True)
class ByFitter(WSolver):
    """The W-solver of a fitter: it takes the fitter's weights where they lower the objective, or if it `descends`.

    The random stream is the same in each W-step, so that random choices of a fitter do not move coordinates.
    Cost: the cost of the fitter, and two passes.
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
        """Computes some rows of new weights by a fitter that `FitsRows`.  Cost: the cost of the fitter.

        Whether the new weights are taken is decided once all rows are known.
        """
        map_, inputs, targets, random, weighing = _given(problem)
        ((count, width),) = problem.shapes
        weights = cast(FitsRows, self.fitter).fit_rows(map_, rows, inputs, targets, random, **weighing)
        return _checked(map_, weights, (len(range(count)[rows]), width))


def _given(problem: SegmentProblem) -> tuple[Map, Array, Array, Stream, dict[str, Array]]:
    """Returns the arguments of `fit` and `fit_rows`: map, inputs, targets, a random stream, and weights as keyword."""
    seed, _, k = problem.key
    inputs, weights = problem.segment.features([], problem.inputs[:]), problem.point_weights
    weighing = {} if weights is None else {"weights": weights}
    return problem.segment.fitted[0], inputs, problem.targets[:], stream(seed, "fitter", k), weighing


def _checked(map_: Map, weights: Any, shape: tuple[int, int]) -> Array:
    """Converts the weights of a fitter to float64.  Raises ValueError if they have another shape."""
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
    """Finds the weights of one layer from its inputs.

    copies -- whether the weights are rows of the inputs; then every rank takes them by itself, without an exchange.
    by_sums -- optional: a method (inputs, found, over_points) -> weights that improves weights `found` for some points
        by sums over all, where no process holds all points.  Without it `found` is used.
    """

    copies: ClassVar[bool]

    def fit(self, inputs: Array, count: int, start: Array | None, random: Stream) -> Array:
        """Finds weights (count, D) float64 for inputs (N, D).

        start: the present weights, None at first; random: a stream with the same numbers in each W-step.
        """
        ...


@dataclass(frozen=True)
class Points:
    """Takes every point as a centre; the layer has as many units as points."""

    copies: ClassVar[bool] = True

    def fit(self, inputs: Array, count: int, start: Array | None, random: Stream) -> Array:
        return inputs.astype(np.float64)


@dataclass(frozen=True)
class Subset:
    """Takes the first `count` points of a random order; so the centres of a smaller layer are among a larger one's."""

    copies: ClassVar[bool] = True

    def fit(self, inputs: Array, count: int, start: Array | None, random: Stream) -> Array:
        return inputs[random.permutation(len(inputs))[:count]].astype(np.float64)


@dataclass(frozen=True)
class KMeans:
    """Runs k-means by Lloyd's algorithm on one rank, from the present centres or at first from k-means++.

    Cost: 2 N M D flops an iteration, for M centres.
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
        """Runs Lloyd's algorithm from these centres (M, D), where each iteration is a sum over points.

        Collective: if `over_points` is.
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
