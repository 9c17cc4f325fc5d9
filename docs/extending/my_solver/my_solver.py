"""Gradient descent with the step lengths of Barzilai and Borwein (1988)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from macmpi.demand import Demand, Demands
from macmpi.solvers import WSolver, better
from macmpi.solvers.grams import System, Whitening
from macmpi.solvers.w_problem import gradients


@dataclass(frozen=True)
class BarzilaiBorwein(WSolver):
    """theta <- theta - (s^T s / s^T y) gradient, s and y the last changes of theta and of the gradient, row by row.

    Errors need not fall from step to step: a row ends where its error was lowest.  Units are fitted in coordinates
    in which the layer's Gram is the identity.
    """

    iterations: int = 20
    first: float = 0.1

    takes: ClassVar[frozenset[str]] = frozenset({"units", "segment"})
    handles: ClassVar[Demands] = frozenset({Demand.SHARDED, Demand.WEIGHTED})
    system: ClassVar[System] = System()

    def solve(self, problem, over_points):
        start = np.asarray(problem.start, dtype=np.float64)
        whitened, from_rank0 = Whitening(problem.factor), problem.shared_matrix.from_rank0

        @np.errstate(over="ignore", invalid="ignore")
        def slopes(phi):
            errors, G = gradients(problem, whitened.back(phi), over_points)
            return errors, from_rank0(whitened.pull(G))

        phi = from_rank0(whitened.into(start))
        before, G = slopes(phi)
        best, least = phi, before
        step = np.full((len(phi), 1), self.first if problem.factor is not None else self.first / problem.rows)
        for _ in range(self.iterations):
            new = phi - step * G
            errors, G_new = slopes(new)
            s, y = new - phi, G_new - G
            curved = np.sum(s * y, axis=1, keepdims=True)
            step = np.where(curved > 0.0, np.sum(s * s, axis=1, keepdims=True) / np.maximum(curved, 1e-300), step)
            phi, G = new, G_new
            best = better(best, least, phi, errors)
            least = np.fmin(least, errors)
        return np.where((least < before)[:, None], whitened.back(best), start)
