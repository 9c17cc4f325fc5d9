"""Z-solvers that need gradients alone: descents of all points of a tile at once (macmpi/solvers/descent.py).

The paper names them (section 2.3).  They cost more than Gauss-Newton wherever that was measured (docs/paper.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from macmpi.demand import Demands
from macmpi.reductions import AT_ONCE, Average
from macmpi.solvers import CONTINUOUS, ZSolution
from macmpi.solvers.descent import LBFGS, Conjugate, Direction, Newton, minimise
from macmpi.solvers.z_problem import ZProblem


@dataclass(frozen=True)
class GradientZ:
    """Steepest descent, step lengths from a parabola, for each point; others descend along their `direction`.

    Cost of an iteration: 3 passes through the segments after the first, and one a trial.
    """

    iterations: int = 10
    tolerance: float = 0.0
    halvings: int = 10

    handles: ClassVar[Demands] = CONTINUOUS
    direction: ClassVar[type[Direction]] = Direction

    def descent(self) -> Direction:
        """Directions, and what they need."""
        return self.direction()

    def prepare(self, sample: ZProblem, average: Average = AT_ONCE) -> None:
        """Points share nothing."""

    def solve(self, problem: ZProblem, shared: Any) -> ZSolution:
        limits = self.iterations, self.halvings, self.tolerance
        return ZSolution(*minimise(self.descent(), problem.values, problem.gradients, problem.Z, *limits))


@dataclass(frozen=True)
class ConjugateGradientZ(GradientZ):
    """Nonlinear conjugate gradient, Polak-Ribiere cut off at 0 (PR+)."""

    direction: ClassVar[type[Direction]] = Conjugate


@dataclass(frozen=True)
class LBFGSZ(GradientZ):
    """L-BFGS."""

    direction: ClassVar[type[Direction]] = LBFGS


@dataclass(frozen=True)
class NewtonZ(GradientZ):
    """Truncated Newton: unlike Gauss-Newton with the maps' own curvature."""

    iterations: int = 3
    cg_iterations: int = 10
    cg_tolerance: float = 0.1

    def descent(self) -> Direction:
        return Newton(cg_iterations=self.cg_iterations, cg_tolerance=self.cg_tolerance)
