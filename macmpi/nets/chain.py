"""A net as a flat chain of maps, cut at the sites where auxiliary coordinates live.

What lies between two cuts is a segment: f_1, ..., f_{K+1} of eq. (1).  Sites after every hidden activation
give the paper's coordinates; other cuts are other choices of the same chain, no cut at all the nested problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate, pairwise
from typing import Any

from macmpi.nets.layers import Map, Tangent
from macmpi.nets.tape import Fixed, Step, Tape, compose
from macmpi.reductions import AT_ONCE, Average
from macmpi.typing import Array


@dataclass(frozen=True)
class Segment:
    """f_k: maps applied one after the other; `blocks[i]` is the parameter block of map i, or None.

    Without maps it is the identity.
    """

    maps: tuple[Map, ...]
    blocks: tuple[int | None, ...]

    @property
    def n_in(self) -> int:
        return self.maps[0].n_in

    @property
    def n_out(self) -> int:
        return self.maps[-1].n_out

    @property
    def weighted(self) -> tuple[int, ...]:
        """The segment's parameter blocks, in order."""
        return tuple(b for b in self.blocks if b is not None)

    @property
    def regressed(self) -> tuple[int, ...]:
        """The blocks that a regression fits; trainers of their own find the others."""
        return tuple(b for m, b in zip(self.maps, self.blocks, strict=True) if b is not None and _regressed(m))

    @property
    def fitted(self) -> tuple[Map, ...]:
        """The maps whose blocks those are, without the columns that they pass on."""
        return tuple(m.own for m, b in zip(self.maps, self.blocks, strict=True) if b in self.regressed)

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

    def features(self, weights: Sequence[Array], A: Array) -> Array:
        """Apply the maps before the core to A: its weights see the result."""
        return self.part(0, self.core).forward(weights, A)

    @property
    def multiplications(self) -> int:
        """Multiplications of a pass with the segment's weights, a point."""
        return sum(m.multiplications for m in self.maps)

    def part(self, start: int, stop: int) -> Segment:
        """Its maps start, ..., stop - 1."""
        return Segment(self.maps[start:stop], self.blocks[start:stop])

    def _weights(self, weights: Sequence[Array]) -> list[Array | None]:
        return [None if b is None else weights[b] for b in self.blocks]

    def forward(self, weights: Sequence[Array], A: Array) -> Array:
        """f_k(A) row by row: (n, n_in) -> (n, n_out)."""
        owned = False
        for map_, W in zip(self.maps, self._weights(weights), strict=True):
            in_place = owned and "elementwise" in map_.capabilities
            A = map_.forward(W, A, out=A if in_place else None)
            owned = True
        return A

    def linearise(self, weights: Sequence[Array], A: Array, fixed: Fixed | None = None) -> tuple[Array, Tangent]:
        """f_k(A) and its tangent J_k there; the tangent in the precision of what is fixed, where that is given."""
        tangents = []
        for map_, b, W in zip(self.maps, self.blocks, self._weights(weights), strict=True):
            B = map_.forward(W, A)
            tangents.append(map_.tangent(W, A, B) if fixed is None else fixed.tangent(map_, b, A, B))
            A = B
        return A, compose(tangents)

    def tape(self, weights: Sequence[Array], A: Array) -> Tape:
        """f_k(A), linearised in its weights as well."""
        steps = []
        for map_, W in zip(self.maps, self._weights(weights), strict=True):
            B = map_.forward(W, A)
            steps.append(Step(map_, W, A, map_.tangent(W, A, B)))
            A = B
        return Tape(A, tuple(steps))

    def congruence(
        self, weights: Sequence[Array], A: Array, M: Array, maps: int | None = None, average: Average = AT_ONCE
    ) -> Array:
        """Mean over the rows of A of J M J^T, for the segment or its first `maps` maps: map by map.

        A linear map's derivative is the same at every point: nothing to average.
        """
        steps = list(zip(self.maps[:maps], self._weights(weights)[:maps], strict=True))
        for i, (map_, W) in enumerate(steps):
            if W is not None and "linear" in map_.capabilities:
                M = average.form(W[:, : map_.n_in].T, M)
            else:
                M = average.mean(partial(_congruence, map_, W, A, M), (map_.n_out, map_.n_out))
            if i + 1 < len(steps):
                A = average.rows(partial(_forward, map_, W, A))
        return M

    def pullback(self, weights: Sequence[Array], A: Array, M: Array, average: Average = AT_ONCE) -> Array:
        """Mean over the rows of A of J_k^T M J_k, the means of the maps taken one after the other."""
        inputs = []
        for map_, W in zip(self.maps, self._weights(weights), strict=True):
            inputs.append(A)
            A = average.rows(partial(_forward, map_, W, A))
        for map_, W, A in zip(reversed(self.maps), reversed(self._weights(weights)), reversed(inputs), strict=True):
            if W is not None and "linear" in map_.capabilities:
                M = average.form(W[:, : map_.n_in], M)
            else:
                M = average.mean(partial(_pullback, map_, W, A, M), (map_.n_in, map_.n_in))
        return M


