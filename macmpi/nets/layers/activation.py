"""Activations, the maps that end a layer and have derivatives: elementwise functions in a table, and a softmax."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np

from macmpi.config.tables import extensions
from macmpi.nets.design import row_dots
from macmpi.nets.layers import Graph, SameSize, Tangent, registered
from macmpi.typing import Array


def _sigmoid(a: Array, out: Array) -> Array:
    with np.errstate(over="ignore"):
        np.negative(a, out=out)
        np.exp(out, out=out)
        out += 1.0
        return np.reciprocal(out, out=out)


def _sigmoid_slope(a: Array, b: Array, out: Array) -> Array:
    np.subtract(1.0, b, out=out)
    out *= b
    return out


def _tanh_slope(a: Array, b: Array, out: Array) -> Array:
    np.multiply(b, b, out=out)
    return np.subtract(1.0, out, out=out)


def _linear(a: Array, out: Array) -> Array:
    np.copyto(out, a)
    return out


def _linear_slope(a: Array, b: Array, out: Array) -> Array:
    out.fill(1.0)
    return out


def _relu(a: Array, out: Array) -> Array:
    return np.maximum(a, 0.0, out=out)


def _relu_slope(a: Array, b: Array, out: Array) -> Array:
    return np.greater(b, 0.0, out=out, casting="unsafe")


LEAK = 0.01


def _leaky_relu(a: Array, out: Array) -> Array:
    negative = np.minimum(a, 0.0)
    np.maximum(a, 0.0, out=out)
    negative *= LEAK
    out += negative
    return out


def _leaky_relu_slope(a: Array, b: Array, out: Array) -> Array:
    np.greater(b, 0.0, out=out, casting="unsafe")
    out *= 1.0 - LEAK
    out += LEAK
    return out


def _leaky_relu_export(g: Graph, A: str) -> str:
    """Adds max(a, 0) + LEAK min(a, 0), since onnxruntime has no LeakyRelu in float64."""
    zero = g.constant(0.0)
    return g.node("Add", g.node("Max", A, zero), g.node("Mul", g.node("Min", A, zero), g.constant(LEAK)))


@dataclass(frozen=True)
class Function:
    """An elementwise activation s.

    value(a, out): writes s(a) to `out`, which may be a itself, and returns it.
    slope(a, b, out): writes s'(a) to `out` and returns it, for b = s(a).
    steepest: the largest |s'|.
    export: adds s to an ONNX graph, as `Map.export` does; None if it cannot be exported.
    """

    value: Callable[[Array, Array], Array]
    slope: Callable[[Array, Array, Array], Array]
    steepest: float = 1.0
    export: Callable[[Graph, str], str] | None = None


FUNCTIONS = {
    "linear": Function(_linear, _linear_slope, export=lambda g, A: A),
    "sigmoid": Function(_sigmoid, _sigmoid_slope, 0.25, lambda g, A: g.node("Sigmoid", A)),
    "tanh": Function(lambda a, out: np.tanh(a, out=out), _tanh_slope, export=lambda g, A: g.node("Tanh", A)),
    "relu": Function(_relu, _relu_slope, export=lambda g, A: g.node("Relu", A)),
    "leaky_relu": Function(_leaky_relu, _leaky_relu_slope, export=_leaky_relu_export),
}


GROUP = "macmpi.activations"
"""The group of entry points by which other packages add activations: a name, and a Function."""


@cache
def function(name: str) -> Function:
    """Returns an activation by its name, from FUNCTIONS or another package.  Raises KeyError.  Collective: no."""
    return registered(FUNCTIONS, GROUP, name)


def is_function(name: str) -> bool:
    """Tells whether there is an elementwise activation of this name.  Collective: no."""
    return name in FUNCTIONS or name in extensions(GROUP)


@dataclass(frozen=True)
class Activation(SameSize):
    """b_h = s(a_h) for each element, where s = `function(name)`.  Cost: about 1-2 ns an element."""

    name: str
    size: int
    kind: ClassVar[str] = "activation"
    capabilities: ClassVar[frozenset[str]] = frozenset({"jacobian", "units", "elementwise"})

    @property
    def trained_as(self) -> str:
        return self.name

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        return function(self.name).value(A, np.empty_like(A) if out is None else out)

    def slope(self, A: Array, B: Array) -> Array:
        """Computes s'(a), in the precision of b = s(a)."""
        return function(self.name).slope(A.astype(B.dtype, copy=False), B, np.empty_like(B))

    def tangent(self, W: Any, A: Array, B: Array) -> Tangent:
        D = self.slope(A, B)
        return Tangent(jvp=lambda dA: dA * D, vjp=lambda dB: dB * D)

    def congruence(self, W: Any, A: Array, M: Array) -> Array:
        D = self.slope(A, self.forward(None, A))
        return (D.T @ D) * (M / len(D))

    def export(self, g: Graph, A: str, W: Any) -> str:
        found = function(self.name).export
        return super().export(g, A, W) if found is None else found(g, A)


