"""W-step with a Hessian of each unit's own: Gauss-Newton with the exact Gram, and Newton."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import linalg

from macmpi.nets.design import apply, jitter, row_dots
from macmpi.nets.layers.activation import FUNCTIONS
from macmpi.reductions import OverPoints
from macmpi.solvers.descent import line_search
from macmpi.solvers.grams import Unshared
from macmpi.solvers.w_problem import UnitProblem, gradients, values
from macmpi.typing import Array

JITTER = 1e-12
"""Least share of a Gram's mean diagonal added to it: no step along what the inputs do not span."""


@dataclass(frozen=True)
class ExactGaussNewtonW(Unshared):
    """(A^T diag(d_h) A + ridge I) p = -gradient with d = s'^2, for each unit h; backtracking from step 1.

    Cost of an iteration: N D^2 flops and D^3 / 3 for every unit, about D / 10 times that of gauss_newton.
    """

    iterations: int = 3
    tolerance: float = 0.01
    halvings: int = 10

    takes: ClassVar[frozenset[str]] = frozenset({"units"})
    needs: ClassVar[frozenset[str]] = frozenset({"units", "linear", "bias"})
    activations: ClassVar[frozenset[str] | None] = None
    exact: ClassVar[bool] = False
    descends: ClassVar[bool] = True
    curved: ClassVar[bool] = False
    """Newton: the Hessian has the term r s'' too."""

    def effort(self, n_in: int, units: int, points: int) -> float:
        return self.iterations * (float(n_in) ** 2 + 6.0 * n_in) * units

    def solve(self, problem: UnitProblem, over_points: OverPoints) -> Array:
        W = np.asarray(problem.start, dtype=np.float64).copy()
        live = np.ones(len(W), dtype=bool)
        for _ in range(self.iterations):
            before, G = gradients(problem, W, over_points)
            step = problem.in_pieces.agreed(self._step(problem, W, G, live, over_points))
            slope = problem.in_pieces.agreed(row_dots(step, G))
            live &= slope < 0.0
            length, after = line_search(
                lambda theta: values(problem, theta, over_points),
                W,
                step,
                before,
                slope,
                live * 1.0,
                False,
                self.halvings,
            )
            W += length[:, None] * step
            live &= before - after > self.tolerance * before
            if not live.any():
                break
        return W

    def _step(self, problem: UnitProblem, W: Array, G: Array, live: Array, over_points: OverPoints) -> Array:
        """-H^-1 G unit by unit; Newton falls back on the Gauss-Newton Hessian where its own is indefinite."""
        ridge = np.full(W.shape[1], problem.ridge)
        ridge[-1] = 0.0
        step = np.zeros_like(W)
        for h in np.flatnonzero(live).tolist():
            kinds = (True, False) if self.curved else (False,)
            for curved in kinds:
                (H,) = over_points(lambda rows: (_hessian(problem, W, h, rows, curved),))  # noqa: B023
                H[np.diag_indices_from(H)] += ridge + jitter(np.abs(H), JITTER, problem.terms[0].inputs.dtype)
                found = _solved(H, G[h])
                if not problem.in_pieces.anywhere(found is None):
                    assert found is not None
                    step[h] = -found
                    break
        return step


@dataclass(frozen=True)
class NewtonW(ExactGaussNewtonW):
    """Steps are taken with the whole Hessian, d = s'^2 - r s'', where it is positive definite."""

    curved: ClassVar[bool] = True


def _solved(H: Array, right: Array) -> Array | None:
    """H^-1 right; None where H is not positive definite."""
    try:
        found: Array = linalg.cho_solve(linalg.cho_factor(H, lower=True), right)
    except linalg.LinAlgError:
        return None
    return found


def _hessian(problem: UnitProblem, W: Array, h: int, rows: slice, curved: bool) -> Array:
    """[A, 1]^T diag(d) [A, 1] of unit h for some points."""
    function = FUNCTIONS[problem.activation]
    H = np.zeros((W.shape[1], W.shape[1]))
    for term in problem.terms:
        A = term.inputs[rows]
        a = apply(A, W[h : h + 1])
        s = function.value(a, np.empty_like(a))
        d = function.slope(s, np.empty_like(s))
        d *= d
        if curved:
            d -= (term.targets[rows, h : h + 1] - s) * function.bend(s, np.empty_like(s))
        D = d * A
        H[:-1, :-1] += D.T @ A
        edge = D.sum(axis=0)
        H[-1, :-1] += edge
        H[:-1, -1] += edge
        H[-1, -1] += d.sum()
    return H
