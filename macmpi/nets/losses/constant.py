"""The best constant of a loss: the outputs of a net that knows nothing of its inputs."""

from __future__ import annotations

import numpy as np

from macmpi.nets.design import at, total_of
from macmpi.nets.losses import Loss, weighted
from macmpi.reductions import OverPoints
from macmpi.typing import Array

RARE = 1e-12
"""The least share of a class; the logarithm of a smaller one is no usable output."""

ROUNDS, NEAR = 60, 1e-10
"""Newton's steps at most, and the length of one below which there is no other; a constant that lies at infinity, as of
counts that are all 0, is some ROUNDS away by then."""


def best_constant(loss: Loss, Y: Array, over: OverPoints, n: float, weights: Array | None = None) -> Array:
    """argmin over c of sum_n loss(y_n, c): (L,), in float64: of squares the mean, of labels the logarithms of shares.

    n: points that `over` sums over, or the sum of their weights; weights: of the points.  Collective: where `over` is.
    """
    if not (loss.labels or loss.unit_hessian):
        return by_newton(loss, Y, over, weights)
    (total,) = over(lambda rows: (total_of(Y[rows], at(weights, rows)),))
    mean: Array = total / n
    return np.log(np.maximum(mean, RARE)) if loss.labels else mean


def by_newton(loss: Loss, Y: Array, over: OverPoints, weights: Array | None = None) -> Array:
    """The best constant of a sum over outputs, c <- c + (sum of residuals) / (sum of curvatures) from 0.

    weights: of the points.  Collective: where `over` is.
    """
    c = np.zeros(loss.width(Y))
    for _ in range(ROUNDS):
        slope, curvature = over(lambda rows, c=c: _sums(loss, Y[rows], c, at(weights, rows))[1:])  # type: ignore[misc]
        step = slope / np.maximum(curvature, np.finfo(float).tiny)
        c = c + step
        if not np.abs(step).max() > NEAR:
            break
    return c


def constant_error(loss: Loss, Y: Array, c: Array, over: OverPoints, n: float, weights: Array | None = None) -> float:
    """E1 per point of a constant; n, weights: as of `best_constant`.  Collective: where `over` is."""

    def part(rows: slice) -> tuple[Array, ...]:
        own = weighted(loss, at(weights, rows))
        T = _wide(Y[rows])
        return (own.value(T, np.broadcast_to(c, (len(T), len(c)))).sum(keepdims=True),)

    (total,) = over(part)
    return float(total[0]) / n


def start_targets(loss: Loss, Y: Array, over: OverPoints, weights: Array | None = None) -> Array:
    """Targets of the least-squares fit that an output layer begins with: (n, L), of squared errors and labels Y.

    Else c + residual / (mean curvature) at the best constant c, where a Gauss-Newton step from c leads; so missing
    targets are replaced by c, and outliers drawn nearer.  Behind a link, where such steps may be long, c alone.
    weights: of the points.  Collective: where `over` is.
    """
    if loss.labels or loss.unit_hessian:
        return Y
    c = by_newton(loss, Y, over, weights)
    F = np.broadcast_to(c, (len(Y), len(c)))
    if loss.link != "identity":
        return F
    n, _, curvature = over(lambda rows: _sums(loss, Y[rows], c, at(weights, rows)))
    found: Array = F + loss.residual(_wide(Y), F) * (n / np.maximum(curvature, NEAR))
    return found


def _sums(loss: Loss, Y: Array, c: Array, weights: Array | None) -> tuple[Array, Array, Array]:
    """The weight of points, and sums over them, as they weigh, of residuals and of curvatures at a constant."""
    n, own = len(Y), weighted(loss, weights)
    F = np.broadcast_to(c, (n, len(c)))
    curvature = n * np.diag(own.hessian(_wide(Y), F)) if n else np.zeros(len(c))
    weight = float(n) if weights is None else float(weights.sum())
    return np.array([weight]), own.residual(_wide(Y), F).sum(axis=0), curvature


def _wide(Y: Array) -> Array:
    return Y.astype(np.float64, copy=False)
