"""The curvature of each layer: noted minibatch by minibatch, damped and inverted, and applied to the layer's gradient.

    D_k = -M_k^-1 (dE1/dW_k) G_k^-1

A LayerCurvature has three duties: `note` the inputs of a minibatch, `refresh` what is made of G and M, and
`precondition` the gradient.  Two classes do the last two: Shifted, whose two inverses are matrices, multiples of the
identity or made of leading eigenvectors (inverses.py), and Spectral.  plan/directions.py chooses between them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

from macmpi.methods.stochastic.inverses import (
    GRAM,
    METRIC,
    Dense,
    Identity,
    Inverse,
    LowRank,
    decomposed,
    identity_shifts,
    put_direction,
)
from macmpi.parallel.shared_work import Sum
from macmpi.plan.directions import CurvatureForms, LayerForm
from macmpi.reductions import EVERY
from macmpi.solvers.metrics import Seen, shifts
from macmpi.state import block_views
from macmpi.typing import Array

ROWS = 1024
"""Rows of a layer, or as many as it has columns, that are multiplied before their Gram is asked for: a product of fewer
rows would take longer, and more rows would be kept than a Gram or a minibatch has numbers."""

Pair = tuple[Array, Array]
"""G (d, d) and M (h, h) of a layer, or of each the array that something made of it is in."""


class Amount(NamedTuple):
    """The damping of curvature, and q of the damping in eigenvectors (inverses.py)."""

    damping: float
    cross: float


class Layout:
    """Places of the layers' numbers in flat arrays: weights (h, d), d with the bias, Grams (d, d), and inverses.

    squares: of each layer two, made of G and of M: (n, n), or (n, r) of r leading eigenvectors; spectra: of eigenvalues
    (n,), or of LowRank.shares, as `squares` has their eigenvectors.
    """

    def __init__(self, shapes: Sequence[tuple[int, int]], layers: Sequence[LayerForm]) -> None:
        self.shapes = shapes
        self._grams = [(d, d) for _, d in shapes]
        ranks = [rank for form in layers for rank in form.ranks]
        self._squares = [(n, rank or n) for n, rank in zip([n for h, d in shapes for n in (d, h)], ranks, strict=True)]
        self.weights, self.grams = _runs(shapes), _runs(self._grams)
        self.squares = _by_layer(_runs(self._squares))
        self.spectra = _by_layer(_runs([(n, 1) for n, _ in self._squares]))

    def place(self, layer: int, rows: slice) -> slice:
        """Gives the place of some rows of a layer's weights."""
        start, d = self.weights[layer].start, self.shapes[layer][1]
        return slice(start + rows.start * d, start + rows.stop * d)

    def blocks(self, flat: Array) -> list[Array]:
        """Views (h, d) of the weights, or of anything of their shape."""
        return list(block_views(flat, self.shapes))

    def gram_blocks(self, flat: Array) -> list[Array]:
        """Views G_k (d, d)."""
        return list(block_views(flat, self._grams))

    def square_blocks(self, flat: Array) -> list[Pair]:
        """Views of what is made of G and M of each layer: (n, n), or some eigenvectors (n, r)."""
        return _by_layer(block_views(flat, self._squares))

    def spectrum_blocks(self, flat: Array) -> list[Pair]:
        """Views (n,) of the eigenvalues of G and M of each layer."""
        return [(flat[of_G], flat[of_M]) for of_G, of_M in self.spectra]


def _runs(shapes: Sequence[tuple[int, int]]) -> list[slice]:
    return [slice(a, b) for a, b in pairwise(accumulate((h * d for h, d in shapes), initial=0))]


