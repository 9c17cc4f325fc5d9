"""The connections of sparse layers: random, in a band, local in images, or given."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np

from macmpi import UsageError, many
from macmpi.config.model import GIVEN, Sparse
from macmpi.nets.images import Shape, shape_read
from macmpi.nets.layers.masked import Masked, as_text, from_text
from macmpi.typing import Array


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
