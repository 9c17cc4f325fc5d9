"""W-step of binary units: fitted as sigmoids, kept where their bits get better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from macmpi.demand import Demands
from macmpi.nets.design import apply, column_dots, ridge_value
from macmpi.reductions import OverPoints
from macmpi.solvers import WSolver
from macmpi.solvers.grams import System
from macmpi.solvers.w_problem import UnitProblem
from macmpi.typing import Array


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
