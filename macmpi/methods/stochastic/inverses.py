"""Damped inverses of a layer's Gram G and metric M, as matrices, and the formulas of both kinds of damping.

Which of them a layer has is chosen once (plan/directions.py), and layers.py asks for it.

- All of (A + s I)^-1; where the metric is the identity, a multiple of it.
- A wide A is inverted in its leading eigenvectors U alone, its other eigenvalues count as one:

      (A + s I)^-1 = (I - U diag(c) U^T) / t,   c_i = 1 - t / (l_i + s),

  l: the leading eigenvalues, t: the geometric mean of the others, each plus s.  Most of the others are below s, so that
  little is lost, and an inverse applied to n rows costs 4 n d r flops instead of 2 n d^2.
- Layers of moderate width are damped in the eigenvectors of both, hardly more than they need.  With
  M = U diag(m) U^T, G = V diag(l) V^T and a b = damping (`shifts`), the direction of a layer is

      D = -U [ (U^T dE1/dW V)_ij / (m_i l_j + damping + q (a l_j + b m_i)) ] V^T.

  q = 1 are the two damped inverses (M + a I)^-1 and (G + b I)^-1: far more than m l + damping where one of both is
  large and the other small, so that steps are short which the model can be trusted with.  q = 0 is
  (M (x) G + damping I)^-1, which rectifiers do not survive: the metric of units that few points pass is uncertain.  So
  q falls from 1, when Grams are those of a few minibatches, to CROSS_LEAST.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.linalg import LinAlgError

from macmpi.nets.design import apply
from macmpi.parallel.lapack import lapack
from macmpi.parallel.streams import stream
from macmpi.plan import tuned
from macmpi.solvers.metrics import shifted_inverse
from macmpi.typing import Array

GRAM, METRIC = 0, 1
"""The sides of a layer: its inputs, with the Gram G (d, d), and its outputs, with the metric M (h, h)."""

Spectrum = tuple[Array, Array]
"""Eigenvalues (n,) and eigenvectors (n, n), a column each."""

SomeRows = Callable[[slice, Array], Array]
"""Puts some rows of a product into an array, and gives it."""


class Inverse(Protocol):
    """A symmetric inverse (A + s I)^-1 (d, d), in arrays of a State.  Collective: no."""

    def renew(self, A: Array, shift: float, last: Array) -> None:
        """Makes it of another A and s.  last: what its arrays held before, eigenvectors where it is made of them."""

    def of_rows(self, Q: Array, out: Array | None = None) -> Array:
        """Q (A + s I)^-1 for Q (n, d), or [Q, 1] (A + s I)^-1 for Q (n, d - 1): (n, d), in `out` if it is given."""

    def times(self, S: Array) -> SomeRows:
        """(A + s I)^-1 S for S (d, m), some rows at a time; what all of them have in common is made at once."""


@dataclass(frozen=True)
class Dense:
    """All of an inverse; double: made in double precision."""

    matrix: Array
    double: bool = False

    def renew(self, A: Array, shift: float, last: Array) -> None:
        self.matrix[:] = shifted_inverse(A, shift, self.double)

    def of_rows(self, Q: Array, out: Array | None = None) -> Array:
        width = Q.shape[1]
        if width == len(self.matrix):
            return np.matmul(Q, self.matrix, out=out)
        found = np.matmul(Q, self.matrix[:width], out=out)
        found += self.matrix[width]
        return found

    def times(self, S: Array) -> SomeRows:
        return lambda units, out: np.matmul(self.matrix[units], S, out=out)


class Identity(Dense):
    """The inverse of a multiple of the identity, as A is: another multiple."""

    def renew(self, A: Array, shift: float, last: Array) -> None:
        self.matrix.fill(0.0)
        np.fill_diagonal(self.matrix, 1.0 / (A[0, 0] + shift))

    def times(self, S: Array) -> SomeRows:
        return lambda units, out: np.multiply(S[units], self.matrix[0, 0], out=out)


@dataclass(frozen=True)
class LowRank:
    """U (d, r), and in `shares` c (r,) and 1 / t.  They do not change while the inverse is in use.

    number: of the inverse, by which its first eigenvectors are drawn.
    """

    U: Array
    shares: Array
    number: int = 0

    def renew(self, A: Array, shift: float, last: Array) -> None:
        values, self.U[:] = leading(A, last, self.number)
        self.shares[:] = shares(A, (values, self.U), shift)

    def of_rows(self, Q: Array, out: Array | None = None) -> Array:
        width = Q.shape[1]
        found = np.matmul(apply(Q, self._scaled.T), self.U.T, out=out)
        np.subtract(Q, found[:, :width], out=found[:, :width])
        np.subtract(1.0, found[:, width:], out=found[:, width:])
        found *= self.shares[-1]
        return found

    def times(self, S: Array) -> SomeRows:
        within = self.U.T @ S

        def rows(units: slice, out: Array) -> Array:
            np.matmul(self._scaled[units], within, out=out)
            np.subtract(S[units], out, out=out)
            out *= self.shares[-1]
            return out

        return rows

    @cached_property
    def _scaled(self) -> Array:
        found: Array = self.U * self.shares[:-1]
        return found


def leading(A: Array, known: Array, j: int) -> Spectrum:
    """About the leading eigenvectors (d, r) of A, and its eigenvalues within them, by subspace iteration.

    known: eigenvectors to begin at, or zeros; then random ones of a stream of j.  Cost: 2 d^2 r flops for each of two
    products, of five without a beginning.  Collective: no.
    """
    times, V = 1, known
    if not known.any():
        times, V = tuned.PRODUCTS_COLD, stream(0, "eigenvectors", j).standard_normal(known.shape).astype(known.dtype)
    for _ in range(times):
        V = np.linalg.qr(A @ V).Q
    values, turn = decomposed(V.T @ (A @ V))
    return values, V @ turn


def shares(A: Array, spectrum: Spectrum, shift: float) -> Array:
    """c and 1 / t (r + 1,) of A + shift I: t = m^2 / sqrt(q), of the mean m and the mean square q of its eigenvalues
    outside the leading ones: the geometric mean, if their logarithms are distributed normally.

    Cost: 2 d^2 r flops.  Collective: no.
    """
    values, U = spectrum
    n, r = U.shape
    outside = A - (U * values) @ U.T
    total, squares = float(np.trace(outside, dtype=float)), float(np.vdot(outside, outside))
    mean = max(total, 0.0) / (n - r) + shift
    square = max(squares / (n - r) + 2.0 * shift * mean - shift**2, mean**2)
    t = mean**2 / np.sqrt(square)
    return np.append(1.0 - t / (values + shift), 1.0 / t)


def cross(steps: int) -> float:
    """q after some steps: CROSS_FALLING / (CROSS_FALLING + steps), at least CROSS_LEAST."""
    return max(tuned.CROSS_LEAST, tuned.CROSS_FALLING / (tuned.CROSS_FALLING + steps))


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
