"""The work of a minibatch's directions, by counted multiplications, and which rank makes those of which units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain as joined

from macmpi.nets.chain import Chain
from macmpi.nets.layers import Map
from macmpi.parallel import balance, tiles
from macmpi.plan.damped import Damped

Sides = Sequence[tuple[bool, bool]]
"""Tells of each layer whether its M^-1, and its G^-1, are applied to the factors of a gradient, point by point."""

Job = tuple[int, slice]
"""A layer and some of its units."""

FEWER = 0.75
"""An inverse is applied to factors where they have fewer rows than this share of the product's."""

UNITS = 100
"""Units of a layer whose directions are one product."""

MOVED, JOINED, PASSED, BEGUN = 200.0, 50.0, 150.0, 7e5
"""Multiplications in the time that it takes to move a weight, its average and its last step; to join the sums of a
slope; to pass over a weight where an inverse is made of a few eigenvectors; and to begin a product."""

TURNED, TURNINGS = 2.5, 4
"""The work of a direction in eigenvectors, in that of one by two inverses; its products."""


def plain(map_: Map) -> bool:
    """Its gradient is Q^T [A, 1], for the derivatives Q of the losses by its outputs and its inputs A."""
    return "linear" in map_.capabilities and map_.connected is None


def choose_sides(
    shapes: Sequence[tuple[int, int]], points: float, identity: Sequence[int], shared: Sequence[int] = ()
) -> list[tuple[bool, bool]]:
    """Chooses by counted flops: M^-1 costs 2 h^2 times d on a gradient (h, d), times n on its factor (n, h); G^-1 2 d^2
    times h or n.  points: of a minibatch; identity: layers whose metric M is the identity; shared: layers whose weights
    are shared over positions, so that factors have many rows, or whose gradient is no product of factors (`plain`).
    """
    return [
        (points < FEWER * d and k not in (*identity, *shared), points < FEWER * h and k not in shared)
        for k, (h, d) in enumerate(shapes)
    ]


def sides_of(chain: Chain, layers: Damped, points: float) -> Sides:
    """Chooses the inverses that a minibatch of some points applies to the factors of its gradient.  Collective: no."""
    numbers = chain.whole.blocks
    shared = [k for k, m in enumerate(chain.blocks) if not plain(m) or numbers.count(k) > 1]
    return choose_sides(chain.block_shapes, points, list(layers.identity), [*shared, *layers.spectral])


@dataclass(frozen=True)
class DirectionWork:
    """Directions of layers (h, d), whose gradients have the inverses of `sides` in them already.  Collective: no."""

    shapes: tuple[tuple[int, int], ...]
    layers: Damped
    sides: Sides

    def assigned(self, ranks: int) -> list[list[Job]]:
        """The jobs of each rank: single runs of units, or whole layers of those whose units read all of their layer's
        slope, whichever keeps the busiest rank less busy.
        """
        runs = [tiles.unit_tiles(h, h if k in self.layers.spectral else UNITS) for k, (h, _) in enumerate(self.shapes)]
        single = [[(k, run.rows)] for k, own in enumerate(runs) for run in own]
        whole = [[(k, run.rows) for run in own] for k, own in enumerate(runs)]
        kept = [own for own in whole if not self.reads_own_units(own[0][0])]
        grouped = sorted([*(job for job in single if self.reads_own_units(job[0][0])), *kept], key=_first)
        found = [self._by_cost(groups, ranks) for groups in (single, grouped)]
        return min(found, key=lambda owners: max(map(self.cost, owners)))

    def _by_cost(self, groups: Sequence[list[Job]], ranks: int) -> list[list[Job]]:
        """Jobs in groups, each of which one rank has."""
        owners = balance.assign_in_order([self.cost(group) for group in groups], ranks)
        return [list(joined.from_iterable(groups[i] for i in own)) for own in owners]

    def cost(self, jobs: Sequence[Job]) -> float:
        """Multiplications of some jobs, and as many as could be made while the sums that they read are joined."""
        sizes = [(k, self.shapes[k][1] * (units.stop - units.start)) for k, units in jobs]
        whole = {k for k, _ in sizes if not self.reads_own_units(k)}
        read = sum(h * d for h, d in (self.shapes[k] for k in whole)) + sum(n for k, n in sizes if k not in whole)
        begun = sum(TURNINGS if k in self.layers.spectral else 1 for k, _ in sizes)
        within = sum(self._within(k) * self.shapes[k][1] for k in whole)
        return BEGUN * begun + JOINED * read + within + sum(self._effort(k) * n for k, n in sizes)

    def _within(self, k: int) -> float:
        """Multiplications for each column of a whole slope, whose product with leading eigenvectors all units share."""
        return float(self.layers.low_rank.get(2 * k + 1, 0) * self.shapes[k][0])

    def _effort(self, k: int) -> float:
        """Multiplications for each weight of layer k, less `_within`."""
        (h, d), (_, inputs) = self.shapes[k], self.sides[k]
        left = 0.0 if self.reads_own_units(k) else self.applied(2 * k + 1, h) - self._within(k) / h
        right = 0.0 if inputs else self.applied(2 * k, d)
        return (TURNED if k in self.layers.spectral else 1.0) * (left + right) + MOVED

    def applied(self, j: int, side: int) -> float:
        """Multiplications for each number of an array that the j-th inverse of G_1, M_1, ... is applied to."""
        rank = self.layers.low_rank.get(j)
        return float(side) if rank is None else 2.0 * rank + PASSED

    @property
    def by_point(self) -> float:
        """Multiplications of the inverses that are applied point by point, for each point."""
        found = 0.0
        for k, ((h, d), (outputs, inputs)) in enumerate(zip(self.shapes, self.sides, strict=True)):
            found += outputs * h * self.applied(2 * k + 1, h) + inputs * d * self.applied(2 * k, d)
        return found

    def reads_own_units(self, k: int) -> bool:
        """The directions of a unit of layer k read its own slope alone: M_k^-1 is in it already, or a number."""
        return self.sides[k][0] or k in self.layers.identity


def _first(group: Sequence[Job]) -> tuple[int, int]:
    """The first job's layer and unit."""
    k, units = group[0]
    return k, units.start
