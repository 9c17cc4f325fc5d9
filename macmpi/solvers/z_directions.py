"""Gauss-Newton directions of the Z-step: by CG in the space of the outputs (dual), preconditioned, or direct.

With c_k = f_k(z_{k-1}) + u_k - z_k, a loss near its outputs 1/2 ||q - B dF||^2 + constant, and
Phi_k = B J_{K+1} ... J_{k+1}, the direction minimises, for each point,
1/2 ||q - B J_{K+1} dz_K||^2 + 1/2 sum_k ||dz_k - J_k dz_{k-1} - c_k||_{M_k}^2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from macmpi.nets.design import row_dots, split_columns
from macmpi.nets.layers import Tangent
from macmpi.nets.losses import Metric, dense, times
from macmpi.reductions import Average
from macmpi.solvers.cholesky import POINT, inverse
from macmpi.solvers.descent import Precondition, conjugate_gradients
from macmpi.solvers.z_problem import ZProblem
from macmpi.typing import Array


@dataclass(frozen=True)
class Linearised:
    """One Gauss-Newton model of a tile of points.

    feasible: c_1, ..., c_K; tangents: J_2, ..., J_K and B J_{K+1}; residual: q (n, L).
    """

    sizes: tuple[int, ...]
    feasible: Sequence[Array]
    tangents: Sequence[Tangent]
    residual: Array
    metrics: tuple[Metric, ...]

    @property
    def empty(self) -> Array:
        return np.empty((len(self.residual), sum(self.sizes)), self.residual.dtype)

    def accumulate(self, terms: Sequence[Array]) -> None:
        """term_k += J_k term_{k-1}, k = 2, ..., K: a forward tangent pass."""
        for k in range(1, len(terms)):
            terms[k] += self.tangents[k - 1].jvp(terms[k - 1])


def dual(model: Linearised, precondition: Precondition, iterations: int, tolerance: float) -> Array:
    """dz_k = c_k + J_k dz_{k-1} + M_k^-1 Phi_k^T v; (I + sum_k Phi_k M_k^-1 Phi_k^T) v = q - sum_k Phi_k c_k by CG.

    Cost: a pass (the first segment's left out), and 2 passes a CG iteration.
    """
    dZ, T = np.hstack(model.feasible), model.empty
    dz, t = (split_columns(model.sizes, A) for A in (dZ, T))
    model.accumulate(dz)
    R = model.residual - model.tangents[-1].jvp(dz[-1])

    def product(P: Array, last: bool) -> tuple[Array, Array | None, Array]:
        return *dual_product(model, P, t, last), T

    return conjugate_gradients(dZ, R, product, precondition, iterations, tolerance)


def dual_product(model: Linearised, P: Array, t: Sequence[Array], last: bool = False) -> tuple[Array, Array | None]:
    """P^T S P row by row, and S P unless it is the last one, for S = I + sum_k Phi_k M_k^-1 Phi_k^T.

    t_k becomes sum_{j <= k} J_k ... J_{j+1} M_j^-1 Phi_j^T P.
    """
    u, curvature = P, row_dots(P, P) if last else None
    for k in range(len(t) - 1, -1, -1):
        u = model.tangents[k].vjp(u)
        times(u, model.metrics[k].inverse, out=t[k])
        if curvature is not None:
            curvature += row_dots(u, t[k])
    model.accumulate(t)
    if curvature is not None:
        return curvature, None
    SP = P + model.tangents[-1].jvp(t[-1])
    return row_dots(P, SP), SP


def direct_dual(model: Linearised) -> Array:
    """The dual system written out and solved, L x L a point.  Cost: L backward passes, L^2 sum H + L^3 / 3 a point."""
    dZ = np.hstack(model.feasible)
    dz = split_columns(model.sizes, dZ)
    model.accumulate(dz)
    n, L = model.residual.shape
    R = model.residual - model.tangents[-1].jvp(dz[-1])
    S = np.tile(np.eye(L), (n, 1, 1))
    pulled = [np.empty((n, L, h)) for h in model.sizes]
    for i in range(L):
        u = np.zeros_like(R)
        u[:, i] = 1.0
        for k in range(len(model.sizes) - 1, -1, -1):
            u = model.tangents[k].vjp(u)
            pulled[k][:, i] = u
    for metric, A in zip(model.metrics, pulled, strict=True):
        S += times_last(A, metric.inverse) @ A.transpose(0, 2, 1)
    v = solve_rows(S, R)
    for c, term, metric, A in zip(model.feasible, dz, model.metrics, pulled, strict=True):
        np.add(c, times(np.einsum("nlh,nl->nh", A, v).astype(R.dtype), metric.inverse), out=term)
    model.accumulate(dz)
    return dZ


def times_last(A: Array, M: Array) -> Array:
    """M applied along the last axis of A (n, L, H)."""
    return A @ M if M.ndim == 2 else A * M


def direct_primal(model: Linearised) -> Array:
    """The normal equations, block tridiagonal over the sites, written out and solved: (sum H)^2 numbers a point.

    Cost: H_k passes through J_{k+1} and 2 H_k^2 H_{k+1} flops a site and point, (sum H)^3 / 3 for the solution.
    """
    n, bounds = len(model.residual), np.cumsum([0, *model.sizes]).tolist()
    A, b = np.zeros((n, bounds[-1], bounds[-1])), np.zeros((n, bounds[-1]))
    for k, metric in enumerate(model.metrics):
        last, here = k + 1 == len(model.metrics), slice(bounds[k], bounds[k + 1])
        J = columns(model.tangents[k], n, model.sizes[k], model.residual.dtype)
        MJ = J if last else times_last(J, model.metrics[k + 1].M)
        A[:, here, here] += dense(metric.M, model.sizes[k]) + J @ MJ.transpose(0, 2, 1)
        b[:, here] += times(model.feasible[k], metric.M)
        if last:
            b[:, here] += (J @ model.residual[:, :, None])[:, :, 0]
        else:
            above = slice(bounds[k + 1], bounds[k + 2])
            A[:, here, above], A[:, above, here] = -MJ, -MJ.transpose(0, 2, 1)
            b[:, here] -= (MJ @ model.feasible[k + 1][:, :, None])[:, :, 0]
    return solve_rows(A, b).astype(model.residual.dtype)


def columns(tangent: Tangent, n: int, size: int, dtype: np.dtype) -> Array:
    """J^T of each point, one jvp a column of J: (n, size, n_out)."""
    found = []
    for i in range(size):
        unit = np.zeros((n, size), dtype)
        unit[:, i] = 1.0
        found.append(tangent.jvp(unit))
    return np.stack(found, axis=1)


def solve_rows(A: Array, B: Array) -> Array:
    """A^-1 b for each row's matrix (n, m, m) and right side (n, m), in float64; a trace of jitter keeps A regular."""
    A = A + POINT * np.trace(A, axis1=1, axis2=2)[:, None, None] * np.eye(A.shape[1])
    return np.linalg.solve(A, B[:, :, None].astype(np.float64))[:, :, 0]


def flops_a_point(sizes: Sequence[int], outputs: int, passes: float, cg_iterations: int) -> dict[str, float]:
    """Flops of each direction for one point, counted.  passes: flops of a pass through J_2, ..., J_{K+1}.

    CG stops after at most as many iterations as the system has unknowns.
    """
    H, L = sum(sizes), outputs
    squares = sum(h * h for h in sizes)
    return {
        "dual": passes + min(cg_iterations, L) * (2.0 * passes + 2.0 * L * L),
        "direct_dual": passes * (2.0 + L) + L * L * H + L**3 / 3.0,
        "direct_primal": passes * max(sizes) + 2.0 * squares * (max(sizes) + L) + H**3 / 3.0,
    }


Dtype = np.dtype | type


def _cast(problem: ZProblem, made: Dtype) -> tuple[list[Array], list[Array]]:
    """The weights and the inputs of all segments but the first in the precision in which a preconditioner is made."""
    inputs = (problem.inputs(k, z) for k, z in enumerate(problem.sites(problem.Z), start=1))
    return [W.astype(made) for W in problem.weights], [A.astype(made) for A in inputs]


def _plus(form: Array, M: Array) -> Array:
    """M, changed, plus a form: a matrix, or numbers of which a diagonal one has as many as M or one."""
    if form.ndim == 2:
        M += form
    else:
        M[np.diag_indices_from(M)] += form
    return M


def _applied(P: Array, dtype: np.dtype) -> Precondition:
    P = P.astype(dtype)
    return lambda R: R @ P


def dual_preconditioner(sample: ZProblem, average: Average, dtype: np.dtype, made: Dtype = np.float64) -> Precondition:
    """Inverse of the mean of I + sum_k Phi_k M_k^-1 Phi_k^T, built up segment by segment from the first site.

    Made in float64, or in single precision where CG is; applied in the precision asked for.  Where the last segment
    ends in a linear map with more outputs than inputs, by Woodbury's formula.
    """
    weights, sites = _cast(sample, made)
    segments = sample.segments
    first, *inverses = (m.inverse.astype(made) for m in sample.metrics)
    M = _plus(first, np.zeros((sample.sizes[0],) * 2, made))
    for segment, A, C in zip(segments[1:-1], sites[:-1], inverses, strict=True):
        M = _plus(C, segment.congruence(weights, A, M, average=average))
    last, A = segments[-1], sites[-1]
    output = last.maps[-1]
    if sample.loss.unit_hessian and output.n_out > output.n_in and "linear" in output.capabilities:
        M = last.congruence(weights, A, M, len(last.maps) - 1, average)
        V = weights[last.weighted[-1]][:, : output.n_in]
        C = np.linalg.solve(np.eye(len(M), dtype=made) + M @ (V.T @ V), M)
        C, V = (0.5 * (C + C.T)).astype(dtype), V.astype(dtype)
        return lambda R: R - ((R @ V) @ C) @ V.T
    S = last.congruence(weights, A, M, average=average)
    if not sample.loss.unit_hessian:
        F = average.rows(lambda rows: last.forward(weights, A[rows]))
        S = average.mean(lambda rows: sample.loss.congruence(sample.Y[rows], F[rows], S), S.shape)
    try:
        return _applied(inverse(_plus(np.ones(()), S).astype(made, copy=False)), dtype)
    except np.linalg.LinAlgError:
        if made != np.float64:
            return dual_preconditioner(sample, average, dtype)
        return lambda R: R.copy()  # one direction dwarfs all others: CG goes without
