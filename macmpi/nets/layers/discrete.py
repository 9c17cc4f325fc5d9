"""Layers without a derivative: a quantiser with a codebook, and binary units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from macmpi.nets.design import squared_distances
from macmpi.nets.layers import Built, Graph, Place, SameSize
from macmpi.nets.layers.affine import dense
from macmpi.typing import Array


@dataclass(frozen=True)
class Quantiser(SameSize):
    """b = the codeword nearest to a (the first of equals), with the codebook as weights C (words, size).

    The layer before it is fitted as if it were the identity.  Cost: 2 n words size flops.
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


@dataclass(frozen=True)
class Binary(SameSize):
    """b_h = 1 if a_h > 0, else 0: bits.  The layer before it is fitted as if its units were sigmoids."""

    size: int
    kind: ClassVar[str] = "binary"
    capabilities: ClassVar[frozenset[str]] = frozenset({"units", "elementwise", "bits"})
    trained_as: ClassVar[str] = "sigmoid"

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        return np.greater(A, 0.0, out=np.empty_like(A) if out is None else out, casting="unsafe")

    def export(self, g: Graph, A: str, W: Any) -> str:
        return g.node("Cast", g.node("Greater", A, g.constant(0.0)), to=g.number)


def layer(place: Place) -> Built:
    """A dense layer whose outputs become bits, or codewords."""
    return dense(place, Binary(place.units) if place.kind == "binary" else Quantiser(place.units, place.model.words))
