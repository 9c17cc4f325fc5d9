"""Cholesky factor of a large matrix, a panel of rows at a time, the rest of each panel in pieces for many ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.linalg import LinAlgError

from macmpi.parallel.lapack import blas, lapack
from macmpi.reductions import ALONE, InPieces
from macmpi.typing import Array

WHOLE, PANEL = 512, 96
"""A matrix of at most WHOLE rows is one panel; panels of a larger one have PANEL rows."""

MOST, LEAST = 24, 48
"""A panel is cut into at most MOST pieces, of at least LEAST columns."""


def cholesky(H: Array, in_pieces: InPieces = ALONE, added: Array | float = 0.0) -> Array:
    """R with R^T R = H + diag(added), of the upper half of H; in the upper half of a row-major array.

    The lower half is of no use, but 0 where H has one panel.

        R_ii^T R_ii = H_ii - S_i^T S_i,    R_ij = R_ii^-T (H_ij - S_i^T S_j),    S the rows of R above panel i.

    Every rank factors the diagonal blocks of n / b panels of b rows.  In pieces are the rest of each panel and, next to
    it, strips of the next diagonal block but for what this panel takes from it: these lie below the diagonal.  Raises
    LinAlgError where H is not positive definite, on all ranks where it seems so to one.  Collective: where `in_pieces`
    is.
    """
    cut, shift = list(panels(len(H))), np.broadcast_to(added, len(H))
    (panel, columns), *others = cut
    first, failed = _diagonal_factor(H[panel, panel].astype(np.float64), shift, panel)
    if not others:
        if failed:
            raise _indefinite(failed)
        return first
    diagonal = [first]
    R = in_pieces.matrix(*H.shape)
    for i, (following, after) in enumerate(others):
        strips = [R[following, s] for s in _strips(following.stop - following.start)]
        blocks = [*(R[panel, c] for c in columns), *strips]
        in_pieces.fill(blocks, lambda j: _piece(H, R, diagonal[-1], cut[i : i + 2], j))  # noqa: B023
        last = R[panel, following]
        block = R[following, : last.shape[1]] - last.T @ last
        panel, columns = following, after
        found, row = _diagonal_factor(block, shift, panel)
        diagonal.append(found)
        failed = failed or row  # the ranks go on together, and then fail together
    if in_pieces.anywhere(failed > 0):
        raise _indefinite(failed)
    in_pieces.fill([R[panel, panel] for panel, _ in cut], diagonal.__getitem__)
    return R


def _diagonal_factor(diagonal: Array, shift: Array, panel: slice) -> tuple[Array, int]:
    """R_ii, upper triangular, of a block and what is added to it, in place; and 0.

    Or the identity, and the number of the row, counted from 1, from which on the block is not positive definite.
    """
    diagonal.flat[:: len(diagonal) + 1] += shift[panel]
    L, failed = lapack.dpotrf(diagonal.T, lower=1, overwrite_a=1)
    if failed:
        return np.eye(len(diagonal)), panel.start + failed
    found: Array = L.T
    return found, 0


def _indefinite(row: int) -> LinAlgError:
    """row: counted from 1; 0 where another rank knows it."""
    return LinAlgError(f"not positive definite: row {row - 1}" if row else "not positive definite on another rank")


Cut = tuple[slice, list[slice]]
"""Rows of a panel, and the columns of its pieces."""


def _shapes(cut: Sequence[Cut], i: int) -> list[tuple[int, int]]:
    """Give the shapes of panel i's pieces: the rest of its rows, and strips of the next diagonal block."""
    (panel, columns), (following, _) = cut[i : i + 2]
    rows, below = panel.stop - panel.start, following.stop - following.start
    return [*((rows, c.stop - c.start) for c in columns), *((below, s.stop - s.start) for s in _strips(below))]


def _strips(side: int) -> list[slice]:
    """Columns of a diagonal block, as many as a piece may have at least."""
    return [slice(a, min(a + LEAST, side)) for a in range(0, side, LEAST)]


def _piece(H: Array, R: Array, R_ii: Array, cut: Sequence[Cut], j: int) -> Array:
    """R_ii^-T (H_ij - S_i^T S_j) for some columns j of a panel; or behind these, H_jj - S_j^T S_j for a strip of the
    next diagonal block, S the rows of R above the present panel.
    """
    (panel, columns), (following, _) = cut
    rest = j < len(columns)
    if rest:
        i, c = panel, columns[j]
    else:
        i, strip = following, _strips(following.stop - following.start)[j - len(columns)]
        c = slice(i.start + strip.start, i.start + strip.stop)
    right = H[i, c]
    if panel.start:
        right = right - R[: panel.start, i].T @ R[: panel.start, c]
    if not rest:
        return right
    found: Array = blas.dtrsm(1.0, R_ii.T, right.T, side=1, lower=1, trans_a=1)
    return found.T


def whole(n: int) -> bool:
    """Tells whether a matrix of n rows is one panel."""
    return n <= WHOLE


def panels(n: int) -> Iterator[Cut]:
    """Rows of each panel, and the columns of its pieces: the same for every number of ranks."""
    rows = n if whole(n) else PANEL
    for start in range(0, n, rows):
        stop = min(start + rows, n)
        count = min(MOST, -(-(n - stop) // LEAST))
        bounds = [stop + (n - stop) * i // max(count, 1) for i in range(count + 1)]
        yield slice(start, stop), [slice(a, b) for a, b in pairwise(bounds)]


def pieces(n: int) -> list[list[tuple[int, float]]]:
    """Size and flops of the pieces of each panel that has any."""
    cut, found = list(panels(n)), []
    for i, (panel, columns) in enumerate(cut[:-1]):
        sizes = [h * w for h, w in _shapes(cut, i)]
        solved = [panel.stop - panel.start] * len(columns) + [0] * (len(sizes) - len(columns))
        found.append([(size, float(size * (2 * panel.start + rows))) for size, rows in zip(sizes, solved, strict=True)])
    return found
