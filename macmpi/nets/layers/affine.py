"""Affine map: a dense layer before its activation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from macmpi.nets.design import adjoint, apply
from macmpi.nets.layers import SameDerivative
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
