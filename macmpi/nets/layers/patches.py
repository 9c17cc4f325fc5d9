"""Cuts images into patches, the rows that a kernel multiplies, and adds patches up to images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
