"""Sparse layers: affine maps of which most weights do not exist, as a mask says."""

from __future__ import annotations

import base64
import hashlib
import math
import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from macmpi import UsageError, many
from macmpi.config.model import GIVEN
from macmpi.config.model import Sparse as Asked
from macmpi.nets.layers import Built, Place, Shape, Sparse
from macmpi.nets.layers.activation import Activation
from macmpi.nets.layers.affine import Affine
from macmpi.typing import Array


@dataclass(frozen=True)
class Masked(Sparse, Affine):
    """b = V a + c, where v_hi = 0 if unit h does not read input i; all biases c exist.

    mask: the connections as text (`as_text`).
    Weights that do not exist are 0 and stay 0, and have no derivatives.  Products cost as much as with all weights.
    """

    mask: str
    kind: ClassVar[str] = "masked"

    @property
    def connected(self) -> Array:
        return _connected(self.mask, self.n_out, self.n_in)

    @property
    def fan_in(self) -> Array:
        """The number of inputs that each unit reads, (n_out, 1)."""
        return self.connected[:, :-1].sum(axis=1, keepdims=True)


def as_text(connections: Array) -> str:
    """Writes a matrix (units, inputs) of truth values as text, compressed.  Collective: no."""
    packed = zlib.compress(np.packbits(np.asarray(connections, dtype=bool)).tobytes(), 9)
    return base64.b64encode(packed).decode("ascii")


def from_text(text: str, units: int, inputs: int) -> Array:
    """Reads the matrix (units, inputs) that `as_text` wrote.  Raises ValueError for another size or a damaged text.

    Collective: no.
    """
    size = -(-units * inputs // 8)
    try:
        packed = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), size + 1)
    except (ValueError, zlib.error):
        raise ValueError("its connections are damaged") from None
    if len(packed) != size:
        raise ValueError(f"its connections are not those of {units} units and {inputs} inputs")
    return np.unpackbits(np.frombuffer(packed, np.uint8), count=units * inputs).reshape(units, inputs).astype(bool)


@lru_cache(maxsize=64)
def _connected(text: str, units: int, inputs: int) -> Array:
    found = np.ones((units, inputs + 1), dtype=bool)
    found[:, :-1] = from_text(text, units, inputs)
    found.flags.writeable = False
    return found


def layer(place: Place) -> Built:
    """Builds a sparse layer with its activation; connections are random, banded, local in images, or from a file.

    Raises UsageError if they do not suit the inputs.
    """
    text = as_text(_connections(place.layer, place))
    return Built([Masked(place.n_in, place.units, text), Activation(place.kind, place.units)])


def _connections(asked: Asked, place: Place) -> Array:
    """Returns which inputs each unit reads: (units, inputs) bool.  Raises UsageError."""
    inputs, key = place.n_in, place.key
    if asked.connections == "random":
        found = drawn(asked.masks, inputs, max(round(asked.share * inputs), 1), asked.seed, place.number)
    elif asked.connections == "banded":
        _check_width(asked, inputs, key)
        found = _windows(asked.masks, inputs, asked.width)
    elif asked.connections == "local":
        found = _local(asked, place.shape, key)
    else:
        return _given(asked, inputs, key)
    return found[np.arange(asked.units) * asked.masks // asked.units]


def drawn(masks: int, inputs: int, count: int, seed: int, number: int) -> Array:
    """Draws random masks (masks, inputs) of `count` connections each.  Collective: no.

    number: the number of the layer, so that each layer has its own masks.
    They are drawn from hashes, so that they do not depend on the version of NumPy.
    """
    key = f"macmpi connections {seed} {number}".encode()
    keys = np.frombuffer(hashlib.shake_256(key).digest(8 * masks * inputs), "<u8").reshape(masks, inputs)
    found = np.zeros((masks, inputs), dtype=bool)
    np.put_along_axis(found, np.argsort(keys, axis=1, kind="stable")[:, :count], True, axis=1)
    return found


def _windows(masks: int, inputs: int, width: int) -> Array:
    """Places evenly spaced windows of `width` neighbouring inputs, from the first to the last one: (masks, inputs)."""
    starts = np.arange(masks) * (inputs - width) // max(masks - 1, 1)
    offset = np.arange(inputs) - starts[:, None]
    return (offset >= 0) & (offset < width)


def _local(asked: Asked, shape: Shape, key: str) -> Array:
    """Places square windows of pixels in a square grid, row by row: (masks, inputs).  Raises UsageError."""
    height, width, channels = shape
    _check_width(asked, min(height, width), key)
    side = math.isqrt(asked.masks)
    rows, columns = (_windows(side, n, asked.width) for n in (height, width))
    pixels = rows[:, None, :, None] & columns[None, :, None, :]
    return np.repeat(pixels.reshape(side * side, height * width), channels, axis=1)


def _check_width(asked: Asked, most: int, key: str) -> None:
    if asked.width > most:
        raise UsageError(f"{key}.width = {asked.width}: there are {most} to choose from; use width = {most}, or less")


def _given(asked: Asked, inputs: int, key: str) -> Array:
    """Returns the connections (units, inputs) that were read from a file.  Raises UsageError."""
    text = asked.connections.removeprefix(GIVEN)
    if text == asked.connections:
        raise UsageError(
            f'{key}.connections = "{text}" is no file that has been read; use "random", "banded" or "local"'
        )
    try:
        found = from_text(text, asked.units, inputs)
    except ValueError:
        raise UsageError(
            f"{key}.connections are not those of {asked.units} units that read {inputs:,} inputs; "
            f"give a matrix of {many(asked.units, 'row')} and {many(inputs, 'column')}"
        ) from None
    if lonely := np.flatnonzero(~found.any(axis=1)).tolist():
        raise UsageError(f"{key}.connections: unit {lonely[0]} reads nothing; give each row a connection")
    return found
