"""Stochastic MAC damps each layer in a way that is chosen here, and shares the work of inverses and directions.

Each layer is damped by two shifts, or in the eigenvectors of its Gram and metric; wide Grams and metrics with shifts
are inverted in their leading eigenvectors alone.  Work is in counted flops or multiplications.  Inverses are counted in
one order everywhere: of G_1, M_1, G_2, M_2, ....  The method and the cost model ask here (methods/stochastic,
plan/cost.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain as joined

from macmpi.nets.chain import Chain
from macmpi.nets.layers import is_plain
from macmpi.nets.losses import Loss
from macmpi.parallel import balance, tiles

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


def choose_sides(
    shapes: Sequence[tuple[int, int]], points: float, identity: Sequence[int], shared: Sequence[int] = ()
) -> list[tuple[bool, bool]]:
    """Chooses by counted flops: M^-1 costs 2 h^2 times d on a gradient (h, d), times n on its factor (n, h); G^-1 2 d^2
    times h or n.  points: of a minibatch; identity: layers whose metric M is the identity; shared: layers whose weights
    a convolution shares, so that factors have many rows, or whose gradient is no product of factors (`is_plain`).
    """
    return [
        (points < FEWER * d and k not in (*identity, *shared), points < FEWER * h and k not in shared)
        for k, (h, d) in enumerate(shapes)
    ]


def sides_of(chain: Chain, layers: Damped, points: float) -> Sides:
    """Chooses the inverses that a minibatch of some points applies to the factors of its gradient.  Collective: no."""
    numbers = chain.whole.blocks
    shared = [k for k, m in enumerate(chain.blocks) if not is_plain(m) or numbers.count(k) > 1]
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


DECOMPOSED = 4.0
"""Eigenvectors of all of a matrix cost this many times as much as an inverse."""

DOUBLE = 2.0
"""And an inverse in double precision, as the Gram of a layer whose metric is the identity has, this many times."""

SLOW = 400.0
"""Small matrices keep no core busy: n rows take as long as n^2 (n + SLOW) numbers in products."""

PRODUCTS = 5.0
"""Products of a matrix with its leading eigenvectors, to renew them and their eigenvalues."""


def inverse_flops(shapes: Sequence[tuple[int, int]], layers: Damped) -> list[float]:
    """Flops of each inverse of layers of these shapes (h, d); of an identity metric 1.  Collective: no."""

    def flops(j: int, side: int) -> float:
        if j % 2 and j // 2 in layers.identity:
            return 1.0
        if j in layers.low_rank:
            return 2.0 * PRODUCTS * side**2 * layers.low_rank[j]
        effort = DECOMPOSED if j // 2 in layers.spectral else DOUBLE if j // 2 in layers.identity else 1.0
        return 2.0 * effort * side**2 * (side + SLOW)

    return [flops(2 * k + i, side) for k, (h, d) in enumerate(shapes) for i, side in enumerate((d, h))]


def assign_inverses(costs: Sequence[float], ranks: int) -> tuple[tuple[int, ...], ...]:
    """Assigns inverses by layers in order, as units are, where that is as even as one by one.

    A rank then reads the inverses that it has made itself.  Collective: no.
    """
    apart = balance.assign_by_cost(costs, ranks)
    layers = balance.assign_in_order([a + b for a, b in zip(costs[::2], costs[1::2], strict=True)], ranks)
    paired = tuple(tuple(j for k in rank for j in (2 * k, 2 * k + 1)) for rank in layers)
    busiest, least = (max(sum(costs[j] for j in rank) for rank in owners) for owners in (paired, apart))
    return paired if busiest <= (1.0 + balance.IN_ORDER) * least else apart


TURNS = 2.0
"""The most that a layer's slope may cost to be turned into eigenvectors and back, in passes of a minibatch forth and
back through the layer."""

WIDE, LEADING = 384, 8
"""A Gram or metric of at least WIDE columns is inverted in the LEADING-th part of its eigenvectors."""


@dataclass(frozen=True)
class Damped:
    """identity: layers whose metric is the identity: a linear output layer of the squared error; spectral: other layers
    that are damped in eigenvectors (methods/stochastic/inverses.py); dense: the net is an autoencoder of dense layers:
    narrow ones are spectral, and layers of an identity metric are damped by the same formula.  low_rank: of G_1, M_1,
    G_2, M_2, ..., counted from 0, those that are inverted in leading eigenvectors (the same place), and
    in how many.
    """

    identity: frozenset[int]
    spectral: frozenset[int]
    dense: bool
    low_rank: Mapping[int, int] = field(default_factory=dict)


def damped(chain: Chain, loss: Loss, autoencoder: bool, points: float) -> Damped:
    """Chooses by counted flops.  points: n, of a minibatch.  Collective: no.

    Turning a layer (h, d) costs 4 h d (h + d), passes of n points forth and back 6 n h d.  The layer that reads the
    inputs has shifts: inputs have directions of little variance, mostly noise, which are better damped.  So have all
    layers where some are neither dense nor sparse, or share weights, and all of regressions and labels.  Wide ones are
    inverted in leading eigenvectors wherever all layers are dense.
    """
    last = chain.whole.blocks[-1]
    bare = last is not None and chain.maps[-1].parameter_shape is not None and loss.unit_hessian
    identity = frozenset({last} if bare and last is not None else ())
    blocks = [b for b in chain.whole.blocks if b is not None]
    dense = all({"linear", "bias"} <= m.capabilities for m in chain.blocks) and len(blocks) == len(set(blocks))
    if not dense:
        return Damped(identity, frozenset(), False)
    spectral = _narrow(chain, blocks[0], points) - identity if autoencoder else frozenset[int]()
    sides = ((j, side) for k, (h, d) in enumerate(chain.block_shapes) for j, side in ((2 * k, d), (2 * k + 1, h)))
    wide = {j: side // LEADING for j, side in sides if side >= WIDE and j // 2 not in spectral}
    known = {2 * k + 1 for k in identity}
    return Damped(identity, spectral, autoencoder, {j: r for j, r in wide.items() if j not in known})


def _narrow(chain: Chain, first: int, points: float) -> frozenset[int]:
    """Layers after the first whose slopes are cheap to turn into eigenvectors.  Collective: no."""
    shapes = enumerate(chain.block_shapes)
    return frozenset(k for k, (h, d) in shapes if k != first and 4 * (h + d) <= TURNS * 6 * points)
