"""Conjugate gradients for many linear systems at once, one a row of a matrix: points, units, or one whole segment."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from macmpi.nets.design import row_dots
from macmpi.typing import Array

Precondition = Callable[[Array], Array]
"""Gives a fresh array, the preconditioned residuals of some rows."""

Product = Callable[[Array, bool], tuple[Array, Array | None, Array]]
"""(P, last) -> P^T S P row by row, S P unless it is the last one, and what a unit of P adds to the answer."""


def conjugate_gradients(
    start: Array,
    R: Array,
    product: Product,
    precondition: Precondition,
    iterations: int,
    tolerance: float,
    live: Array | bool = True,
    agreed: Callable[[Array], Array] = lambda found: found,
    taken: Callable[[Array, bool], object] = lambda lengths, first: None,
) -> Array:
    """start + the sum of the CG steps of each row, for right sides R.  `start` and R are overwritten.

    Every row has coefficients of its own; rows whose preconditioned residual has fallen to `tolerance` are masked, as
    are those that are not live.  taken: is told each iteration's lengths, and whether it is the first; agreed: as
    InPieces has it.  Collective: where these or `product` are.
    """
    X = start
    preconditioned = precondition(R)
    P, ry = preconditioned, agreed(row_dots(R, preconditioned))
    small = tolerance**2 * ry
    live = live & (ry > 0.0)
    for i in range(iterations):
        curvature, SP, T = product(P, i + 1 == iterations)
        live = live & (curvature > 0.0)
        lengths = np.where(live, ry / np.where(live, curvature, 1.0), 0.0)
        alpha = lengths[:, None]
        X += T * alpha if T is P else np.multiply(T, alpha, out=T)
        taken(lengths, i == 0)
        if SP is None:
            break
        SP *= alpha
        R -= SP
        preconditioned = precondition(R)
        ry_old, ry = ry, agreed(row_dots(R, preconditioned))
        live = live & (ry > small)
        if not live.any():
            break
        P = preconditioned + np.where(live, ry / np.where(live, ry_old, 1.0), 0.0)[:, None] * P
    return X
