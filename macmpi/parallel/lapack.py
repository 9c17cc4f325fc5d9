"""LAPACK does triangular solves and Cholesky factors, in single precision if all operands are."""

from __future__ import annotations

from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Any

import scipy
from numpy.linalg import LinAlgError

from macmpi.typing import Array


def _routines(name: str) -> Any:
    """Loads the module "lapack" or "blas" of scipy.linalg without the package, which takes longer than small fits."""
    found = PathFinder.find_spec(f"scipy.linalg._f{name}", [f"{path}/linalg" for path in scipy.__path__])
    if found is None or found.loader is None:
        return import_module(f"scipy.linalg.{name}")
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


blas, lapack = map(_routines, ("blas", "lapack"))


def solved(lower: Array, right: Array) -> Array:
    """Computes (L L^T)^-1 B for L = lower (n, n), whose upper half is not read, and B = right (n, m).

    It does so in single precision if both are single, else in double.  Collective: no.
    """
    if not right.size:
        return right
    solve = lapack.spotrs if lower.dtype.char == "f" and right.dtype.char == "f" else lapack.dpotrs
    return solve(lower, right, lower=1)[0]


def solved_rows(lower: Array, right: Array) -> Array:
    """Computes B (L L^T)^-1 for L = lower (n, n), whose upper half is not read, and B = right (m, n).

    Collective: no.
    """
    return solved(lower, right.T).T


def by_transpose(upper: Array, right: Array) -> Array:
    """Computes R^-T B for R = upper (n, n), whose lower half is not read, and B = right (n, m).

    It does so in single precision if both are single, else in double.
    Raises LinAlgError if R has a zero on its diagonal.  Collective: no.
    """
    solve = lapack.strtrs if upper.dtype.char == "f" and right.dtype.char == "f" else lapack.dtrtrs
    columns = upper.flags.f_contiguous
    found, failed = solve(upper, right, trans=1) if columns else solve(upper.T, right, lower=1)
    if failed:
        raise LinAlgError(f"singular: row {failed - 1}")
    return found


def factored(G: Array) -> Array:
    """Factors G (n, n), of which the lower half is read, into L L^T; returns L in the lower half, in G's precision.

    Raises LinAlgError if G is not positive definite.  Collective: no.
    """
    potrf = lapack.spotrf if G.dtype.char == "f" else lapack.dpotrf
    found, failed = potrf(G, lower=1, clean=0)
    if failed:
        raise LinAlgError(f"not positive definite: row {failed - 1}")
    return found
