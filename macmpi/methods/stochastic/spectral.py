"""Layers of moderate width are damped in the eigenvectors of their Gram and metric, hardly more than they need.

With M = U diag(m) U^T, G = V diag(l) V^T and a b = damping (`shifts` in factors.py), the direction of a layer is

    D = -U [ (U^T dE1/dW V)_ij / (m_i l_j + damping + q (a l_j + b m_i)) ] V^T.

q = 1 are the two damped inverses (M + a I)^-1 and (G + b I)^-1: far more than m l + damping where one of both is large
and the other small, so that steps are short which the model can be trusted with.  q = 0 is (M (x) G + damping I)^-1,
which rectifiers do not survive: the metric of units that few points pass is uncertain.  So q falls from 1, when Grams
are those of a few minibatches, to CROSS.
"""

from __future__ import annotations

import numpy as np
from numpy.linalg import LinAlgError

from macmpi.parallel.lapack import lapack
from macmpi.typing import Array

Spectrum = tuple[Array, Array]
"""Eigenvalues (n,) and eigenvectors (n, n), a column each."""

CROSS, FALLING = 0.1, 10.0
"""The least q, and the steps after which q has fallen to a half."""


def cross(steps: int) -> float:
    """q after some steps: FALLING / (FALLING + steps), at least CROSS."""
    return max(CROSS, FALLING / (FALLING + steps))


def identity_shifts(shifts: tuple[float, float], damping: float, q: float) -> tuple[float, float]:
    """b' and a' for M = I: (l + b') (1 + a') = l + damping + q (a l + b), of shifts b and a."""
    b, a = shifts
    return (damping + q * b) / (1.0 + q * a), q * a


def decomposed(A: Array) -> Spectrum:
    """The spectrum of a symmetric matrix (n, n) in its precision, no eigenvalue below 0.

    In single precision the iteration may fail where it does not in double.  Raises LinAlgError where that fails, too.
    Cost: 9 n^3 flops.
    """
    for precision in dict.fromkeys((A.dtype, np.dtype(np.float64))):
        solve = lapack.ssyevd if precision == np.float32 else lapack.dsyevd
        values, vectors, failed = solve(A.astype(precision, copy=False))
        if not failed:
            return np.maximum(values, 0.0).astype(A.dtype, copy=False), vectors.astype(A.dtype, copy=False)
    raise LinAlgError(f"no eigenvectors of a matrix of {len(A)} rows: dsyevd gives {failed}")


def put_direction(
    slope: Array, n: float, metric: Spectrum, gram: Spectrum, damping: float, q: float, out: Array
) -> None:
    """Puts the direction D of a layer into `out` (h, d).

    slope: dE1/dW (h, d), summed over n points; metric, gram: the spectra of M (h, h) and G (d, d).  a / b is the ratio
    of their mean eigenvalues.  Cost: 4 h d (h + d) flops.  Collective: no.
    """
    (m, U), (values, V) = metric, gram
    ratio = np.sqrt(max(float(m.sum()) / len(m), 1e-30) / max(float(values.sum()) / len(values), 1e-30))
    root = q * np.sqrt(damping)
    divisor = np.multiply.outer(m, values)
    divisor += (m * (root / ratio)).astype(slope.dtype)[:, None]
    divisor += (values * (root * ratio) + damping).astype(slope.dtype)
    turned = U.T @ slope @ V
    divisor *= -n
    turned /= divisor
    np.matmul(U @ turned, V.T, out=out)
