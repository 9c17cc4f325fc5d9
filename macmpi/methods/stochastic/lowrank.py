"""A wide Gram or metric A is inverted in its leading eigenvectors U alone: its other eigenvalues count as one.

    (A + s I)^-1 = (I - U diag(c) U^T) / t,   c_i = 1 - t / (l_i + s),

l: the leading eigenvalues, t: the geometric mean of the others, each plus s.  Most of the others are below s, so that
little is lost, and an inverse applied to n rows costs 4 n d r flops instead of 2 n d^2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from macmpi.methods.stochastic.spectral import Spectrum, decomposed
from macmpi.nets.design import apply
from macmpi.parallel.streams import stream
from macmpi.typing import Array

WARM, COLD = 1, 4
"""Products with A that renew eigenvectors: known ones of an A that has moved a little, and random ones."""


SomeRows = Callable[[slice, Array], Array]
"""Puts some rows of a product into an array, and gives it."""


class Inverse(Protocol):
    """A symmetric inverse A^-1 (d, d).  Collective: no."""

    def of_rows(self, Q: Array, out: Array | None = None) -> Array:
        """Q A^-1 for Q (n, d), or [Q, 1] A^-1 for Q (n, d - 1): (n, d), in `out` if it is given."""

    def times(self, S: Array) -> SomeRows:
        """A^-1 S for S (d, m), some rows at a time; what all of them have in common is made at once."""


@dataclass(frozen=True)
class Dense:
    """All of an inverse."""

    matrix: Array

    def of_rows(self, Q: Array, out: Array | None = None) -> Array:
        width = Q.shape[1]
        if width == len(self.matrix):
            return np.matmul(Q, self.matrix, out=out)
        found = np.matmul(Q, self.matrix[:width], out=out)
        found += self.matrix[width]
        return found

    def times(self, S: Array) -> SomeRows:
        return lambda units, out: np.matmul(self.matrix[units], S, out=out)


@dataclass(frozen=True)
class Multiple:
    """A multiple of the identity."""

    factor: Array

    def of_rows(self, Q: Array, out: Array | None = None) -> Array:
        return np.multiply(Q, self.factor, out=out)

    def times(self, S: Array) -> SomeRows:
        return lambda units, out: np.multiply(S[units], self.factor, out=out)


@dataclass(frozen=True)
class LowRank:
    """U (d, r), and in `shares` c (r,) and 1 / t.  They do not change while the inverse is in use."""

    U: Array
    shares: Array

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
    times, V = (WARM, known) if known.any() else (COLD, _random(known, j))
    for _ in range(times):
        V = np.linalg.qr(A @ V).Q
    values, turn = decomposed(V.T @ (A @ V))
    return values, V @ turn


def _random(like: Array, j: int) -> Array:
    return stream(0, "eigenvectors", j).standard_normal(like.shape).astype(like.dtype)


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
