"""A net as a flat chain of maps, cut at the sites where auxiliary coordinates live.

What lies between two cuts is a segment: f_1, ..., f_{K+1} of eq. (1).  Sites after every hidden activation
give the paper's coordinates; other cuts are other choices of the same chain, no cut at all the nested problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from macmpi.nets.design import Columns
from macmpi.nets.layers import Code, Map
from macmpi.nets.regression import RegressionView
from macmpi.nets.segment import Segment as Segment
from macmpi.typing import Array


def _begins_layer(map_: Map) -> bool:
    """Tells whether a map with weights begins a layer: a quantiser or biases end that of the map before them."""
    centres = "centres" in map_.capabilities and "jacobian" not in map_.capabilities
    return not centres and "elementwise" not in map_.capabilities


@dataclass(frozen=True)
class Chain:
    """f = f_{K+1} o ... o f_1 (eq. 1): maps, and the sites, i.e. the number of maps before each cut.

    numbers: the parameter block of each map, or None, where maps share one; () each has its own, in their order.
    reads: columns of the data that a map reads too (`Segment`).
    undivided: the net with each layer in one block, where only some units of a layer have coordinates; the same flat
        weights are its own.
    """

    maps: tuple[Map, ...]
    sites: tuple[int, ...]
    numbers: tuple[int | None, ...] = ()
    reads: tuple[Columns | None, ...] = ()
    undivided: Chain | None = None

    @property
    def net(self) -> Chain:
        """The net with each layer in one block."""
        return self.undivided or self

    @cached_property
    def blocks(self) -> tuple[Map, ...]:
        """The map that each parameter block belongs to, the first of those that share it."""
        numbers = self.whole.blocks
        return tuple(self.maps[numbers.index(b)] for b in self.whole.parameter_blocks)

    @cached_property
    def block_shapes(self) -> tuple[tuple[int, int], ...]:
        return tuple(m.parameter_shape for m in self.blocks if m.parameter_shape is not None)

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(self.part(a, b) for a, b in pairwise([0, *self.sites, len(self.maps)]))

    @cached_property
    def whole(self) -> Segment:
        """The net as one segment."""
        count = iter(range(len(self.maps)))
        own = tuple(None if m.parameter_shape is None else next(count) for m in self.maps)
        return Segment(self.maps, self.numbers or own, self.reads, begins=True)

    @cached_property
    def added(self) -> frozenset[int]:
        """The parameter blocks whose outputs are added to what a skip carries."""
        last, found = 0, set[int]()
        for map_, block in zip(self.maps, self.whole.blocks, strict=True):
            last = last if block is None else block
            found |= {last} if map_.own.kind == "add" else set()
        return frozenset(found)

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """For each segment the segments whose regressions share weights with its own and are solved together with it.

        A group stands at its first segment; at its other segments, and at those without weights, stands ().
        """
        found = [[k] if segment.parameter_blocks else [] for k, segment in enumerate(self.segments)]
        for k, segment in enumerate(self.segments):
            for first in range(k):
                if found[first] and set(segment.parameter_blocks) & {
                    b for j in found[first] for b in self.segments[j].parameter_blocks
                }:
                    found[first], found[k] = [*found[first], *found[k]], []
        return tuple(map(tuple, found))

    @cached_property
    def views(self) -> dict[int, RegressionView]:
        """The view of the regression of each segment that has weights; segments that share weights have the same."""
        found = dict[int, RegressionView]()
        for group in filter(None, self.groups):
            segments = tuple(self.segments[k] for k in group)
            blocks = tuple(sorted({b for segment in segments for b in segment.regressed}))
            view = RegressionView(segments, blocks, tuple(self.block_shapes[b] for b in blocks))
            found.update(dict.fromkeys(group, view))
        return found

    def regressed(self, segment: int) -> tuple[int, ...]:
        """The parameter blocks of a segment's regression, at the first segment of its group; () at the others."""
        return self.views[segment].blocks if self.groups[segment] else ()

    def reading(self, columns: int) -> Chain:
        """The net whose first layer, a dense one, reads other columns."""
        first: Any = self.maps[0]
        return replace(self, maps=(replace(first, n_in=columns), *self.maps[1:]))

    def part(self, start: int, stop: int) -> Segment:
        """Maps start, ..., stop - 1 as one segment."""
        return self.whole.part(start, stop)

    @property
    def existing(self) -> int:
        """The number of weights, without those that do not exist."""
        sizes = zip(self.blocks, self.block_shapes, strict=True)
        return sum(int(np.count_nonzero(m.own.zero_missing(np.ones(shape, bool)))) for m, shape in sizes)

    def inputs(self, block: int) -> int:
        """The number of columns that a row of a parameter block multiplies; of a linear map the biases do not count."""
        return self.blocks[block].own.columns

    @cached_property
    def n_in(self) -> int:
        read = max((b for _, b in filter(None, self.reads)), default=0)
        return read if self.reads and self.reads[0] else max(self.maps[0].n_in, read)

    @property
    def n_out(self) -> int:
        return self.maps[-1].n_out

    @cached_property
    def _layer_starts(self) -> tuple[int, ...]:
        """The maps that begin a layer with weights; the steps of a recurrent layer are one."""
        numbers, found = self.whole.blocks, list[int]()
        for i, m in enumerate(self.maps):
            if m.parameter_shape is not None and _begins_layer(m):
                same = [j for j in found if numbers[j] == numbers[i] and self.maps[j].own == m.own]
                found += [] if same else [i]
        return tuple(found)

    @cached_property
    def layer_sizes(self) -> tuple[int, ...]:
        """Inputs and units of every layer with weights, whether it has coordinates or not: (D, H_1, ..., L)."""
        return (self.n_in, *(self.maps[i].own.n_out for i in self._layer_starts))

    @property
    def layer_blocks(self) -> tuple[int | None, ...]:
        """The parameter block of the map that each layer with weights begins with."""
        return tuple(self.whole.blocks[i] for i in self._layer_starts)

    @cached_property
    def layer_ends(self) -> tuple[int, ...]:
        """For each hidden layer the number of maps before its site, or before the next layer where it has none."""
        numbers, starts = self.whole.blocks, self._layer_starts
        lasts = [
            max(j for j, m in enumerate(self.maps) if numbers[j] == numbers[i] and m.own == self.maps[i].own)
            for i in starts
        ]
        return tuple(next((s for s in self.sites if a < s <= b), b) for a, b in zip(lasts, starts[1:], strict=False))

    @cached_property
    def site_sizes(self) -> tuple[int, ...]:
        """(H_1, ..., H_K)."""
        return tuple(s.n_out for s in self.segments[:-1])

    @cached_property
    def site_columns(self) -> tuple[slice, ...]:
        """The columns of z_1, ..., z_K among the coordinates (N, H_1 + ... + H_K)."""
        return tuple(slice(a, b) for a, b in pairwise(accumulate(self.site_sizes, initial=0)))

    @property
    def ends_affine(self) -> bool:
        """Tells whether the last map is a dense layer or a convolution with biases, so that its block is [V, c]."""
        last = self.maps[-1].capabilities
        return "bias" in last and bool(last & {"linear", "patches"})

    @property
    def codes(self) -> tuple[Code, ...]:
        """The maps that give codes."""
        return tuple(m.code for m in self.maps if m.code)

    @property
    def quantised(self) -> tuple[int, ...]:
        """The numbers of the segments that are `quantised`."""
        return tuple(k for k, segment in enumerate(self.segments) if segment.quantised)

    @property
    def differentiable(self) -> bool:
        """Tells whether E1 has a gradient with respect to all weights."""
        blocks = all("weight_jacobian" in m.capabilities for m in self.blocks)
        return blocks and all("jacobian" in m.capabilities for m in self.maps)

    def forward(self, weights: Sequence[Array], X: Array) -> Array:
        """f(X; W), row by row.  Cost: 2 n sum_k n_in n_out flops."""
        return self.whole.forward(weights, X)

    def coordinates(self, weights: Sequence[Array], X: Array) -> list[Array]:
        """Feasible coordinates z_k = f_k(z_{k-1}), k = 1..K, with z_0 = x."""
        A, Z = X, list[Array]()
        for segment in self.segments[:-1]:
            A = segment.forward(weights, with_data(segment, A, X))
            Z.append(A)
        return Z


def with_data(segment: Segment, A: Array, X: Array) -> Array:
    """[z, X[:, data]], the inputs of a segment; its coordinates alone where it reads no data."""
    if segment.data is None:
        return A
    first, last = segment.data
    return np.hstack([A, X[:, first:last]])
