"""Segments of a net: the maps between two sites, f_k of eq. (1), their parameter blocks, and columns of data they read.

A tape is a segment that is linearised at some points, in its inputs and in its weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce

import numpy as np

from macmpi.nets.design import Columns
from macmpi.nets.layers import Map, Tangent
from macmpi.reductions import AT_ONCE, Average
from macmpi.typing import Array


@dataclass(frozen=True)
class Step:
    """A map of a tape, linearised at some points.

    A (n, n_in): the inputs of the map at these points.
    tangent: the tangent with respect to the inputs that are not data.
    block: the parameter block of its weights W; None for a map without weights.
    varying: the number of inputs that are not data; these come first.
    """

    map: Map
    W: Array | None
    A: Array
    tangent: Tangent
    block: int | None
    varying: int

    def of_rows(self, rows: slice | Array, B: Array) -> Step:
        """Returns the step at some of its points.  B: at all points, the outputs of the map, and perhaps then data."""
        A = self.A[rows]
        tangent = self.map.tangent(self.W, A, B[rows, : self.map.n_out])
        return replace(self, A=A, tangent=of_first(tangent, self.varying, self.map.n_in))


@dataclass(frozen=True)
class Tape:
    """A segment that is linearised at some points, in its inputs and in its weights.

    F (n, n_out): its outputs at these points.
    steps: its maps, linearised, in turn.
    """

    F: Array
    steps: tuple[Step, ...]

    @property
    def tangent(self) -> Tangent:
        """The derivative with respect to the inputs that are not data."""
        return compose([step.tangent for step in self.steps])

    @property
    def blocks(self) -> list[int]:
        """The parameter blocks of its maps, in order, each once."""
        return sorted({step.block for step in self.steps if step.block is not None})

    def weight_vjp(self, dF: Array) -> list[Array]:
        """sum_n dF[n]^T df/dW of each parameter block, by backpropagation.  Cost: 4 n D H flops a layer."""
        return by_block((step.block, step.map.weight_vjp(step.W, step.A, own)) for step, own in self.backwards(dF))

    def backwards(self, dF: Array) -> Iterator[tuple[Step, Array]]:
        """Yields each map with weights, the last one first, and dF pulled back to its outputs: (n, its n_out)."""
        for i, step in reversed(list(enumerate(self.steps))):
            if step.W is not None:
                yield step, dF
            if i:
                dF = step.tangent.vjp(dF)

    def of_rows(self, rows: slice | Array) -> Tape:
        """Returns the tape at some of its points; a point may occur several times.  Cost: the tangents there."""
        outputs = [*(step.A for step in self.steps[1:]), self.F]
        steps = [step.of_rows(rows, B) for step, B in zip(self.steps, outputs, strict=True)]
        return Tape(self.F[rows], tuple(steps))

    def scales(self, of: Callable[[Step], Array]) -> list[Array]:
        """Computes of(step) for each map with weights, a matrix or a number (1, 1), and sums it by parameter block."""
        return by_block((step.block, of(step)) for step in self.steps if step.W is not None)

    def weight_jvp(self, dW: Sequence[Array]) -> Array:
        """Computes the change (n, n_out) of F for changes dW of the parameter blocks, by their numbers."""
        dF = None
        for step in self.steps:
            dF = None if dF is None else step.tangent.jvp(dF)
            if step.block is not None:
                own = step.map.weight_jvp(step.W, step.A, dW[step.block])
                dF = own if dF is None else dF + own
        assert dF is not None
        return dF


def by_block(parts: Iterable[tuple[int | None, Array]]) -> list[Array]:
    """Sums arrays by their parameter blocks, and returns the sums in the order of the blocks.

    A number (1, 1) that is summed with a matrix is added to its diagonal.
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
    return matrix + number * np.eye(len(matrix))


