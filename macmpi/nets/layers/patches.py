"""Patches of images: rows that a kernel multiplies; pooling replaces each by one number for each channel."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from macmpi import UsageError
from macmpi.nets.graph import numbered
from macmpi.nets.layers import Graph, Map, Shape, Tangent
from macmpi.typing import Array


@dataclass(frozen=True)
class Patches:
    """Square patches of images (height, width, channels), at distances of `stride` pixels.

    An image is a row of height * width * channels numbers, channels last.
    kernel: the side of a patch, in pixels.
    padding: "same" surrounds images with zeros, so that there are ceil(height / stride) patches in a column; "none"
        takes only patches that lie in the image.
    """

    height: int
    width: int
    channels: int
    kernel: int
    stride: int = 1
    padding: str = "same"

    @property
    def n_in(self) -> int:
        """The length of an image as a row: height * width * channels."""
        return self.height * self.width * self.channels

    @property
    def columns(self) -> int:
        """The length of a patch as a row: kernel^2 * channels."""
        return self.kernel**2 * self.channels

    @property
    def count(self) -> int:
        """The number of patches of an image."""
        down, across = self.shape
        return down * across

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of patches in a column and in a row of an image; 0 where it is smaller than the kernel."""
        return self._count(self.height), self._count(self.width)

    def _count(self, size: int) -> int:
        return -(-size // self.stride) if self.padding == "same" else max(size - self.kernel, -1) // self.stride + 1

    def _span(self, size: int) -> tuple[int, slice]:
        """Returns the side of an image with its padding, and the places of its own pixels there."""
        side = max((self._count(size) - 1) * self.stride + self.kernel, size)
        before = (side - size) // 2 if self.padding == "same" else 0
        return side, slice(before, before + size)

    def cut(self, A: Array) -> Array:
        """Cuts images A (n, n_in) into patches (n count, columns), image by image.  Cost: a copy."""
        (tall, rows), (wide, columns) = self._span(self.height), self._span(self.width)
        padded = np.zeros((len(A), tall, wide, self.channels), A.dtype)
        padded[:, rows, columns] = A.reshape(len(A), self.height, self.width, self.channels)
        seen = np.lib.stride_tricks.sliding_window_view(padded, (self.kernel, self.kernel), axis=(1, 2))
        down, across = self.shape
        seen = seen[:, : down * self.stride : self.stride, : across * self.stride : self.stride]
        return seen.transpose(0, 1, 2, 4, 5, 3).reshape(-1, self.columns)

    def add(self, rows: Array) -> Array:
        """Sums patches (n count, columns) up to images (n, n_in), as the adjoint of `cut`."""
        (tall, kept), (wide, columns) = self._span(self.height), self._span(self.width)
        down, across = self.shape
        pieces = rows.reshape(-1, down, across, self.kernel, self.kernel, self.channels)
        padded = np.zeros((len(pieces), tall, wide, self.channels), rows.dtype)
        for i in range(self.kernel):
            for j in range(self.kernel):
                below, right = i + down * self.stride, j + across * self.stride
                padded[:, i : below : self.stride, j : right : self.stride] += pieces[:, :, :, i, j]
        return padded[:, kept, columns].reshape(len(pieces), self.n_in)


# --- pooling ----------------------------------------------------------------------------------------------------------


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
        return np.repeat(self.patches.add(np.ones((self.patches.count, self.patches.columns), A.dtype)), len(A), axis=0)

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
