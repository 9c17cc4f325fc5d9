"""Fewer points than columns: a net whose first layer is dense is trained on coordinates of the points in their span.

Rows x of n points A (n, D) span n dimensions at most.  With K = A A^T, V = K^(-1/2) A has orthonormal rows there, and

    z = c V x,  W = c W' V,  so that  W x = W' z,

for weights W (h, D) of the first layer in that span and W' (h, n) of the coordinates z (Hastie and Tibshirani, 2004).
What is trained by sums of squares of weights, and by Grams, does not see which orthonormal coordinates there are, and
weights outside of the span change no output at any of the points.  K^(1/2), which holds the coordinates of the points
themselves, depends continuously on K, unlike eigenvectors: a run may go on on another machine.  c = sqrt(n / D) makes
the mean variance of z that of the columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from macmpi.data.dataset import Dataset
from macmpi.data.sparse import SparseRows, stacked
from macmpi.parallel.lapack import lapack
from macmpi.typing import Array

COLUMNS = 4096
"""Columns that are multiplied in double precision at a time."""


@dataclass(frozen=True, eq=False)
class Span:
    """The span of scaled inputs A (n, D), dense or SparseRows.  turn: c K^(-1/2) (n, n), 0 where K is singular."""

    points: Any
    turn: Array

    @classmethod
    def of(cls, A: Any) -> tuple[Span, Array]:
        """The span of rows A (n, D), and their own coordinates c K^(1/2).

        Cost: n^2 D flops, of sparse rows fewer, and 9 n^3.
        """
        n, D = A.shape
        values, vectors, failed = lapack.dsyevd(_times(A, A).T, overwrite_a=1)
        assert not failed, "dsyevd converges"
        least = n * max(np.finfo(A.dtype).eps ** 2, np.finfo(np.float64).eps) * values[-1]
        roots, c = np.sqrt(np.where(values > least, values, 0.0)), np.sqrt(n / D)
        inverse = np.divide(c, roots, out=np.zeros(n), where=roots > 0.0)
        own = ((vectors * (c * roots)) @ vectors.T).astype(A.dtype)
        vectors *= np.sqrt(inverse)
        return cls(A, vectors @ vectors.T), own

    def coordinates(self, X: Any) -> Array:
        """z of rows X (m, D), scaled as the points are: (m, n)."""
        return (_times(X, self.points) @ self.turn).astype(self.points.dtype)

    def weights(self, W: Array) -> Array:
        """[V, c] (h, D + 1) that read the columns, for a layer's [V', c] (h, n + 1) that read coordinates."""
        C = W[:, :-1].astype(np.float64) @ self.turn
        V = self.points.combined(C) if isinstance(self.points, SparseRows) else C.astype(W.dtype) @ self.points
        return np.column_stack([V.astype(W.dtype, copy=False), W[:, -1]])

    def within(self, W: Array) -> Array:
        """The inverse of `weights`: what those of the columns have outside of the span is left out."""
        n, D = self.points.shape
        V = np.ascontiguousarray(W[:, :-1])
        crossed = self.points.applied(V) if isinstance(self.points, SparseRows) else _times(V, self.points)
        return np.column_stack([crossed @ self.turn * (D / n), W[:, -1]])


def in_span(data: Dataset, n: int) -> Dataset:
    """The data set in the coordinates of its n training points, or of these and the validation points together.

    Cost: a copy of the points.  Collective: no.
    """
    span, Z = Span.of(data.X if n == len(data.X) else stacked(data.X, data.X_val))
    X, rest = Z[: len(data.X)], Z[len(data.X) :]
    return replace(data, X=X, X_val=rest if len(rest) else span.coordinates(data.X_val), span=span)


def _times(A: Any, B: Any) -> Array:
    """A B^T in double precision."""
    if isinstance(A, SparseRows):
        return A.times(B)
    found = np.zeros((len(A), len(B)))
    for first in range(0, A.shape[1], COLUMNS):
        own = A[:, first : first + COLUMNS].astype(np.float64)
        found += own @ (own if B is A else B[:, first : first + COLUMNS].astype(np.float64)).T
    return found
