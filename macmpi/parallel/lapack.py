"""The compiled LAPACK and BLAS of SciPy, without what scipy.linalg imports around them.

scipy.linalg brings its documentation, numpy.testing and numpy.f2py with it: more than NumPy itself takes to import, on
each rank of each launch.  The two compiled modules give the same functions.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any

from numpy.linalg import LinAlgError

from macmpi.typing import Array

COMPILED = {"lapack": "_flapack", "blas": "_fblas"}
"""The public modules of scipy.linalg, and the compiled ones that hold their functions."""


def _functions(public: str) -> Any:
    """A module of functions; the public one where it is loaded already, or the compiled one cannot be."""
    name = f"scipy.linalg.{COMPILED[public]}"
    package = find_spec("scipy")
    if "scipy.linalg" not in sys.modules and package is not None:
        found = PathFinder.find_spec(name, [str(Path(p) / "linalg") for p in package.submodule_search_locations or ()])
        if found is not None and found.loader is not None:
            try:
                module = module_from_spec(found)
                sys.modules[name] = module
                found.loader.exec_module(module)
            except ImportError:
                sys.modules.pop(name, None)
            else:
                return module
    return import_module(f"scipy.linalg.{public}")


lapack, blas = _functions("lapack"), _functions("blas")


def solved(lower: Array, right: Array) -> Array:
    """(L L^T)^-1 B for L (n, n), whose upper half is not read, and B (n, m).

    In single precision where both are, else in double.  Collective: no.
    """
    if not right.size:
        return right
    solve = lapack.spotrs if lower.dtype.char == "f" and right.dtype.char == "f" else lapack.dpotrs
    found: Array = solve(lower, right, lower=1)[0]
    return found


def by_transpose(upper: Array, right: Array) -> Array:
    """R^-T B for R (n, n), whose lower half is not read, and B (n, m); in single precision where both are, else double.

    Raises LinAlgError where R has a zero on its diagonal.  Collective: no.
    """
    solve = lapack.strtrs if upper.dtype.char == "f" and right.dtype.char == "f" else lapack.dtrtrs
    columns = upper.flags.f_contiguous
    found, failed = solve(upper, right, trans=1) if columns else solve(upper.T, right, lower=1)
    if failed:
        raise LinAlgError(f"singular: row {failed - 1}")
    solution: Array = found
    return solution


def factored(G: Array) -> Array:
    """L with L L^T = G for G (n, n) in double precision, of which the lower half is read; in the lower half, float64.

    Raises LinAlgError where G is not positive definite.  Collective: no.
    """
    found, failed = lapack.dpotrf(G, lower=1, clean=0)
    if failed:
        raise LinAlgError(f"not positive definite: row {failed - 1}")
    factor: Array = found
    return factor
