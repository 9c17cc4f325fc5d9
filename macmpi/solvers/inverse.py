"""Inverses of symmetric matrices."""

from __future__ import annotations

import numpy as np

from macmpi.parallel.lapack import factored, lapack
from macmpi.typing import Array

WHOLE = 128
"""Rows up to which a matrix is inverted by its Cholesky factor; a larger one by halves, in matrix products."""


def inverse(S: Array) -> Array:
    """S^-1, symmetric, in the precision of S.  Raises LinAlgError where S is not positive definite.

    By Schur complements: for S = [A, B^T; B, C], with X = B A^-1 and the complement D = C - X B^T,

        S^-1 = [A^-1 + X^T D^-1 X, .; -D^-1 X, D^-1].

    Cost: 4/3 n^3 flops, nearly all in products; by the factor alone n^3, at a quarter to a half of their rate.
    """
    n = len(S)
    if n <= WHOLE:
        return _by_factor(S)
    half = n // 2
    inner, B = inverse(S[:half, :half]), S[half:, :half]
    X = B @ inner
    outer = inverse(S[half:, half:] - X @ B.T)
    across = outer @ X
    return np.block([[inner + _symmetric(X.T @ across), -across.T], [-across, outer]])


def _by_factor(S: Array) -> Array:
    potri = lapack.spotri if S.dtype == np.float32 else lapack.dpotri
    half, _ = potri(factored(S), lower=1, overwrite_c=1)
    return _symmetric(half)


def _symmetric(half: Array) -> Array:
    """The lower half, and its mirror image."""
    below = np.tril(half, -1)
    below += below.T
    below[np.diag_indices_from(below)] = half.diagonal()
    return below
