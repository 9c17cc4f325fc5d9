"""Products with the design matrix of a layer: [A, 1], where the last column multiplies the biases, or A without biases.

The number of columns of the weights, or the argument `bias`, says which.  Sums over rows and views of columns are here
too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from macmpi.typing import Array

Columns = tuple[int, int]
"""A range of columns of the data: the first one, and the one after the last."""

SMALL = 1_000_000
"""For products of at most this number of multiplications OpenBLAS has kernels that do not copy the operands."""

FEWEST = 48
"""A product is cut into ranges of rows for those kernels only where a range has at least this number of rows."""


def apply(A: Array, W: Array) -> Array:
    """[A, 1] W^T in the precision of A, for A (n, D) and W (w, D + 1); A W^T for W (w, D).

    Cost: 2 n D w flops.
    """
    W = W.astype(A.dtype, copy=False)
    D = A.shape[1]
    B = _times(A, W[:, :D].T)
    if W.shape[1] > D:
        B += np.ascontiguousarray(W[:, D])  # it is read n times
    return B


def _times(A: Array, V: Array) -> Array:
    """Computes A V, for A (n, D) and V (D, w).

    In double precision and for small D w it does so by ranges of rows, each of at most SMALL multiplications.
    """
    (n, D), w = A.shape, V.shape[1]
    rows = SMALL // (D * w) // 8 * 8
    if min(rows, n) < FEWEST or A.dtype != np.float64:
        return A @ V
    B, V, whole = np.empty((n, w), A.dtype), np.ascontiguousarray(V), n - n % rows
    np.matmul(A[:whole].reshape(-1, rows, D), V, out=B[:whole].reshape(-1, rows, w))
    np.matmul(A[whole:], V, out=B[whole:])
    return B


def adjoint(Q: Array, A: Array, bias: bool = True, out: Array | None = None) -> Array:
    """Q^T [A, 1], (w, D + 1), for Q (n, w) and A (n, D), in `out` if it is given; without biases Q^T A.

    Cost: 2 n D w flops.
    """
    if not bias:
        return np.matmul(Q.T, A, out=out)
    w, D = Q.shape[1], A.shape[1]
    G = np.empty((w, D + 1), Q.dtype) if out is None else out
    if 2 * w <= D and Q.dtype != np.float64:  # this order is faster
        np.copyto(G[:, :-1], (A.T @ Q).T)
    else:
        np.matmul(Q.T, A, out=G[:, :-1])
    G[:, -1] = column_sums(Q)
    return G


def gram(A: Array, bias: bool = True, weights: Array | None = None, out: Array | None = None) -> Array:
    """[A, 1]^T [A, 1], (D + 1, D + 1), for A (n, D), in `out` if given; without biases A^T A.  Cost: n D^2 flops.

    weights (n,): the weights w_n in the sum over n of w_n [a_n, 1]^T [a_n, 1]; None for 1.
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
    """Computes some rows of gram(A, bias, weights) from the diagonal on; the rest is 0: (r, D + 1) or (r, D).

    Cost: 2 n r (D - rows.start) flops.
    """
    if bias:
        A = np.hstack([A, np.ones((len(A), 1), A.dtype)])
    if weights is not None:
        A = A * np.sqrt(weights).astype(A.dtype, copy=False)[:, None]
    G = np.zeros((rows.stop - rows.start, A.shape[1]), A.dtype)
    np.matmul(A[:, rows].T, A[:, rows.start :], out=G[:, rows.start :])
    return G


def row_dots(A: Array, B: Array) -> Array:
    """sum_h A[n, h] B[n, h]: (n,)."""
    return np.vecdot(A, B)


def column_sums(A: Array) -> Array:
    """sum_n A[n, h]: (w,).

    It is a product with ones, because NumPy's own sums along columns take several times as long.
    """
    return np.ones(len(A), A.dtype) @ A


def at(weights: Array | None, rows: Any) -> Array | None:
    """Returns the weights of some rows of points, None if all are 1; or the rows of another array that may be None.

    Collective: no.
    """
    return None if weights is None else weights[rows]


def weighed(A: Array, weights: Array | None) -> Array:
    """Multiplies the rows of A (n, w) by their weights (n,), in the precision of A; without weights it returns A."""
    return A if weights is None else weights.astype(A.dtype, copy=False)[:, None] * A


def mean_of(A: Array, weights: Array | None) -> Array:
    """Computes the weighted mean of the rows of A (n, w): (w,).  weights (n,): None for equal ones."""
    return A.mean(axis=0) if weights is None else weights @ A / weights.sum()


def total_of(A: Array, weights: Array | None = None) -> Array:
    """Sums the rows of A (n, w) or (n,) in float64, times their weights (n,) if there are some: (w,) or one number."""
    return A.sum(axis=0, dtype=float) if weights is None else weights @ A.astype(float, copy=False)


def column_dots(A: Array, B: Array) -> Array:
    """sum_n A[n, h] B[n, h]: (w,)."""
    return np.einsum("nh,nh->h", A, B)


def ridge_value(W: Array, n_in: int | None = None) -> Array:
    """||v_h||^2 of each unit h of W = [V, c], where V is (w, n_in): (w,).  The biases c do not count."""
    V = W[:, : W.shape[1] - 1 if n_in is None else n_in]
    return row_dots(V, V)


def squared_distances(A: Array, C: Array) -> Array:
    """||a_n - c_m||^2 for A (n, D) and C (m, D): (n, m), never below 0.  Cost: 2 n m D flops.

    The rounding error is at most (D + 6) u (||a - s|| + ||c - s|| + 4 r)^2, where u is the unit roundoff, s the mean of
    the c_m, and r the root mean square of ||c_m - s||.  It does not depend on the distance of the data from the origin,
    because s is subtracted from both where it is farther from the origin than sqrt(3) r.
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
    """Returns views of successive columns of A, (n, sizes[0]), (n, sizes[1]), ..."""
    return [A[:, columns] for columns in _columns(tuple(sizes))]


@cache
def _columns(sizes: tuple[int, ...]) -> list[slice]:
    bounds = np.cumsum([0, *sizes]).tolist()
    return [slice(a, b) for a, b in pairwise(bounds)]
