"""W-solvers made of others: of a fitter, or of a solver of sigmoids for binary units; kept where the error falls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np

from macmpi.demand import Demands
from macmpi.nets.design import apply, column_dots, ridge_value
from macmpi.parallel.streams import Stream, stream
from macmpi.reductions import OverPoints
from macmpi.solvers import WSolver, improved
from macmpi.solvers.fitters import FitsRows, Fitter
from macmpi.solvers.grams import System
from macmpi.solvers.w_problem import SegmentProblem, UnitProblem
from macmpi.typing import Array


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
        segment, (shape,) = problem.segment, problem.shapes
        start = np.asarray(problem.start, dtype=np.float64)
        A, present = segment.features([], problem.inputs[:]), start.reshape(shape)
        given = present.copy() if present.any() else None
        target = problem.targets[:]
        found = self.fitter.fit(segment.fitted[0], A, target, given, _drawn(problem), **_weighing(problem))
        theta = _checked(problem, found, shape).reshape(1, -1)
        return theta if self.fitter.descends else improved(problem, theta, over_points)

    @property
    def by_rows(self) -> bool:
        """It fits some rows of the weights apart from the others."""
        match self.fitter:
            case FitsRows():
                return True
        return False

    def rows(self, problem: SegmentProblem, rows: slice) -> Array:
        """New weights of some rows, kept or not once all are known.  Cost: the fitter's."""
        segment, ((count, width),) = problem.segment, problem.shapes
        A, fitter = segment.features([], problem.inputs[:]), cast(FitsRows, self.fitter)
        target, weighing = problem.targets[:], _weighing(problem)
        found = fitter.fit_rows(segment.fitted[0], rows, A, target, _drawn(problem), **weighing)
        return _checked(problem, found, (len(range(count)[rows]), width))


def _weighing(problem: SegmentProblem) -> dict[str, Array]:
    return {} if problem.point_weights is None else {"weights": problem.point_weights}


def _drawn(problem: SegmentProblem) -> Stream:
    seed, _, k = problem.key
    return stream(seed, "fitter", k)


def _checked(problem: SegmentProblem, found: Any, shape: tuple[int, int]) -> Array:
    if np.shape(found) != shape:
        kind = problem.segment.fitted[0].spec()["kind"]
        raise ValueError(f"the fitter of {kind} gave weights of shape {np.shape(found)}, not {shape}")
    return np.asarray(found, dtype=np.float64)


@dataclass(frozen=True)
class Thresholded(WSolver):
    """min over w_h of 1/2 sum_n (t_nh - [w_h a_n > 0])^2 + ridge/2 ||v_h||^2, through the same with sigmoids.

    The new weights of a unit are kept where its own objective, that of the bits, does not rise.  Targets t are bits, or
    bits less the multipliers' share.
    Cost: that of the inner solver and 2 passes.
    """

    inner: WSolver

    takes: ClassVar[frozenset[str]] = frozenset({"units"})
    activations: ClassVar[frozenset[str] | None] = frozenset({"sigmoid"})

    @property
    def handles(self) -> Demands:  # type: ignore[override]
        return self.inner.handles

    @property
    def system(self) -> System | None:
        return self.inner.system

    def effort(self, n_in: int, units: int, points: int) -> float:
        return self.inner.effort(n_in, units, points)

    def solve(self, problem: UnitProblem, over_points: OverPoints) -> Array:
        old = np.asarray(problem.start, dtype=np.float64)
        new = self.inner.solve(problem, over_points)
        before, after = (self._objective(problem, W, over_points) for W in (old, new))
        return np.where((after <= before)[:, None], new, old)

    def _objective(self, problem: UnitProblem, W: Array, over_points: OverPoints) -> Array:
        def partial(rows: slice) -> tuple[Array, ...]:
            R = problem.targets[rows] - (apply(problem.inputs[rows], W) > 0.0)
            return (0.5 * column_dots(problem.weigh(R, rows), R),)

        (errors,) = over_points(partial)
        return errors + 0.5 * problem.ridge * ridge_value(W, problem.n_in)
