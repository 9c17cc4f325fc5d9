"""Inverses of symmetric matrices."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from macmpi.layers import Array


def inverse(S: Array) -> Array:
    """S^-1, symmetric, by Cholesky in the precision of S.  Raises LinAlgError where S is not positive definite.

    Cost: n^3 flops, half of LU's.
    """
    potrf, potri = linalg.get_lapack_funcs(("potrf", "potri"), (S,))
    factor, failed = potrf(S, lower=1)
    if failed:
        raise np.linalg.LinAlgError(f"not positive definite: row {failed - 1}")
    half, _ = potri(factor, lower=1, overwrite_c=1)
    diagonal = np.diag(half).copy()
    found: Array = half + half.T
    found[np.diag_indices_from(found)] = diagonal
    return found
