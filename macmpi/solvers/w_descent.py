"""W-step by methods that need gradients alone: for the units of a tile at once, or for a whole segment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from macmpi.demand import Demands
from macmpi.reductions import OverPoints
from macmpi.solvers import BY_SUMS, WSolver
from macmpi.solvers.descent import LBFGS, Conjugate, Direction, minimise
from macmpi.solvers.grams import System
from macmpi.solvers.masks import whitening
from macmpi.solvers.w_problem import WProblem, gradients, values
from macmpi.typing import Array


@dataclass(frozen=True)
class DescentW(WSolver):
    """Each row of theta by steps along `direction()`.  Cost of an iteration: 4 N D w flops, and 2 N D w a trial.

    Units are fitted in coordinates in which the layer's Gram is the identity: features of a sigmoid layer differ in
    scale by orders of magnitude.
    """

    iterations: int = 10
    tolerance: float = 0.01
    halvings: int = 10

    takes: ClassVar[frozenset[str]] = frozenset({"units", "segment"})
    handles: ClassVar[Demands] = BY_SUMS
    system: ClassVar[System] = System()
    direction: ClassVar[type[Direction]] = Direction

    def solve(self, problem: WProblem, over_points: OverPoints) -> Array:
        start = np.asarray(problem.start, dtype=np.float64)
        whitened = whitening(problem)
        begun = problem.in_pieces.agreed(whitened.into(start))

        def slopes(phi: Array) -> tuple[Array, Array]:
            errors, G = gradients(problem, whitened.back(phi), over_points)
            return errors, whitened.pull(G)

        found, _ = minimise(
            self.direction(),
            lambda phi: values(problem, whitened.back(phi), over_points),
            slopes,
            begun,
            self.iterations,
            self.halvings,
            self.tolerance,
            problem.in_pieces.agreed,
        )
        moved = (found != begun).any(axis=1)
        return np.where(moved[:, None], whitened.back(found), start)


@dataclass(frozen=True)
class GradientW(DescentW):
    """Steepest descent, step lengths from a parabola."""


@dataclass(frozen=True)
class ConjugateGradientW(DescentW):
    """Nonlinear conjugate gradient, Polak-Ribiere cut off at 0 (PR+)."""

    direction: ClassVar[type[Direction]] = Conjugate


@dataclass(frozen=True)
class LBFGSW(DescentW):
    """L-BFGS."""

    direction: ClassVar[type[Direction]] = LBFGS