@dataclass(frozen=True)
class Fixed:
    """The weights and tangents that all points share; tangents made of them may have another precision than the points.

    weights: the weights of all parameter blocks, in the precision of the tangents.
    tangents: the tangents of linear maps, which are the same at every point, by parameter block.
    """

    weights: Sequence[Array]
    tangents: Mapping[int | None, Tangent]

    @property
    def dtype(self) -> np.dtype:
        return self.weights[0].dtype

    def tangent(self, map_: Map, block: int | None, A: Array, B: Array) -> Tangent:
        """Linearises a map at inputs A with outputs B, both in the precision of the points."""
        if block in self.tangents and "linear" in map_.capabilities:
            return self.tangents[block]
        W = None if block is None else self.weights[block]
        low = A if "elementwise" in map_.capabilities else A.astype(self.dtype, copy=False)
        return map_.tangent(W, low, B.astype(self.dtype, copy=False))


def fixed(maps: Iterable[tuple[Map, int | None]], weights: Sequence[Array]) -> Fixed:
    """Makes the `Fixed` of maps and their parameter blocks.  Cost: two copies of the weights of linear maps."""
    linear = [(m, b) for m, b in maps if b is not None and "linear" in m.capabilities]
    return Fixed(weights, {b: _linear(weights[b][:, : m.n_in]) for m, b in linear})


def _linear(V: Array) -> Tangent:
    """Returns the tangent J = V, with a copy of V in the memory order that is fastest for each of the two products."""
    rows, columns = V.copy(order="C"), V.T.copy(order="C")
    return Tangent(jvp=lambda dA: dA @ columns, vjp=lambda dB: dB @ rows)


def compose(tangents: Sequence[Tangent]) -> Tangent:
    """Returns the tangent of maps that are applied one after the other, by the chain rule."""

    return Tangent(
        jvp=lambda dA: reduce(lambda dA, tangent: tangent.jvp(dA), tangents, dA),
        vjp=lambda dB: reduce(lambda dB, tangent: tangent.vjp(dB), tangents[::-1], dB),
    )


def of_first(tangent: Tangent, own: int, n_in: int) -> Tangent:
    """Restricts a tangent to the first `own` of n_in inputs, where the others do not vary."""
    if own == n_in:
        return tangent
    others = (0, 0), (0, n_in - own)
    return Tangent(lambda dA: tangent.jvp(np.pad(dA, others)), lambda dB: tangent.vjp(dB)[:, :own])


