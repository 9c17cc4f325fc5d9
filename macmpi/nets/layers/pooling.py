"""Pooling replaces each patch of an image, channel by channel, by its sum, its mean or its largest number."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from macmpi import UsageError
from macmpi.nets.graph import numbered
from macmpi.nets.layers import Graph, Map, Shape, Tangent
from macmpi.nets.layers.patches import Patches
from macmpi.typing import Array


@dataclass(frozen=True)
class Pooling(Map):
    """b = U (s(a) * a): U sums over patches of size x size pixels, channel by channel; s(a) are the pixels' shares.

    Patches do not overlap.  Pixels at the lower and right edge that fill no patch have the share 0.
    """

    height: int
    width: int
    channels: int
    size: int
    capabilities: ClassVar[frozenset[str]] = frozenset({"jacobian"})

    @property
    def patches(self) -> Patches:
        """The patches of an input image."""
        return Patches(self.height, self.width, self.channels, self.size, self.size, "none")

    @property
    def n_in(self) -> int:
        return self.patches.n_in

    @property
    def n_out(self) -> int:
        return self.patches.count * self.channels

    def images(self, shape: Shape) -> Shape:
        return *self.patches.shape, self.channels

    def shares(self, A: Array) -> Array:
        """Computes the share s of each number in the output of its patch: (n, n_in)."""
        raise NotImplementedError

    def _pixels(self, A: Array) -> Array:
        """Returns the pixels of each patch: (n patches, size^2, channels)."""
        return self.patches.cut(A).reshape(-1, self.size**2, self.channels)

    def _sums(self, A: Array) -> Array:
        """Computes U A, row by row: (n, n_in) -> (n, n_out)."""
        return self._pixels(A).sum(axis=1).reshape(len(A), self.n_out)

    def _spread(self, B: Array) -> Array:
        """Computes U^T B, row by row: (n, n_out) -> (n, n_in)."""
        return self.patches.add(np.tile(B.reshape(-1, self.channels), self.size**2))

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        return self._sums(self.shares(A) * A)

    def tangent(self, W: Any, A: Array, B: Array) -> Tangent:
        shares = self.shares(A)
        return Tangent(jvp=lambda dA: self._sums(shares * dA), vjp=lambda dB: shares * self._spread(dB))

    def _cut(self, g: Graph, A: str) -> str:
        """Adds the pixels of each patch to a graph: (n, patches, size^2, channels)."""
        return g.gathered(A, self.patches.cut(numbered(self.n_in)).reshape(-1, self.size**2, self.channels))

    def _together(self, A: Array) -> Array:
        """Computes the mean over points of s s^T, the products of shares: (n_in, n_in).  Cost: 2 n n_in^2 flops."""
        shares = self.shares(A)
        return shares.T @ shares / max(len(A), 1)

    def congruence(self, W: Any, A: Array, M: Array) -> Array:
        return self._sums(self._sums(self._together(A) * M).T)

    def pullback(self, W: Any, A: Array, M: Array) -> Array:
        return self._together(A) * self._spread(self._spread(M.T).T)


@dataclass(frozen=True)
class SumPooling(Pooling):
    """The sum over each patch, whose pixels have the share 1; after a softmax over words it is a histogram of words."""

    kind: ClassVar[str] = "sum_pooling"

    def shares(self, A: Array) -> Array:
        inside = self.patches.add(np.ones((self.patches.count, self.patches.columns), A.dtype))
        return np.repeat(inside, len(A), axis=0)

    def export(self, g: Graph, A: str, W: Any) -> str:
        """Adds a ReduceSum, which unlike other reductions has its axes as an input."""
        return g.rows(g.node("ReduceSum", self._cut(g, A), g.constant(np.array([2])), keepdims=0), self.n_out)


@dataclass(frozen=True)
class AveragePooling(SumPooling):
    """The mean over each patch, whose pixels have equal shares."""

    kind: ClassVar[str] = "average_pooling"

    def shares(self, A: Array) -> Array:
        return super().shares(A) / self.size**2

    def export(self, g: Graph, A: str, W: Any) -> str:
        return g.rows(g.node("ReduceMean", self._cut(g, A), axes=[2], keepdims=0), self.n_out)


@dataclass(frozen=True)
class MaxPooling(Pooling):
    """The largest number of each patch: the largest pixel (the first of equals) has the share 1, the others 0."""

    kind: ClassVar[str] = "max_pooling"

    def shares(self, A: Array) -> Array:
        pixels = self._pixels(A)
        chosen = np.zeros_like(pixels)
        np.put_along_axis(chosen, pixels.argmax(axis=1, keepdims=True), 1.0, axis=1)
        return self.patches.add(chosen)

    def export(self, g: Graph, A: str, W: Any) -> str:
        return g.rows(g.node("ReduceMax", self._cut(g, A), axes=[2], keepdims=0), self.n_out)


POOLING: dict[str, Callable[..., Pooling]] = {"max": MaxPooling, "average": AveragePooling, "sum": SumPooling}


def pooling(word: str, shape: Shape, size: int, key: str) -> list[Map]:
    """Makes the map that pools images of `shape`, as a list; [] if patches are single pixels.  Raises UsageError.

    word: "max", "average" or "sum"; size: the side of a patch; key: the key of the layer, for the message.
    Collective: no.
    """
    if size == 1:
        return []
    found = POOLING[word](*shape, size)
    if not math.prod(found.patches.shape):
        raise UsageError(
            f"{key}.pool = {size}: its images have {shape[0]} x {shape[1]} pixels; use a smaller pool, or none"
        )
    return [found]
