"""W-step in closed form: ridge least squares for the units of a linear layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from macmpi.demand import Demand, Demands
from macmpi.nets.design import adjoint, apply, row_dots
from macmpi.parallel import tiles
from macmpi.parallel.lapack import blas, solved_rows
from macmpi.reductions import ALONE, OverPoints, SharedMatrix
from macmpi.solvers import BY_SUMS, PASS, WSolver
from macmpi.solvers.cholesky import NORMAL, jitter, regular_factor
from macmpi.solvers.grams import LayerGram, System, scattered
from macmpi.solvers.w_problem import UnitProblem
from macmpi.typing import Array

REGULAR = 1e-8
"""Ridge, as a share of the Gram's mean diagonal, from which on the weights themselves are solved for."""

SOLVING = 64
"""Solving costs this many units more than its own: the factor is read twice for it."""


class Factor(NamedTuple):
    """The factor of a layer's Gram with its ridge.

    lower: L, lower triangular, with L L^T = G + diag(added).
    regular: the ridge is so large that the weights themselves can be solved for, not only a correction of them.
    added: the ridge, but for biases, and without a regular one what keeps L regular.
    """

    lower: Array
    regular: bool
    added: Array


class NormalEquations(System):
    """The normal equations of a layer's units, which share its Gram; the ridge leaves the biases alone.

    Inputs in single precision are summed up in double: what hidden units that are nearly alike tell apart is less than
    the rounding of a Gram in single, and all that an output layer without a ridge gains.
    """

    double: ClassVar[bool] = True

    def factor(self, gram: LayerGram, shared_matrix: SharedMatrix = ALONE) -> Factor:
        G = gram.G
        regular = gram.ridge > REGULAR * float(np.trace(G)) / len(G)
        added = np.full(len(G), 0.0 if regular else jitter(G, NORMAL))
        added[: len(G) - gram.bias] += gram.ridge
        return Factor(regular_factor(G, added, shared_matrix), regular, added)


@dataclass(frozen=True)
class ClosedForm(WSolver):
    """W <- W + w (W' - W) with W' = T^T [A, 1] (G + ridge I)^-1 and G = [A, 1]^T [A, 1]; without biases A for [A, 1].
    Where points have weights w, T and the left [A, 1] of G are multiplied by diag(w).

    w is 1, or `relaxation` to over-relax.  Without a ridge to speak of, the correction of the present weights is solved
    for, (G + ridge I)^-1 (R^T [A, 1] - ridge W) with residuals R = T - [A, 1] W^T (with a ridge R^T [A, 1] is
    T^T [A, 1] - W G): with a rank-deficient G it moves only along directions that lower the error, and it keeps the
    digits that matter at large mu.  One round.
    Cost: 2 N D w flops (4 N D w without a ridge); N D^2 for the Gram and D^3 / 3 for its factor, once a layer.
    Raises LinAlgError when the inputs are not finite.
    """

    relaxation: float = 1.0

    takes: ClassVar[frozenset[str]] = frozenset({"units"})
    activations: ClassVar[frozenset[str] | None] = frozenset({"linear"})
    exact: ClassVar[bool] = True
    handles: ClassVar[Demands] = BY_SUMS | {Demand.RING}
    system: ClassVar[System] = NormalEquations()

    def effort(self, n_in: int, units: int, points: int) -> float:
        """Estimates flops a point, as `WSolver` asks for them.

        They are 2 D of the cross product, and a little more for reading the targets; 2 D^2 / N of solving.
        """
        return 2.4 * n_in * (units + PASS) + 2.0 * n_in**2 / points * (units + SOLVING)

    def solve(self, problem: UnitProblem, over_points: OverPoints) -> Array:
        whole, W = problem.ridge or problem.kept, np.asarray(problem.start, dtype=np.float64)
        cut = tiles.solved_tiles(len(W))

        def product(rows: slice) -> tuple[Array, ...]:
            """T^T [A, 1], without a ridge R^T [A, 1] if it is not kept."""
            A, T = (part[rows].astype(np.float64, copy=False) for part in (problem.inputs, problem.targets))
            return (adjoint(problem.weigh(T if whole else T - apply(A, W), rows), A, problem.bias),)

        (crossed,) = over_points(product)

        def solved(i: int) -> Array:
            units = cut[i].rows
            right, parts = crossed[units], problem.parts(units)
            moved = lambda one, V: self._moved(problem, one.G, one.factor, V, right[one.places])  # noqa: E731
            return scattered(parts, W[units], moved)

        return problem.shared_matrix.rows([tile.rows for tile in cut], W.shape[1], solved)

    def _moved(self, problem: UnitProblem, G: Array, factor: Factor, W: Array, crossed: Array) -> Array:
        """Units of the same Gram with new weights, or with their weights corrected where that lowers their objective.

        crossed: T^T [A, 1], without a ridge R^T [A, 1] if it is not kept.
        """
        if factor.regular:
            best = solved_rows(factor.lower, crossed)
            return best if self.relaxation == 1.0 else W + self.relaxation * (best - W)
        ridge, n_in = problem.ridge, W.shape[1] - problem.bias
        V = W[:, :n_in]
        gradient = crossed - _symmetric(W, G) if ridge > 0.0 or problem.kept else crossed
        full = gradient.copy()
        full[:, :n_in] -= ridge * V
        step = self.relaxation * solved_rows(factor.lower, full)
        moved = step[:, :n_in]
        curvature = row_dots(_symmetric(step, G), step)
        change = curvature - 2.0 * row_dots(step, gradient) + ridge * row_dots(moved, moved + 2.0 * V)
        return np.where((change < 0.0)[:, None], W + step, W)


def _symmetric(W: Array, G: Array) -> Array:
    """W G for G (n, n) symmetric, of which only the upper half is read, and W (w, n)."""
    return blas.dsymm(1.0, G.T, W.T, lower=1).T
