"""Z-step by Gauss-Newton for each point, all points of a tile at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from macmpi.demand import Demands
from macmpi.nets.losses import Metric
from macmpi.nets.tape import Fixed, fixed
from macmpi.reductions import AT_ONCE, Average
from macmpi.solvers import CONTINUOUS, SINGLE, ZSolution
from macmpi.solvers.linear_systems import Precondition
from macmpi.solvers.z_directions import Linearised, direct_dual, direct_primal, dual, dual_preconditioner, flops_a_point
from macmpi.solvers.z_problem import ZProblem
from macmpi.typing import Array

STIFF = 1e3
"""And so do those where the loss is more than STIFF times as stiff as a constraint: they may be ill-conditioned."""


@dataclass(frozen=True)
class Shared:
    """All points share the preconditioner and the fixed tangents, in the precision of the directions."""

    precondition: Precondition
    fixed: Fixed


@dataclass(frozen=True)
class GaussNewtonZ:
    """min over z of eq. (4), each point by itself, all points of a tile at once.

    The direction is that of z_directions.py: "dual" by preconditioned CG, "direct" by a factorisation a point, in the
    smaller of the two spaces; "auto" takes the one that costs the fewest flops, counted.  The preconditioner is the
    inverse of the system's mean over a sample of points, one for all.  With `cg_precision` "single" inexact CG is done
    in float32; outputs, constraints and objectives never are.  A point's step starts at `relaxation` (over-relaxation
    when above 1), then at 1, then is halved; the old z stays where nothing improves.

    Cost of an iteration, with F = 2 n sum_{k >= 2} H_{k-1} H_k flops for a pass through the segments after the first:
    3 F and 2 F times the CG iterations, and 2 n L^2 for each use of the preconditioner.
    """

    iterations: int = 1
    relaxation: float = 1.5
    cg_iterations: int = 4
    cg_tolerance: float = 0.01
    cg_precision: str = "double"
    halvings: int = 10
    direction: str = "auto"

    handles: ClassVar[Demands] = CONTINUOUS

    def choice(self, problem: ZProblem) -> str:
        """ "dual", "direct_dual" or "direct_primal" for problems of this shape."""
        passes = 2.0 * sum(segment.multiplications for segment in problem.segments[1:])
        flops = flops_a_point(problem.sizes, problem.Y.shape[1], passes, self.cg_iterations)
        if self.direction == "direct":
            flops = {name: flops[name] for name in ("direct_dual", "direct_primal")}
        return self.direction if self.direction in flops else min(flops, key=lambda name: flops[name])

    def prepare(self, sample: ZProblem, average: Average = AT_ONCE) -> Shared | None:
        """Make what the points of the chosen system share; None where it is solved directly."""
        if self.choice(sample) != "dual":
            return None
        stiffest = sample.loss.stiffness * max(float(np.abs(m.inverse).max()) for m in sample.metrics)
        single = self.cg_precision == "single" and self.cg_tolerance >= SINGLE and stiffest <= STIFF
        dtype = np.dtype(np.float32) if single else sample.Z.dtype
        precondition = dual_preconditioner(sample, average, dtype, np.float32 if single else np.float64)
        maps = (pair for segment in sample.segments[1:] for pair in zip(segment.maps, segment.blocks, strict=True))
        return Shared(precondition, fixed(maps, [W.astype(dtype, copy=False) for W in sample.weights]))

    def solve(self, problem: ZProblem, shared: Shared | None) -> ZSolution:
        Z, errors, choice = problem.Z.copy(), np.empty(len(problem.Z)), self.choice(problem)
        for _ in range(self.iterations):
            errors, model = _linearised(problem, Z, shared)
            if choice == "direct_dual":
                dZ = direct_dual(model)
            elif choice == "direct_primal":
                dZ = direct_primal(model)
            else:
                assert shared is not None
                with np.errstate(over="ignore", invalid="ignore"):  # such a step is not taken
                    dZ = dual(model, shared.precondition, self.cg_iterations, self.cg_tolerance)
            self._line_search(problem, Z, dZ.astype(Z.dtype, copy=False), errors)
        return ZSolution(Z, errors)

    def _line_search(self, problem: ZProblem, Z: Array, dZ: Array, errors: Array) -> None:
        """Moves each row of Z to the first of its trial steps that lowers its objective; updates errors with it.

        The rows still searching are evaluated by themselves: which they are depends on the tile alone.
        """
        steps = [0.5**i for i in range(self.halvings + 1)]
        if self.relaxation != 1.0:
            steps.insert(0, self.relaxation)
        rows = np.arange(len(Z))
        for step in steps:
            everywhere = len(rows) == len(Z)
            trial = step * dZ if everywhere else step * dZ[rows]
            trial += Z if everywhere else Z[rows]
            with np.errstate(over="ignore", invalid="ignore"):  # a trial may go too far: it is not taken
                values = problem.values(trial, slice(None) if everywhere else rows)
            better = values < errors[rows]
            moved = rows[better]
            Z[moved], errors[moved] = trial[better], values[better]
            rows = rows[~better]
            if not len(rows):
                break


def _linearised(problem: ZProblem, Z: Array, shared: Shared | None) -> tuple[Array, Linearised]:
    """The objective of each point at Z, and the Gauss-Newton model there in the precision of the directions."""
    dtype, metrics = Z.dtype if shared is None else shared.fixed.dtype, problem.metrics
    F, tangents = problem.linearise(Z, None if shared is None else shared.fixed)
    if dtype != Z.dtype:
        metrics = tuple(Metric(*(A.astype(dtype) for A in (m.M, m.inverse, m.root))) for m in metrics)
    root = problem.loss.root(problem.Y, F[-1]).astype(dtype)
    missed = problem.missed(Z, F)
    feasible = [c.astype(dtype, copy=False) for c in missed]
    tangents[-1] = root.after(tangents[-1])
    model = Linearised(problem.sizes, feasible, tangents, root.residual, metrics)
    return problem.weigh(Z, missed, F[-1]), model
