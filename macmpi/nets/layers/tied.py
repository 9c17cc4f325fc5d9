"""Tied weights: a map that multiplies by the transpose of another's weights, and the biases that follow it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from macmpi.nets.design import column_sums
from macmpi.nets.layers import SameDerivative, SameSize, Tangent
from macmpi.typing import Array


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
