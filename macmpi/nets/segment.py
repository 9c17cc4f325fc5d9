"""A segment of a net: the maps between two sites, f_k of eq. (1), their weights, and columns of the data they read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from macmpi.nets.design import Columns
from macmpi.nets.layers import Map, Tangent
from macmpi.nets.tape import Fixed, Step, Tape, compose, of_first
from macmpi.reductions import AT_ONCE, Average
from macmpi.typing import Array


@dataclass(frozen=True)
class Segment:
    """f_k: maps applied one after the other; `blocks[i]` is the parameter block of map i, or None.

    Without maps it is the identity.  reads: columns of the data that a map reads behind what the map before it gives,
    or None; () where none does.  begins: the net begins here, and the segment's inputs are the data X; else they are
    [z, X[:, data]], the coordinates before it and all columns of the data that its maps read.
    """

    maps: tuple[Map, ...]
    blocks: tuple[int | None, ...]
    reads: tuple[Columns | None, ...] = ()
    begins: bool = False

    @property
    def n_in(self) -> int:
        """Its inputs that are no data: coordinates, or of the first segment what its first map reads."""
        return self.maps[0].n_in - (0 if self.begins else _width(self.read(0)))

    @property
    def n_out(self) -> int:
        return self.maps[-1].n_out

    def read(self, i: int) -> Columns | None:
        """The columns of the data that map i reads."""
        return self.reads[i] if self.reads else None

    @cached_property
    def data(self) -> Columns | None:
        """The columns of the data that come with its coordinates: from the first to the last that a map reads."""
        every = [read for read in self.reads if read]
        return None if self.begins or not every else (min(a for a, _ in every), max(b for _, b in every))

    @property
    def parameter_blocks(self) -> tuple[int, ...]:
        """The segment's parameter blocks, in order, each once."""
        return tuple(sorted({b for b in self.blocks if b is not None}))

    @property
    def regressed(self) -> tuple[int, ...]:
        """The blocks that a regression fits; trainers of their own find the others."""
        return tuple(sorted({b for m, b in self._pairs if b is not None and _regressed(m)}))

    @property
    def fitted(self) -> tuple[Map, ...]:
        """The first maps of those blocks, without the columns that they pass on."""
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
    def separable(self) -> bool:
        """Row h of the core's weights is fitted to output h alone: one block [A, 1] W^T, elementwise maps after it.

        A is the core's inputs, or patches of them.  A quantiser after it counts as the identity; what the core passes
        on may be added in the end.
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
        """The columns that the core passes on and that are added to its units' outputs, one slice a join."""
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
        """The number of maps that make features, those before the core; none where maps behind it read the data too."""
        return 0 if any(self.reads[self.core + 1 :]) else self.core

    def features(self, weights: Sequence[Array], A: Array) -> Array:
        """Inputs of the core, the data that it reads among them: what the maps before it make of A."""
        if not self.feature_maps:
            return A
        return self._joined(self.feature_maps, self._before(weights, A), A)

    def _before(self, weights: Sequence[Array], A: Array) -> Array:
        B = self._first(A)
        for i, b in enumerate(self.blocks[: self.feature_maps]):
            B = self.maps[i].forward(None if b is None else weights[b], self._joined(i, B, A))
        return B

    @property
    def rest(self) -> Segment:
        """The maps from the core on, of which `features` are the inputs."""
        start = self.feature_maps
        return Segment(self.maps[start:], self.blocks[start:]) if start else self

    @property
    def multiplications(self) -> int:
        """Multiplications of a pass with the segment's weights, a point."""
        return sum(m.own.multiplications for m in self.maps)

    def part(self, start: int, stop: int) -> Segment:
        """Its maps start, ..., stop - 1."""
        return Segment(
            self.maps[start:stop], self.blocks[start:stop], self.reads[start:stop], self.begins and not start
        )

    def _weights(self, weights: Sequence[Array]) -> list[Array | None]:
        return [None if b is None else weights[b] for b in self.blocks]

    def _first(self, A: Array) -> Array:
        """The coordinates among the inputs, or all data: the first map is given these, but for data that it reads."""
        return A if self.begins or not self.data else A[:, : self.n_in]

    def _joined(self, i: int, B: Array, A: Array) -> Array:
        """The inputs of map i: what the map before it gives, and the data that it reads, of the inputs A."""
        read = self.read(i)
        if read is None:
            return B
        before = self.n_in - self.data[0] if self.data else 0
        side = A[:, before + read[0] : before + read[1]]
        return side if self.begins and i == 0 else np.hstack([B, side])

    def forward(self, weights: Sequence[Array], A: Array) -> Array:
        """f_k(A) row by row: (n, inputs) -> (n, n_out)."""
        B = self._first(A)
        for i, (map_, W) in enumerate(zip(self.maps, self._weights(weights), strict=True)):
            B = self._joined(i, B, A)
            in_place = i > 0 and "elementwise" in map_.capabilities
            B = map_.forward(W, B, out=B if in_place else None)
        return B

    def linearise(self, weights: Sequence[Array], A: Array, fixed: Fixed | None = None) -> tuple[Array, Tangent]:
        """f_k(A) and its tangent J_k there, with respect to the coordinates among A.

        The tangent is in the precision of what is fixed, where that is given.
        """
        tape = self.tape(weights, A, fixed)
        return tape.F, compose([step.tangent for step in tape.steps])

    @cached_property
    def varying(self) -> tuple[int, ...]:
        """The inputs of each map that are no data."""
        return tuple(map_.n_in - _width(self.read(i)) for i, map_ in enumerate(self.maps))

    def tape(self, weights: Sequence[Array], A: Array, fixed: Fixed | None = None) -> Tape:
        """f_k(A), linearised in its weights as well, with the tangents of `linearise`."""
        steps, B, places = [], self._first(A), {b: i for i, b in enumerate(self.parameter_blocks)}
        for i, (map_, b, W) in enumerate(zip(self.maps, self.blocks, self._weights(weights), strict=True)):
            inputs = self._joined(i, B, A)
            B = map_.forward(W, inputs)
            own = self.varying[i]
            tangent = map_.tangent(W, inputs, B) if fixed is None else fixed.tangent(map_, b, inputs, B)
            tangent = of_first(tangent, own, map_.n_in)
            steps.append(Step(map_, W, inputs, tangent, None if b is None else places[b], own))
        return Tape(B, tuple(steps))

    def congruence(
        self, weights: Sequence[Array], A: Array, M: Array, maps: int | None = None, average: Average = AT_ONCE
    ) -> Array:
        """Mean over the rows of A of J M J^T, for the segment or its first `maps` maps: map by map.

        A linear map's derivative is the same at every point: nothing to average.
        """
        for i, (map_, W, inputs) in enumerate(self._seen(weights, A, maps, average)):
            if W is not None and "linear" in map_.capabilities:
                M = average.form(W[:, : self.varying[i]].T, M)
            else:
                padded = _padded(M, map_.n_in)
                M = average.mean(partial(_at, map_.congruence, W, inputs, padded), (map_.n_out, map_.n_out))
        return M

    def pullback(self, weights: Sequence[Array], A: Array, M: Array, average: Average = AT_ONCE) -> Array:
        """Mean over the rows of A of J_k^T M J_k, the means of the maps taken one after the other."""
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
        """The first maps, their weights and their inputs; made as they are asked for."""
        B, maps = self._first(A), self.maps[:count]
        for i, (map_, b) in enumerate(zip(maps, self.blocks, strict=False)):
            W, B = None if b is None else weights[b], self._joined(i, B, A)
            yield map_, W, B
            if i + 1 < len(maps):
                B = average.rows(partial(_at, map_.forward, W, B, None))


def _width(read: Columns | None) -> int:
    return read[1] - read[0] if read else 0


def _padded(M: Array, size: int) -> Array:
    """M (own, own), and zeros for data, which do not vary: (size, size)."""
    if len(M) == size:
        return M
    found = np.zeros((size, size), M.dtype)
    found[: len(M), : len(M)] = M
    return found


def _at(of: Callable[..., Array], W: Array | None, A: Array, M: Array | None, rows: slice) -> Array:
    """Calls a method of a map for its weights, some rows of its inputs A, and M."""
    return of(W, A[rows], M)


def _regressed(map_: Map) -> bool:
    return map_.parameter_shape is not None and ("weight_jacobian" in map_.capabilities or bool(map_.fitter))
