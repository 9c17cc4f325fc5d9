"""W-step by methods that need gradients alone: for the units of a tile at once, or for a whole segment."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from macmpi.layers import Array
from macmpi.regression import OverPoints, WProblem, gradients, values
from macmpi.solvers.descent import LBFGS, Conjugate, Direction, Steepest, minimise


@dataclass(frozen=True)
class DescentW:
    """Each row of theta by steps along `direction()`.  Cost of an iteration: 4 N D w flops, and 2 N D w a trial."""

    iterations: int = 10
    tolerance: float = 0.01
    halvings: int = 10

    takes: ClassVar[frozenset[str]] = frozenset({"units", "segment"})
    needs: ClassVar[frozenset[str]] = frozenset({"weight_jacobian"})
    activations: ClassVar[frozenset[str] | None] = None
    exact: ClassVar[bool] = False
    descends: ClassVar[bool] = True

    def direction(self) -> Direction:
        raise NotImplementedError

    def shared_shape(self, n_in: int) -> tuple[int, int]:
        return (0, 0)

    def prepare(self, inputs: Array, over_points: OverPoints) -> Array:
        return np.zeros((0, 0))

    def solve(self, problem: WProblem, over_points: OverPoints) -> Array:
        start = np.asarray(problem.start, dtype=np.float64)
        found, _ = minimise(
            self.direction(),
            lambda theta: values(problem, theta, over_points),
            partial(gradients, problem, over_points=over_points),
            start,
            self.iterations,
            self.halvings,
            self.tolerance,
        )
        return found


@dataclass(frozen=True)
class GradientW(DescentW):
    """Steepest descent, step lengths from a parabola."""

    def direction(self) -> Direction:
        return Steepest()


@dataclass(frozen=True)
class ConjugateGradientW(DescentW):
    """Nonlinear conjugate gradient, Polak-Ribiere with restarts."""

    def direction(self) -> Direction:
        return Conjugate()


@dataclass(frozen=True)
class LBFGSW(DescentW):
    """L-BFGS with `memory` pairs a row."""

    memory: int = 10

    def direction(self) -> Direction:
        return LBFGS(self.memory)
