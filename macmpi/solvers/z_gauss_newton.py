"""Z-step by Gauss-Newton for each point, all points of a tile at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.linalg import lapack

from macmpi.chain import AT_ONCE, Average
from macmpi.layers import Array
from macmpi.losses import dense
from macmpi.objective import ZProblem
from macmpi.solvers import ZSolution
from macmpi.solvers.z_directions import (
    Linearised,
    Precondition,
    direct_dual,
    direct_primal,
    dual,
    flops_a_point,
    primal,
)

DIRECTIONS = ("auto", "dual", "primal", "direct")


@dataclass(frozen=True)
class GaussNewtonZ:
    """min over z of eq. (4), each point by itself, all points of a tile at once.

    The direction is that of z_directions.py: "dual" and "primal" by preconditioned CG, "direct" by a factorisation a
    point, in the smaller of the two spaces; "auto" takes the one that costs the fewest flops, counted.  The
    preconditioner is the inverse of the system's mean over a sample of points, one for all.  A point's step starts at
    `relaxation` (over-relaxation when above 1), then at 1, then is halved; the old z stays where nothing improves.

    Cost of an iteration, with F = 2 n sum_{k >= 2} H_{k-1} H_k flops for a pass through the segments after the first:
    3 F and 2 F times the CG iterations, and 2 n L^2 for each use of the preconditioner.
    """

    iterations: int = 1
    direction: str = "auto"
    relaxation: float = 1.5
    cg_iterations: int = 4
    cg_tolerance: float = 0.01
    halvings: int = 10

    needs: ClassVar[frozenset[str]] = frozenset({"jacobian"})
    descends: ClassVar[bool] = True
    bits: ClassVar[bool] = False

    def choice(self, problem: ZProblem) -> str:
        """ "dual", "primal", "direct_dual" or "direct_primal" for problems of this shape."""
        shapes = [problem.weights[b].shape for s in problem.segments[1:] for b in s.weighted]
        passes = 2.0 * sum(h * d for h, d in shapes)
        flops = flops_a_point(problem.sizes, problem.Y.shape[1], passes, self.cg_iterations)
        if self.direction == "direct":
            flops = {name: flops[name] for name in ("direct_dual", "direct_primal")}
        return self.direction if self.direction in flops else min(flops, key=lambda name: flops[name])

    def prepare(self, sample: ZProblem, average: Average = AT_ONCE) -> Precondition | None:
        """The preconditioner of the chosen system; None where it is solved directly.  In float64."""
        choice = self.choice(sample)
        if choice == "dual":
            return _dual_preconditioner(sample, average)
        return _primal_preconditioner(sample, average) if choice == "primal" else None

    def solve(self, problem: ZProblem, shared: Precondition | None) -> ZSolution:
        Z, errors, choice = problem.Z.copy(), np.empty(len(problem.Z)), self.choice(problem)
        tolerance = max(self.cg_tolerance, problem.accuracy)
        for _ in range(self.iterations):
            F, tangents = problem.linearise(Z)
            errors = problem.combine(Z, F)
            root = problem.loss.root(problem.Y, F[-1])
            feasible = [f - z for f, z in zip(F[:-1], problem.sites(Z), strict=True)]
            tangents[-1] = root.after(tangents[-1])
            model = Linearised(problem.sizes, feasible, tangents, root.residual, problem.metrics)
            if choice == "direct_dual":
                dZ = direct_dual(model)
            elif choice == "direct_primal":
                dZ = direct_primal(model)
            else:
                assert shared is not None
                solve = dual if choice == "dual" else primal
                dZ = solve(model, shared, self.cg_iterations, tolerance)
            self._line_search(problem, Z, dZ, errors)
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
            Z[rows[better]] = trial[better]
            errors[rows[better]] = values[better]
            rows = rows[~better]
            if not len(rows):
                break


def _wide(problem: ZProblem) -> tuple[list[Array], list[Array]]:
    """The weights and the sites' coordinates in float64."""
    return [W.astype(np.float64) for W in problem.weights], [z.astype(np.float64) for z in problem.sites(problem.Z)]


def _applied(inverse: Array, dtype: np.dtype) -> Precondition:
    inverse = inverse.astype(dtype)
    return lambda R: R @ inverse


def _dual_preconditioner(sample: ZProblem, average: Average) -> Precondition:
    """Inverse of the mean of I + sum_k Phi_k M_k^-1 Phi_k^T, built up segment by segment from the first site.

    Where the last segment ends in a linear map with more outputs than inputs, by Woodbury's formula.
    """
    dtype, (weights, sites) = sample.Z.dtype, _wide(sample)
    segments, inverses = (
        sample.segments,
        [dense(m.inverse, h) for m, h in zip(sample.metrics, sample.sizes, strict=True)],
    )
    M = inverses[0]
    for segment, A, inverse in zip(segments[1:-1], sites, inverses[1:], strict=False):
        M = segment.congruence(weights, A, M, average=average) + inverse
    last, A = segments[-1], sites[-1]
    output = last.maps[-1]
    if sample.loss.unit_hessian and output.n_out > output.n_in and "linear" in output.capabilities:
        M = last.congruence(weights, A, M, len(last.maps) - 1, average)
        V = weights[last.weighted[-1]][:, : output.n_in]
        C = np.linalg.solve(np.eye(len(M)) + M @ (V.T @ V), M)
        C, V = (0.5 * (C + C.T)).astype(dtype), V.astype(dtype)
        return lambda R: R - ((R @ V) @ C) @ V.T
    S = last.congruence(weights, A, M, average=average)
    if not sample.loss.unit_hessian:
        F = average.rows(lambda rows: last.forward(weights, A[rows]))
        S = average.mean(lambda rows: sample.loss.congruence(F[rows], S), S.shape)
    try:
        return _applied(_inverse(S + np.eye(len(S))), dtype)
    except np.linalg.LinAlgError:  # one direction dwarfs all others: CG goes without
        return lambda R: R.copy()


def _inverse(S: Array) -> Array:
    """S^-1 by Cholesky.  Raises LinAlgError where S is not positive definite.  Cost: n^3 flops, half of LU's."""
    L, failed = lapack.dpotrf(S, lower=1)
    if failed:
        raise np.linalg.LinAlgError(f"not positive definite: row {failed - 1}")
    half, _ = lapack.dpotri(L, lower=1, overwrite_c=1)
    lower: Array = np.tril(half, -1)
    return lower + lower.T + np.diag(np.diag(half))


def _primal_preconditioner(sample: ZProblem, average: Average) -> Precondition:
    """Inverses of the mean diagonal blocks, M_k + J_{k+1}^T M_{k+1} J_{k+1}; M_{K+1} is the loss's Hessian."""
    dtype, (weights, sites) = sample.Z.dtype, _wide(sample)
    outer = [dense(m.M, h) for m, h in zip(sample.metrics, sample.sizes, strict=True)]
    F = average.rows(lambda rows: sample.segments[-1].forward(weights, sites[-1][rows]))
    hessian = average.mean(lambda rows: sample.loss.hessian(F[rows]), (F.shape[1], F.shape[1]))
    above = [*outer[1:], hessian]
    blocks = [
        np.linalg.inv(M + segment.pullback(weights, A, up, average)).astype(dtype)
        for M, segment, A, up in zip(outer, sample.segments[1:], sites, above, strict=True)
    ]

    def apply(R: Array) -> Array:
        return np.hstack([r @ B for r, B in zip(sample.sites(R), blocks, strict=True)])

    return apply
