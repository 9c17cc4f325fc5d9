"""Patches of images, the rows that a kernel multiplies, one for each position; and pooling, which sums them up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from macmpi.nets.layers import Map, Tangent
from macmpi.typing import Array


@dataclass(frozen=True)
class Patches:
    """Square patches of images (height, width, channels), each `stride` pixels from the next.

    An image lies in a row of height * width * channels numbers, channels last.  padding: "same" surrounds it with
    zeros, so that there are ceil(height / stride) patches in a column, "none" leaves it as it is.
    """

    height: int
    width: int
    channels: int
    kernel: int
    stride: int = 1
    padding: str = "same"

    @property
    def n_in(self) -> int:
        """The numbers of an image."""
        return self.height * self.width * self.channels

    @property
    def columns(self) -> int:
        """The numbers of a patch."""
        return self.kernel**2 * self.channels

    @property
    def count(self) -> int:
        """The number of an image's patches."""
        down, across = self.shape
        return down * across

    @property
    def shape(self) -> tuple[int, int]:
        """Patches in a column and in a row of an image; none where it is smaller than the kernel."""
        return self._count(self.height), self._count(self.width)

    def _count(self, size: int) -> int:
        return -(-size // self.stride) if self.padding == "same" else max(size - self.kernel, -1) // self.stride + 1

    def _span(self, size: int) -> tuple[int, slice]:
        """The side of an image with what surrounds it, and the places there of its own pixels."""
        side = max((self._count(size) - 1) * self.stride + self.kernel, size)
        before = (side - size) // 2 if self.padding == "same" else 0
        return side, slice(before, before + size)

    def cut(self, A: Array) -> Array:
        """The patches of images A (n, n_in): (n count, columns), image by image.  Cost: a copy."""
        (tall, rows), (wide, columns) = self._span(self.height), self._span(self.width)
        padded = np.zeros((len(A), tall, wide, self.channels), A.dtype)
        padded[:, rows, columns] = A.reshape(len(A), self.height, self.width, self.channels)
        seen = np.lib.stride_tricks.sliding_window_view(padded, (self.kernel, self.kernel), axis=(1, 2))
        down, across = self.shape
        seen = seen[:, : down * self.stride : self.stride, : across * self.stride : self.stride]
        return seen.transpose(0, 1, 2, 4, 5, 3).reshape(-1, self.columns)

    def add(self, rows: Array) -> Array:
        """Images whose pixels are sums over the patches that hold them, the adjoint of `cut`: (n, n_in)."""
        (tall, kept), (wide, columns) = self._span(self.height), self._span(self.width)
        down, across = self.shape
        pieces = rows.reshape(-1, down, across, self.kernel, self.kernel, self.channels)
        padded = np.zeros((len(pieces), tall, wide, self.channels), rows.dtype)
        for i in range(self.kernel):
            for j in range(self.kernel):
                below, right = i + down * self.stride, j + across * self.stride
                padded[:, i : below : self.stride, j : right : self.stride] += pieces[:, :, :, i, j]
        return padded[:, kept, columns].reshape(len(pieces), self.n_in)


@dataclass(frozen=True)
class Pooling(Map):
    """b = U (s(a) a): sums U over patches of size x size pixels, channel by channel, of the pixels' shares s.

    Patches do not overlap; pixels at the lower and right edge that fill none have the share 0.
    """

    height: int
    width: int
    channels: int
    size: int
    capabilities: ClassVar[frozenset[str]] = frozenset({"jacobian"})

    @property
    def patches(self) -> Patches:
        """The patches of an image that it reads."""
        return Patches(self.height, self.width, self.channels, self.size, self.size, "none")

    @property
    def n_in(self) -> int:
        return self.patches.n_in

    @property
    def n_out(self) -> int:
        return self.patches.count * self.channels

    def shares(self, A: Array) -> Array:
        """The share of each number that its patch takes: (n, n_in)."""
        raise NotImplementedError

    def _pixels(self, A: Array) -> Array:
        """The pixels of each patch: (n patches, size^2, channels)."""
        return self.patches.cut(A).reshape(-1, self.size**2, self.channels)

    def _sums(self, A: Array) -> Array:
        """U A, row by row: (n, n_in) -> (n, n_out)."""
        return self._pixels(A).sum(axis=1).reshape(len(A), self.n_out)

    @property
    def _owner(self) -> Array:
        """The output whose patch holds each input; 0 where none does: (n_in,)."""
        row, column, channel = np.unravel_index(np.arange(self.n_in), (self.height, self.width, self.channels))
        down, across = self.patches.shape
        row, column = row // self.size, column // self.size
        found: Array = np.where((row < down) & (column < across), (row * across + column) * self.channels + channel, 0)
        return found

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        return self._sums(self.shares(A) * A)

    def tangent(self, W: Any, A: Array, B: Array) -> Tangent:
        shares, owner = self.shares(A), self._owner
        return Tangent(jvp=lambda dA: self._sums(shares * dA), vjp=lambda dB: shares * dB[:, owner])

    def _together(self, A: Array) -> Array:
        """Mean over points of the products of two inputs' shares: (n_in, n_in).  Cost: 2 n n_in^2 flops."""
        shares = self.shares(A)
        return shares.T @ shares / max(len(A), 1)

    def congruence(self, W: Any, A: Array, M: Array) -> Array:
        return self._sums(self._sums(self._together(A) * M).T)

    def pullback(self, W: Any, A: Array, M: Array) -> Array:
        owner = self._owner
        return self._together(A) * M[np.ix_(owner, owner)]


@dataclass(frozen=True)
class SumPooling(Pooling):
    """The sum of each patch: its pixels have the share 1.  Of a codebook's shares it is a histogram of words."""

    kind: ClassVar[str] = "sum_pooling"

    def shares(self, A: Array) -> Array:
        inside = self.patches.add(np.ones((self.patches.count, self.patches.columns), A.dtype))
        return np.repeat(inside, len(A), axis=0)


@dataclass(frozen=True)
class AveragePooling(SumPooling):
    """The mean of each patch: its pixels have equal shares."""

    kind: ClassVar[str] = "average_pooling"

    def shares(self, A: Array) -> Array:
        return super().shares(A) / self.size**2


@dataclass(frozen=True)
class MaxPooling(Pooling):
    """The largest number of each patch: the share of the first largest pixel is 1, that of the others 0."""

    kind: ClassVar[str] = "max_pooling"

    def shares(self, A: Array) -> Array:
        pixels = self._pixels(A)
        chosen = np.zeros_like(pixels)
        np.put_along_axis(chosen, pixels.argmax(axis=1, keepdims=True), 1.0, axis=1)
        return self.patches.add(chosen)
