"""The best constant of a loss: the outputs of a net that knows nothing of its inputs."""

from __future__ import annotations

import numpy as np

from macmpi.nets.losses import Loss
from macmpi.reductions import OverPoints
from macmpi.typing import Array

RARE = 1e-12
"""The least share of a class; the logarithm of a smaller one is no usable output."""

ROUNDS, NEAR = 60, 1e-10
"""Newton's steps at most, and the length of one below which there is no other; a constant that lies at infinity, as of
counts that are all 0, is some ROUNDS away by then."""


def best_constant(loss: Loss, Y: Array, over: OverPoints, n: int) -> Array:
    """argmin over c of sum_n loss(y_n, c): (L,), in float64: of squares the mean, of labels the logarithms of shares.

    n: points that `over` sums over.  Collective: where `over` is.
    """
    if not (loss.labels or loss.unit_hessian):
        return by_newton(loss, Y, over)
    (total,) = over(lambda rows: (Y[rows].sum(axis=0, dtype=float),))
    mean: Array = total / n
    return np.log(np.maximum(mean, RARE)) if loss.labels else mean


def by_newton(loss: Loss, Y: Array, over: OverPoints) -> Array:
    """The best constant of a sum over outputs, c <- c + (sum of residuals) / (sum of curvatures) from 0.

    Collective: where `over` is.
    """
    c = np.zeros(Y.shape[1])
    for _ in range(ROUNDS):
        slope, curvature = over(lambda rows, c=c: _sums(loss, Y[rows], c)[1:])  # type: ignore[misc]
        step = slope / np.maximum(curvature, np.finfo(float).tiny)
        c = c + step
        if not np.abs(step).max() > NEAR:
            break
    return c


def constant_error(loss: Loss, Y: Array, c: Array, over: OverPoints, n: int) -> float:
    """E1 per point of a constant.  Collective: where `over` is."""
    (total,) = over(lambda rows: (loss.value(_wide(Y[rows]), np.broadcast_to(c, Y[rows].shape)).sum(keepdims=True),))
    return float(total[0]) / n


def start_targets(loss: Loss, Y: Array, over: OverPoints) -> Array:
    """Targets of the least-squares fit that an output layer begins with: (n, L), of squared errors and labels Y.

    Else c + residual / (mean curvature) at the best constant c, where a Gauss-Newton step from c leads; so missing
    targets are replaced by c, and outliers drawn nearer.  Behind a link, where such steps may be long, c alone.
    Collective: where `over` is.
    """
    if loss.labels or loss.unit_hessian:
        return Y
    c = by_newton(loss, Y, over)
    F = np.broadcast_to(c, Y.shape)
    if loss.link != "identity":
        return F
    n, _, curvature = over(lambda rows: _sums(loss, Y[rows], c))
    found: Array = F + loss.residual(_wide(Y), F) * (n / np.maximum(curvature, NEAR))
    return found


def _sums(loss: Loss, Y: Array, c: Array) -> tuple[Array, Array, Array]:
    """The number of points, and sums over them of residuals and of curvatures at a constant."""
    n, F = len(Y), np.broadcast_to(c, Y.shape)
    curvature = n * np.diag(loss.hessian(_wide(Y), F)) if n else np.zeros(len(c))
    return np.array([float(n)]), loss.residual(_wide(Y), F).sum(axis=0), curvature


def _wide(Y: Array) -> Array:
    return Y.astype(np.float64, copy=False)
