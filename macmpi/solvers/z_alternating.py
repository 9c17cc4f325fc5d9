"""Z-step by alternating over the layers: the coordinates of one site at a time, the others held."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from macmpi.demand import Demands
from macmpi.nets.chain import Segment
from macmpi.nets.design import split_columns
from macmpi.nets.losses import Squared
from macmpi.reductions import AT_ONCE, Average
from macmpi.solvers import CONTINUOUS, ZSolution
from macmpi.solvers.z_gauss_newton import GaussNewtonZ
from macmpi.solvers.z_problem import ZProblem

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
