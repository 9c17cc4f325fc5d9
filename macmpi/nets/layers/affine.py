"""Affine and linear maps: dense layers without their activations, and the layers of a decoder with tied weights.

A tied layer multiplies by the transpose of the weights of another layer, and has biases of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from macmpi import UsageError
from macmpi.config import Model
from macmpi.nets.design import adjoint, apply, column_sums
from macmpi.nets.layers import Built, Graph, Map, Place, SameDerivative, SameSize, Tangent, is_dense
from macmpi.nets.layers.activation import Activation, Softmax
from macmpi.nets.layers.carrying import Turn, carry
from macmpi.typing import Array


@dataclass(frozen=True)
class Linear(SameDerivative):
    """b = V a, with weights V (n_out, n_in), as in the layer that reads radial basis functions.

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
        return W[:, : self.n_in]

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
        B += np.ascontiguousarray(W[:, -1])  # it is read n times
        return B

    def weight_jvp(self, W: Any, A: Array, dW: Array) -> Array:
        return apply(A, dW)


def dense(place: Place) -> Linear:
    """Makes the map of a dense layer without its activation, with biases or without."""
    return (Affine if place.biased else Linear)(place.n_in, place.units)


def layer(place: Place) -> Built:
    """Builds a dense layer with an elementwise activation or a softmax."""
    after = Softmax(place.units) if place.kind == "softmax" else Activation(place.kind, place.units)
    return Built([dense(place), after])


def divided(layer: Sequence[Any], count: int) -> tuple[list[Map], list[Map]]:
    """Divides a dense layer into two lists of maps: x -> z, for its first `count` units z, and [z, x] -> [z, u].

    u are the other units.

    layer: the affine map of the layer, and its activation if z are taken after that.  Collective: no.
    """
    D, H = layer[0].n_in, layer[0].n_out
    first, others = ([replace(layer[0], n_out=n), *(replace(s, size=n) for s in layer[1:])] for n in (count, H - count))
    return first, [Turn(count + D, count), *(carry(map_, count) for map_ in others), Turn(H, H - count)]


# --- tied weights -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Transposed(SameDerivative):
    """b = V^T a, with the weights [V, c] (n_in, n_out + 1) of the affine map to which it is tied; c is not read.

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
        return W[:, :-1].T

    def weight_vjp(self, W: Any, A: Array, dB: Array) -> Array:
        found = np.zeros(self.parameter_shape, dB.dtype)
        np.matmul(A.T, dB, out=found[:, :-1])
        return found

    def export(self, g: Graph, A: str, W: Any) -> str:
        return g.node("Gemm", A, g.constant(W[:, :-1]))


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
        """Returns an array (n, 0), because the weights multiply no inputs."""
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

    def export(self, g: Graph, A: str, W: Any) -> str:
        return g.node("Add", A, g.constant(W[:, 0]))


def mirrored(model: Model, layers: list[list[Map]], n_in: int) -> list[list[Map]]:
    """Ties the layers of the decoder to those of the encoder: of K hidden layers, layer K + 2 - j to layer j.

    Layers are counted from 1, and layer K + 1 is the output layer.  Raises UsageError unless all layers are dense, and
    their sizes are symmetric around one code.
    """
    units, K = model.units, len(model.units)
    sizes = [n_in, *units, layers[-1][0].n_out]
    passed = {"jacobian", "elementwise"}
    if not all(is_dense(first) and all(passed & m.capabilities for m in rest) for first, *rest in layers):
        raise UsageError(
            "model.tied = true makes the decoder the transpose of an encoder of dense layers, and model.hidden has "
            "others (sparse, recurrent, convolutions, codewords, ...); use numbers of units and another activation "
            "there, or tied = false"
        )
    if sizes[0] != sizes[-1]:
        raise UsageError(
            f"model.tied = true goes with an autoencoder, and here {sizes[0]:,} columns are to give {sizes[-1]:,} "
            "targets; use data without targets (data.target = []), or tied = false"
        )
    if K % 2 == 0 or sizes != sizes[::-1]:
        encoder = units[: (K + 1) // 2]
        raise UsageError(
            "model.tied = true makes the decoder the transpose of the encoder, and the sizes "
            f"{'-'.join(map(str, sizes))} are no mirror with one code in the middle; use model.hidden = "
            f"{[*encoder, *encoder[-2::-1]]}, or tied = false"
        )
    half = (K + 1) // 2
    mirror = [list[Map]([Transposed(m[0].n_in, m[0].n_out), Shift(m[0].n_out), *m[1:]]) for m in layers[half:]]
    return [*layers[:half], *mirror]


def mirrored_blocks(layers: list[list[Map]]) -> list[int | None]:
    """Returns the parameter block of each map.

    Layer j of the encoder, from 0, has block 2 j.  The layer tied to it has the same block, and block 2 j + 1 for its
    biases.
    """
    half, numbers = len(layers) // 2, list[int | None]()
    for j, maps in enumerate(layers):
        own = 2 * j if j < half else 2 * (len(layers) - 1 - j)
        first = [own] if j < half else [own, own + 1]
        numbers += [*first, *[None] * (len(maps) - len(first))]
    return numbers
