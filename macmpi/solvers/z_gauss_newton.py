"""Z-step by Gauss-Newton for each point, its direction by preconditioned CG in the space of the outputs (the dual)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from macmpi.layers import Array, Tangent
from macmpi.objective import ZProblem, row_dots
from macmpi.solvers import ZSolution

Precondition = Callable[[Array], Array]
"""Gives a fresh array, the preconditioned residuals of some points, row by row."""


@dataclass(frozen=True)
class GaussNewtonZ:
    """min over z of eq. (4), each point by itself, all points of a tile at once.

    With c_k = f_k(z_{k-1}) - z_k, r = y - f_{K+1}(z_K) and Phi_k = J_{K+1} ... J_{k+1} at the present z, the
    Gauss-Newton direction is dz_k = c_k + J_k dz_{k-1} + Phi_k^T v / mu_k, where v (L) solves
    (I + sum_k Phi_k Phi_k^T / mu_k) v = r - sum_k Phi_k c_k.  The preconditioner is the inverse of the mean of that
    matrix over a sample of points, one for all.  A point's step starts at `relaxation` (over-relaxation when above 1),
    then at 1, then is halved; the old z stays where nothing improves.

    Cost of an iteration, with F = 2 n sum_k H_{k-1} H_k flops for a pass through the chain: 3 F and 2 F times the CG
    iterations, and 2 n L^2 for each use of the preconditioner.
    """

    iterations: int = 1
    relaxation: float = 1.5
    cg_iterations: int = 4
    cg_tolerance: float = 0.01
    halvings: int = 10

    needs: ClassVar[frozenset[str]] = frozenset({"jacobian"})
    descends: ClassVar[bool] = True

    def prepare(self, sample: ZProblem) -> Precondition:
        """Inverse of the mean of I + sum_k Phi_k Phi_k^T / mu_k, built up segment by segment from the first site.

        Where the last segment is linear and has more outputs than inputs, by Woodbury's formula.
        """
        segments, weights, mu = sample.chain.segments, sample.weights, sample.mu
        sites = sample.sites(sample.Z)
        M = np.eye(segments[0].n_out) / mu[0]
        for segment, A, mu_k in zip(segments[1:-1], sites, mu[1:], strict=False):
            M = segment.congruence(weights, A, M)
            M[np.diag_indices_from(M)] += 1.0 / mu_k
        last = segments[-1]
        output = last.maps[-1]
        if output.n_out > output.n_in and "linear" in output.capabilities:
            M = last.features_congruence(sites[-1], M)
            V = weights[last.block][:, : output.n_in]
            C = np.linalg.solve(np.eye(len(M)) + M @ (V.T @ V), M)
            C = 0.5 * (C + C.T)
            return lambda R: R - ((R @ V) @ C) @ V.T
        S = last.congruence(weights, sites[-1], M)
        S[np.diag_indices_from(S)] += 1.0
        try:
            inverse = np.linalg.inv(S)
        except np.linalg.LinAlgError:  # one direction dwarfs all others: CG goes without
            return lambda R: R.copy()
        return lambda R: R @ inverse

    def solve(self, problem: ZProblem, shared: Precondition) -> ZSolution:
        Z, errors = problem.Z.copy(), np.empty(len(problem.Z))
        for _ in range(self.iterations):
            sites = problem.sites(Z)
            inputs = [problem.X, *sites]
            pairs = zip(problem.chain.segments, inputs, strict=True)
            F, tangents = zip(*(s.linearise(problem.weights, A) for s, A in pairs), strict=True)
            errors = problem.combine(problem.Y, sites, F)
            dZ = self._direction(problem, sites, F, tangents, shared)
            self._line_search(problem, Z, dZ, errors)
        return ZSolution(Z, errors)

    def _direction(
        self,
        problem: ZProblem,
        sites: Sequence[Array],
        F: Sequence[Array],
        tangents: Sequence[Tangent],
        precondition: Precondition,
    ) -> Array:
        """dZ (n, sum H).  Every point has CG coefficients of its own; converged points are masked."""
        dZ = np.empty_like(problem.Z)
        dz = problem.sites(dZ)
        feasible = [f - z for f, z in zip(F[:-1], sites, strict=True)]
        accumulate(tangents, feasible, out=dz)
        R = problem.loss.residual(problem.Y, F[-1])
        R -= tangents[-1].jvp(dz[-1])
        preconditioned = precondition(R)
        P, ry = preconditioned, row_dots(R, preconditioned)
        small = self.cg_tolerance**2 * ry
        T = np.empty_like(dZ)
        t = problem.sites(T)
        live = ry > 0.0
        for i in range(self.cg_iterations):
            SP = dual_product(tangents, problem.mu, P, t)
            curvature = row_dots(P, SP)
            live = live & (curvature > 0.0)
            alpha = np.where(live, ry / np.where(live, curvature, 1.0), 0.0)[:, None]
            T *= alpha
            dZ += T
            if i + 1 == self.cg_iterations:
                break
            SP *= alpha
            R -= SP
            preconditioned = precondition(R)
            ry_old, ry = ry, row_dots(R, preconditioned)
            live = live & (ry > small)
            if not live.any():
                break
            P = preconditioned + np.where(live, ry / np.where(live, ry_old, 1.0), 0.0)[:, None] * P
        return dZ

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
            values = problem.values(trial, slice(None) if everywhere else rows)
            better = values < errors[rows]
            Z[rows[better]] = trial[better]
            errors[rows[better]] = values[better]
            rows = rows[~better]
            if not len(rows):
                break


def accumulate(tangents: Sequence[Tangent], terms: Sequence[Array], out: Sequence[Array]) -> None:
    """out_1 = term_1, out_k = term_k + J_k out_{k-1}: a forward tangent pass.  `out` may be `terms`."""
    np.copyto(out[0], terms[0])
    for k in range(1, len(out)):
        np.add(terms[k], tangents[k].jvp(out[k - 1]), out=out[k])


def dual_product(tangents: Sequence[Tangent], mu: Sequence[float], P: Array, t: Sequence[Array]) -> Array:
    """(I + sum_k Phi_k Phi_k^T / mu_k) P, row by row; t_k becomes sum_{j <= k} J_k ... J_{j+1} Phi_j^T P / mu_j.

    One backward and one forward tangent pass of the chain.
    """
    u = P
    for k in range(len(t), 0, -1):
        u = tangents[k].vjp(u)
        np.multiply(u, 1.0 / mu[k - 1], out=t[k - 1])
    accumulate(tangents, t, out=t)
    return P + tangents[-1].jvp(t[-1])
