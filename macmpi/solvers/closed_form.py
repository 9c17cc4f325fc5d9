"""W-step in closed form: ridge least squares for the units of a linear layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import linalg

from macmpi.layers import Array
from macmpi.objective import OverPoints, WProblem, row_dots
from macmpi.solvers import WSolution
from macmpi.solvers.design import adjoint, apply, column_dots, gram

JITTER = 1e-13
"""Added to the Gram's diagonal, relative to its mean, so that dead or duplicate inputs do no harm."""


@dataclass(frozen=True)
class ClosedForm:
    """W <- W + (G + ridge I)^-1 (R^T [A, 1] - ridge W), with G = [A, 1]^T [A, 1] and residuals R = T - [A, 1] W^T.

    The correction of the present weights, rather than the weights themselves, is solved for: it is exact up to
    rounding, and with a rank-deficient G it moves only along directions that lower the error.  One round.
    Cost: 4 N D w flops, (D + 1)^3 / 3 for the factor.  Raises LinAlgError when the inputs are not finite.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"units", "linear"})
    activations: ClassVar[frozenset[str] | None] = frozenset({"linear"})
    by_unit: ClassVar[bool] = True
    descends: ClassVar[bool] = True

    def shared_shape(self, n_in: int) -> tuple[int, int]:
        return (n_in + 1, n_in + 1)

    def prepare(self, inputs: Array, over_points: OverPoints) -> Array:
        (G,) = over_points(lambda rows: (gram(inputs[rows]),))
        return G

    def solve(self, problem: WProblem, over_points: OverPoints) -> WSolution:
        G, W, ridge = problem.shared, problem.W, problem.ridge

        def residual(rows: slice) -> tuple[Array, ...]:
            gradient, errors = np.zeros_like(W), np.zeros(len(W))
            for term in problem.terms:
                R = term.targets[rows] - apply(term.inputs[rows], W)
                gradient += adjoint(R, term.inputs[rows])
                errors += column_dots(R, R)
            return gradient, errors

        gradient, errors = over_points(residual)
        H = G.copy()
        weights = np.arange(len(G) - 1)
        H[weights, weights] += ridge
        H[np.diag_indices_from(H)] += JITTER * np.trace(G) / len(G)
        full = gradient.copy()
        full[:, :-1] -= ridge * W[:, :-1]
        step = linalg.cho_solve(linalg.cho_factor(H), full.T).T
        change = row_dots(step @ G, step) - 2.0 * row_dots(step, gradient)
        ridge_change = ridge * row_dots(step[:, :-1], step[:, :-1] + 2.0 * W[:, :-1])
        better = change + ridge_change < 0.0
        return WSolution(
            np.where(better[:, None], W + step, W), np.maximum(np.where(better, errors + change, errors), 0.0)
        )
