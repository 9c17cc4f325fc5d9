"""W-step of binary units: fitted as sigmoids, kept where their bits get better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from macmpi.nets.design import apply, column_dots, ridge_value
from macmpi.reductions import ALONE, InPieces, OverPoints, Rows
from macmpi.solvers import WSolver
from macmpi.solvers.w_problem import LayerGram, UnitProblem
from macmpi.typing import Array


@dataclass(frozen=True)
class Thresholded:
    """min over w_h of 1/2 sum_n (t_nh - [w_h a_n > 0])^2 + ridge/2 ||v_h||^2, through the same with sigmoids.

    The new weights of a unit are kept where its own objective, that of the bits, does not rise.  Targets t are bits, or
    bits less the multipliers' share.
    Cost: that of the inner solver and 2 passes.
    """

    inner: WSolver

    takes: ClassVar[frozenset[str]] = frozenset({"units"})
    activations: ClassVar[frozenset[str] | None] = frozenset({"sigmoid"})
    exact: ClassVar[bool] = False
    descends: ClassVar[bool] = True
    by_sums: ClassVar[bool] = True

    @property
    def needs(self) -> frozenset[str]:
        return self.inner.needs

    @property
    def rounds(self) -> bool:
        return self.inner.rounds

    def prepare(self, inputs: Rows, over_points: OverPoints, bias: bool = True, rows: slice | None = None) -> Array:
        return self.inner.prepare(inputs, over_points, bias, rows)

    def shared_shape(self, n_in: int, bias: bool = True) -> tuple[int, int]:
        return self.inner.shared_shape(n_in, bias)

    def effort(self, n_in: int, units: int, points: int) -> float:
        return self.inner.effort(n_in, units, points)

    def share_effort(self, width: int, points: int, rows: slice | None = None) -> float:
        return self.inner.share_effort(width, points, rows)

    def local(self, gram: LayerGram, in_pieces: InPieces = ALONE) -> Any:
        return self.inner.local(gram, in_pieces)

    def solve(self, problem: UnitProblem, over_points: OverPoints) -> Array:
        old = np.asarray(problem.W, dtype=np.float64)
        new = self.inner.solve(problem, over_points)
        before, after = (self._objective(problem, W, over_points) for W in (old, new))
        return np.where((after <= before)[:, None], new, old)

    def _objective(self, problem: UnitProblem, W: Array, over_points: OverPoints) -> Array:
        def partial(rows: slice) -> tuple[Array, ...]:
            R = problem.term.targets[rows] - (apply(problem.term.inputs[rows], W) > 0.0)
            return (0.5 * column_dots(R, R),)

        (errors,) = over_points(partial)
        return errors + 0.5 * problem.ridge * ridge_value(W, problem.n_in)
