"""Products with the design matrix [A, 1] of a dense layer, whose last column multiplies the biases."""

from __future__ import annotations

import numpy as np

from macmpi.layers import Array


def apply(A: Array, W: Array) -> Array:
    """[A, 1] W^T in the precision of A: (n, D), (w, D + 1) -> (n, w).  Cost: 2 n D w flops."""
    W = W.astype(A.dtype, copy=False)
    B = A @ W[:, :-1].T
    B += W[:, -1]
    return B


def adjoint(Q: Array, A: Array) -> Array:
    """Q^T [A, 1]: (n, w), (n, D) -> (w, D + 1).  Cost: 2 n D w flops."""
    G = np.empty((Q.shape[1], A.shape[1] + 1), Q.dtype)
    np.matmul(Q.T, A, out=G[:, :-1])
    np.sum(Q, axis=0, out=G[:, -1])
    return G


def gram(A: Array) -> Array:
    """[A, 1]^T [A, 1]: (n, D) -> (D + 1, D + 1).  Cost: n D^2 flops."""
    n, D = A.shape
    G = np.empty((D + 1, D + 1), A.dtype)
    np.matmul(A.T, A, out=G[:-1, :-1])
    G[-1, :-1] = G[:-1, -1] = A.sum(axis=0)
    G[-1, -1] = n
    return G


def jitter(G: Array, least: float, dtype: np.dtype) -> float:
    """What keeps a Gram of inputs in `dtype` positive definite: its rounding, and at least `least` mean diagonals."""
    trace = float(np.trace(G))
    rounding = float(np.finfo(dtype).eps) if dtype != np.float64 else 0.0
    return max(least * trace / len(G), rounding * trace)


def row_dots(A: Array, B: Array) -> Array:
    """sum_h A[n, h] B[n, h], shape (n,)."""
    return np.vecdot(A, B)


def column_dots(A: Array, B: Array) -> Array:
    """sum_n A[n, h] B[n, h]: (w,)."""
    return np.einsum("nh,nh->h", A, B)


def ridge_value(W: Array) -> Array:
    """||v_h||^2 of each unit h of W = [V, c]: (w,).  The biases c are left alone."""
    return row_dots(W[:, :-1], W[:, :-1])
