"""Affine and linear maps: a dense layer before its activation, with biases or without."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from macmpi.nets.design import adjoint, apply
from macmpi.nets.layers import Built, Graph, Map, Place, SameDerivative
from macmpi.nets.layers.activation import Activation
from macmpi.typing import Array


@dataclass(frozen=True)
class Linear(SameDerivative):
    """b = V a, with weights V (n_out, n_in): the layer that reads radial basis functions.

    A forward, a jvp and a vjp cost 2 n n_in n_out flops each.
    """

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
        V: Array = W[:, : self.n_in]
        return V

    def weight_vjp(self, W: Any, A: Array, dB: Array) -> Array:
        return adjoint(dB, A, self.parameter_shape[1] > self.n_in)

    def export(self, g: Graph, A: str, W: Any) -> str:
        return g.node("Gemm", A, *map(g.constant, (W[:, : self.n_in], *W[:, self.n_in :].T)), transB=1)


@dataclass(frozen=True)
class Affine(Linear):
    """b = V a + c, with weights W = [V, c] of shape (n_out, n_in + 1), the bias last."""

    kind: ClassVar[str] = "affine"
    capabilities: ClassVar[frozenset[str]] = frozenset({"jacobian", "weight_jacobian", "units", "linear", "bias"})

    @property
    def parameter_shape(self) -> tuple[int, int]:
        return (self.n_out, self.n_in + 1)

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        B = np.matmul(A, W[:, :-1].T, out=out)
        B += np.ascontiguousarray(W[:, -1])  # read n times over
        return B

    def weight_jvp(self, W: Any, A: Array, dW: Array) -> Array:
        return apply(A, dW)


def layer(place: Place) -> Built:
    """A dense layer of an elementwise activation."""
    return dense(place, Activation(place.kind, place.units))


def dense(place: Place, after: Map) -> Built:
    """A dense layer, with biases or without, and the map after it."""
    kind = Affine if place.biased else Linear
    return Built([kind(place.n_in, place.units), after])
