"""Maps applied one after the other: the tangent of all of them, and their derivative in the weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from macmpi.nets.layers import Map, Tangent
from macmpi.typing import Array


@dataclass(frozen=True)
class Step:
    """One map of a tape: its weights, its inputs, its tangent there with respect to those that are no data.

    block: the place of its weights among the tape's parameter blocks; varying: the inputs that are no data.
    """

    map: Map
    W: Array | None
    A: Array
    tangent: Tangent
    block: int | None
    varying: int

    def of_rows(self, rows: slice | Array, B: Array) -> Step:
        """The step of some points.  B: outputs of all (n, n_out), which further columns may follow."""
        A = self.A[rows]
        tangent = self.map.tangent(self.W, A, B[rows, : self.map.n_out])
        return replace(self, A=A, tangent=of_first(tangent, self.varying, self.map.n_in))


@dataclass(frozen=True)
class Tape:
    """A segment's outputs F (n, n_out) and its derivative with respect to its weights."""

    F: Array
    steps: tuple[Step, ...]

    def weight_vjp(self, dF: Array) -> list[Array]:
        """sum_n dF[n]^T df/dW of each parameter block, in order: backpropagation.  Cost: 4 n D H flops a layer."""
        found = ((step.block, step.map.weight_vjp(step.W, step.A, own)) for step, own in self.backwards(dF))
        return by_block(found)

    def backwards(self, dF: Array) -> Iterator[tuple[Step, Array]]:
        """Each map with weights, the last one first, and what comes back to its outputs: (n, its n_out)."""
        for i, step in reversed(list(enumerate(self.steps))):
            if step.W is not None:
                yield step, dF
            if i:
                dF = step.tangent.vjp(dF)

    def of_rows(self, rows: slice | Array) -> Tape:
        """The tape of some of its points, of which there may be some several times.  Cost: their tangents."""
        outputs = [*(step.A for step in self.steps[1:]), self.F]
        steps = [step.of_rows(rows, B) for step, B in zip(self.steps, outputs, strict=True)]
        return Tape(self.F[rows], tuple(steps))

    def scales(self, of: Callable[[Step], Array]) -> list[Array]:
        """A matrix or a number (1, 1) of each map with weights, summed by parameter block."""
        return by_block((step.block, of(step)) for step in self.steps if step.W is not None)

    def weight_jvp(self, dW: Sequence[Array]) -> Array:
        """dF (n, n_out) for changes dW of the parameter blocks, in order."""
        dF = None
        for step in self.steps:
            dF = None if dF is None else step.tangent.jvp(dF)
            if step.block is not None:
                own = step.map.weight_jvp(step.W, step.A, dW[step.block])
                dF = own if dF is None else dF + own
        assert dF is not None
        return dF


def by_block(parts: Iterable[tuple[int | None, Array]]) -> list[Array]:
    """Sums what belongs to one parameter block, in the order of the blocks.

    Of a matrix and a number (1, 1) the number is added to the diagonal.
    """
    found: dict[int, Array] = {}
    for block, part in parts:
        assert block is not None
        found[block] = part if block not in found else _plus(found[block], part)
    return [found[block] for block in sorted(found)]


def _plus(A: Array, B: Array) -> Array:
    if A.shape == B.shape:
        return A + B
    number, matrix = sorted((A, B), key=lambda part: part.size)
    found: Array = matrix + number * np.eye(len(matrix))
    return found


@dataclass(frozen=True)
class Fixed:
    """Tangents at all points share the weights, in the tangents' precision, and the tangents of linear maps.

    tangents: by parameter block.
    """

    weights: Sequence[Array]
    tangents: Mapping[int | None, Tangent]

    @property
    def dtype(self) -> np.dtype:
        return self.weights[0].dtype

    def tangent(self, map_: Map, block: int | None, A: Array, B: Array) -> Tangent:
        """Linearise a map at A, where B are its outputs, both in their own precision."""
        if block in self.tangents and "linear" in map_.capabilities:
            return self.tangents[block]
        W = None if block is None else self.weights[block]
        low = A if "elementwise" in map_.capabilities else A.astype(self.dtype, copy=False)
        return map_.tangent(W, low, B.astype(self.dtype, copy=False))


def fixed(maps: Iterable[tuple[Map, int | None]], weights: Sequence[Array]) -> Fixed:
    """Collect what tangents of maps and their parameter blocks share.  Cost: two copies of the linear maps' weights."""
    linear = [(m, b) for m, b in maps if b is not None and "linear" in m.capabilities]
    return Fixed(weights, {b: _linear(weights[b][:, : m.n_in]) for m, b in linear})


def _linear(V: Array) -> Tangent:
    """J = V, with V as the products of either direction read it fastest."""
    rows, columns = V.copy(order="C"), V.T.copy(order="C")
    return Tangent(jvp=lambda dA: dA @ columns, vjp=lambda dB: dB @ rows)


def compose(tangents: Sequence[Tangent]) -> Tangent:
    """Chain rule: the tangent of maps applied one after the other."""

    def jvp(dA: Array) -> Array:
        for tangent in tangents:
            dA = tangent.jvp(dA)
        return dA

    def vjp(dB: Array) -> Array:
        for tangent in reversed(tangents):
            dB = tangent.vjp(dB)
        return dB

    return Tangent(jvp, vjp)


def of_first(tangent: Tangent, own: int, n_in: int) -> Tangent:
    """The tangent with respect to the first `own` of n_in inputs: the others do not vary."""
    if own == n_in:
        return tangent

    def jvp(dA: Array) -> Array:
        padded = np.zeros((len(dA), n_in), dA.dtype)
        padded[:, :own] = dA
        return tangent.jvp(padded)

    return Tangent(jvp, lambda dB: tangent.vjp(dB)[:, :own])
