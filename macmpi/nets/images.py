"""Layers that read images, or some of their inputs alone: maps of convolutions, connections of sparse layers.

The latter are random, in a band, local in images, or given.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence

import numpy as np

from macmpi import UsageError, many
from macmpi.config import Convolution as Layer
from macmpi.config.model import GIVEN, Sparse
from macmpi.nets.layers import Map
from macmpi.nets.layers.convolution import Convolution, GroupedConvolution, Shared, TransposedConvolution
from macmpi.nets.layers.dense import Masked, as_text, from_text
from macmpi.nets.layers.patches import AveragePooling, MaxPooling, SumPooling
from macmpi.typing import Array

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
    if shape[2] % layer.groups:
        raise UsageError(
            f"{key}.groups = {layer.groups} does not divide the {many(shape[2], 'channel')} that the layer reads; use "
            f"groups = {shape[2]} (a depthwise convolution), or 1"
        )
    found = Convolution(*size, layer.stride, layer.padding)
    if layer.groups > 1:
        found = GroupedConvolution(*size, layer.stride, layer.padding, layer.groups)
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


def masked(layer: Sparse, number: int, image: Sequence[int], size: int) -> Masked:
    """The map of hidden layer `number`, which reads `size` numbers, of images where `image` is no ().

    Raises UsageError where they do not fit.  Collective: no.
    """
    key = f"model.hidden.{number}"
    if layer.connections == "random":
        found = drawn(layer.masks, size, max(round(layer.share * size), 1), layer.seed, number)
    elif layer.connections == "banded":
        _check_width(layer, size, key)
        found = _windows(layer.masks, size, layer.width)
    elif layer.connections == "local":
        found = _local(layer, shape_read(layer, image, size, key), key)
    else:
        return Masked(size, layer.units, as_text(_given(layer, size, key)))
    return Masked(size, layer.units, as_text(found[np.arange(layer.units) * layer.masks // layer.units]))


def drawn(masks: int, inputs: int, count: int, seed: int, number: int) -> Array:
    """Masks (masks, inputs) of `count` connections each, in a stream of this layer's own.

    Drawn from hashes, so that every version of NumPy gives the same.  Collective: no.
    """
    key = f"macmpi connections {seed} {number}".encode()
    keys = np.frombuffer(hashlib.shake_256(key).digest(8 * masks * inputs), "<u8").reshape(masks, inputs)
    found = np.zeros((masks, inputs), dtype=bool)
    np.put_along_axis(found, np.argsort(keys, axis=1, kind="stable")[:, :count], True, axis=1)
    return found


def _windows(masks: int, inputs: int, width: int) -> Array:
    """Windows of neighbouring inputs, the first at the beginning and the last at the end: (masks, inputs)."""
    starts = np.arange(masks) * (inputs - width) // max(masks - 1, 1)
    offset = np.arange(inputs) - starts[:, None]
    found: Array = (offset >= 0) & (offset < width)
    return found


def _local(layer: Sparse, shape: Shape, key: str) -> Array:
    """Square windows of pixels in a square grid, row by row: (masks, inputs)."""
    height, width, channels = shape
    _check_width(layer, min(height, width), key)
    side = math.isqrt(layer.masks)
    rows, columns = (_windows(side, n, layer.width) for n in (height, width))
    pixels = rows[:, None, :, None] & columns[None, :, None, :]
    return np.repeat(pixels.reshape(side * side, height * width), channels, axis=1)


def _check_width(layer: Sparse, most: int, key: str) -> None:
    if layer.width > most:
        raise UsageError(f"{key}.width = {layer.width}: there are {most} to choose from; use width = {most}, or less")


def _given(layer: Sparse, inputs: int, key: str) -> Array:
    """The connections of a file that has been read."""
    text = layer.connections.removeprefix(GIVEN)
    if text == layer.connections:
        raise UsageError(
            f'{key}.connections = "{text}" is no file that has been read; use "random", "banded" or "local"'
        )
    try:
        found = from_text(text, layer.units, inputs)
    except ValueError:
        raise UsageError(
            f"{key}.connections are not those of {layer.units} units that read {inputs:,} inputs; "
            f"give a matrix of {many(layer.units, 'row')} and {many(inputs, 'column')}"
        ) from None
    if lonely := np.flatnonzero(~found.any(axis=1)).tolist():
        raise UsageError(f"{key}.connections: unit {lonely[0]} reads nothing; give each row a connection")
    return found
