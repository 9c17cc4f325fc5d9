"""Factors and inverts positive definite matrices, and keeps them regular by adding a little to the diagonal.

A large matrix is factored panel by panel, and the ranks share the pieces of each panel.
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
"""A matrix of at most WHOLE rows is one panel; a larger one is cut into panels of PANEL rows."""

MOST, LEAST = 24, 48
"""The rest of a panel is cut into at most MOST pieces, of at least LEAST columns each."""

BY_FACTOR = 128
"""A matrix of at most this number of rows is inverted by its Cholesky factor, a larger one by halves."""

# The next constants are added to the diagonals of Grams, as shares of the mean diagonal; POINT is a share of the trace.

PRECONDITIONER = 1e-8
"""For the Gram that preconditions the units of a layer: it allows no step in directions that the inputs do not span."""

NORMAL = 1e-13
"""For normal equations in closed form: it is enough for dead or duplicate inputs, and costs no digit that matters."""

SEGMENT = 1e-6
"""For the Grams that precondition the blocks of a segment, which are inverted without a second attempt."""

START = 1e-6
"""For the least-squares fits of a start, which may have more inputs than points."""

POINT = 1e-15
"""For the systems of single points: they contain an identity, so that only rounding must be made up for."""

TINY = float(np.finfo(float).tiny)
"""The least number that `regular_factor` adds, because all inputs may be 0."""


def cholesky(H: Array, shared_matrix: SharedMatrix = ALONE, added: Array | float = 0.0) -> Array:
    """Computes the upper triangular R with R^T R = H + diag(added), from the upper half of H.

    R is in the upper half of a row-major array (n, n); its lower half has no meaning, but is 0 if H is one panel.

        R_ii^T R_ii = H_ii - S_i^T S_i,    R_ij = R_ii^-T (H_ij - S_i^T S_j),    S: the rows of R above panel i.

    Every rank factors all diagonal blocks.  The ranks share the rest of each panel, in pieces, and together with these
    strips of H_jj - S_j^T S_j for the next diagonal block, without the part of S_j in the present panel; the strips are
    kept below the diagonal.
    Raises LinAlgError if H is not positive definite: on all ranks, if it seems so to one.

    Collective: if `shared_matrix` is.
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
        failed = failed or row  # all ranks go on, and fail together at the end
    if shared_matrix.anywhere(failed > 0):
        raise _indefinite(failed)
    shared_matrix.fill([R[panel, panel] for panel, _ in cut], diagonal.__getitem__)
    return R


def _diagonal_factor(diagonal: Array, shift: Array, panel: slice) -> tuple[Array, int]:
    """Factors the diagonal block of a panel, in place, and returns R_ii, upper triangular, and 0.

    shift (n,): is added to the diagonal of the whole matrix.
    If the block is not positive definite, it returns the identity, and the number of the row, from 1 in the whole
    matrix, at which the factorisation failed.
    """
    diagonal.flat[:: len(diagonal) + 1] += shift[panel]
    L, failed = lapack.dpotrf(diagonal.T, lower=1, overwrite_a=1)
    if failed:
        return np.eye(len(diagonal)), panel.start + failed
    return L.T, 0


def _indefinite(row: int) -> LinAlgError:
    """Makes the error of a matrix that is not positive definite.  row: counted from 1; 0 if another rank has met it."""
    return LinAlgError(f"not positive definite: row {row - 1}" if row else "not positive definite on another rank")


def _piece(H: Array, R: Array, R_ii: Array, panel: slice, rows: slice, columns: slice) -> Array:
    """R_ii^-T (H_ij - S_i^T S_j) for rows of panel i, or H_jj - S_j^T S_j for rows after it, in some columns j.

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
    """Yields for each panel of a matrix of n rows its rows, and the columns of the pieces into which its rest is cut.

    They do not depend on the number of ranks.
    """
    rows = n if whole(n) else PANEL
    for start in range(0, n, rows):
        stop = min(start + rows, n)
        count = min(MOST, -(-(n - stop) // LEAST))
        bounds = [stop + (n - stop) * i // max(count, 1) for i in range(count + 1)]
        yield slice(start, stop), [slice(a, b) for a, b in pairwise(bounds)]


def jitter(G: Array, share: float, dtype: np.dtype | type = np.float64) -> float:
    """Returns max(rounding of the Gram, share * mean diagonal), which keeps a Gram of inputs positive definite.

    dtype: the precision of the inputs; in double precision the rounding of the Gram counts as 0.
    """
    trace = float(np.trace(G))
    rounding = float(np.finfo(dtype).eps) if dtype != np.float64 else 0.0
    return max(share * trace / len(G), rounding * trace)


def regular_factor(G: Array, added: Array | float = 0.0, shared_matrix: SharedMatrix = ALONE) -> Array:
    """Computes the lower triangular L with L L^T = G + diag(added) + e I, where e = 0 if that is positive definite.

    G (n, n): symmetric; only its upper half is read.
    added: a number, or one for each row (n,).
    Otherwise e begins at 1e-12 of the largest diagonal element, and grows a hundredfold until the factorisation works.
    Raises LinAlgError if G is not finite.  Cost: n^3 / 3 flops, for each e.  Collective: if `shared_matrix` is.
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
    """Inverts a symmetric matrix S in its precision.  Raises LinAlgError if S is not positive definite.

    It uses Schur complements: for S = [A, B^T; B, C], with X = B A^-1 and the complement D = C - X B^T,

        S^-1 = [A^-1 + X^T D^-1 X, .; -D^-1 X, D^-1].

    Cost: 4/3 n^3 flops, nearly all in matrix products; the Cholesky factor would need n^3, at a quarter to a half of
    their rate.
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
    """Returns the symmetric matrix whose lower half is given; the upper half of the argument is not read."""
    below = np.tril(half, -1)
    below += below.T
    below[np.diag_indices_from(below)] = half.diagonal()
    return below
