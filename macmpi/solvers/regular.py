"""Grams and the matrices of single points are kept regular by a little on the diagonal: the table of how much, and why.

Shares are of a matrix's mean diagonal, but for POINT.
"""

from __future__ import annotations

import numpy as np

from macmpi.reductions import ALONE, InPieces
from macmpi.solvers.cholesky import cholesky
from macmpi.typing import Array

PRECONDITIONER = 1e-8
"""For the Gram that preconditions a layer's units: no step along what the inputs do not span."""

NORMAL = 1e-13
"""For normal equations in closed form: dead or duplicate inputs do no harm, and no digit that matters is lost."""

SEGMENT = 1e-6
"""For the Grams that precondition the blocks of a segment: they are inverted as they are, with no second attempt."""

START = 1e-6
"""For the least-squares fits of a start, which may read more units than there are points."""

POINT = 1e-15
"""For the systems of single points, of their trace: these hold an identity, so that rounding alone is made up for."""

TINY = float(np.finfo(float).tiny)
"""Least of what `regular_factor` adds: inputs may all be 0."""


def jitter(G: Array, share: float, dtype: np.dtype | type = np.float64) -> float:
    """max(rounding of the Gram, `share` mean diagonals) keeps a Gram of inputs in `dtype` positive definite."""
    trace = float(np.trace(G))
    rounding = float(np.finfo(dtype).eps) if dtype != np.float64 else 0.0
    return max(share * trace / len(G), rounding * trace)


def regular_factor(G: Array, added: Array | float = 0.0, in_pieces: InPieces = ALONE) -> Array:
    """L, lower, with L L^T = G (its upper half) and on the diagonal `added`, and as much more as rounding takes.

    Collective: where `in_pieces` is.
    """
    more, diagonal = 0.0, np.diag_indices_from(G)
    largest = float(np.abs(G[diagonal] + added).max())
    if not np.isfinite(largest):
        raise np.linalg.LinAlgError("a Gram that is not finite")
    while True:
        try:
            return cholesky(G, in_pieces, added + more).T
        except np.linalg.LinAlgError:
            more = max(100.0 * more, 1e-12 * largest, TINY)
            if not np.isfinite(more):
                raise
