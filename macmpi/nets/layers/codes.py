"""Layers without derivatives that choose among a few values: codes of bits or words, and quantisers with codewords."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from macmpi import UsageError, many
from macmpi.nets.design import squared_distances
from macmpi.nets.layers import Built, Code, Graph, Place, SameSize
from macmpi.nets.layers.affine import dense
from macmpi.typing import Array


@dataclass(frozen=True)
class Binary(Code):
    """b_h = 1 if a_h > 0, else 0.  The weights before these bits are fitted as if they were sigmoids."""

    kind: ClassVar[str] = "binary"
    capabilities: ClassVar[frozenset[str]] = frozenset({"units", "elementwise"})
    trained_as: ClassVar[str] = "sigmoid"

    @property
    def alphabet(self) -> Array:
        return np.array([[0.0], [1.0]])

    def numbers(self, A: Array) -> Array:
        return (A > 0.0).astype(np.intp)

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        return np.greater(A, 0.0, out=np.empty_like(A) if out is None else out, casting="unsafe")

    def export(self, g: Graph, A: str, W: Any) -> str:
        return g.node("Cast", g.node("Greater", A, g.constant(0.0)), to=g.number)


@dataclass(frozen=True)
class OneHot(Code):
    """b_h = 1 where a_h is the largest of its group of `words` numbers (the first of equals), else 0.

    Each group is a word of a code.  The weights before it are fitted as if it were the identity.
    """

    words: int
    kind: ClassVar[str] = "argmax"
    trained_as: ClassVar[str] = "linear"

    @property
    def run_length(self) -> int:  # type: ignore[override]
        return self.words

    @property
    def alphabet(self) -> Array:
        return np.eye(self.words)

    def numbers(self, A: Array) -> Array:
        return A.reshape(len(A), A.shape[1] // self.words, self.words).argmax(axis=2)

    def export(self, g: Graph, A: str, W: Any) -> str:
        best = g.node("ArgMax", g.rows(A, self.words), axis=1, keepdims=0)
        return g.rows(g.node("Gather", g.constant(self.alphabet), best, axis=0), self.size)


@dataclass(frozen=True)
class Quantiser(SameSize):
    """b = the codeword nearest to a (the first of equals), with the codebook as weights C (words, size).

    The weights before it are fitted as if it were the identity.  Cost: 2 n words size flops.
    """

    size: int
    words: int
    kind: ClassVar[str] = "quantiser"
    capabilities: ClassVar[frozenset[str]] = frozenset({"centres"})
    trained_as: ClassVar[str] = "linear"

    @property
    def parameter_shape(self) -> tuple[int, int]:
        return (self.words, self.size)

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        return W[squared_distances(A, W).argmin(axis=1)].astype(A.dtype, copy=False)

    def export(self, g: Graph, A: str, W: Any) -> str:
        nearest = g.node("ArgMin", g.nearness(A, W)[1], axis=1, keepdims=0)
        return g.node("Gather", g.constant(W), nearest, axis=0)


def layer(place: Place) -> Built:
    """Builds a dense layer that ends in bits, words or codewords.

    Raises UsageError if the number of units is no multiple of model.words.
    """
    words, units = place.model.words, place.units
    if place.kind == "argmax" and (words < 2 or units % words):
        raise UsageError(
            f'model.activation = "argmax" sets one of every {words} units (model.words: 2 or more), {place.key} has '
            f"{many(units, 'unit')}; use a multiple, as model.words = 16 with 32 units"
        )
    ends = {"binary": Binary(units), "argmax": OneHot(units, words), "quantise": Quantiser(units, words)}
    return Built([dense(place), ends[place.kind]])
