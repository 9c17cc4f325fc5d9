"""The W-step in closed form: ridge least squares for the units of a linear layer."""

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
"""Above this ridge, a share of the Gram's mean diagonal, the weights themselves are solved for; else a correction."""

SOLVING = 64
"""Solving for some units costs as much as for this number of further units, because it reads the factor twice."""


class Factor(NamedTuple):
    """The factor of a layer's Gram with its ridge.

    lower: the lower triangular L with L L^T = G + diag(added).
    regular: whether the ridge is so large that the weights themselves can be solved for, not only a correction.
    added: the ridge, 0 for biases, and where it is not regular a little more that keeps L regular.
    """

    lower: Array
    regular: bool
    added: Array


class NormalEquations(System):
    """The normal equations of the units of a layer, which share its Gram; the ridge does not penalise biases.

    Grams of inputs in single precision are summed in double: an output layer without a ridge may gain most from small
    differences of nearly equal hidden units, and these are below the rounding errors of a Gram in single precision.
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
    """W <- W + relaxation (W' - W) with W' = T^T [A, 1] (G + ridge I)^-1 and G = [A, 1]^T [A, 1]; one round.

    T are the targets and A the inputs of the layer; without biases [A, 1] is A.  If points have weights w_n, T and
    one [A, 1] of G are multiplied by diag(w_n).
    relaxation: 1, or more to over-relax.
    If the ridge is smaller than REGULAR, it solves for a correction of the present weights instead,
    (R^T [A, 1] - ridge W) (G + ridge I)^-1 with residuals R = T - [A, 1] W^T.  So with a rank-deficient G weights move
    only in directions that lower the error, and the digits that matter at large mu are kept.  (With a ridge,
    R^T [A, 1] is computed as T^T [A, 1] - W G.)
    Cost for w units: 2 N D w flops (4 N D w without a ridge); for the layer N D^2 for G and D^3 / 3 for its factor.
    Raises LinAlgError if the inputs are not finite.
    """

    relaxation: float = 1.0

    takes: ClassVar[frozenset[str]] = frozenset({"units"})
    activations: ClassVar[frozenset[str] | None] = frozenset({"linear"})
    exact: ClassVar[bool] = True
    handles: ClassVar[Demands] = BY_SUMS | {Demand.RING}
    system: ClassVar[System] = NormalEquations()

    def effort(self, n_in: int, units: int, points: int) -> float:
        """Estimates the cost as `WSolver.effort` defines it.

        It is 2 D flops a unit and point for T^T [A, 1], a little more for reading the targets, and 2 D^2 / N to solve.
        """
        return 2.4 * n_in * (units + PASS) + 2.0 * n_in**2 / points * (units + SOLVING)

    def solve(self, problem: UnitProblem, over_points: OverPoints) -> Array:
        whole, W = problem.ridge or problem.kept, np.asarray(problem.start, dtype=np.float64)
        cut = tiles.solved_tiles(len(W))

        def product(rows: slice) -> tuple[Array, ...]:
            """Sums T^T [A, 1] over some points; or R^T [A, 1], where there is no ridge and no sums are kept."""
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
        """Computes the new weights of units that share the Gram G.

        crossed: T^T [A, 1]; or R^T [A, 1] where there is no ridge and sums are not kept.
        With a regular factor the weights are solved for; otherwise they are corrected where that lowers the objective.
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
    """W G for W (w, n) and a symmetric G (n, n), of which only the upper half is read."""
    return blas.dsymm(1.0, G.T, W.T, lower=1).T
