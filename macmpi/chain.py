"""A net as a flat chain of maps, cut at the sites where auxiliary coordinates live.

What lies between two cuts is a segment: f_1, ..., f_{K+1} of eq. (1).  Sites after every hidden activation
give the paper's coordinates; other cuts are other choices of the same chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from macmpi.layers import Array, Map, Tangent


@dataclass(frozen=True)
class Segment:
    """f_k: maps applied one after the other; `blocks[i]` is the parameter block of map i, or None."""

    maps: tuple[Map, ...]
    blocks: tuple[int | None, ...]

    @property
    def n_in(self) -> int:
        return self.maps[0].n_in

    @property
    def n_out(self) -> int:
        return self.maps[-1].n_out

    @property
    def core(self) -> int:
        """The number, within the segment, of the map that has the weights."""
        return next(i for i, b in enumerate(self.blocks) if b is not None)

    @property
    def block(self) -> int:
        """The segment's parameter block."""
        return next(b for b in self.blocks if b is not None)

    def features(self, A: Array) -> Array:
        """What the map with the weights sees: the maps before it, none of which has weights, applied to A."""
        for map_ in self.maps[: self.core]:
            A = map_.forward(None, A)
        return A

    def features_congruence(self, A: Array, M: Array) -> Array:
        """Mean over the rows of A of J M J^T, for the maps before the one with the weights."""
        for map_ in self.maps[: self.core]:
            M = map_.congruence(None, A, M)
            A = map_.forward(None, A)
        return M

    @property
    def activation(self) -> str:
        """The elementwise function that follows the weights, "linear" when nothing does."""
        names = [m.spec()["name"] for m in self.maps[self.core + 1 :]]
        return str(names[0]) if names else "linear"

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

    def linearise(self, weights: Sequence[Array], A: Array) -> tuple[Array, Tangent]:
        """f_k(A) and its tangent J_k there."""
        tangents = []
        for map_, W in zip(self.maps, self._weights(weights), strict=True):
            A, tangent = map_.linearise(W, A)
            tangents.append(tangent)
        return A, compose(tangents)

    def congruence(self, weights: Sequence[Array], A: Array, M: Array) -> Array:
        """Mean over the rows of A of J_k M J_k^T, the means of the maps taken one after the other."""
        for map_, W in zip(self.maps, self._weights(weights), strict=True):
            M = map_.congruence(W, A, M)
            A = map_.forward(W, A)
        return M


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
        numbers: list[int | None] = []
        for map_ in self.maps:
            used = sum(b is not None for b in numbers)
            numbers.append(None if map_.parameter_shape is None else used)
        bounds = [0, *self.sites, len(self.maps)]
        return tuple(Segment(self.maps[a:b], tuple(numbers[a:b])) for a, b in pairwise(bounds))

    @property
    def n_in(self) -> int:
        return self.maps[0].n_in

    @property
    def n_out(self) -> int:
        return self.maps[-1].n_out

    @cached_property
    def site_sizes(self) -> tuple[int, ...]:
        """(H_1, ..., H_K)."""
        return tuple(s.n_out for s in self.segments[:-1])

    def forward(self, weights: Sequence[Array], X: Array) -> Array:
        """f(X; W), row by row.  Cost: 2 n sum_k n_in n_out flops."""
        for segment in self.segments:
            X = segment.forward(weights, X)
        return X

    def coordinates(self, weights: Sequence[Array], X: Array) -> list[Array]:
        """Feasible coordinates z_k = f_k(z_{k-1}), k = 1..K, with z_0 = x."""
        Z = []
        for segment in self.segments[:-1]:
            X = segment.forward(weights, X)
            Z.append(X)
        return Z
