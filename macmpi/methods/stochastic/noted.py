"""Inputs of layers that a part has seen since their Grams were last asked for.

A running Gram G <- (1 - r) G + w sum_n [a_n, 1] [a_n, 1]^T is a sum over all rows a that have come, each by its weight.
The rows of many minibatches are kept and multiplied at once: a minibatch's own product takes as long as passing through
G several times.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from macmpi.methods.stochastic.factors import Seen, layers
from macmpi.typing import Array

ROWS = 1024
"""Rows of a layer, or as many as it has columns, that are multiplied before their Gram is asked for: a product of fewer
rows would take longer, and more rows would be kept than a Gram or a minibatch has numbers."""


class Noted:
    """The last layers of a net: of each (d, d) the Gram of what has been noted.  Collective: no.

    first: the block of the first of them; columns: d of each, with the bias.
    """

    def __init__(self, first: int, columns: Sequence[int], dtype: np.dtype) -> None:
        self.first, self.dtype = first, dtype
        self._layers = [_Layer(d) for d in columns]

    def note(self, seen: Seen, weight: float, left: float) -> None:
        """All Grams: `left` of what was there, and `weight` times the sum over the probed points of [a, 1] [a, 1]^T.

        Cost: a copy of their inputs, and n d^2 flops a layer, later.
        """
        for layer in self._layers:
            layer.fade(left)
        for step in layers(seen.tape):
            assert step.block is not None
            if step.block >= self.first and "transposed" not in step.map.capabilities:
                self._layers[step.block - self.first].add(step.map.unfold(step.A[seen.probed]), weight)

    def put(self, flat: Array) -> None:
        """Puts the Grams, one behind the other, into `flat`, and begins again with nothing."""
        start = 0
        for layer in self._layers:
            d = layer.columns
            layer.put(flat[start : start + d * d].reshape(d, d))
            start += d * d


class _Layer:
    """Rows of one layer's inputs and their weights, and the Gram of earlier ones."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self._clear()

    def _clear(self) -> None:
        self._rows: list[Array] = []
        self._weights: list[float] = []
        self._gram: Array | None = None

    def fade(self, left: float) -> None:
        self._weights = [left * weight for weight in self._weights]
        if self._gram is not None:
            self._gram *= left

    def add(self, A: Array, weight: float) -> None:
        self._rows.append(A.copy())
        self._weights.append(weight)
        if sum(map(len, self._rows)) >= max(self.columns, ROWS):
            G = np.empty((self.columns, self.columns), A.dtype)
            self._put_product(G)
            self._gram = G if self._gram is None else np.add(self._gram, G, out=G)
            self._rows, self._weights = [], []

    def _put_product(self, out: Array) -> None:
        """The Gram of the rows that are kept, each by the root of its weight."""
        scaled, start = np.empty((sum(map(len, self._rows)), self.columns), out.dtype), 0
        for A, weight in zip(self._rows, self._weights, strict=True):
            root, stop = np.sqrt(weight), start + len(A)
            np.multiply(A, root, out=scaled[start:stop, :-1])
            scaled[start:stop, -1] = root
            start = stop
        np.matmul(scaled.T, scaled, out=out)

    def put(self, out: Array) -> None:
        """Puts the Gram into `out` (d, d) and forgets it."""
        if self._rows:
            self._put_product(out)
            if self._gram is not None:
                out += self._gram
        elif self._gram is not None:
            out[:] = self._gram
        else:
            out.fill(0.0)
        self._clear()
