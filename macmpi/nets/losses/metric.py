"""The quadratic forms that measure a constraint, or the squared error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from macmpi.nets.design import row_dots
from macmpi.typing import Array


@dataclass(frozen=True)
class Metric:
    """A positive definite form c^T M c: M a number (), a diagonal (H,), or a symmetric matrix (H, H), as arrays.

    inverse = M^-1 and root = M^(1/2) are of the same kind.
    """

    M: Array
    inverse: Array
    root: Array

    def square(self, C: Array) -> Array:
        """c^T M c, row by row: (n,)."""
        return self.M * row_dots(C, C) if self.M.ndim == 0 else row_dots(times(C, self.M), C)


def metric(M: float | Array, dtype: np.dtype | type = np.float64) -> Metric:
    """The metric of M in `dtype`.  Cost for a matrix: an eigen-decomposition, about 9 H^3 flops."""
    form = np.asarray(M, dtype=np.float64)
    if form.ndim < 2:
        inverse, root = 1.0 / form, np.sqrt(form)
    else:
        values, vectors = np.linalg.eigh(form)
        inverse, root = (vectors / values) @ vectors.T, (vectors * np.sqrt(values)) @ vectors.T
    return Metric(*(np.asarray(A, dtype) for A in (form, inverse, root)))


def times(C: Array, M: Array, out: Array | None = None) -> Array:
    """M c for each row c of C (n, H)."""
    return np.matmul(C, M, out=out) if M.ndim == 2 else np.multiply(C, M, out=out)


def dense(M: Array, size: int) -> Array:
    """M as a matrix (size, size), in float64."""
    return np.array(M, float) if M.ndim == 2 else np.diag(np.broadcast_to(M.astype(float), size))
