"""Each layer has curvature, collected minibatch by minibatch, damped and inverted, and applied to the gradient.

    D_k = -M_k^-1 (dE1/dW_k) G_k^-1,   G_k the Gram of the layer's inputs, M_k the metric of its outputs

A LayerCurvature has three tasks: `note` the inputs of a minibatch, `refresh` the inverses of G and M, and
`precondition` the gradient.  Two classes, Shifted and Spectral, do the last two tasks; plan/directions.py chooses once
which class a layer has.

Shifted applies two inverses (A + s I)^-1.  Each is a whole matrix; or a multiple of the identity, if the metric is one;
or, for a wide A, it is computed from the r leading eigenvectors U of A, with one number for all other eigenvalues:

    (A + s I)^-1 = (I - U diag(c) U^T) / t,   c_i = 1 - t / (l_i + s),

where l are the leading eigenvalues, and t is the geometric mean of the others, each plus s.  Most of the others are
below s, so little is lost, and to apply the inverse to n rows costs 4 n d r flops instead of 2 n d^2.

Spectral damps layers of moderate width in the eigenvectors of both matrices, and hardly more than necessary.  With
M = U diag(m) U^T, G = V diag(l) V^T and a b = damping (`shifts`), the direction of a layer is

    D = -U [ (U^T dE1/dW V)_ij / (m_i l_j + damping + q (a l_j + b m_i)) ] V^T.

q = 1 gives the two damped inverses (M + a I)^-1 and (G + b I)^-1; if one of m and l is large and the other small, the
divisor is then far above m l + damping, and steps are shorter than the model requires.  q = 0 gives (M (x) G + damping
I)^-1, with which nets of rectifiers diverge: the metric of units that few points activate is uncertain.  So q falls
from 1, when Grams are sums over a few minibatches, to CROSS_LEAST.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from macmpi.nets.design import apply
from macmpi.parallel.shared_work import Sum
from macmpi.parallel.streams import stream
from macmpi.plan import tuned
from macmpi.plan.directions import LayerForm, Layout, Pair
from macmpi.reductions import EVERY
from macmpi.solvers.metrics import Seen, Spectrum, decomposed, shifted_inverse, shifts
from macmpi.typing import Array

ROWS = 1024
"""A layer's inputs are kept until there are this many rows, or as many as columns, and then become a Gram: products of
fewer rows would take longer, and more rows would take more memory than a Gram or a minibatch."""

GRAM, METRIC = 0, 1
"""The sides of a layer: its inputs, with the Gram G (d, d), and its outputs, with the metric M (h, h)."""

SomeRows = Callable[[slice, Array], Array]
"""Puts some rows of a product into an array, and returns it."""


@dataclass(frozen=True)
class Dense:
    """Holds a whole symmetric inverse (A + s I)^-1 (d, d), in an array of a State.  Collective: no.

    double: whether it is computed in double precision.
    """

    matrix: Array
    double: bool = False

    def renew(self, A: Array, shift: float, last: Array) -> None:
        """Computes the inverse again, for another A (d, d) and another shift s.

        last: the array that held the inverse before, from which eigenvectors are improved.
        """
        self.matrix[:] = shifted_inverse(A, shift, self.double)

    def of_rows(self, Q: Array, out: Array | None = None) -> Array:
        """Returns Q (A + s I)^-1 for Q (n, d), or [Q, 1] (A + s I)^-1 for Q (n, d - 1): (n, d), in `out` if given."""
        width = Q.shape[1]
        if width == len(self.matrix):
            return np.matmul(Q, self.matrix, out=out)
        found = np.matmul(Q, self.matrix[:width], out=out)
        found += self.matrix[width]
        return found

    def times(self, S: Array) -> SomeRows:
        """Returns a function that puts some rows of (A + s I)^-1 S, for S (d, m), into an array."""
        return lambda units, out: np.matmul(self.matrix[units], S, out=out)


class Identity(Dense):
    """Holds the inverse of a multiple A of the identity, which is a multiple of the identity too."""

    def renew(self, A: Array, shift: float, last: Array) -> None:
        self.matrix.fill(0.0)
        np.fill_diagonal(self.matrix, 1.0 / (A[0, 0] + shift))

    def times(self, S: Array) -> SomeRows:
        return lambda units, out: np.multiply(S[units], self.matrix[0, 0], out=out)


@dataclass(frozen=True)
class LowRank:
    """Holds the inverse (I - U diag(c) U^T) / t of a wide matrix (above), with its leading eigenvectors U (d, r).

    shares (r + 1,): c and 1 / t, which stay as long as the inverse is used.
    number: the inverse's number among all inverses, the key of the random vectors for the first eigenvectors.
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
        return self.U * self.shares[:-1]


Inverse: TypeAlias = Dense | LowRank
"""An inverse is a whole matrix or has leading eigenvectors."""