def softmax(A: Array) -> Array:
    """exp(a_h) / sum_j exp(a_j), row by row: (n, H) -> (n, H)."""
    B = np.exp(A - A.max(axis=1, keepdims=True))
    B /= B.sum(axis=1, keepdims=True)
    return B


@dataclass(frozen=True)
class Softmax(SameSize):
    """b_h = exp(a_h) / sum_j exp(a_j), for each of `groups` groups of size / groups numbers by itself.

    After a dense layer there is one group.  After a convolution each pixel is a group, and b are the shares of the
    words of a codebook in it.  The derivative is symmetric, J = diag(b) - E with E = sum_g b_g b_g^T, where b_g are the
    numbers of group g and 0 elsewhere.  Cost: about 3 ns an element.
    """

    size: int
    groups: int = 1
    kind: ClassVar[str] = "softmax"
    capabilities: ClassVar[frozenset[str]] = frozenset({"jacobian"})

    @property
    def run_length(self) -> int:  # type: ignore[override]
        return self.size // self.groups

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        B = softmax(self._by_group(A)).reshape(A.shape)
        if out is None:
            return B
        np.copyto(out, B)
        return out

    def tangent(self, W: Any, A: Array, B: Array) -> Tangent:
        B = self._by_group(B)

        def product(dA: Array) -> Array:
            dA = self._by_group(dA)
            return (B * (dA - row_dots(B, dA)[:, None])).reshape(-1, self.size)

        return Tangent(product, product)

    def congruence(self, W: Any, A: Array, M: Array) -> Array:
        """Computes the mean over points of J M J = (b b^T) * M - diag(b) M E - (diag(b) M E)^T + E M E: (size, size).

        A (n, size): the inputs; b is the softmax of a row.
        M (size, size): symmetric.
        W: None, since a softmax has no weights.
        Cost: 6 n size^2 flops.
        """
        B = self.forward(W, A)
        total = B.T @ B
        total *= M
        for own in self.runs:
            cross, both = self._columns(B, M, own)
            total[:, own] += both - cross
            total[own] -= cross.T
        return total / len(B)

    def _columns(self, B: Array, M: Array, own: slice) -> tuple[Array, Array]:
        """Sums diag(b) M E and E M E over points, in the columns of a group alone: (size, size / groups) each."""
        b = B[:, own]
        weighted = B * (b @ M[own])
        of_groups = weighted.reshape(len(B), self.groups, -1).sum(axis=2)
        return weighted.T @ b, (B * np.repeat(of_groups, self.run_length, axis=1)).T @ b

    def _by_group(self, A: Array) -> Array:
        """Reshapes A (n, size) so that each group is a row: (n groups, size / groups)."""
        return A.reshape(-1, self.run_length)

    def export(self, g: Graph, A: str, W: Any) -> str:
        if self.groups == 1:
            return g.node("Softmax", A, axis=1)
        return g.rows(g.node("Softmax", g.rows(A, self.run_length), axis=1), self.n_out)
