"""Z-step by methods that need gradients alone, each point by itself, all points of a tile at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from macmpi.reductions import AT_ONCE, Average
from macmpi.solvers import ZSolution
from macmpi.solvers.descent import LBFGS, Direction, Steepest, minimise
from macmpi.solvers.z_problem import ZProblem


@dataclass(frozen=True)
class DescentZ:
    """min over z of eq. (4) by steps along `direction()`.  Cost of an iteration: two passes, and one a trial step."""

    iterations: int = 10
    halvings: int = 10
    tolerance: float = 0.0

    needs: ClassVar[frozenset[str]] = frozenset({"jacobian"})
    descends: ClassVar[bool] = True
    bits: ClassVar[bool] = False

    def direction(self) -> Direction:
        raise NotImplementedError

    def prepare(self, sample: ZProblem, average: Average = AT_ONCE) -> Any:
        return None

    def solve(self, problem: ZProblem, shared: Any) -> ZSolution:
        found = minimise(
            self.direction(),
            problem.values,
            problem.gradients,
            problem.Z,
            self.iterations,
            self.halvings,
            self.tolerance,
        )
        return ZSolution(*found)


@dataclass(frozen=True)
class GradientZ(DescentZ):
    """Steepest descent, step lengths from a parabola."""

    def direction(self) -> Direction:
        return Steepest()


@dataclass(frozen=True)
class LBFGSZ(DescentZ):
    """L-BFGS with `memory` pairs a point."""

    memory: int = 5

    def direction(self) -> Direction:
        return LBFGS(self.memory)
