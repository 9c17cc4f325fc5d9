"""A net as a flat chain of maps, cut at the sites where auxiliary coordinates live.

The maps between two cuts are a segment, f_1, ..., f_{K+1} of eq. (1).  Cuts after every hidden activation give the
coordinates of the paper; the same chain may be cut elsewhere, and without cuts it is the nested problem.
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
    """Tells whether a map with weights begins a layer; a quantiser and biases belong to the layer before them."""
    centres = "centres" in map_.capabilities and "jacobian" not in map_.capabilities
    return not centres and "elementwise" not in map_.capabilities


@dataclass(frozen=True)
class Chain:
    """f = f_{K+1} o ... o f_1 (eq. 1), a net as maps and sites.

    maps: the maps, applied one after the other.
    sites: for each cut the number of maps before it.
    numbers: the parameter block of each map, or None for a map without weights; () if no maps share a block, so that
        blocks are numbered in the order of the maps.
    reads: the columns of the data that a map reads besides (`Segment`).
    undivided: where only some units of a layer have coordinates, the same net with each layer in one block, which has
        the same flat weights; otherwise None.
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
        """The map of each parameter block; the first one where maps share a block."""
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
        """The parameter blocks to whose outputs a skip is added."""
        last, found = 0, set[int]()
        for map_, block in zip(self.maps, self.whole.blocks, strict=True):
            last = last if block is None else block
            found |= {last} if map_.own.kind == "add" else set()
        return frozenset(found)

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """For each segment, its group: the segments that share weights and are solved together as one regression.

        The entry of the first segment is the group; the entries of the others, and of segments without weights, are ().
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
        """The view of the regression of each segment with weights; segments of a group have the same view."""
        found = dict[int, RegressionView]()
        for group in filter(None, self.groups):
            segments = tuple(self.segments[k] for k in group)
            blocks = tuple(sorted({b for segment in segments for b in segment.regressed}))
            view = RegressionView(segments, blocks, tuple(self.block_shapes[b] for b in blocks))
            found.update(dict.fromkeys(group, view))
        return found

    def regressed(self, segment: int) -> tuple[int, ...]:
        """Returns the parameter blocks of the regression of a group, for its first segment; () for other segments."""
        return self.views[segment].blocks if self.groups[segment] else ()

    def reading(self, columns: int) -> Chain:
        """Returns the net whose first layer, which must be dense, reads another number of columns."""
        first: Any = self.maps[0]
        return replace(self, maps=(replace(first, n_in=columns), *self.maps[1:]))

    def part(self, start: int, stop: int) -> Segment:
        """Returns the maps start, ..., stop - 1 as one segment."""
        return self.whole.part(start, stop)

    @property
    def existing(self) -> int:
        """The number of weights that exist; sparse layers lack some."""
        sizes = zip(self.blocks, self.block_shapes, strict=True)
        return sum(int(np.count_nonzero(m.own.zero_missing(np.ones(shape, bool)))) for m, shape in sizes)

    def inputs(self, block: int) -> int:
        """Returns the number of inputs that a row of a parameter block multiplies, without biases."""
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
        """The numbers of the maps that begin a layer with weights; all steps of a recurrent layer are one layer."""
        numbers, found = self.whole.blocks, list[int]()
        for i, m in enumerate(self.maps):
            if m.parameter_shape is not None and _begins_layer(m):
                same = [j for j in found if numbers[j] == numbers[i] and self.maps[j].own == m.own]
                found += [] if same else [i]
        return tuple(found)

    @cached_property
    def layer_sizes(self) -> tuple[int, ...]:
        """The sizes (D, H_1, ..., L): the inputs, and the units of every layer with weights."""
        return (self.n_in, *(self.maps[i].own.n_out for i in self._layer_starts))

    @property
    def layer_blocks(self) -> tuple[int | None, ...]:
        """The parameter block of the first map of each layer with weights."""
        return tuple(self.whole.blocks[i] for i in self._layer_starts)

    @cached_property
    def layer_ends(self) -> tuple[int, ...]:
        """For each hidden layer the number of maps before its site, or before the next layer if it has no site."""
        numbers, starts = self.whole.blocks, self._layer_starts
        lasts = [
            max(j for j, m in enumerate(self.maps) if numbers[j] == numbers[i] and m.own == self.maps[i].own)
            for i in starts
        ]
        return tuple(next((s for s in self.sites if a < s <= b), b) for a, b in zip(lasts, starts[1:], strict=False))

    @cached_property
    def site_sizes(self) -> tuple[int, ...]:
        """The numbers of coordinates at the sites, (H_1, ..., H_K)."""
        return tuple(s.n_out for s in self.segments[:-1])

    @cached_property
    def site_columns(self) -> tuple[slice, ...]:
        """The columns of z_1, ..., z_K among the coordinates (N, H_1 + ... + H_K)."""
        return tuple(slice(a, b) for a, b in pairwise(accumulate(self.site_sizes, initial=0)))

    @property
    def ends_affine(self) -> bool:
        """Tells whether the last map is affine, a dense layer or a convolution, with weights [V, c]."""
        last = self.maps[-1].capabilities
        return "bias" in last and bool(last & {"linear", "patches"})

    @property
    def codes(self) -> tuple[Code, ...]:
        """The maps whose outputs are codes of bits or words."""
        return tuple(m.code for m in self.maps if m.code)

    @property
    def quantised(self) -> tuple[int, ...]:
        """The numbers of the segments that end in a quantiser (`Segment.quantised`)."""
        return tuple(k for k, segment in enumerate(self.segments) if segment.quantised)

    @property
    def reuses(self) -> bool:
        """Tells whether some weight serves several places: the net is convolutional, recurrent or tied."""
        return bool(self.numbers) or any("patches" in map_.own.capabilities for map_ in self.blocks)

    @property
    def differentiable(self) -> bool:
        """Tells whether E1 has a gradient with respect to all weights."""
        blocks = all("weight_jacobian" in m.capabilities for m in self.blocks)
        return blocks and all("jacobian" in m.capabilities for m in self.maps)

    def forward(self, weights: Sequence[Array], X: Array) -> Array:
        """Computes f(X; W), row by row: (n, D) -> (n, L).  Cost: 2 n sum_k n_in n_out flops."""
        return self.whole.forward(weights, X)

    def coordinates(self, weights: Sequence[Array], X: Array) -> list[Array]:
        """Computes feasible coordinates z_k = f_k(z_{k-1}), k = 1, ..., K, with z_0 = x."""
        A, Z = X, list[Array]()
        for segment in self.segments[:-1]:
            A = segment.forward(weights, with_data(segment, A, X))
            Z.append(A)
        return Z


def with_data(segment: Segment, A: Array, X: Array) -> Array:
    """Returns the inputs of a segment, [A, X[:, data]], for coordinates A; A alone where it reads no data."""
    if segment.data is None:
        return A
    first, last = segment.data
    return np.hstack([A, X[:, first:last]])
