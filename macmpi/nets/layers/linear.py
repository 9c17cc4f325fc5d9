"""Linear map: the layer that reads radial basis functions, without biases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from macmpi.nets.layers import SameDerivative
from macmpi.typing import Array


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