def _by_layer(sides: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Pairs what is of G and of M of each layer."""
    return list(zip(sides[::2], sides[1::2], strict=True))


@dataclass(frozen=True)
class Gradient:
    """dE1/dW (h, d) of layer k, summed over n points, in what the ranks have summed.

    applied: whether M^-1, and whether G^-1, are in it already.
    """

    slopes: Sum
    layout: Layout
    k: int
    n: float
    applied: tuple[bool, bool]

    def rows(self, units: slice, out: Array) -> Array:
        """Some units (n, d), to be read only, or in `out`."""
        return self.slopes.part(self.layout.place(self.k, units), out.reshape(-1)).reshape(out.shape)

    def whole(self) -> Array:
        """All units, joined now."""
        shape = self.layout.shapes[self.k]
        return self.rows(slice(0, shape[0]), np.empty(shape, self.slopes.rows.dtype))


PutRows = Callable[[slice, Array], None]
"""Puts the direction of some units into an array (n, d)."""


class LayerCurvature(ABC):
    """G and M of layer k, and what is made of them, in arrays of a State.  Collective: no.

    form: how it is damped.  columns: d.  parts: this rank's parts of a minibatch; none where G never changes.
    inverses: of G and M, where there are such.
    """

    def __init__(self, k: int, form: LayerForm, columns: int, parts: Iterable[int]) -> None:
        self.k, self.form, self.columns = k, form, columns
        self.running = {i: RunningGram(columns) for i in parts}
        self.inverses: Sequence[Inverse] = ()

    def note(self, part: int, seen: Seen, weight: float, left: float) -> None:
        """The part's Gram becomes `left` of what it was, and `weight` times the sum of [a, 1] [a, 1]^T over the points
        probed.

        Cost: a copy of their inputs, and n d^2 flops, later.
        """
        self.running[part].fade(left)
        for step in seen.tape.steps:
            if step.block == self.k and "transposed" not in step.map.capabilities:
                self.running[part].add(step.map.unfold(step.A[seen.probed]), weight)

    @abstractmethod
    def bind(self, squares: Pair, spectra: Pair) -> None:
        """Takes the arrays of a State: of G and of M (n, n), or (n, r) of leading eigenvectors, and (n,)."""

    @abstractmethod
    def refresh(self, side: int, pair: Pair, amount: Amount, last: Array, eigenvectors: bool) -> None:
        """Makes one side's array of other G and M.

        last: what its array held before.  eigenvectors: those of a layer that is damped in them are made again, too.
        """

    @abstractmethod
    def precondition(self, gradient: Gradient, amount: Amount) -> PutRows:
        """Gives D = -M^-1 (dE1/dW) G^-1 / n of the mean gradient; what all units have in common is made at once."""


class Shifted(LayerCurvature):
    """(M + a I)^-1 and (G + b I)^-1, a b = damping.

    crossed: M is the identity, and damped by the formula of layers that are damped in eigenvectors.
    """

    def __init__(self, k: int, form: LayerForm, columns: int, parts: Iterable[int], crossed: bool) -> None:
        super().__init__(k, form, columns, parts)
        self.crossed = crossed

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
        if self.crossed:
            shift = identity_shifts(shift, *amount)
        self.inverses[side].renew(pair[side], shift[side], last)

    def precondition(self, gradient: Gradient, amount: Amount) -> PutRows:
        (by_outputs, by_inputs), scale = gradient.applied, -1.0 / gradient.n
        alone = by_outputs or self.form.identity  # the direction of a unit needs its own gradient alone
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
    """G and M in their eigenvectors, with the damping that `put_direction` says."""

    def bind(self, squares: Pair, spectra: Pair) -> None:
        self._vectors, self._values = squares, spectra

    def refresh(self, side: int, pair: Pair, amount: Amount, last: Array, eigenvectors: bool) -> None:
        if eigenvectors:
            self._values[side][:], self._vectors[side][:] = decomposed(pair[side])
        else:
            self._vectors[side][:] = last

    def precondition(self, gradient: Gradient, amount: Amount) -> PutRows:
        gram, metric = zip(self._values, self._vectors, strict=True)

        def rows(units: slice, out: Array) -> None:  # all of them: such a layer is assigned as a whole
            put_direction(gradient.whole(), gradient.n, metric, gram, *amount, out)

        return rows


def layer_curvature(k: int, forms: CurvatureForms, columns: int, parts: Iterable[int]) -> LayerCurvature:
    """Makes the curvature of layer k in its form.  columns, parts: as LayerCurvature has them."""
    form = forms.layers[k]
    if form.spectral:
        return Spectral(k, form, columns, parts)
    return Shifted(k, form, columns, parts, form.identity and forms.dense_autoencoder)


class RunningGram:
    """Rows of one layer's inputs and their weights, and the Gram of earlier ones."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self._clear()

    def _clear(self) -> None:
        self._rows: list[Array] = []
        self._weights: list[float] = []
        self._gram: Array | None = None

    def fade(self, left: float) -> None:
        """Only `left` of what was there counts from now on."""
        self._weights = [left * weight for weight in self._weights]
        if self._gram is not None:
            self._gram *= left

    def add(self, A: Array, weight: float) -> None:
        """Adds rows A (n, d - 1), each by its weight."""
        self._rows.append(A.copy())
        self._weights.append(weight)
        if sum(map(len, self._rows)) >= max(self.columns, ROWS):
            G = np.empty((self.columns, self.columns), A.dtype)
            self.put(G)
            self._gram = G

    def put(self, out: Array) -> None:
        """Puts the Gram into `out` (d, d), of each row times the root of its weight, and forgets it."""
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
