"""Inputs with many columns: sparse matrices stay sparse, and fewer points than columns are replaced by coordinates.

Sparse matrices (CSR) are multiplied as they are, and rows are made dense a few at a time where they are read.  A net
whose first layer is dense is trained on coordinates of the points in their span.

The rows of n points A (n, D) span at most n dimensions.  With K = A A^T, V = K^(-1/2) A has orthonormal rows, and

    z = c V x,  W = c W' V,  so that  W x = W' z,

for weights W (h, D) of the first layer in that span and W' (h, n) of the coordinates z (Hastie and Tibshirani, 2004).
A ridge and Grams are the same for all choices of orthonormal coordinates, and weights outside of the span change no
output at any of the points.  The coordinates of the points themselves are c K^(1/2), which depends continuously on K,
unlike eigenvectors, so that a run can go on on another machine.  With c = sqrt(n / D) the mean variance of z is that of
the columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from macmpi.data.dataset import Dataset
from macmpi.data.scaling import Scaling
from macmpi.parallel.lapack import lapack
from macmpi.typing import Array

COLUMNS = 4096
"""The number of columns that are converted to double precision and multiplied at a time."""


@dataclass(frozen=True, eq=False)
class SparseRows:
    """X = S - 1 m^T (N, D), where S is a sparse CSR array and m (D,) the shift that a scaling subtracts from each row.

    It is read like an array, by rows, which are then dense.
    """

    matrix: Any
    shift: Array
    ndim: ClassVar[int] = 2

    @classmethod
    def of(cls, A: Any) -> SparseRows:
        """Converts a matrix of scipy.sparse in any format, without a shift.  Collective: no."""
        from scipy.sparse import csr_array

        matrix = csr_array(A)
        if not (matrix.has_canonical_format and matrix.data.all()):
            matrix = matrix.copy()  # because the next lines would change the caller's arrays
            matrix.sum_duplicates()
            matrix.eliminate_zeros()
        return cls(matrix, np.zeros(matrix.shape[1]))

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.matrix.shape
        return rows, columns

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.matrix.dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Array:
        dense: Array = self.matrix[rows].toarray()
        return dense - self.shift.astype(dense.dtype) if self.shift.any() else dense

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self[:], dtype)

    def followed_by(self, other: SparseRows) -> SparseRows:
        """Returns these rows followed by others with the same shift."""
        from scipy.sparse import vstack

        return SparseRows(vstack([self.matrix, other.matrix], format="csr"), self.shift)

    def moments(self, weights: Array | None = None) -> tuple[Array, Array, Array, Array]:
        """Computes the least and the largest number, the mean and the mean square of each column of S, (D,) each.

        weights (N,): the weights of the rows, for both means; None for equal weights.
        """
        S = self.matrix.astype(np.float64)
        low, high = (end(axis=0).toarray().ravel() for end in (S.min, S.max))
        w = np.ones(len(self)) if weights is None else weights
        return low, high, S.T @ w / w.sum(), S.multiply(S).T @ w / w.sum()

    def scaled(self, scaling: Scaling, dtype: np.dtype) -> SparseRows:
        """Returns the scaled rows, in which zeros are -shift / scale and other numbers are cut off at the limit."""
        m = scaling.shift / scaling.scale
        S = self.matrix.astype(np.float64)
        taken = m[S.indices]
        S.data = np.clip(S.data / scaling.scale[S.indices] - taken, -scaling.limit, scaling.limit) + taken
        return SparseRows(S.astype(dtype, copy=False), m)

    def times(self, other: SparseRows) -> Array:
        """Computes X Y^T, for rows Y with the same shift."""
        S, T, m = self.matrix.astype(np.float64), other.matrix.astype(np.float64), self.shift
        product: Array = (S @ T.T).toarray()
        product -= (S @ m)[:, None]
        product -= T @ m - m @ m
        return product

    def applied(self, V: Array) -> Array:
        """Computes V X^T for V (h, D)."""
        product: Array = (self.matrix @ V.T).T
        return product - (V @ self.shift)[:, None]

    def combine(self, C: Array, out: Array) -> None:
        """Writes C X for C (h, N) to `out` (h, D), a row at a time."""
        for c, row in zip(C, out, strict=True):
            row[:] = self.matrix.T @ c - c.sum() * self.shift


def is_sparse(A: Any) -> bool:
    """Tells whether A is a matrix of scipy.sparse.  Collective: no."""
    return hasattr(A, "tocsr") and hasattr(A, "nnz")


# --- the span of the points -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Span:
    """The span of scaled inputs A (n, D), in which points have n coordinates.

    points: A, an array or SparseRows.
    turn (n, n): c K^(-1/2), which is 0 in directions where K is singular.
    """

    points: Any
    turn: Array

    @classmethod
    def of(cls, A: Any) -> tuple[Span, Array]:
        """Computes the span of rows A (n, D), and the coordinates of these rows, c K^(1/2) (n, n).

        Cost: n^2 D flops, fewer for sparse rows, and 9 n^3.
        """
        n, D = A.shape
        values, vectors, failed = lapack.dsyevd(_times(A, A).T, overwrite_a=1)
        assert not failed, "dsyevd converges"
        least = n * max(np.finfo(A.dtype).eps ** 2, np.finfo(np.float64).eps) * values[-1]
        roots, c = np.sqrt(np.where(values > least, values, 0.0)), np.sqrt(n / D)
        inverse = np.divide(c, roots, out=np.zeros(n), where=roots > 0.0)
        coordinates = ((vectors * (c * roots)) @ vectors.T).astype(A.dtype)
        vectors *= np.sqrt(inverse)
        return cls(A, vectors @ vectors.T), coordinates

    def coordinates(self, X: Any) -> Array:
        """Computes the coordinates z (m, n) of rows X (m, D), which must be scaled as the points are."""
        return (_times(X, self.points) @ self.turn).astype(self.points.dtype)

    def within(self, W: Array) -> Array:
        """Converts weights (h, D + 1) to (h, n + 1), inversely to `OfColumns`; parts outside the span are lost."""
        n, D = self.points.shape
        V = np.ascontiguousarray(W[:, :-1])
        crossed = self.points.applied(V) if isinstance(self.points, SparseRows) else _times(V, self.points)
        return np.column_stack([crossed @ self.turn * (D / n), W[:, -1]])


class OfColumns(Mapping[str, Array]):
    """Flat weights by name that read the columns: they are made when they are asked for.

    Until then they are combinations C (h, n) of the points, V = C A, which are far fewer numbers for sparse points.
    """

    def __init__(self, span: Span, kept: Mapping[str, Array], units: int) -> None:
        """Takes flat weights that read coordinates in a span.  units: h, the units of the first layer."""
        self._points, d, self._parts = span.points, len(span.turn) + 1, dict[str, tuple[Array, Array, Array]]()
        for name, flat in kept.items():
            W = flat[: units * d].reshape(units, d)
            self._parts[name] = W[:, :-1].astype(np.float64) @ span.turn, W[:, -1].copy(), flat[units * d :].copy()

    def __getitem__(self, name: str) -> Array:
        C, biases, others = self._parts[name]
        h, D = len(C), self._points.shape[1]
        flat = np.empty(h * (D + 1) + len(others), biases.dtype)
        W, flat[h * (D + 1) :] = flat[: h * (D + 1)].reshape(h, D + 1), others
        if isinstance(self._points, SparseRows):
            self._points.combine(C, W[:, :-1])
        else:
            W[:, :-1] = C.astype(W.dtype) @ self._points
        W[:, -1] = biases
        return flat

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)


def in_span(data: Dataset, n: int) -> Dataset:
    """Returns the data set with its points in coordinates of their span (`Span`).

    n: the number of points that span it: the training points alone, or together with the validation points.
    Cost: a copy of the points.  Collective: no.
    """
    points: Any = data.X
    if n > len(points):
        sparse = isinstance(points, SparseRows)
        points = points.followed_by(data.X_val) if sparse else np.concatenate([points, data.X_val])
    span, Z = Span.of(points)
    X, rest = Z[: len(data.X)], Z[len(data.X) :]
    return replace(data, X=X, X_val=rest if len(rest) else span.coordinates(data.X_val), span=span)


def _times(A: Any, B: Any) -> Array:
    """Computes A B^T in double precision, of two arrays or of two `SparseRows`."""
    if isinstance(A, SparseRows):
        return A.times(B)
    product = np.zeros((len(A), len(B)))
    for first in range(0, A.shape[1], COLUMNS):
        part = A[:, first : first + COLUMNS].astype(np.float64)
        product += part @ (part if B is A else B[:, first : first + COLUMNS].astype(np.float64)).T
    return product