def leading(A: Array, known: Array, j: int) -> Spectrum:
    """Approximates the leading eigenvalues and eigenvectors (d, r) of A by subspace iteration.  Collective: no.

    known: the eigenvectors at which the iteration begins; zeros stand for random vectors, whose stream has the key j.
    Cost: 2 d^2 r flops for each of two products, or of five from random vectors.
    """
    times, V = 1, known
    if not known.any():
        times, V = tuned.PRODUCTS_COLD, stream(0, "eigenvectors", j).standard_normal(known.shape).astype(known.dtype)
    for _ in range(times):
        V = np.linalg.qr(A @ V).Q
    values, turn = decomposed(V.T @ (A @ V))
    return values, V @ turn


def shares(A: Array, spectrum: Spectrum, shift: float) -> Array:
    """Computes c and 1 / t (r + 1,) for A + shift I, with t = m^2 / sqrt(q).

    m and q are the mean and the mean square of the eigenvalues except the leading ones.  t is the geometric mean of
    these eigenvalues if their logarithms are distributed normally.  Cost: 2 d^2 r flops.  Collective: no.
    """
    values, U = spectrum
    n, r = U.shape
    outside = (U * values) @ U.T
    np.subtract(A, outside, out=outside)
    total, squares = float(np.trace(outside, dtype=float)), float(np.vdot(outside, outside))
    mean = max(total, 0.0) / (n - r) + shift
    square = max(squares / (n - r) + 2.0 * shift * mean - shift**2, mean**2)
    t = mean**2 / np.sqrt(square)
    return np.append(1.0 - t / (values + shift), 1.0 / t)


def cross(steps: int) -> float:
    """Computes q after some steps: CROSS_FALLING / (CROSS_FALLING + steps), at least CROSS_LEAST."""
    return max(tuned.CROSS_LEAST, tuned.CROSS_FALLING / (tuned.CROSS_FALLING + steps))


def identity_shifts(shifts: tuple[float, float], damping: float, q: float) -> tuple[float, float]:
    """Computes b' and a' for M = I from shifts b and a, with (l + b') (1 + a') = l + damping + q (a l + b)."""
    b, a = shifts
    return (damping + q * b) / (1.0 + q * a), q * a


