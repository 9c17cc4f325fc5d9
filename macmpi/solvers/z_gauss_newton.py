"""Z-step by Gauss-Newton for each point, all points of a tile at once: of all sites together, or of one at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from macmpi.demand import Demands
from macmpi.nets.chain import Segment
from macmpi.nets.design import split_columns
from macmpi.nets.losses import Metric, Squared
from macmpi.nets.tape import Fixed, fixed
from macmpi.reductions import AT_ONCE, Average
from macmpi.solvers import CONTINUOUS, SINGLE, ZSolution
from macmpi.solvers.descent import Precondition
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


IDENTITY = Segment((), ())


@dataclass(frozen=True)
class AlternatingZ:
    """Sweeps from the last site to the first: min over z_k of

        1/2 ||z_k - f_k(z_{k-1}) - u_k||_{M_k}^2 + 1/2 ||z_{k+1} - f_{k+1}(z_k) - u_{k+1}||_{M_{k+1}}^2

    (for k = K the loss in place of the second term): eq. (4) for a net of one site, by Gauss-Newton.

    Cost of a sweep: that of gauss_newton, and one pass for each forward value.
    """

    iterations: int = 1
    relaxation: float = 1.0
    cg_iterations: int = 4
    cg_tolerance: float = 0.01

    handles: ClassVar[Demands] = CONTINUOUS

    @property
    def _inner(self) -> GaussNewtonZ:
        return GaussNewtonZ(1, self.relaxation, self.cg_iterations, self.cg_tolerance)

    def prepare(self, sample: ZProblem, average: Average = AT_ONCE) -> Any:
        return [self._inner.prepare(one_site(sample, k), average) for k in range(len(sample.sizes))]

    def solve(self, problem: ZProblem, shared: Any) -> ZSolution:
        Z = problem.Z.copy()
        for _ in range(self.iterations):
            for k in reversed(range(len(problem.sizes))):
                found = self._inner.solve(one_site(replace(problem, Z=Z), k), shared[k])
                split_columns(problem.sizes, Z)[k][:] = found.Z
        return ZSolution(Z, problem.values(Z))


def one_site(problem: ZProblem, k: int) -> ZProblem:
    """The problem of site k alone (numbered from 0): its target is f_k(z_{k-1}) + u_k, its outputs' the next site's."""
    sites = problem.sites(problem.Z)
    if k == 0:
        target = problem.first
    else:
        target = problem.segments[k].forward(problem.weights, problem.inputs(k, sites[k - 1]))
        if problem.shift is not None:
            target += problem.sites(problem.shift)[k]
    loss, Y = problem.loss, problem.Y
    if k + 1 < len(sites):
        loss, Y = Squared(problem.metrics[k + 1]), sites[k + 1]
        if problem.shift is not None:
            Y = Y - problem.sites(problem.shift)[k + 1]
    return replace(
        problem,
        segments=(IDENTITY, problem.segments[k + 1]),
        sizes=(problem.sizes[k],),
        loss=loss,
        metrics=(problem.metrics[k],),
        X=target,
        Y=Y,
        Z=sites[k],
        shift=None,
        sides=problem.sides[k : k + 1],
    )
