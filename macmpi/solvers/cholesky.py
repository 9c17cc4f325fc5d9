"""Cholesky factor of a large matrix, a panel of rows at a time, the rest of each panel in pieces for many ranks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from scipy.linalg import LinAlgError, blas, lapack

from macmpi.layers import Array
from macmpi.regression import InPieces, alone

WHOLE, PANEL = 512, 96
"""A matrix of at most so many rows is one panel; panels of a larger one have so many rows."""

MOST, LEAST = 24, 48
"""A panel is cut into at most so many pieces, of at least so many columns."""


def cholesky(R: Array, in_pieces: InPieces = alone) -> Array:
    """R with R^T R = H in the upper half of an array that holds H there, row-major; the lower half is of no use.

        R_ii^T R_ii = H_ii - S_i^T S_i,    R_ij = R_ii^-T (H_ij - S_i^T S_j),    S the rows of R above panel i.

    Every rank factors the diagonal blocks, at n^2 b / 2 flops for panels of b rows; the rest of the n^3 / 3 flops is in
    pieces.  Raises LinAlgError where H is not positive definite.  Collective: where `in_pieces` is.
    """
    for panel, columns in panels(len(R)):
        above = R[: panel.start, panel]
        diagonal = R[panel, panel] - above.T @ above if panel.start else R[panel, panel]
        L, failed = lapack.dpotrf(diagonal.T, lower=1)
        if failed:
            raise LinAlgError(f"not positive definite: row {panel.start + failed - 1}")
        R[panel, panel] = L.T
        parts = in_pieces([(len(L), c.stop - c.start) for c in columns], lambda i: _piece(R, L, panel, columns[i]))  # noqa: B023
        for c, part in zip(columns, parts, strict=True):
            R[panel, c] = part
    return R


def _piece(R: Array, L: Array, panel: slice, columns: slice) -> Array:
    """L^-1 (H_ij - S_i^T S_j) for some columns j."""
    right = R[panel, columns]
    if panel.start:
        right = right - R[: panel.start, panel].T @ R[: panel.start, columns]
    found: Array = blas.dtrsm(1.0, L, right.T, side=1, lower=1, trans_a=1)
    return found.T


def panels(n: int) -> Iterator[tuple[slice, list[slice]]]:
    """Rows of each panel, and the columns of its pieces: the same for every number of ranks."""
    rows = n if n <= WHOLE else PANEL
    for start in range(0, n, rows):
        stop = min(start + rows, n)
        count = min(MOST, -(-(n - stop) // LEAST))
        bounds = [stop + (n - stop) * i // max(count, 1) for i in range(count + 1)]
        yield slice(start, stop), [slice(a, b) for a, b in pairwise(bounds)]


def pieces(n: int) -> list[list[tuple[int, float]]]:
    """Size and flops of the pieces of each panel that has any."""
    found = []
    for panel, columns in panels(n):
        rows = panel.stop - panel.start
        sizes = [rows * (c.stop - c.start) for c in columns]
        if sizes:
            found.append([(size, float(size * (2 * panel.start + rows))) for size in sizes])
    return found
