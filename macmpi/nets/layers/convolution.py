"""Convolution: one affine map of every patch of an image; and its transpose, which spreads every pixel over one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from macmpi.nets.design import adjoint, apply, column_sums
from macmpi.nets.layers import SameDerivative, Sparse, Tangent
from macmpi.nets.layers.patches import Patches
from macmpi.typing import Array

CACHED = 2**17
"""Numbers of the patches that are in memory at a time: they stay in a core's cache."""


@dataclass(frozen=True)
class Shared(SameDerivative):
    """b_p = V a_p + c for each patch a_p of an image, with weights W = [V, c] (units, columns + 1), the bias last.

    Outputs are images of `units` channels, one pixel a patch, in rows with the channels last.
    """

    height: int
    width: int
    channels: int
    units: int
    kernel: int
    capabilities: ClassVar[frozenset[str]] = frozenset()

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of the images that it gives."""
        raise NotImplementedError

    @property
    def n_in(self) -> int:
        return self.height * self.width * self.channels

    @property
    def n_out(self) -> int:
        return self.shape[0] * self.shape[1] * self.units

    @property
    def columns(self) -> int:
        return self.kernel**2 * self.channels

    @property
    def fan_in(self) -> int:
        return self.columns

    @property
    def parameter_shape(self) -> tuple[int, int]:
        return (self.units, self.columns + 1)

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        raise NotImplementedError

    def weight_jvp(self, W: Any, A: Array, dW: Array) -> Array:
        return self.forward(dW.astype(A.dtype, copy=False), A)

    def matrix(self, W: Any) -> Array:
        """J (n_out, n_in), the same at every point."""
        unit = np.eye(self.n_in, dtype=W.dtype)
        return self.tangent(W, unit, unit).jvp(unit).T


def _runs(points: int, numbers: int) -> Iterator[slice]:
    """Runs of points whose patches, of that many numbers each, stay in the cache."""
    step = max(CACHED // numbers, 1)
    return (slice(first, min(first + step, points)) for first in range(0, points, step))


def _by_runs(A: Array, width: int, numbers: int, part: Callable[[Array], Array]) -> Array:
    """part(A) (n, width), a run of points after the other."""
    B = np.empty((len(A), width), A.dtype)
    for rows in _runs(len(A), numbers):
        B[rows] = part(A[rows]).reshape(-1, width)
    return B


@dataclass(frozen=True)
class Convolution(Shared):
    """The patches are `stride` pixels apart.  A forward, jvp or vjp costs 2 n positions columns units flops."""

    stride: int = 1
    padding: str = "same"
    kind: ClassVar[str] = "convolution"
    capabilities: ClassVar[frozenset[str]] = frozenset({"jacobian", "weight_jacobian", "units", "patches", "bias"})
    trained_as: ClassVar[str] = "linear"

    @property
    def positions(self) -> int:
        return self.patches.count

    @property
    def patches(self) -> Patches:
        """The patches of an image that it reads."""
        return Patches(self.height, self.width, self.channels, self.kernel, self.stride, self.padding)

    @property
    def shape(self) -> tuple[int, int]:
        return self.patches.shape

    def unfold(self, A: Array) -> Array:
        return self.patches.cut(A)

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        return _by_runs(A, self.n_out, self.positions * self.columns, lambda A: apply(self.unfold(A), W))

    def tangent(self, W: Any, A: Array, B: Array) -> Tangent:
        V, numbers = W[:, :-1], self.positions * self.columns

        def jvp(dA: Array) -> Array:
            return _by_runs(dA, self.n_out, numbers, lambda dA: self.unfold(dA) @ V.T)

        def vjp(dB: Array) -> Array:
            return _by_runs(dB, self.n_in, numbers, lambda dB: self.patches.add(dB.reshape(-1, self.units) @ V))

        return Tangent(jvp, vjp)

    def weight_vjp(self, W: Any, A: Array, dB: Array) -> Array:
        total = np.zeros(self.parameter_shape, dB.dtype)
        for rows in _runs(len(A), self.positions * self.columns):
            total += adjoint(dB[rows].reshape(-1, self.units), self.unfold(A[rows]))
        return total


@dataclass(frozen=True)
class GroupedConvolution(Sparse, Convolution):
    """Each unit reads the channels of its own group alone: of one channel a group this is a depthwise convolution.

    The channels read and the units fall into `groups` runs of equal length.  Weights of other channels do not exist:
    they are 0 and stay 0, and no derivative has them.  Products are those of all weights.
    """

    groups: int = 1
    kind: ClassVar[str] = "grouped_convolution"

    @property
    def connected(self) -> Array:
        group_of = [np.arange(size) * self.groups // size for size in (self.units, self.channels)]
        reads = group_of[0][:, None] == np.tile(group_of[1], self.kernel**2)
        return np.hstack([reads, np.ones((self.units, 1), bool)])

    @property
    def fan_in(self) -> int:
        return self.columns // self.groups


@dataclass(frozen=True)
class TransposedConvolution(Shared):
    """The transpose of a convolution with stride `upsample`: every pixel adds a patch to an image so much larger.

    Its patches are those of its inputs with upsample - 1 rows and columns of zeros between their pixels.  Nothing is
    multiplied by these zeros: a forward, jvp or vjp costs 2 n height width columns units flops.
    """

    upsample: int = 2
    kind: ClassVar[str] = "transposed_convolution"
    capabilities: ClassVar[frozenset[str]] = frozenset({"jacobian", "weight_jacobian", "patches", "bias"})

    @property
    def positions(self) -> int:
        return self.shape[0] * self.shape[1]

    @property
    def multiplications(self) -> int:
        return self.height * self.width * self.units * (self.columns + 1)

    @property
    def shape(self) -> tuple[int, int]:
        return self.height * self.upsample, self.width * self.upsample

    @property
    def patches(self) -> Patches:
        """The patches of an image that it gives, one for each pixel of what it reads."""
        return Patches(*self.shape, self.units, self.kernel, self.upsample)

    def unfold(self, A: Array) -> Array:
        (tall, wide), u = self.shape, self.upsample
        before = self.kernel - 1 - max(self.kernel - u, 0) // 2
        around = Patches(tall + self.kernel - 1, wide + self.kernel - 1, self.channels, self.kernel, 1, "none")
        spread = np.zeros((len(A), around.height, around.width, self.channels), A.dtype)
        pixels = A.reshape(len(A), self.height, self.width, self.channels)
        spread[:, before : before + tall : u, before : before + wide : u] = pixels
        return around.cut(spread)

    def _spreading(self, W: Any) -> Array:
        """A pixel adds its numbers times this to its patch: (channels, kernel^2 units), each kernel turned round."""
        V = W[:, :-1].reshape(self.units, self.kernel, self.kernel, self.channels)
        return np.ascontiguousarray(V[:, ::-1, ::-1].transpose(3, 1, 2, 0)).reshape(self.channels, -1)

    @property
    def _numbers(self) -> int:
        """The numbers of an image's patches."""
        return self.patches.count * self.patches.columns

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        B = self.tangent(W, A, A).jvp(A)
        pixels = B.reshape(-1, self.units)
        pixels += W[:, -1].astype(B.dtype, copy=False)
        return B

    def tangent(self, W: Any, A: Array, B: Array) -> Tangent:
        S = self._spreading(W)

        def jvp(dA: Array) -> Array:
            spread = lambda dA: self.patches.add(dA.reshape(-1, self.channels) @ S)  # noqa: E731
            return _by_runs(dA, self.n_out, self._numbers, spread)

        def vjp(dB: Array) -> Array:
            return _by_runs(dB, self.n_in, self._numbers, lambda dB: self.patches.cut(dB) @ S.T)

        return Tangent(jvp, vjp)

    def weight_vjp(self, W: Any, A: Array, dB: Array) -> Array:
        total = np.zeros((self.channels, self.patches.columns), dB.dtype)
        for rows in _runs(len(A), self._numbers):
            total += A[rows].reshape(-1, self.channels).T @ self.patches.cut(dB[rows])
        turned = total.reshape(self.channels, self.kernel, self.kernel, self.units)[:, ::-1, ::-1].transpose(3, 1, 2, 0)
        return np.hstack([turned.reshape(self.units, -1), column_sums(dB.reshape(-1, self.units))[:, None]])
