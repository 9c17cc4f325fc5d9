"""Convolutions apply one affine map to every patch of an image; transposed ones spread every pixel over a patch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from macmpi import UsageError, many
from macmpi.nets.design import adjoint, apply, column_sums
from macmpi.nets.graph import numbered
from macmpi.nets.layers import Built, Graph, Place, SameDerivative, Shape, Sparse, Tangent
from macmpi.nets.layers.activation import Activation, Softmax
from macmpi.nets.layers.patches import Patches, pooling
from macmpi.typing import Array

CACHED = 2**17
"""Patches are made for a few points at a time, of about this number of numbers, so that they stay in a core's cache."""


@dataclass(frozen=True)
class Shared(SameDerivative):
    """b_p = V a_p + c for each patch a_p of an image, with weights W = [V, c] (units, columns + 1), the bias last.

    height, width, channels: the shape of the input images; kernel: the side of a patch, in pixels.
    The outputs are images with `units` channels and a pixel for each patch.  An image is a row with the channels last.
    """

    height: int
    width: int
    channels: int
    units: int
    kernel: int
    capabilities: ClassVar[frozenset[str]] = frozenset()

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of the output images."""
        raise NotImplementedError

    def images(self, shape: Shape) -> Shape:
        return *self.shape, self.units

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

    def export(self, g: Graph, A: str, W: Any) -> str:
        products = g.node("MatMul", g.gathered(A, self.unfold(numbered(self.n_in))), g.constant(W[:, :-1].T))
        return g.rows(g.node("Add", products, g.constant(W[:, -1])), self.n_out)


def _runs(points: int, numbers: int) -> Iterator[slice]:
    """Cuts points into runs whose patches stay in the cache.  numbers: how many the patches of one point hold."""
    step = max(CACHED // numbers, 1)
    return (slice(first, min(first + step, points)) for first in range(0, points, step))


def _by_runs(A: Array, width: int, numbers: int, part: Callable[[Array], Array]) -> Array:
    """Computes part(A) (n, width) by ranges of points.  numbers: as in `_runs`."""
    B = np.empty((len(A), width), A.dtype)
    for rows in _runs(len(A), numbers):
        B[rows] = part(A[rows]).reshape(-1, width)
    return B


@dataclass(frozen=True)
class Convolution(Shared):
    """A convolution whose patches are `stride` pixels apart.

    padding: as in `Patches`.  A forward, jvp or vjp costs 2 n positions columns units flops.
    """

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
        """The patches of an input image."""
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
    """A convolution whose units read only the channels of their own group; with one channel a group it is depthwise.

    The input channels and the units are each cut into `groups` ranges of equal length.  Weights of channels of other
    groups do not exist: they are 0 and stay 0, and have no derivatives.  Products cost as much as with all weights.
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
    """The transpose of a convolution with stride `upsample`: a pixel adds a patch to an image `upsample` times larger.

    Equivalently, it is a convolution of its inputs with upsample - 1 rows and columns of zeros between their pixels.
    These zeros are not multiplied: a forward, jvp or vjp costs 2 n height width columns units flops.
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
    def there(self) -> Convolution:
        """The convolution, from output images to input images, whose transpose this map is."""
        return Convolution(*self.shape, self.units, self.channels, self.kernel, self.upsample)

    def unfold(self, A: Array) -> Array:
        (tall, wide), u = self.shape, self.upsample
        before = self.kernel - 1 - max(self.kernel - u, 0) // 2
        around = Patches(tall + self.kernel - 1, wide + self.kernel - 1, self.channels, self.kernel, 1, "none")
        spread = np.zeros((len(A), around.height, around.width, self.channels), A.dtype)
        pixels = A.reshape(len(A), self.height, self.width, self.channels)
        spread[:, before : before + tall : u, before : before + wide : u] = pixels
        return around.cut(spread)

    def _spreading(self, W: Any) -> Array:
        """Returns the matrix (channels, kernel^2 units) by which a pixel is multiplied to give the patch that it adds.

        Its kernels are those of the weights, turned by 180 degrees.
        """
        V = W[:, :-1].reshape(self.units, self.kernel, self.kernel, self.channels)
        return np.ascontiguousarray(V[:, ::-1, ::-1].transpose(3, 1, 2, 0)).reshape(self.channels, -1)

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        B = self.tangent(W, A, A).jvp(A)
        pixels = B.reshape(-1, self.units)
        pixels += W[:, -1].astype(B.dtype, copy=False)
        return B

    def tangent(self, W: Any, A: Array, B: Array) -> Tangent:
        there = self.there.tangent(np.pad(self._spreading(W), ((0, 0), (0, 1))), B, A)
        return Tangent(there.vjp, there.jvp)

    def weight_vjp(self, W: Any, A: Array, dB: Array) -> Array:
        there, total = self.there, np.zeros((self.channels, self.there.columns), dB.dtype)
        for rows in _runs(len(A), there.positions * there.columns):
            total += A[rows].reshape(-1, self.channels).T @ there.unfold(dB[rows])
        turned = total.reshape(self.channels, self.kernel, self.kernel, self.units)[:, ::-1, ::-1].transpose(3, 1, 2, 0)
        return np.hstack([turned.reshape(self.units, -1), column_sums(dB.reshape(-1, self.units))[:, None]])


def layer(place: Place) -> Built:
    """Builds a convolution with its activation and its pooling.

    The pooling comes after the site, except with a softmax, where it comes before.  A softmax is over the channels of
    each pixel.  Raises UsageError if the sizes of images do not allow the layer.
    """
    own = _of(place)
    if place.last and own.n_out != place.units:
        raise UsageError(
            f"{place.key} gives {own.shape[0]} x {own.shape[1]} pixels of {own.units} channels, {own.n_out:,} numbers, "
            f'and the targets have {place.units:,}; use other strides, or readout = "dense"'
        )
    pooled = pooling(place.layer.pooling, (*own.shape, own.units), place.layer.pool, place.key)
    if place.kind != "softmax":
        return Built([own, Activation(place.kind, own.n_out)], pooled)
    return Built([own, Softmax(own.n_out, math.prod(own.shape)), *pooled], behind=len(pooled))


def _of(place: Place) -> Shared:
    """Makes the convolution of a layer.  Raises UsageError if its kernel or groups do not suit the images."""
    asked, key, (height, width, channels) = place.layer, place.key, place.shape
    size = height, width, channels, asked.channels, asked.kernel
    if asked.upsample > 1:
        return TransposedConvolution(*size, asked.upsample)
    widest = 2 * max(height, width) - 1
    if asked.kernel > widest:
        raise UsageError(
            f"{key}.kernel = {asked.kernel}: of images of {height} x {width} pixels no patch sees more than "
            f"{widest} x {widest}; use a smaller kernel"
        )
    if channels % asked.groups:
        raise UsageError(
            f"{key}.groups = {asked.groups} does not divide the {many(channels, 'channel')} that the layer reads; use "
            f"groups = {channels} (a depthwise convolution), or 1"
        )
    found = Convolution(*size, asked.stride, asked.padding)
    if asked.groups > 1:
        found = GroupedConvolution(*size, asked.stride, asked.padding, asked.groups)
    if not math.prod(found.shape):
        raise UsageError(
            f"{key}: images of {height} x {width} pixels hold no patch of {asked.kernel} x {asked.kernel}; "
            'use a smaller kernel, or padding = "same"'
        )
    return found
