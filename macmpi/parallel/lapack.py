"""Triangular solves and a Cholesky factor by LAPACK, in single precision where both operands are."""

from __future__ import annotations

from numpy.linalg import LinAlgError
from scipy.linalg import blas as blas
from scipy.linalg import lapack as lapack

from macmpi.typing import Array


def solved(lower: Array, right: Array) -> Array:
    """(L L^T)^-1 B for L (n, n), whose upper half is not read, and B (n, m).

    In single precision where both are, else in double.  Collective: no.
    """
    if not right.size:
        return right
    solve = lapack.spotrs if lower.dtype.char == "f" and right.dtype.char == "f" else lapack.dpotrs
    return solve(lower, right, lower=1)[0]


def by_transpose(upper: Array, right: Array) -> Array:
    """R^-T B for R (n, n), whose lower half is not read, and B (n, m); in single precision where both are, else double.

    Raises LinAlgError where R has a zero on its diagonal.  Collective: no.
    """
    solve = lapack.strtrs if upper.dtype.char == "f" and right.dtype.char == "f" else lapack.dtrtrs
    columns = upper.flags.f_contiguous
    found, failed = solve(upper, right, trans=1) if columns else solve(upper.T, right, lower=1)
    if failed:
        raise LinAlgError(f"singular: row {failed - 1}")
    return found


def factored(G: Array) -> Array:
    """L with L L^T = G for G (n, n) in double precision, of which the lower half is read; in the lower half, float64.

    Raises LinAlgError where G is not positive definite.  Collective: no.
    """
    found, failed = lapack.dpotrf(G, lower=1, clean=0)
    if failed:
        raise LinAlgError(f"not positive definite: row {failed - 1}")
    return found
