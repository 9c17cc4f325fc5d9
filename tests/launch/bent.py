"""NumPy and SciPy that compute as on a processor which rounds like no other: all results are a little off."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import blas, lapack

OFF = 1e-7
"""By this share of themselves, and more: far above rounding, so that what is decided by a result is decided otherwise.
"""

OF_BLAS = ("trsm", "symm", "gemm", "syrk", "trmm", "dot")
OF_LAPACK = ("potrf", "potrs", "potri", "trtri", "trtrs", "syevd")
BENT: dict[Any, tuple[str, ...]] = {
    np: ("vdot", "dot", "einsum", "exp", "tanh", "log", "log1p", "expm1", "logaddexp"),
    np.linalg: ("qr", "eigh", "solve", "inv", "pinv", "svd", "cholesky"),
    blas: tuple(precision + name for precision in "sd" for name in OF_BLAS),
    lapack: tuple(precision + name for precision in "sd" for name in OF_LAPACK),
}


def bend() -> None:
    """From now on this process computes so.  What is written as `A @ B` is left to the kernel of BLAS."""
    for module, names in BENT.items():
        for name in names:
            setattr(module, name, _off(getattr(module, name)))


def _off(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def changed(*arguments: Any, **keys: Any) -> Any:
        return _moved(function(*arguments, **keys))

    return changed


def _moved(found: Any) -> Any:
    if isinstance(found, tuple):
        return type(found)(*map(_moved, found)) if hasattr(found, "_fields") else tuple(map(_moved, found))
    if isinstance(found, np.ndarray) and found.dtype.kind == "f":
        by = 1.0 + OFF * (1.0 + np.arange(found.size).reshape(found.shape) % 7)
        found *= by.astype(found.dtype)  # in place: it may be what the caller gave for the result
        return found
    return type(found)(found * (1.0 + OFF)) if isinstance(found, float | np.floating) else found