@dataclass(frozen=True)
class Segment:
    """f_k: maps that are applied one after the other; without maps it is the identity.

    blocks: the parameter block of each map, or None.  reads: the columns of the data that each map reads after the
    outputs of the map before it, or None; () if none reads data.  begins: whether the inputs of the segment are the
    data X; else they are [z, X[:, data]], the coordinates and all columns of the data that its maps read.
    """

    maps: tuple[Map, ...]
    blocks: tuple[int | None, ...]
    reads: tuple[Columns | None, ...] = ()
    begins: bool = False

    @property
    def n_in(self) -> int:
        """The number of coordinates among the inputs; in the first segment, the number of inputs of its first map."""
        return self.maps[0].n_in - (0 if self.begins else _width(self.read(0)))

    @property
    def n_out(self) -> int:
        return self.maps[-1].n_out

    def read(self, i: int) -> Columns | None:
        """Returns the columns of the data that map i reads, or None."""
        return self.reads[i] if self.reads else None

    @cached_property
    def data(self) -> Columns | None:
        """The columns of the data among its inputs, from the first to the last that a map reads; None for none."""
        every = [read for read in self.reads if read]
        return None if self.begins or not every else (min(a for a, _ in every), max(b for _, b in every))

    @property
    def parameter_blocks(self) -> tuple[int, ...]:
        """The parameter blocks of the segment, in order, each once."""
        return tuple(sorted({b for b in self.blocks if b is not None}))

    @property
    def regressed(self) -> tuple[int, ...]:
        """The parameter blocks that a regression fits; trainers find the others."""
        return tuple(sorted({b for m, b in self._pairs if b is not None and _regressed(m)}))

    @property
    def fitted(self) -> tuple[Map, ...]:
        """The first map of each of the `regressed` blocks, without the columns that it passes on."""
        return tuple(self.maps[self.blocks.index(b)].own for b in self.regressed)

    @property
    def _pairs(self) -> Iterator[tuple[Map, int | None]]:
        return zip(self.maps, self.blocks, strict=True)

    @property
    def core(self) -> int:
        """The number, within the segment, of the first map that a regression fits."""
        return next((i for i, m in enumerate(self.maps) if _regressed(m)), len(self.maps))

    @property
    def leading(self) -> tuple[int, ...]:
        """The numbers of the maps before the core whose weights a trainer finds."""
        return tuple(i for i in range(self.core) if self.blocks[i] is not None)

    @property
    def trailing(self) -> tuple[int, ...]:
        """The numbers of the maps after the core whose weights a trainer finds."""
        after = range(self.core + 1, len(self.maps))
        return tuple(i for i in after if self.blocks[i] is not None and not _regressed(self.maps[i]))

    @property
    def quantised(self) -> bool:
        """Tells whether the segment ends in a quantiser, whose units choose a codeword together."""
        return any("jacobian" not in m.capabilities and m.trained_as == "linear" for m in self.maps[self.core + 1 :])

    @property
    def separable(self) -> bool:
        """Tells whether each unit can be fitted by itself: row h of the core's weights affects output h alone.

        The core must be one block [A, 1] W^T of its inputs A or of patches of them, followed by elementwise maps; a
        quantiser counts as the identity.  At the end, columns that the core passes on may be added to the units.
        """
        after = [m.own for m in self.maps[self.core + 1 :]]
        while after and "adds" in after[-1].capabilities:
            after.pop()
        return (
            len(self.regressed) == 1
            and self.blocks.count(self.regressed[0]) == 1
            and "units" in self.fitted[0].capabilities
            and bool({"linear", "patches"} & self.fitted[0].capabilities)
            and all("elementwise" in m.capabilities or m.trained_as == "linear" for m in after)
        )

    @property
    def added(self) -> tuple[slice, ...]:
        """The columns that the core passes on and that skips add to its units; one slice for each skip."""
        start, own, found = self.fitted[0].n_in, self.fitted[0].n_out, list[slice]()
        for map_ in self.maps[self.core + 1 :]:
            if "adds" in map_.own.capabilities:
                found.append(slice(start, start + own))
                start += own
        return tuple(found)

    @property
    def activation(self) -> str:
        """The elementwise function under which the core of a separable segment is fitted."""
        return next((m.trained_as for m in self.maps[self.core + 1 :] if m.trained_as), "linear")

    @property
    def feature_maps(self) -> int:
        """The number of maps before the core, which make features; 0 where maps after the core read data."""
        return 0 if any(self.reads[self.core + 1 :]) else self.core

    def features(self, weights: Sequence[Array], A: Array) -> Array:
        """Computes the inputs of the core, with the data that the core reads, from inputs A of the segment."""
        count = self.feature_maps
        return self._joined(count, self.forward(weights, A, count), A) if count else A

    @property
    def rest(self) -> Segment:
        """The segment of the maps from the core on, whose inputs are `features`."""
        start = self.feature_maps
        return Segment(self.maps[start:], self.blocks[start:]) if start else self

    @property
    def multiplications(self) -> int:
        """The number of multiplications by weights in a forward pass of one point."""
        return sum(m.own.multiplications for m in self.maps)

    def part(self, start: int, stop: int) -> Segment:
        """Returns the segment of the maps start, ..., stop - 1."""
        run = slice(start, stop)
        return Segment(self.maps[run], self.blocks[run], self.reads[run], self.begins and not start)

    def _weights(self, weights: Sequence[Array], count: int | None = None) -> list[Array | None]:
        return [None if b is None else weights[b] for b in self.blocks[:count]]

    def _first(self, A: Array) -> Array:
        """Returns the coordinates among the inputs A of the segment; all of A in the first segment of the net."""
        return A if self.begins or not self.data else A[:, : self.n_in]

    def _joined(self, i: int, B: Array, A: Array) -> Array:
        """Returns the inputs of map i: the outputs B of the map before it, and the data in A that it reads."""
        read = self.read(i)
        if read is None:
            return B
        before = self.n_in - self.data[0] if self.data else 0
        side = A[:, before + read[0] : before + read[1]]
        return side if self.begins and i == 0 else np.hstack([B, side])

    def forward(self, weights: Sequence[Array], A: Array, count: int | None = None) -> Array:
        """Computes f_k(A), or the outputs of its first `count` maps, row by row: (n, inputs) -> (n, n_out)."""
        B = self._first(A)
        for i, (map_, W) in enumerate(zip(self.maps[:count], self._weights(weights, count), strict=True)):
            B = self._joined(i, B, A)
            B = map_.forward(W, B, out=B if i > 0 and "elementwise" in map_.capabilities else None)
        return B

    def linearise(self, weights: Sequence[Array], A: Array, fixed: Fixed | None = None) -> tuple[Array, Tangent]:
        """Computes f_k(A) and its tangent J_k with respect to the coordinates in A, in the precision of `fixed`."""
        tape = self.tape(weights, A, fixed)
        return tape.F, tape.tangent

    @cached_property
    def varying(self) -> tuple[int, ...]:
        """The number of inputs of each map that are not data."""
        return tuple(map_.n_in - _width(self.read(i)) for i, map_ in enumerate(self.maps))

    def tape(self, weights: Sequence[Array], A: Array, fixed: Fixed | None = None) -> Tape:
        """Linearises f_k at A in its inputs, as `linearise` does, and also in its weights."""
        steps, B = [], self._first(A)
        for i, (map_, b, W) in enumerate(zip(self.maps, self.blocks, self._weights(weights), strict=True)):
            inputs = self._joined(i, B, A)
            B = map_.forward(W, inputs)
            own = self.varying[i]
            tangent = map_.tangent(W, inputs, B) if fixed is None else fixed.tangent(map_, b, inputs, B)
            tangent = of_first(tangent, own, map_.n_in)
            steps.append(Step(map_, W, inputs, tangent, b, own))
        return Tape(B, tuple(steps))

    def congruence(
        self, weights: Sequence[Array], A: Array, M: Array, maps: int | None = None, average: Average = AT_ONCE
    ) -> Array:
        """Computes the mean over rows of A of J M J^T, of the segment or its first `maps` maps, with one mean a map.

        The derivative of a linear map needs no mean, because it is the same at every point.
        """
        for i, (map_, W, inputs) in enumerate(self._seen(weights, A, maps, average)):
            if W is not None and "linear" in map_.capabilities:
                M = average.form(W[:, : self.varying[i]].T, M)
            else:
                padded = np.pad(M, (0, map_.n_in - len(M)))  # data do not vary
                M = average.mean(partial(_at, map_.congruence, W, inputs, padded), (map_.n_out, map_.n_out))
        return M

    def pullback(self, weights: Sequence[Array], A: Array, M: Array, average: Average = AT_ONCE) -> Array:
        """Computes the mean over the rows of A of J_k^T M J_k, with one mean for each map in turn."""
        for i, (map_, W, inputs) in reversed(list(enumerate(self._seen(weights, A, None, average)))):
            own = self.varying[i]
            if W is not None and "linear" in map_.capabilities:
                M = average.form(W[:, :own], M)
            else:
                M = average.mean(partial(_at, map_.pullback, W, inputs, M), (map_.n_in, map_.n_in))[:own, :own]
        return M

    def _seen(
        self, weights: Sequence[Array], A: Array, count: int | None, average: Average
    ) -> Iterator[tuple[Map, Array | None, Array]]:
        """Yields each of the first `count` maps, with its weights and its inputs for the rows of A."""
        B, maps = self._first(A), self.maps[:count]
        for i, (map_, b) in enumerate(zip(maps, self.blocks, strict=False)):
            W, B = None if b is None else weights[b], self._joined(i, B, A)
            yield map_, W, B
            if i + 1 < len(maps):
                B = average.rows(partial(_at, map_.forward, W, B, None))


def _width(read: Columns | None) -> int:
    return read[1] - read[0] if read else 0


def _at(of: Callable[..., Array], W: Array | None, A: Array, M: Array | None, rows: slice) -> Array:
    """Calls a method `of` a map with its weights, some rows of its inputs A, and M."""
    return of(W, A[rows], M)


def _regressed(map_: Map) -> bool:
    return map_.parameter_shape is not None and ("weight_jacobian" in map_.capabilities or bool(map_.fitter))
