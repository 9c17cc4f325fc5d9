"""Products with the design matrix of a layer: [A, 1], whose last column multiplies the biases, or A without biases.

Which of the two it is, the weights' columns or `bias` say.  And views of columns of an array.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from macmpi.typing import Array

Columns = tuple[int, int]
"""The first of some columns of the data, and the one behind the last."""

SMALL = 1_000_000
"""Products of at most this many multiplications have kernels in some BLAS that copy no operand."""

FEWEST = 48
"""The fewest rows of a run of a product for which those kernels are asked for."""


def apply(A: Array, W: Array) -> Array:
    """[A, 1] W^T in the precision of A: (n, D), (w, D + 1) -> (n, w); A W^T for W (w, D).  Cost: 2 n D w flops."""
    W = W.astype(A.dtype, copy=False)
    D = A.shape[1]
    B = _times(A, W[:, :D].T)
    if W.shape[1] > D:
        B += np.ascontiguousarray(W[:, D])  # read n times over
    return B


def _times(A: Array, V: Array) -> Array:
    """A V: (n, D), (D, w) -> (n, w), a narrow one in double precision by runs of rows, each SMALL."""
    (n, D), w = A.shape, V.shape[1]
    rows = SMALL // (D * w) // 8 * 8
    if min(rows, n) < FEWEST or A.dtype != np.float64:
        return A @ V
    B, V, whole = np.empty((n, w), A.dtype), np.ascontiguousarray(V), n - n % rows
    np.matmul(A[:whole].reshape(-1, rows, D), V, out=B[:whole].reshape(-1, rows, w))
    np.matmul(A[whole:], V, out=B[whole:])
    return B


def adjoint(Q: Array, A: Array, bias: bool = True, out: Array | None = None) -> Array:
    """Q^T [A, 1]: (n, w), (n, D) -> (w, D + 1), in `out` if it is given; without biases Q^T A.

    Cost: 2 n D w flops.
    """
    if not bias:
        return np.matmul(Q.T, A, out=out)
    w, D = Q.shape[1], A.shape[1]
    G = np.empty((w, D + 1), Q.dtype) if out is None else out
    if 2 * w <= D and Q.dtype != np.float64:  # faster this way round
        np.copyto(G[:, :-1], (A.T @ Q).T)
    else:
        np.matmul(Q.T, A, out=G[:, :-1])
    G[:, -1] = column_sums(Q)
    return G


def gram(A: Array, bias: bool = True, weights: Array | None = None, out: Array | None = None) -> Array:
    """[A, 1]^T [A, 1]: (n, D) -> (D + 1, D + 1), in `out` if it is given; without biases A^T A.  Cost: n D^2 flops.

    weights: of the rows, (n,): the sum of w_n [a_n, 1] [a_n, 1]^T.
    """
    if weights is not None:
        roots = np.sqrt(weights).astype(A.dtype, copy=False)[:, None]
        return gram(np.hstack([A * roots, roots]) if bias else A * roots, bias=False, out=out)
    if not bias:
        return np.matmul(A.T, A, out=out)
    n, D = A.shape
    G = np.empty((D + 1, D + 1), A.dtype) if out is None else out
    np.matmul(A.T, A, out=G[:-1, :-1])
    G[-1, :-1] = G[:-1, -1] = column_sums(A)
    G[-1, -1] = n
    return G


def gram_rows(A: Array, rows: slice, bias: bool = True, weights: Array | None = None) -> Array:
    """Rows of gram(A, bias, weights) from the diagonal on, the rest 0: (r, D + 1) or (r, D).

    Cost: 2 n r (D - start) flops.
    """
    if bias:
        A = np.hstack([A, np.ones((len(A), 1), A.dtype)])
    if weights is not None:
        A = A * np.sqrt(weights).astype(A.dtype, copy=False)[:, None]
    G = np.zeros((rows.stop - rows.start, A.shape[1]), A.dtype)
    np.matmul(A[:, rows].T, A[:, rows.start :], out=G[:, rows.start :])
    return G


def row_dots(A: Array, B: Array) -> Array:
    """sum_h A[n, h] B[n, h], shape (n,)."""
    return np.vecdot(A, B)


def column_sums(A: Array) -> Array:
    """sum_n A[n, h]: (w,).  A product with ones: NumPy's own sums along columns take several times as long."""
    return np.ones(len(A), A.dtype) @ A


def at(weights: Array | None, rows: Any) -> Array | None:
    """The weights of some points, None where all are 1.  Collective: no."""
    return None if weights is None else weights[rows]


def weighed(A: Array, weights: Array | None) -> Array:
    """The rows of A (n, w) times their weights (n,), in the precision of A; A itself where there are none."""
    return A if weights is None else weights.astype(A.dtype, copy=False)[:, None] * A


def mean_of(A: Array, weights: Array | None) -> Array:
    """The mean of the rows of A (n, w), as they weigh (n,): (w,)."""
    found: Array = A.mean(axis=0) if weights is None else weights @ A / weights.sum()
    return found


def total_of(A: Array, weights: Array | None = None) -> Array:
    """The sum of the rows of A (n, w) or (n,) in float64, each times its weight (n,) if there are weights: (w,)."""
    found: Array = A.sum(axis=0, dtype=float) if weights is None else weights @ A.astype(float, copy=False)
    return found


def column_dots(A: Array, B: Array) -> Array:
    """sum_n A[n, h] B[n, h]: (w,)."""
    return np.einsum("nh,nh->h", A, B)


def ridge_value(W: Array, n_in: int | None = None) -> Array:
    """||v_h||^2 of each unit h of W = [V, c], V (w, n_in): (w,).  The biases c are left alone."""
    V = W[:, : W.shape[1] - 1 if n_in is None else n_in]
    return row_dots(V, V)


def squared_distances(A: Array, C: Array) -> Array:
    """||a_n - c_m||^2: (n, D), (m, D) -> (n, m), not below 0.  Cost: 2 n m D flops.

    The error is at most (D + 6) u (||a - s|| + ||c - s|| + 4 r)^2, u the unit roundoff, s the mean of the c_m and r the
    root mean square of ||c - s||, however far from the origin the data lie: if s is farther from it than sqrt(3) r,
    both are taken from s first.
    """
    C = C.astype(A.dtype, copy=False)
    mean, squares = column_sums(C) / len(C), row_dots(C, C)
    if row_dots(mean, mean) > 0.75 * squares.mean():
        A, C = A - mean, C - mean
        squares = row_dots(C, C)
    D = A @ C.T
    D *= -2.0
    D += row_dots(A, A)[:, None]
    D += squares
    return np.maximum(D, 0.0, out=D)


def split_columns(sizes: Sequence[int], A: Array) -> list[Array]:
    """Views (n, sizes[0]), (n, sizes[1]), ... of the columns of A."""
    return [A[:, columns] for columns in _columns(tuple(sizes))]


@cache
def _columns(sizes: tuple[int, ...]) -> list[slice]:
    bounds = np.cumsum([0, *sizes]).tolist()
    return [slice(a, b) for a, b in pairwise(bounds)]
