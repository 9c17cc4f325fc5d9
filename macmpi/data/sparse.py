"""Sparse rows, of a matrix in the format CSR, which are read a few dense ones at a time, and multiplied as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from macmpi.data.scaling import Scaling
from macmpi.typing import Array


@dataclass(frozen=True, eq=False)
class SparseRows:
    """X = S - 1 m^T (N, D) for a CSR array S and one row m (D,) of what a scaling takes from each.

    It is read as an array is, by rows, which are dense.
    """

    matrix: Any
    shift: Array
    ndim: ClassVar[int] = 2

    @classmethod
    def of(cls, A: Any) -> SparseRows:
        """Takes a matrix of scipy.sparse in any format.  Collective: no."""
        from scipy.sparse import csr_array

        matrix = csr_array(A)
        if not (matrix.has_canonical_format and matrix.data.all()):
            matrix = matrix.copy()  # else the caller's own arrays would change
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

    @property
    def nbytes(self) -> int:
        """The bytes of the dense array."""
        return self.shape[0] * self.shape[1] * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Array:
        found: Array = self.matrix[rows].toarray()
        return found - self.shift.astype(found.dtype) if self.shift.any() else found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        found = self[:]
        return found if dtype is None else found.astype(dtype, copy=False)

    def taken(self, rows: Array) -> SparseRows:
        """Takes some of the rows."""
        return SparseRows(self.matrix[rows], self.shift)

    def moments(self, weights: Array | None = None) -> tuple[Array, Array, Array, Array]:
        """The least and the largest number, the mean and the mean square of each column, (D,), as rows weigh (N,)."""
        S = self.matrix.astype(np.float64)
        low, high = (end(axis=0).toarray().ravel() for end in (S.min, S.max))
        w = np.ones(len(self)) if weights is None else weights
        return low, high, S.T @ w / w.sum(), S.multiply(S).T @ w / w.sum()

    def scaled(self, scaling: Scaling, dtype: np.dtype) -> SparseRows:
        """The scaled rows: numbers that are there are held to its limit, and the others become -shift / scale."""
        m = scaling.shift / scaling.scale
        S = self.matrix.astype(np.float64)
        taken = m[S.indices]
        S.data = np.clip(S.data / scaling.scale[S.indices] - taken, -scaling.limit, scaling.limit) + taken
        return SparseRows(S.astype(dtype), m)

    def times(self, other: SparseRows) -> Array:
        """X Y^T, for rows Y that the same shift was taken from."""
        S, T, m = self.matrix.astype(np.float64), other.matrix.astype(np.float64), self.shift
        found: Array = (S @ T.T).toarray()
        found -= (S @ m)[:, None]
        found -= T @ m - m @ m
        return found

    def applied(self, V: Array) -> Array:
        """V X^T for V (h, D)."""
        found: Array = (self.matrix @ V.T).T
        return found - (V @ self.shift)[:, None]

    def combined(self, C: Array) -> Array:
        """C X for C (h, N)."""
        found: Array = (self.matrix.T @ C.T).T
        return found - np.outer(C.sum(axis=1), self.shift)


def stacked(A: Any, B: Any) -> Any:
    """The rows of both, dense, or less the same shift.  Collective: no."""
    if not isinstance(A, SparseRows):
        return np.concatenate([A, B])
    from scipy.sparse import vstack

    return SparseRows(vstack([A.matrix, B.matrix], format="csr"), A.shift)


def is_sparse(A: Any) -> bool:
    """Tells whether this is a matrix of scipy.sparse.  Collective: no."""
    return hasattr(A, "tocsr") and hasattr(A, "nnz")
