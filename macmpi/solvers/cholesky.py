"""Positive definite matrices are factored, kept regular by a little on the diagonal, and inverted.

The factor of a large one is made a panel of rows at a time, the rest of each panel in pieces for many ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.linalg import LinAlgError

from macmpi.parallel.lapack import blas, factored, lapack
from macmpi.reductions import ALONE, SharedMatrix
from macmpi.typing import Array

WHOLE, PANEL = 512, 96
"""A matrix of at most WHOLE rows is one panel; panels of a larger one have PANEL rows."""

MOST, LEAST = 24, 48
"""A panel is cut into at most MOST pieces, of at least LEAST columns."""

BY_FACTOR = 128
"""Rows up to which a matrix is inverted by its Cholesky factor; a larger one by halves, in matrix products."""

# How much is added to Grams and to the matrices of single points, and why: shares of the mean diagonal, but for POINT.

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


def cholesky(H: Array, shared_matrix: SharedMatrix = ALONE, added: Array | float = 0.0) -> Array:
    """R with R^T R = H + diag(added), of the upper half of H; in the upper half of a row-major array.

    The lower half is of no use, but 0 where H has one panel.

        R_ii^T R_ii = H_ii - S_i^T S_i,    R_ij = R_ii^-T (H_ij - S_i^T S_j),    S the rows of R above panel i.

    Every rank factors the diagonal blocks of n / b panels of b rows.  In pieces are the rest of each panel and, next to
    it, strips of the next diagonal block but for what this panel takes from it: these lie below the diagonal.  Raises
    LinAlgError where H is not positive definite, on all ranks where it seems so to one.

    Collective: where `shared_matrix` is.
    """
    cut, shift = list(panels(len(H))), np.broadcast_to(added, len(H))
    (panel, columns), *others = cut
    first, failed = _diagonal_factor(H[panel, panel].astype(np.float64), shift, panel)
    if not others:
        if failed:
            raise _indefinite(failed)
        return first
    diagonal = [first]
    R = shared_matrix.matrix(*H.shape)
    for following, after in others:
        a, side = following.start, following.stop - following.start
        strips = [slice(start, min(start + LEAST, side)) for start in range(0, side, LEAST)]
        places = [*((panel, c) for c in columns), *((following, slice(a + s.start, a + s.stop)) for s in strips)]
        blocks = [*(R[panel, c] for c in columns), *(R[following, s] for s in strips)]
        shared_matrix.fill(blocks, lambda j: _piece(H, R, diagonal[-1], panel, *places[j]))  # noqa: B023
        last = R[panel, following]
        block = R[following, : last.shape[1]] - last.T @ last
        panel, columns = following, after
        factor, row = _diagonal_factor(block, shift, panel)
        diagonal.append(factor)
        failed = failed or row  # the ranks go on together, and then fail together
    if shared_matrix.anywhere(failed > 0):
        raise _indefinite(failed)
    shared_matrix.fill([R[panel, panel] for panel, _ in cut], diagonal.__getitem__)
    return R


def _diagonal_factor(diagonal: Array, shift: Array, panel: slice) -> tuple[Array, int]:
    """Factors the diagonal block of a panel, in place: gives R_ii, upper triangular, and 0.

    shift (n,): is added to the diagonal of the whole matrix.
    Where the block is not positive definite gives the identity, and the number of the row, counted from 1 in the whole
    matrix, at which that shows.
    """
    diagonal.flat[:: len(diagonal) + 1] += shift[panel]
    L, failed = lapack.dpotrf(diagonal.T, lower=1, overwrite_a=1)
    if failed:
        return np.eye(len(diagonal)), panel.start + failed
    return L.T, 0


def _indefinite(row: int) -> LinAlgError:
    """Makes the error of a matrix that is not positive definite.  row: counted from 1; 0: another rank knows it."""
    return LinAlgError(f"not positive definite: row {row - 1}" if row else "not positive definite on another rank")


def _piece(H: Array, R: Array, R_ii: Array, panel: slice, rows: slice, columns: slice) -> Array:
    """R_ii^-T (H_ij - S_i^T S_j) for some columns j of a panel i; of rows behind it H_jj - S_j^T S_j alone.

    S: the rows of R above the panel.
    """
    right = H[rows, columns]
    if panel.start:
        right = right - R[: panel.start, rows].T @ R[: panel.start, columns]
    return blas.dtrsm(1.0, R_ii.T, right.T, side=1, lower=1, trans_a=1).T if rows == panel else right


def whole(n: int) -> bool:
    """Tells whether a matrix of n rows is one panel."""
    return n <= WHOLE


def panels(n: int) -> Iterator[tuple[slice, list[slice]]]:
    """Gives the rows of each panel of a matrix of n rows, and the columns of the pieces that its rest is cut into.

    They are the same for every number of ranks.
    """
    rows = n if whole(n) else PANEL
    for start in range(0, n, rows):
        stop = min(start + rows, n)
        count = min(MOST, -(-(n - stop) // LEAST))
        bounds = [stop + (n - stop) * i // max(count, 1) for i in range(count + 1)]
        yield slice(start, stop), [slice(a, b) for a, b in pairwise(bounds)]


def jitter(G: Array, share: float, dtype: np.dtype | type = np.float64) -> float:
    """max(rounding of the Gram, `share` mean diagonals) keeps a Gram of inputs in `dtype` positive definite."""
    trace = float(np.trace(G))
    rounding = float(np.finfo(dtype).eps) if dtype != np.float64 else 0.0
    return max(share * trace / len(G), rounding * trace)


def regular_factor(G: Array, added: Array | float = 0.0, shared_matrix: SharedMatrix = ALONE) -> Array:
    """Gives L, lower triangular, with L L^T = G + diag(added) + e I; e is 0, or what makes that positive definite.

    G (n, n): symmetric; its upper half alone is read.
    added: a number, or one for each row (n,).
    e begins at 1e-12 of the largest diagonal element, and grows a hundredfold until the factorisation succeeds.
    Raises LinAlgError where G is not finite.  Cost: n^3 / 3 flops, again for each e.  Collective: where `shared_matrix`
    is.
    """
    more, diagonal = 0.0, np.diag_indices_from(G)
    largest = float(np.abs(G[diagonal] + added).max())
    if not np.isfinite(largest):
        raise np.linalg.LinAlgError("a Gram that is not finite")
    while True:
        try:
            return cholesky(G, shared_matrix, added + more).T
        except np.linalg.LinAlgError:
            more = max(100.0 * more, 1e-12 * largest, TINY)
            if not np.isfinite(more):
                raise


def inverse(S: Array) -> Array:
    """S^-1, symmetric, in the precision of S.  Raises LinAlgError where S is not positive definite.

    By Schur complements: for S = [A, B^T; B, C], with X = B A^-1 and the complement D = C - X B^T,

        S^-1 = [A^-1 + X^T D^-1 X, .; -D^-1 X, D^-1].

    Cost: 4/3 n^3 flops, nearly all in products; by the factor alone n^3, at a quarter to a half of their rate.
    """
    n = len(S)
    if n <= BY_FACTOR:
        potri = lapack.spotri if S.dtype == np.float32 else lapack.dpotri
        return symmetric(potri(factored(S), lower=1, overwrite_c=1)[0])
    half = n // 2
    inner, B = inverse(S[:half, :half]), S[half:, :half]
    X = B @ inner
    outer = inverse(S[half:, half:] - X @ B.T)
    across = outer @ X
    return np.block([[inner + symmetric(X.T @ across), -across.T], [-across, outer]])


def symmetric(half: Array) -> Array:
    """A symmetric matrix of which the lower half is known: that half, and its mirror image."""
    below = np.tril(half, -1)
    below += below.T
    below[np.diag_indices_from(below)] = half.diagonal()
    return below
