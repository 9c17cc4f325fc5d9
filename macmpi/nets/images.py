"""Layers of convolutions: the maps of each, once the shape of what it reads is known."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from macmpi import UsageError
from macmpi.config import Convolution as Layer
from macmpi.config import Sparse
from macmpi.nets.layers import Map
from macmpi.nets.layers.convolution import Convolution, Shared, TransposedConvolution
from macmpi.nets.layers.pooling import AveragePooling, MaxPooling, SumPooling

Shape = tuple[int, int, int]
"""Height, width and channels of images."""

POOLING: dict[str, Callable[..., SumPooling | MaxPooling]] = {
    "max": MaxPooling,
    "average": AveragePooling,
    "sum": SumPooling,
}


def shape_read(layer: Layer | Sparse, before: Sequence[int], size: int, key: str) -> Shape:
    """Height, width and channels of what a layer reads: its own `image`, or that of the layer before.

    before: () where that gives no images, but `size` numbers.  Raises UsageError.
    """
    given, where = (layer.image, f"{key}.image") if layer.image else (list(before), "model.image")
    if not given:
        shape = "[height, width, channels]"
        remedy = f"model.image = [height, width] or {shape}" if key.endswith(".0") else f"{key}.image = {shape}"
        raise UsageError(f"{key} reads images, and is given {size:,} numbers of no known shape; give {remedy}")
    height, width, channels = (*given, 1)[:3]
    if height * width * channels != size:
        raise UsageError(
            f"{where} = {given} has {height * width * channels:,} numbers, and the layer ({key}) reads {size:,}; "
            f"give a height, a width and channels whose product is {size:,}"
        )
    return height, width, channels


def convolution(layer: Layer, shape: Shape, key: str) -> Shared:
    """The map of a layer of convolutions.  Raises UsageError where no patch fits."""
    size = (*shape, layer.channels, layer.kernel)
    if layer.upsample > 1:
        return TransposedConvolution(*size, layer.upsample)
    widest = 2 * max(shape[:2]) - 1
    if layer.kernel > widest:
        raise UsageError(
            f"{key}.kernel = {layer.kernel}: of images of {shape[0]} x {shape[1]} pixels no patch sees more than "
            f"{widest} x {widest}; use a smaller kernel"
        )
    found = Convolution(*size, layer.stride, layer.padding)
    if not math.prod(found.shape):
        raise UsageError(
            f"{key}: images of {shape[0]} x {shape[1]} pixels hold no patch of {layer.kernel} x {layer.kernel}; "
            'use a smaller kernel, or padding = "same"'
        )
    return found


def pooling(layer: Layer, read: Shared, key: str) -> tuple[list[Map], Shape]:
    """The map that pools the outputs of a layer, if one does, and the shape of the images then.  Raises UsageError."""
    shape = (*read.shape, read.units)
    if layer.pool == 1:
        return [], shape
    found = POOLING[layer.pooling](*shape, layer.pool)
    if not math.prod(found.patches.shape):
        raise UsageError(
            f"{key}.pool = {layer.pool}: its images have {shape[0]} x {shape[1]} pixels; use a smaller pool, or none"
        )
    return [found], (*found.patches.shape, read.units)


def readout(layer: Layer, before: Sequence[int], size: int, n_out: int) -> Shared:
    """The map of an output layer of convolutions.  Raises UsageError where the targets are not as many numbers."""
    own = convolution(layer, shape_read(layer, before, size, "model.readout"), "model.readout")
    if own.n_out != n_out:
        height, width = own.shape
        raise UsageError(
            f"model.readout gives {height} x {width} pixels of {own.units} channels, {own.n_out:,} numbers, and "
            f'the targets have {n_out:,}; use other strides, or readout = "dense"'
        )
    return own