def put_direction(
    slope: Array, n: float, metric: Spectrum, gram: Spectrum, damping: float, q: float, out: Array
) -> None:
    """Puts the direction D of a spectral layer into `out` (h, d).  a / b is the ratio of mean eigenvalues of M and G.

    slope (h, d): dE1/dW, summed over n points.
    metric, gram: the spectra of M (h, h) and G (d, d).
    Cost: 4 h d (h + d) flops.  Collective: no.
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


# --- layers -----------------------------------------------------------------------------------------------------------


class Amount(NamedTuple):
    """Says how much a step's curvature is damped.

    damping: the damping of the product of G and M.
    cross: q of the formula for layers that are damped in eigenvectors (above).
    """

    damping: float
    cross: float


@dataclass(frozen=True)
class Gradient:
    """Is dE1/dW (h, d) of layer k, summed over n points, as a view of the sum over all ranks.

    applied: whether it has been multiplied by M^-1, and whether by G^-1.
    """

    slopes: Sum
    layout: Layout
    k: int
    n: float
    applied: tuple[bool, bool]

    def rows(self, units: slice, out: Array) -> Array:
        """Returns the rows of some units (n, d), in `out` or as a view that must not be written to."""
        return self.slopes.part(self.layout.place(self.k, units), out.reshape(-1)).reshape(out.shape)

    def whole(self) -> Array:
        """Returns the rows of all units (h, d)."""
        shape = self.layout.shapes[self.k]
        return self.rows(slice(0, shape[0]), np.empty(shape, self.slopes.rows.dtype))


PutRows = Callable[[slice, Array], None]
"""Puts the direction of some units into an array (n, d)."""


class LayerCurvature(ABC):
    """Keeps the Gram of layer k, and inverses or spectra of G and M in arrays of a State.  Collective: no.

    form: how the layer is damped.
    columns: d.
    parts: this rank's parts of a minibatch; empty if G never changes.
    inverses: the inverses of G and M, if there are any.
    """

    def __init__(self, k: int, form: LayerForm, columns: int, parts: Iterable[int]) -> None:
        self.k, self.form, self.columns = k, form, columns
        self.running = {i: RunningGram(columns) for i in parts}
        self.inverses: Sequence[Inverse] = ()

    def note(self, part: int, seen: Seen, weight: float, left: float) -> None:
        """Adds the probed points of a part to the layer's running Gram of that part.

        weight: the factor of the sum of [a, 1] [a, 1]^T over these points.
        left: the factor of the previous Gram.
        Cost: a copy of the points' inputs now, and n d^2 flops later.
        """
        self.running[part].fade(left)
        for step in seen.tape.steps:
            if step.block == self.k and "transposed" not in step.map.capabilities:
                self.running[part].add(step.map.unfold(step.A[seen.probed]), weight)

    @abstractmethod
    def bind(self, squares: Pair, spectra: Pair) -> None:
        """Takes the arrays of a State in which the layer's inverses lie.

        squares: for G and for M, an inverse or eigenvectors (n, n), or (n, r) leading eigenvectors.
        spectra: the eigenvalues of each, (n,).
        """

    @abstractmethod
    def refresh(self, side: int, pair: Pair, amount: Amount, last: Array, eigenvectors: bool) -> None:
        """Computes the inverse or the spectrum of one side again, in the State's array.

        side: GRAM or METRIC.
        pair: the present G and M.
        last: the array that held the inverse or spectrum before.
        eigenvectors: whether a layer that is damped in eigenvectors also computes these again.
        """

    @abstractmethod
    def precondition(self, gradient: Gradient, amount: Amount) -> PutRows:
        """Returns a function that puts D = -M^-1 (dE1/dW) G^-1 / n of some units into an array.

        This call does the work that all units share.
        """


class Shifted(LayerCurvature):
    """Applies the inverses (M + a I)^-1 and (G + b I)^-1, a b = damping."""

    def bind(self, squares: Pair, spectra: Pair) -> None:
        self.inverses = [self._inverse(side, squares[side], spectra[side]) for side in (GRAM, METRIC)]

    def _inverse(self, side: int, square: Array, spectrum: Array) -> Inverse:
        if (rank := self.form.ranks[side]) is not None:
            return LowRank(square, spectrum[: rank + 1], 2 * self.k + side)
        if self.form.identity and side == METRIC:
            return Identity(square)
        return Dense(square, double=self.form.identity)

    def refresh(self, side: int, pair: Pair, amount: Amount, last: Array, eigenvectors: bool) -> None:
        shift = shifts(*pair, amount.damping)
        if self.form.crossed:
            shift = identity_shifts(shift, *amount)
        self.inverses[side].renew(pair[side], shift[side], last)

    def precondition(self, gradient: Gradient, amount: Amount) -> PutRows:
        (by_outputs, by_inputs), scale = gradient.applied, -1.0 / gradient.n
        alone = by_outputs or self.form.identity  # a unit's direction needs its own gradient only
        within = None if alone else self.inverses[METRIC].times(gradient.whole())

        def rows(units: slice, out: Array) -> None:
            left = out if by_inputs else np.empty_like(out)
            if within is not None:
                within(units, left)
                left *= scale
            else:
                np.multiply(gradient.rows(units, left), scale, out=left)
                if not by_outputs:
                    self.inverses[METRIC].times(left)(EVERY, left)
            if not by_inputs:
                self.inverses[GRAM].of_rows(left, out)

        return rows


class Spectral(LayerCurvature):
    """Divides in the eigenvectors of G and M, as `put_direction` does."""

    def bind(self, squares: Pair, spectra: Pair) -> None:
        self._vectors, self._values = squares, spectra

    def refresh(self, side: int, pair: Pair, amount: Amount, last: Array, eigenvectors: bool) -> None:
        if eigenvectors:
            self._values[side][:], self._vectors[side][:] = decomposed(pair[side])
        else:
            self._vectors[side][:] = last

    def precondition(self, gradient: Gradient, amount: Amount) -> PutRows:
        gram, metric = zip(self._values, self._vectors, strict=True)

        def rows(units: slice, out: Array) -> None:  # all units: such a layer is assigned as a whole
            put_direction(gradient.whole(), gradient.n, metric, gram, *amount, out)

        return rows


class RunningGram:
    """Keeps rows of one layer's inputs with their weights, and the Gram of earlier rows."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self._clear()

    def _clear(self) -> None:
        self._rows: list[Array] = []
        self._weights: list[float] = []
        self._gram: Array | None = None

    def fade(self, left: float) -> None:
        """Multiplies the weights of all rows so far by `left`."""
        self._weights = [left * weight for weight in self._weights]
        if self._gram is not None:
            self._gram *= left

    def add(self, A: Array, weight: float) -> None:
        """Adds rows A (n, d - 1), all with one weight."""
        self._rows.append(A.copy())
        self._weights.append(weight)
        if sum(map(len, self._rows)) >= max(self.columns, ROWS):
            G = np.empty((self.columns, self.columns), A.dtype)
            self.put(G)
            self._gram = G

    def put(self, out: Array) -> None:
        """Puts the sum of weight [a, 1] [a, 1]^T over all rows a into `out` (d, d), and forgets the rows."""
        scaled, start = np.empty((sum(map(len, self._rows)), self.columns), out.dtype), 0
        for A, weight in zip(self._rows, self._weights, strict=True):
            root, stop = np.sqrt(weight), start + len(A)
            np.multiply(A, root, out=scaled[start:stop, :-1])
            scaled[start:stop, -1] = root
            start = stop
        np.matmul(scaled.T, scaled, out=out)
        if self._gram is not None:
            out += self._gram
        self._clear()
