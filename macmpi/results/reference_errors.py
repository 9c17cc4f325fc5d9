"""A net is compared with the best constant and, for an autoencoder, principal components."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from macmpi.console import decimals
from macmpi.data.dataset import Dataset
from macmpi.nets.chain import Chain
from macmpi.nets.design import gram, total_of
from macmpi.nets.losses import Loss
from macmpi.nets.losses.constant import best_constant, constant_error
from macmpi.reductions import OverPoints, sum_over

AT_ONCE = 4096
"""Points whose sums are taken at a time: in double precision, as many as a large data set may not fit in memory."""

EPS = float(np.finfo(float).eps)
"""Rounding: a mean of n numbers is off by up to n times this share of it; targets no further from it are constant."""

PCA_LIMIT = 2048
"""The most columns for which principal components are computed."""


@dataclass(frozen=True)
class Level:
    """E1 per training point, or the share of misclassified ones."""

    name: str
    value: float
    share: bool = False

    def __str__(self) -> str:
        value = f"wrong train {self.value:6.2%}" if self.share else f"E1 train {decimals(self.value):>9}"
        return f"{self.name:28s} {value}"


def all_at_hand(n: int) -> OverPoints:
    """Sums over n points that one process holds.  Collective: no."""
    return sum_over([slice(start, start + AT_ONCE) for start in range(0, n, AT_ONCE)])


def levels(chain: Chain, data: Dataset, loss: Loss, over: OverPoints | None = None, n: float = 0) -> list[Level]:
    """Errors of the best constant and, for an autoencoder by squares, of PCA with as many components as code units.

    `over` sums over all points, n of them, or of their weight, where `data` holds only some.  Cost: n L^2 for
    PCA.  Collective: where `over` is.
    """
    Y, w, over = data.Y, data.weights, over or all_at_hand(len(data.Y))
    n = n or (len(Y) if w is None else float(w.sum()))
    if not (loss.labels or loss.unit_hessian):
        error = constant_error(loss, Y, best_constant(loss, Y, over, n, w), over, n, w)
        return [Level("predict the best constant", error)]
    (total,) = over(lambda rows: (total_of(Y[rows], None if w is None else w[rows]),))
    mean = total / n
    if loss.labels:
        entropy = -float(np.sum(mean * np.log(np.maximum(mean, 1e-300))))
        return [
            Level("predict the shares", entropy),
            Level("predict the largest class", float(1.0 - mean.max()), share=True),
        ]
    (squares,) = over(lambda rows: (total_of(np.square(Y[rows] - mean), None if w is None else w[rows]),))
    spread_out = float(squares.sum()) > n * ((n if w is None else len(Y)) * EPS) ** 2 * float(np.square(mean).sum())
    found = [Level("predict the mean", 0.5 * float(squares.sum()) / n if spread_out else 0.0)]
    if data.autoencoder and len(mean) <= PCA_LIMIT:
        code = min(min(chain.layer_sizes[1:-1]), len(mean))
        (spread,) = over(lambda rows: (gram(Y[rows] - mean, False, None if w is None else w[rows]),))
        values = np.linalg.eigvalsh(spread)
        lost = max(float(values[: len(values) - code].sum()), 0.0)
        found.append(Level(f"PCA with {code} component{'s' if code > 1 else ''}", 0.5 * lost / n))
    return found
