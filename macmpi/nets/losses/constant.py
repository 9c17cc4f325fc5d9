"""Computes the best constant of a loss: the best outputs of a net that ignores its inputs."""

from __future__ import annotations

import numpy as np

from macmpi.nets.design import at, total_of
from macmpi.nets.losses import Loss, weighted
from macmpi.reductions import OverPoints
from macmpi.typing import Array

RARE = 1e-12
"""The smallest share of a class whose logarithm is used as an output; it replaces smaller shares."""

ROUNDS, NEAR = 60, 1e-10
"""The largest number of Newton steps, and the length of a step after which no other one follows.  If the best
constant is at infinity, as for counts that are all 0, the steps end at about -ROUNDS."""


def best_constant(loss: Loss, Y: Array, over: OverPoints, n: float, weights: Array | None = None) -> Array:
    """argmin over c of sum_n loss(y_n, c): (L,) float64.

    It is the mean for squared errors, and the logarithms of the classes' shares for labels.
    over: sums over points; n: the number of points that it sums over, or the sum of their weights.
    weights (n,): the weights of the points; None for 1.  Collective: if `over` is.
    """
    if not (loss.labels or loss.unit_hessian):
        return by_newton(loss, Y, over, weights)
    (total,) = over(lambda rows: (total_of(Y[rows], at(weights, rows)),))
    mean: Array = total / n
    return np.log(np.maximum(mean, RARE)) if loss.labels else mean


def by_newton(loss: Loss, Y: Array, over: OverPoints, weights: Array | None = None) -> Array:
    """c <- c + (sum of residuals) / (sum of curvatures), from 0, until c is the best constant of a sum over outputs.

    weights: as in `best_constant`.  Collective: if `over` is.
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
    """Computes E1 per point of a constant c (L,).  n, weights: as in `best_constant`.  Collective: if `over` is."""

    def part(rows: slice) -> tuple[Array, ...]:
        own = weighted(loss, at(weights, rows))
        T = _wide(Y[rows])
        return (own.value(T, np.broadcast_to(c, (len(T), len(c)))).sum(keepdims=True),)

    (total,) = over(part)
    return float(total[0]) / n


def start_targets(loss: Loss, Y: Array, over: OverPoints, weights: Array | None = None) -> Array:
    """Returns the targets (n, L) of the least-squares fit with which an output layer begins.

    They are Y for squared errors and labels.  For other losses without a link they are c + residual / (mean curvature)
    at the best constant c, the outputs to which a Gauss-Newton step from c leads; so missing targets become c, and
    outliers move nearer to it.  For losses with a link, whose steps may be long, they are c alone.
    weights: as in `best_constant`.  Collective: if `over` is.
    """
    if loss.labels or loss.unit_hessian:
        return Y
    c = by_newton(loss, Y, over, weights)
    F = np.broadcast_to(c, (len(Y), len(c)))
    if loss.link != "identity":
        return F
    n, _, curvature = over(lambda rows: _sums(loss, Y[rows], c, at(weights, rows)))
    return F + loss.residual(_wide(Y), F) * (n / np.maximum(curvature, NEAR))


def _sums(loss: Loss, Y: Array, c: Array, weights: Array | None) -> tuple[Array, Array, Array]:
    """Computes the total weight of points, and their weighted sums of residuals and of curvatures at a constant c."""
    n, own = len(Y), weighted(loss, weights)
    F = np.broadcast_to(c, (n, len(c)))
    curvature = n * np.diag(own.hessian(_wide(Y), F)) if n else np.zeros(len(c))
    weight = float(n) if weights is None else float(weights.sum())
    return np.array([weight]), own.residual(_wide(Y), F).sum(axis=0), curvature


def _wide(Y: Array) -> Array:
    return Y.astype(np.float64, copy=False)