def _forward(map_: Map, W: Any, A: Array, rows: slice) -> Array:
    return map_.forward(W, A[rows])


def _congruence(map_: Map, W: Any, A: Array, M: Array, rows: slice) -> Array:
    return map_.congruence(W, A[rows], M)


def _pullback(map_: Map, W: Any, A: Array, M: Array, rows: slice) -> Array:
    return map_.pullback(W, A[rows], M)


def _regressed(map_: Map) -> bool:
    return map_.parameter_shape is not None and ("weight_jacobian" in map_.capabilities or bool(map_.fitter))


def _begins_layer(map_: Map) -> bool:
    """A map with weights begins a layer, but for a quantiser, which ends that of the map before it."""
    return "centres" not in map_.capabilities or "jacobian" in map_.capabilities


@dataclass(frozen=True)
class Chain:
    """f = f_{K+1} o ... o f_1 (eq. 1): maps, and the sites, i.e. the number of maps before each cut."""

    maps: tuple[Map, ...]
    sites: tuple[int, ...]

    @cached_property
    def blocks(self) -> tuple[Map, ...]:
        """The maps that have weights, in order: block b belongs to blocks[b]."""
        return tuple(m for m in self.maps if m.parameter_shape is not None)

    @cached_property
    def block_shapes(self) -> tuple[tuple[int, int], ...]:
        return tuple(m.parameter_shape for m in self.blocks if m.parameter_shape is not None)

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(self.part(a, b) for a, b in pairwise([0, *self.sites, len(self.maps)]))

    @cached_property
    def whole(self) -> Segment:
        """The net as one segment."""
        blocks = iter(range(len(self.maps)))
        return Segment(self.maps, tuple(None if m.parameter_shape is None else next(blocks) for m in self.maps))

    def part(self, start: int, stop: int) -> Segment:
        """Maps start, ..., stop - 1 as one segment."""
        return self.whole.part(start, stop)

    @property
    def existing(self) -> int:
        """The number of weights, without those that masks leave out."""
        sizes = zip(self.blocks, self.block_shapes, strict=True)
        return sum(h * d if m.connected is None else int(m.connected.sum()) for m, (h, d) in sizes)

    def inputs(self, block: int) -> int:
        """The numbers that a row of a parameter block multiplies: of a linear map its columns but for the biases."""
        return self.blocks[block].columns

    def regressed_shapes(self, segment: int) -> tuple[tuple[int, int], ...]:
        """The shapes of the parameter blocks that a segment's regression fits."""
        return tuple(self.block_shapes[b] for b in self.segments[segment].regressed)

    def has_bias(self, segment: int) -> bool:
        """Tells whether the first weights that a segment's regression fits have biases."""
        return "bias" in self.segments[segment].fitted[0].capabilities

    @property
    def n_in(self) -> int:
        return self.maps[0].n_in

    @property
    def n_out(self) -> int:
        return self.maps[-1].n_out

    @cached_property
    def layer_sizes(self) -> tuple[int, ...]:
        """Inputs and units of every layer with weights, whether it has coordinates or not: (D, H_1, ..., L)."""
        return (self.n_in, *(m.own.n_out for m in self.blocks if _begins_layer(m)))

    @cached_property
    def layer_ends(self) -> tuple[int, ...]:
        """For each hidden layer the number of maps before its site, or before the next layer where it has none."""
        starts = [i for i, m in enumerate(self.maps) if m.parameter_shape is not None and _begins_layer(m)][1:]
        firsts = [0, *starts]
        return tuple(next((s for s in self.sites if a < s <= b), b) for a, b in pairwise(firsts))

    @cached_property
    def site_sizes(self) -> tuple[int, ...]:
        """(H_1, ..., H_K)."""
        return tuple(s.n_out for s in self.segments[:-1])

    @cached_property
    def site_columns(self) -> tuple[slice, ...]:
        """The columns of z_1, ..., z_K among the coordinates (N, H_1 + ... + H_K)."""
        return tuple(slice(a, b) for a, b in pairwise(accumulate(self.site_sizes, initial=0)))

    @property
    def quantised(self) -> bool:
        """Some segment ends in a quantiser."""
        return any(segment.trailing for segment in self.segments)

    @property
    def differentiable(self) -> bool:
        """E1 has a gradient with respect to all weights."""
        blocks = all("weight_jacobian" in m.capabilities for m in self.blocks)
        return blocks and all("jacobian" in m.capabilities for m in self.maps)

    def forward(self, weights: Sequence[Array], X: Array) -> Array:
        """f(X; W), row by row.  Cost: 2 n sum_k n_in n_out flops."""
        return self.whole.forward(weights, X)

    def coordinates(self, weights: Sequence[Array], X: Array) -> list[Array]:
        """Feasible coordinates z_k = f_k(z_{k-1}), k = 1..K, with z_0 = x."""
        Z = []
        for segment in self.segments[:-1]:
            X = segment.forward(weights, X)
            Z.append(X)
        return Z
