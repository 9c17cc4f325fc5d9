"""The units of a layer share nothing, or the Gram of its inputs, whose Cholesky factor preconditions them all."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from scipy import linalg

from macmpi.nets.design import gram as gram_of
from macmpi.nets.design import gram_rows, jitter
from macmpi.reductions import ALONE, InPieces, OverPoints, Rows
from macmpi.solvers.cholesky import cholesky, whole
from macmpi.solvers.w_problem import LayerGram
from macmpi.typing import Array

JITTER = 1e-8
"""Added to the Gram's diagonal, as a share of its mean: no step along what the inputs do not span."""

TINY = float(np.finfo(float).tiny)
"""Least of what `regular_factor` adds: inputs may all be 0."""

ELEMENTWISE = 1150.0
"""Activations, residuals and line search cost this a unit, point and iteration, in flops of matrix products."""

PASS = 26
"""A product with all inputs costs this many units more: the inputs are read and put in order for it."""

FASTER = 0.5
"""A product in single precision takes this share of the time in double."""

GRAM = 1.8
"""A Gram costs this a point, in units of its columns squared."""


class Unshared:
    """A W-solver whose units have nothing in common."""

    by_sums: ClassVar[bool] = True

    @property
    def rounds(self) -> bool:
        return False

    def prepare(self, inputs: Rows, over_points: OverPoints, bias: bool = True, rows: slice | None = None) -> Array:
        return np.zeros((0, 0))

    def shared_shape(self, n_in: int, bias: bool = True) -> tuple[int, int]:
        return (0, 0)

    def effort(self, n_in: int, units: int, points: int) -> float:
        """As of three gradients with their activations."""
        return 14.0 * n_in * (units + PASS) + 3.0 * ELEMENTWISE * units

    def share_effort(self, width: int, points: int, rows: slice | None = None) -> float:
        return 0.0

    def local(self, gram: LayerGram, in_pieces: InPieces = ALONE) -> Any:
        return None


class SharedGram(Unshared):
    """A W-solver whose units share their inputs' Gram: a sum over points, or made some rows at a time."""

    def prepare(self, inputs: Rows, over_points: OverPoints, bias: bool = True, rows: slice | None = None) -> Array:
        """The Gram; of its rows alone the part from the diagonal on, the rest 0."""
        if rows is None:
            (G,) = over_points(lambda points: (gram_of(inputs[points], bias),))
        else:
            (G,) = over_points(lambda points: (gram_rows(inputs[points], rows, bias),))
        return G

    def shared_shape(self, n_in: int, bias: bool = True) -> tuple[int, int]:
        return (n_in + bias, n_in + bias)

    def share_effort(self, width: int, points: int, rows: slice | None = None) -> float:
        """As of a whole symmetric product; rows from the diagonal on are that share of its half."""
        held = width**2 if rows is None else 2.0 * (rows.stop - rows.start) * (width - rows.start)
        return GRAM * held


class Preconditioned(SharedGram):
    """Its units are preconditioned by the Cholesky factor of their Gram plus ridge."""

    @property
    def _faster(self) -> float:
        """A product takes this share of the time that it would take in double precision."""
        return FASTER if self.rounds else 1.0

    def share_effort(self, width: int, points: int, rows: slice | None = None) -> float:
        return self._faster * super().share_effort(width, points, rows)

    def local(self, gram: LayerGram, in_pieces: InPieces = ALONE) -> Array:
        """L, lower, with L L^T = G + ridge I."""
        factor, _ = regular_factor(gram.G, gram.ridge + jitter(gram.G, JITTER, gram.dtype), in_pieces)
        return factor if whole(len(factor)) else np.asfortranarray(np.tril(factor))

    def lower(self, problem: Any) -> Array | None:
        """Give the factor L of a problem; None where it shares nothing."""
        if not problem.shared.size:
            return None
        found: Array = self.local(problem.gram) if problem.local is None else problem.local
        return found


def regular_factor(G: Array, added: Array | float = 0.0, in_pieces: InPieces = ALONE) -> tuple[Array, bool]:
    """Cholesky factor, lower, of G (its upper half) with `added` on the diagonal, and as much more as rounding takes.

    Collective: where `in_pieces` is.
    """
    more, diagonal = 0.0, np.diag_indices_from(G)
    largest = float(np.abs(G[diagonal] + added).max())
    if not np.isfinite(largest):
        raise linalg.LinAlgError("a Gram that is not finite")
    while True:
        try:
            return cholesky(G, in_pieces, added + more).T, True
        except linalg.LinAlgError:
            more = max(100.0 * more, 1e-12 * largest, TINY)
            if not np.isfinite(more):
                raise


def solve_rows(lower: Array, right: Array) -> Array:
    """Rows B (L L^T)^-1 of B (w, n) for L (n, n) lower triangular.  Cost: 2 n^2 w flops."""
    half = linalg.blas.dtrsm(1.0, lower, right, side=1, lower=1, trans_a=1)
    found: Array = linalg.blas.dtrsm(1.0, lower, half, side=1, lower=1, overwrite_b=1)
    return found


class Whitening:
    """theta = phi L^-1 and back, with L L^T the layer's Gram plus ridge; the identity without a Gram.

    In phi the Gram of the inputs [A, 1] L^-T, the ridge included, is the identity.
    """

    def __init__(self, lower: Array | None) -> None:
        self._lower = lower
        self._inverse: Array | None = None
        if lower is not None:
            self._inverse, _ = linalg.lapack.dtrtri(lower, lower=1)

    def into(self, theta: Array) -> Array:
        return theta if self._lower is None else theta @ self._lower

    def back(self, phi: Array) -> Array:
        return phi if self._inverse is None else phi @ self._inverse

    def pull(self, G: Array) -> Array:
        """The gradient with respect to phi from that with respect to theta."""
        return G if self._inverse is None else G @ self._inverse.T

    def features(self, A: Array) -> Array:
        """[A, 1] L^-T, which phi multiplies: [A, 1] theta^T is these times phi^T; (n, D + 1), float64."""
        assert self._inverse is not None
        return A @ self._inverse[:, :-1].T + self._inverse[:, -1]

    def shrink(self, phi: Array) -> Array:
        """The gradient with respect to phi of 1/2 ||v||^2, theta = [v, c]: the biases c are left alone."""
        theta = self.back(phi)
        theta[:, -1] = 0.0
        return self.pull(theta)
