"""W-step by a fitter: the weights of a segment's one map, kept where the segment's own objective falls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from macmpi.parallel.streams import stream
from macmpi.reductions import OverPoints
from macmpi.solvers import WSolver
from macmpi.solvers.fitters import Fitter
from macmpi.solvers.w_problem import SegmentProblem, values
from macmpi.solvers.w_sgd import better
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
    by_sums: ClassVar[bool] = False

    def solve(self, problem: SegmentProblem, over_points: OverPoints) -> Array:
        segment, (shape,) = problem.segment, problem.shapes
        start = np.asarray(problem.start, dtype=np.float64)
        A, present = segment.features([], problem.inputs[:]), start.reshape(shape)
        seed, _, k = problem.key
        given = present.copy() if present.any() else None
        weighing = {} if problem.point_weights is None else {"weights": problem.point_weights}
        random = stream(seed, "fitter", k)
        found = self.fitter.fit(segment.fitted[0], A, problem.targets[:], given, random, **weighing)
        if np.shape(found) != shape:
            kind = segment.fitted[0].spec()["kind"]
            raise ValueError(f"the fitter of {kind} gave weights of shape {np.shape(found)}, not {shape}")
        theta = np.asarray(found, dtype=np.float64).reshape(1, -1)
        if self.fitter.descends:
            return theta
        before, after = (values(problem, t, over_points) for t in (start, theta))
        return better(start, before, theta, after)
