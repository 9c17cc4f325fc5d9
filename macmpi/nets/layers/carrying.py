"""Maps for skip connections in a flat chain: they copy columns, carry them past other maps, and add them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from macmpi.nets.graph import numbered
from macmpi.nets.layers import KINDS, Graph, Map, Tangent, build
from macmpi.typing import Array


@dataclass(frozen=True)
class Carrying(Map):
    """[a, c] -> [b(a), c]: a map b of the first columns, while the last `carried` columns c pass unchanged."""

    map: Map
    carried: int
    kind: ClassVar[str] = "carrying"

    @property
    def own(self) -> Map:
        return self.map

    @property
    def n_in(self) -> int:
        return self.map.n_in + self.carried

    @property
    def n_out(self) -> int:
        return self.map.n_out + self.carried

    @property
    def capabilities(self) -> frozenset[str]:
        return self.map.capabilities & {"jacobian", "weight_jacobian"}

    @property
    def parameter_shape(self) -> tuple[int, int] | None:
        return self.map.parameter_shape

    @property
    def trained_as(self) -> str:
        return self.map.trained_as

    def unfold(self, A: Array) -> Array:
        return self.map.unfold(A[:, : self.map.n_in])

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        a, c = self._split(A)
        return np.hstack([self.map.forward(W, a), c])

    def tangent(self, W: Any, A: Array, B: Array) -> Tangent:
        own, n_in, n_out = self._tangent(W, A, B), self.map.n_in, self.map.n_out
        return Tangent(
            jvp=lambda dA: np.hstack([own.jvp(dA[:, :n_in]), dA[:, n_in:]]),
            vjp=lambda dB: np.hstack([own.vjp(dB[:, :n_out]), dB[:, n_out:]]),
        )

    def weight_jvp(self, W: Any, A: Array, dW: Array) -> Array:
        a, c = self._split(A)
        return np.hstack([self.map.weight_jvp(W, a, dW), np.zeros_like(c)])

    def weight_vjp(self, W: Any, A: Array, dB: Array) -> Array:
        return self.map.weight_vjp(W, self._split(A)[0], dB[:, : self.map.n_out])

    def congruence(self, W: Any, A: Array, M: Array) -> Array:
        n, J = self.map.n_in, self._mean_derivative(W, A)
        return _bordered(self.map.congruence(W, A[:, :n], M[:n, :n]), J @ M[:n, n:], M[n:, n:])

    def pullback(self, W: Any, A: Array, M: Array) -> Array:
        n, J = self.map.n_out, self._mean_derivative(W, A)
        return _bordered(self.map.pullback(W, A[:, : self.map.n_in], M[:n, :n]), J.T @ M[:n, n:], M[n:, n:])

    def _split(self, A: Array) -> tuple[Array, Array]:
        return A[:, : self.map.n_in], A[:, self.map.n_in :]

    def _tangent(self, W: Any, A: Array, B: Array) -> Tangent:
        return self.map.tangent(W, A[:, : self.map.n_in], B[:, : self.map.n_out])

    def _mean_derivative(self, W: Any, A: Array) -> Array:
        """Computes the mean over points of J of the inner map, (its n_out, its n_in).

        Cost: n_out backward passes for most kinds of maps; less for linear, patch-wise and elementwise ones.
        """
        if {"linear", "patches"} & self.map.capabilities:
            return self.map.matrix(W)
        own, n_out = self._tangent(W, A, self.forward(W, A)), self.map.n_out
        if "elementwise" in self.map.capabilities:
            return np.diag(own.vjp(np.ones((len(A), n_out), A.dtype)).mean(axis=0))
        units = np.eye(n_out, dtype=A.dtype)
        return np.stack([own.vjp(np.tile(unit, (len(A), 1))).mean(axis=0) for unit in units])

    def export(self, g: Graph, A: str, W: Any) -> str:
        n = self.map.n_in
        found = self.map.export(g, g.columns(A, 0, n), W)
        return g.node("Concat", found, g.columns(A, n, n + self.carried), axis=1)

    def spec(self) -> dict[str, Any]:
        return {"kind": self.kind, "map": self.map.spec(), "carried": self.carried}


def carrying(map: dict[str, Any], carried: int) -> Carrying:
    """Makes a Carrying from its spec: the spec of the inner map, and the number of carried columns.  Collective: no."""
    return Carrying(build(map), carried)


KINDS[Carrying.kind] = carrying


def carry(map_: Map, carried: int) -> Map:
    """Wraps a map so that `carried` further columns pass it unchanged; for 0 columns it returns the map itself.

    Collective: no.
    """
    return Carrying(map_, carried) if carried else map_


def _bordered(inner: Array, corner: Array, rest: Array) -> Array:
    return np.block([[inner, corner], [corner.T, rest]])


class Rearranging(Map):
    """A base for linear maps F without weights that copy, insert, move or add columns.

    A kind defines `forward`, which is F, and `back`, which is its transpose.
    """

    capabilities: ClassVar[frozenset[str]] = frozenset({"jacobian"})

    def back(self, dB: Array) -> Array:
        """Computes F^T dB, row by row: (n, n_out) -> (n, n_in)."""
        raise NotImplementedError

    def tangent(self, W: Any, A: Array, B: Array) -> Tangent:
        return Tangent(jvp=lambda dA: self.forward(None, dA), vjp=self.back)

    def congruence(self, W: Any, A: Array, M: Array) -> Array:
        return self.forward(None, self.forward(None, M).T)

    def pullback(self, W: Any, A: Array, M: Array) -> Array:
        return self.back(self.back(M).T)

    def export(self, g: Graph, A: str, W: Any) -> str:
        """Adds a Gather of the columns, in the order of `forward`."""
        return g.gathered(A, self.forward(None, numbered(self.n_in))[0])


@dataclass(frozen=True)
class Copy(Rearranging):
    """[a, m] -> [a, m, a]: appends a copy of the first `size` columns after the `between` other columns m."""

    size: int
    between: int = 0
    kind: ClassVar[str] = "copy"

    @property
    def n_in(self) -> int:
        return self.size + self.between

    @property
    def n_out(self) -> int:
        return self.n_in + self.size

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        return np.hstack([A, A[:, : self.size]])

    def back(self, dB: Array) -> Array:
        dA = dB[:, : self.n_in].copy()
        dA[:, : self.size] += dB[:, self.n_in :]
        return dA


@dataclass(frozen=True)
class Turn(Rearranging):
    """[a, m] -> [m, a]: moves the first `first` of `size` columns to the end."""

    size: int
    first: int
    kind: ClassVar[str] = "turn"

    @property
    def n_in(self) -> int:
        return self.size

    @property
    def n_out(self) -> int:
        return self.size

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        return np.roll(A, -self.first, axis=1)

    def back(self, dB: Array) -> Array:
        return np.roll(dB, self.first, axis=1)


@dataclass(frozen=True)
class Add(Rearranging):
    """[a, c] -> a + c, both of `size` columns."""

    size: int
    kind: ClassVar[str] = "add"
    capabilities: ClassVar[frozenset[str]] = frozenset({"jacobian", "adds"})

    @property
    def n_in(self) -> int:
        return 2 * self.size

    @property
    def n_out(self) -> int:
        return self.size

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        return A[:, : self.size] + A[:, self.size :]

    def export(self, g: Graph, A: str, W: Any) -> str:
        return g.node("Add", g.columns(A, 0, self.size), g.columns(A, self.size, 2 * self.size))

    def back(self, dB: Array) -> Array:
        return np.hstack([dB, dB])

    def pullback(self, W: Any, A: Array, M: Array) -> Array:
        return np.tile(M, (2, 2))


@dataclass(frozen=True)
class Stack(Rearranging):
    """Stacks the channels of two images with the same number of `pixels`: [a, c] -> [a_1, c_1, a_2, c_2, ...].

    a_p are the `first` channels of pixel p of the first image, c_p the `second` channels of the other one.
    """

    pixels: int
    first: int
    second: int
    kind: ClassVar[str] = "stack"

    @property
    def n_in(self) -> int:
        return self.pixels * (self.first + self.second)

    @property
    def n_out(self) -> int:
        return self.n_in

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        n, own = len(A), self.pixels * self.first
        one, other = A[:, :own].reshape(n, self.pixels, self.first), A[:, own:].reshape(n, self.pixels, self.second)
        return np.concatenate([one, other], axis=2).reshape(n, self.n_out)

    def back(self, dB: Array) -> Array:
        n, pixels = len(dB), dB.reshape(len(dB), self.pixels, self.first + self.second)
        one, other = pixels[:, :, : self.first], pixels[:, :, self.first :]
        return np.hstack([one.reshape(n, self.pixels * self.first), other.reshape(n, self.pixels * self.second)])
