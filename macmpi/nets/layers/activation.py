"""Elementwise activations: a table with one row for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from macmpi.nets.layers import SameSize, Tangent
from macmpi.typing import Array


def _sigmoid(a: Array, out: Array) -> Array:
    with np.errstate(over="ignore"):
        np.negative(a, out=out)
        np.exp(out, out=out)
        out += 1.0
        return np.reciprocal(out, out=out)


def _sigmoid_slope(b: Array, out: Array) -> Array:
    np.subtract(1.0, b, out=out)
    out *= b
    return out


def _tanh_slope(b: Array, out: Array) -> Array:
    np.multiply(b, b, out=out)
    return np.subtract(1.0, out, out=out)


def _linear(a: Array, out: Array) -> Array:
    np.copyto(out, a)
    return out


def _linear_slope(b: Array, out: Array) -> Array:
    out.fill(1.0)
    return out


def _relu(a: Array, out: Array) -> Array:
    return np.maximum(a, 0.0, out=out)


def _relu_slope(b: Array, out: Array) -> Array:
    return np.greater(b, 0.0, out=out, casting="unsafe")


LEAK = 0.01


def _leaky_relu(a: Array, out: Array) -> Array:
    negative = np.minimum(a, 0.0)
    np.maximum(a, 0.0, out=out)
    negative *= LEAK
    out += negative
    return out


def _leaky_relu_slope(b: Array, out: Array) -> Array:
    np.greater(b, 0.0, out=out, casting="unsafe")
    out *= 1.0 - LEAK
    out += LEAK
    return out


@dataclass(frozen=True)
class Function:
    """value: s(a), for `out` may be a; slope: s'(a) as a function of b = s(a).  Both write to `out`.

    steepest: the largest slope.
    """

    value: Callable[[Array, Array], Array]
    slope: Callable[[Array, Array], Array]
    steepest: float = 1.0


FUNCTIONS = {
    "linear": Function(_linear, _linear_slope),
    "sigmoid": Function(_sigmoid, _sigmoid_slope, steepest=0.25),
    "tanh": Function(lambda a, out: np.tanh(a, out=out), _tanh_slope),
    "relu": Function(_relu, _relu_slope),
    "leaky_relu": Function(_leaky_relu, _leaky_relu_slope),
}


@dataclass(frozen=True)
class Activation(SameSize):
    """b_h = s(a_h) for each element.  name: a row of FUNCTIONS.  Cost: about 1-2 ns an element."""

    name: str
    size: int
    kind: ClassVar[str] = "activation"
    capabilities: ClassVar[frozenset[str]] = frozenset({"jacobian", "units", "elementwise"})

    @property
    def trained_as(self) -> str:
        return self.name

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        return FUNCTIONS[self.name].value(A, np.empty_like(A) if out is None else out)

    def slope(self, B: Array) -> Array:
        """s'(a) from b = s(a)."""
        return FUNCTIONS[self.name].slope(B, np.empty_like(B))

    def tangent(self, W: Any, A: Array, B: Array) -> Tangent:
        D = self.slope(B)
        return Tangent(jvp=lambda dA: dA * D, vjp=lambda dB: dB * D)

    def congruence(self, W: Any, A: Array, M: Array) -> Array:
        D = self.slope(self.forward(None, A))
        return (D.T @ D) * (M / len(D))
