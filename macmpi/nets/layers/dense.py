"""Dense layers before their activation: affine, linear, masked, and those that share another's weights transposed."""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from macmpi.nets.design import adjoint, apply, column_sums
from macmpi.nets.layers import SameDerivative, SameSize, Sparse, Tangent
from macmpi.typing import Array


@dataclass(frozen=True)
class Affine(SameDerivative):
    """b = V a + c, with weights W = [V, c] of shape (n_out, n_in + 1), the bias last.

    A forward, a jvp and a vjp cost 2 n n_in n_out flops each.
    """

    n_in: int
    n_out: int
    kind: ClassVar[str] = "affine"
    capabilities: ClassVar[frozenset[str]] = frozenset({"jacobian", "weight_jacobian", "units", "linear", "bias"})
    trained_as: ClassVar[str] = "linear"

    @property
    def parameter_shape(self) -> tuple[int, int]:
        return (self.n_out, self.n_in + 1)

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        B = np.matmul(A, W[:, :-1].T, out=out)
        B += np.ascontiguousarray(W[:, -1])  # read n times over
        return B

    def matrix(self, W: Any) -> Array:
        V: Array = W[:, :-1]
        return V

    def weight_jvp(self, W: Any, A: Array, dW: Array) -> Array:
        return apply(A, dW)

    def weight_vjp(self, W: Any, A: Array, dB: Array) -> Array:
        return adjoint(dB, A)


@dataclass(frozen=True)
class Linear(SameDerivative):
    """b = V a, with weights V (n_out, n_in).  A forward, a jvp and a vjp cost 2 n n_in n_out flops each."""

    n_in: int
    n_out: int
    kind: ClassVar[str] = "linear"
    capabilities: ClassVar[frozenset[str]] = frozenset({"jacobian", "weight_jacobian", "units", "linear"})
    trained_as: ClassVar[str] = "linear"

    @property
    def parameter_shape(self) -> tuple[int, int]:
        return (self.n_out, self.n_in)

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        return A @ W.T

    def matrix(self, W: Any) -> Array:
        V: Array = W
        return V

    def weight_jvp(self, W: Any, A: Array, dW: Array) -> Array:
        return A @ dW.T

    def weight_vjp(self, W: Any, A: Array, dB: Array) -> Array:
        return dB.T @ A


@dataclass(frozen=True)
class Masked(Sparse, Affine):
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


@dataclass(frozen=True)
class Transposed(SameDerivative):
    """b = V^T a, with the weights [V, c] (n_in, n_out + 1) of an affine map the other way; its biases c are not read.

    A forward, a jvp and a vjp cost 2 n n_in n_out flops each.
    """

    n_in: int
    n_out: int
    kind: ClassVar[str] = "transposed"
    capabilities: ClassVar[frozenset[str]] = frozenset({"jacobian", "weight_jacobian", "transposed"})

    @property
    def parameter_shape(self) -> tuple[int, int]:
        return (self.n_in, self.n_out + 1)

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        return A @ W[:, :-1]

    def matrix(self, W: Any) -> Array:
        V: Array = W[:, :-1]
        return V.T

    def weight_jvp(self, W: Any, A: Array, dW: Array) -> Array:
        return A @ dW[:, :-1].astype(A.dtype, copy=False)

    def weight_vjp(self, W: Any, A: Array, dB: Array) -> Array:
        found = np.zeros(self.parameter_shape, dB.dtype)
        np.matmul(A.T, dB, out=found[:, :-1])
        return found


@dataclass(frozen=True)
class Shift(SameSize):
    """b = a + c, with the biases c as weights (size, 1).  A forward costs n size flops, its derivatives nothing."""

    size: int
    kind: ClassVar[str] = "shift"
    capabilities: ClassVar[frozenset[str]] = frozenset({"jacobian", "weight_jacobian", "units", "elementwise", "bias"})

    @property
    def parameter_shape(self) -> tuple[int, int]:
        return (self.size, 1)

    @property
    def columns(self) -> int:
        return 0

    def unfold(self, A: Array) -> Array:
        """No inputs are multiplied: (n, 0)."""
        return A[:, :0]

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        return np.add(A, W[:, 0].astype(A.dtype, copy=False), out=out)

    def tangent(self, W: Any, A: Array, B: Array) -> Tangent:
        return Tangent(jvp=lambda dA: dA, vjp=lambda dB: dB)

    def weight_jvp(self, W: Any, A: Array, dW: Array) -> Array:
        return np.broadcast_to(dW[:, 0].astype(A.dtype, copy=False), A.shape)

    def weight_vjp(self, W: Any, A: Array, dB: Array) -> Array:
        return column_sums(dB)[:, None]

    def congruence(self, W: Any, A: Array, M: Array) -> Array:
        return M.copy()
