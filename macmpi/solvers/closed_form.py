"""W-step in closed form: ridge least squares for the units of a linear layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import linalg

from macmpi.layers import Array
from macmpi.layers.design import adjoint, apply, gram, jitter, row_dots
from macmpi.regression import OverPoints, Term, UnitProblem

JITTER = 1e-13
"""Least share of the Gram's mean diagonal added to it, so that dead or duplicate inputs do no harm."""


@dataclass(frozen=True)
class ClosedForm:
    """W <- W + w (G + ridge I)^-1 (R^T [A, 1] - ridge W), with G = [A, 1]^T [A, 1] and residuals R = T - [A, 1] W^T.

    w is 1, or `relaxation` to over-relax.  The correction of the present weights, rather than the weights themselves,
    is solved for: with a rank-deficient G it moves only along directions that lower the error.  With a ridge the
    residuals are not formed, R^T [A, 1] = T^T [A, 1] - W G; without one that difference would lose the digits that
    matter at large mu.  One round.
    Cost: 2 N D w flops (4 N D w without a ridge), (D + 1)^3 / 3 for the factor.  Raises LinAlgError when the inputs are
    not finite.
    """

    relaxation: float = 1.0

    takes: ClassVar[frozenset[str]] = frozenset({"units"})
    needs: ClassVar[frozenset[str]] = frozenset({"units", "linear"})
    activations: ClassVar[frozenset[str] | None] = frozenset({"linear"})
    exact: ClassVar[bool] = True
    descends: ClassVar[bool] = True

    def shared_shape(self, n_in: int) -> tuple[int, int]:
        return (n_in + 1, n_in + 1)

    def prepare(self, inputs: Array, over_points: OverPoints) -> Array:
        (G,) = over_points(lambda rows: (gram(inputs[rows]),))
        return G

    def solve(self, problem: UnitProblem, over_points: OverPoints) -> Array:
        G, ridge = problem.shared, problem.ridge
        W = np.asarray(problem.W, dtype=np.float64)
        H = G.copy()
        weights = np.arange(len(G) - 1)
        H[weights, weights] += ridge
        H[np.diag_indices_from(H)] += jitter(G, JITTER, problem.terms[0].inputs.dtype)
        gradient = self._gradient(problem, W, over_points)
        full = gradient.copy()
        full[:, :-1] -= ridge * W[:, :-1]
        factor = regular_factor(H)
        step = self.relaxation * linalg.cho_solve(factor, full.T, check_finite=False).T
        change = row_dots(step @ G, step) - 2.0 * row_dots(step, gradient)
        change += ridge * row_dots(step[:, :-1], step[:, :-1] + 2.0 * W[:, :-1])
        return np.where((change < 0.0)[:, None], W + step, W)

    def _gradient(self, problem: UnitProblem, W: Array, over_points: OverPoints) -> Array:
        """R^T [A, 1]: (w, D + 1)."""

        def product(term: Term, rows: slice) -> Array:
            A, T = term.inputs[rows], term.targets[rows]
            return adjoint(T if problem.ridge > 0.0 else T - apply(A, W), A)

        def partial(rows: slice) -> tuple[Array, ...]:
            return (sum((product(term, rows) for term in problem.terms[1:]), product(problem.terms[0], rows)),)

        (gradient,) = over_points(partial)
        if problem.ridge > 0.0:
            gradient -= W @ problem.shared
        return gradient


def regular_factor(H: Array) -> tuple[Array, bool]:
    """Cholesky factor of H, with as much more on its diagonal as rounding takes to make it positive definite."""
    more = 0.0
    while True:
        try:
            return linalg.cho_factor(H + more * np.eye(len(H)))
        except linalg.LinAlgError:
            more = max(100.0 * more, 1e-12 * float(np.abs(np.diag(H)).max()))
            if not np.isfinite(more):
                raise
