"""Masked affine map: a dense layer of which most weights do not exist."""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from macmpi.nets.design import adjoint, apply
from macmpi.nets.layers.affine import Affine
from macmpi.typing import Array


@dataclass(frozen=True)
class Masked(Affine):
    """b = V a + c with v_hi = 0 where unit h does not read input i; all biases c exist.

    mask: the connections as text (`as_text`).  Weights that do not exist are 0 and stay 0: no derivative has them.
    Products are those of dense weights.
    """

    mask: str
    kind: ClassVar[str] = "masked"

    @property
    def connected(self) -> Array:
        return _connected(self.mask, self.n_out, self.n_in)

    @property
    def fan_in(self) -> Array:
        """(n_out, 1)."""
        read: Array = self.connected[:, :-1].sum(axis=1, keepdims=True)
        return read

    def weight_jvp(self, W: Any, A: Array, dW: Array) -> Array:
        return apply(A, self.zero_missing(dW.copy()))

    def weight_vjp(self, W: Any, A: Array, dB: Array) -> Array:
        return self.zero_missing(adjoint(dB, A))


def as_text(connections: Array) -> str:
    """A matrix (units, inputs) of truth values as text.  Collective: no."""
    packed = zlib.compress(np.packbits(np.asarray(connections, dtype=bool)).tobytes(), 9)
    return base64.b64encode(packed).decode("ascii")


def from_text(text: str, units: int, inputs: int) -> Array:
    """The matrix (units, inputs) of a text.  Raises ValueError where it is another, or damaged.  Collective: no."""
    size = -(-units * inputs // 8)
    try:
        packed = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), size + 1)
    except (ValueError, zlib.error):
        raise ValueError("its connections are damaged") from None
    if len(packed) != size:
        raise ValueError(f"its connections are not those of {units} units and {inputs} inputs")
    bits = np.unpackbits(np.frombuffer(packed, np.uint8), count=units * inputs)
    return bits.reshape(units, inputs).astype(bool)


@lru_cache(maxsize=64)
def _connected(text: str, units: int, inputs: int) -> Array:
    found = np.ones((units, inputs + 1), dtype=bool)
    found[:, :-1] = from_text(text, units, inputs)
    found.flags.writeable = False
    return found
