"""The preconditioner of the Z-step's dual systems: the inverse of their mean over a sample of points, one for all.

Made in float64, or in single precision where CG is; applied in the precision asked for.
"""

from __future__ import annotations

import numpy as np

from macmpi.reductions import Average
from macmpi.solvers.inverse import inverse
from macmpi.solvers.linear_systems import Precondition
from macmpi.solvers.z_problem import ZProblem
from macmpi.typing import Array

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

    Where the last segment ends in a linear map with more outputs than inputs, by Woodbury's formula.
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
