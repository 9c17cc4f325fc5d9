"""Tiles are fixed ranges of global indices, the atoms of arithmetic; here they are cut and assigned to ranks.

A tile depends on the size of the problem alone, never on the number of ranks.  Whole tiles are assigned to ranks and
sums are taken in the order of the tiles, so a result has the same bits on any number of ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapreplace
from itertools import combinations, pairwise, product
from typing import Any, Protocol, TypeVar

import numpy as np

POINT_ROWS, MANY_ROWS = 128, 216
"""The most points of a tile, so that its rows of all layers stay near a core.  With many points, tiles have up to
MANY_ROWS, since products of more rows are faster; with fewer points there would be too few tiles for many ranks."""

LARGE, FEW = 512, 6 * 512
"""Tiles have up to LARGE points if only errors are summed over them, and there are at most FEW points."""

UNIT_WIDTH = 38
"""The number of units in a tile: wide enough for the matrix product, narrow enough to balance ranks."""

EXACT_WIDTH = 64
"""The most units in a tile if a unit costs little, since it is solved exactly, with one product over the points."""

GRAM_WHOLE = 512
"""A Gram of at most this number of columns is one sum, of all ranks."""

GRAM_ROWS = 96
"""A larger Gram is made in jobs of at most this number of rows."""

RING_WIDTH = 16
"""The fewest units that travel as one job round a ring of blocks, if a layer has as many."""

CHUNK_ROWS = 1280
"""The most points that a W-solver takes at a time."""

SUMMED_ROWS = 512
"""The fewest points of a block whose Gram is worth a sum of its own."""

LEAST_ROWS = 512
"""A rank that sums over all points alone does so by blocks, as many ranks do, if these have at least this many points.

Products of fewer points are slow: with 12 blocks of 416 points an iteration of run/usps_mac.toml took a fifth longer;
with 24 blocks of 800 and more points one on 20,000 points took at most 2 percent longer.
"""

SPLIT_EVENLY = 12
"""A tree of sums over this many leaves, or more, divides in the middle if their number is even."""

BLOCKS = 48
"""The usual number of blocks of points; 1, 2, 3, 4, 6, 8, 12, 16, 24 and 48 ranks divide it.  With many points it is a
multiple of this, with few points there are as many blocks as tiles."""

BLOCK_ROWS = 1024
"""The number of blocks is doubled, and doubled again, until a block has at most this number of points."""

MOST_BLOCKS = 1024 * BLOCKS
"""The most blocks of points: each of 16,384 ranks has 3 of them."""


@dataclass(frozen=True, order=True, slots=True)
class Tile:
    """Is a range of global indices start, ..., stop - 1."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def rows(self) -> slice:
        return slice(self.start, self.stop)

    def after(self, start: int) -> Tile:
        """Returns the same range with its indices counted from `start`."""
        return Tile(self.start - start, self.stop - start)


@dataclass(frozen=True)
class Cut(Sequence[Tile]):
    """Cuts n indices into `pieces` runs whose lengths differ by at most one; each is made when it is asked for."""

    n: int
    pieces: int

    def __len__(self) -> int:
        return self.pieces

    def _start(self, i: int) -> int:
        return self.n * i // self.pieces

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return tuple(self[j] for j in range(*i.indices(self.pieces)))
        if not 0 <= (i := i + self.pieces * (i < 0)) < self.pieces:
            raise IndexError(i)
        return Tile(self._start(i), self._start(i + 1))

    def run(self, first: int, stop: int) -> Tile:
        """Returns the indices of the pieces first, ..., stop - 1."""
        return Tile(self._start(first), self._start(stop))


def cut(n: int, pieces: int) -> Cut:
    """Cuts n indices into at most `pieces` non-empty runs whose lengths differ by at most one."""
    return Cut(n, max(1, min(n, pieces)))


def evenly(n: int, size: int) -> Cut:
    """Cuts n indices into runs of at most `size`; more than 12 runs are a multiple of 12, to suit up to 12 ranks."""
    count = -(-n // size)
    return cut(n, count if count <= 12 else 12 * -(-count // 12))


def point_tiles(n: int) -> Cut:
    """Cuts n points into small tiles, whose number suits many numbers of ranks.

    More than 1,152 points are cut into 12, 24 or a multiple of 48 tiles, of at most 128 or 216 points each.  Fewer
    points are cut into at most 12 tiles of at most 96 points, so that up to 12 ranks still have work.
    """
    if n <= 12 * 96:
        return cut(n, min(12, -(-n // 16)))
    for count in (12, 24):
        if n <= count * POINT_ROWS:
            return cut(n, count)
    return cut(n, BLOCKS * -(-n // (BLOCKS * MANY_ROWS)))


def large_tiles(n: int, parts: int) -> Cut:
    """Cuts n points into tiles of at most LARGE points; their number is a multiple of `parts`.

    They are for sums of little work, in which beginning a tile would take most of the time.
    """
    return cut(n, parts * -(-n // (parts * LARGE)))


def point_chunks(n: int) -> Cut:
    """Cuts n points into chunks of at most CHUNK_ROWS, which a W-solver takes one after the other to sum over all."""
    return cut(n, -(-n // CHUNK_ROWS))


def chunks_within(run: Tile) -> tuple[Tile, ...]:
    """Cuts a range of points as `point_chunks` cuts all of them."""
    return tuple(Tile(run.start + t.start, run.start + t.stop) for t in point_chunks(len(run)))


def unit_tiles(h: int, width: int = UNIT_WIDTH) -> tuple[Tile, ...]:
    """Cuts h units into tiles of about `width`, none of them much wider than others, to balance ranks.

    All lengths except the last are multiples of 8, since other products are slower.
    """
    eights = cut(-(-h // 8), max(1, (2 * h + width) // (2 * width)))
    return tuple(Tile(8 * t.start, min(8 * t.stop, h)) for t in eights)


def solved_tiles(h: int) -> Sequence[Tile]:
    """Cuts h units for which linear systems are solved into tiles; up to EXACT_WIDTH units are one tile."""
    return unit_tiles(h) if h > EXACT_WIDTH else cut(h, 1)


def ring_tiles(h: int, blocks: int) -> Cut:
    """Cuts h units into even tiles that travel round a ring of blocks: one for each block, or fewer of few units."""
    return cut(h, min(blocks, -(-h // RING_WIDTH)))


def block_count(n: int) -> int:
    """Returns the most blocks of n points: 48, doubled until none has more than BLOCK_ROWS points, up to MOST_BLOCKS.

    Up to 49,152 points it is 48.  It depends on n alone, and so do the bits of sums over blocks.
    """
    count = BLOCKS
    while count < MOST_BLOCKS and n > count * BLOCK_ROWS:
        count *= 2
    return count


def sum_blocks(n: int) -> int:
    """Returns the number of blocks of n points whose Grams are added up.

    It is `block_count`, or 24 or 12 if blocks would have fewer than SUMMED_ROWS points, since adding two Grams costs as
    much as the products of many points.
    """
    return next((count for count in (block_count(n), BLOCKS // 2) if n >= count * SUMMED_ROWS), BLOCKS // 4)


def merged(runs: Iterable[slice]) -> list[slice]:
    """Joins ranges of indices into as few as possible, in order."""
    found: list[slice] = []
    for run in sorted(runs, key=lambda run: (run.start, run.stop)):
        if found and run.start <= found[-1].stop:
            found[-1] = slice(found[-1].start, max(run.stop, found[-1].stop))
        elif run.stop > run.start:
            found.append(run)
    return found


def halves(start: int, stop: int) -> int:
    """Returns the leaf before which the tree of sums over leaves start, ..., stop - 1 divides.

    An even number of at least SPLIT_EVENLY leaves divides in the middle, others after a power of two.  So with 12, 24
    or 48 leaves each of 2 ranks has one whole subtree, and each of 4, 8, 12 or 24 ranks has at most two.
    """
    count = stop - start
    even = count >= SPLIT_EVENLY and count % 2 == 0
    return start + (count // 2 if even else 1 << ((count - 1).bit_length() - 1))


def nodes(leaves: int, run: Tile) -> tuple[Tile, ...]:
    """Finds the largest subtrees of the tree over all leaves that lie within some consecutive leaves.

    Ranks that own consecutive leaves exchange the sums of these subtrees.  Added up the tree the sums give the same
    bits whatever leaves a rank owns.
    """

    def within(start: int, stop: int) -> list[Tile]:
        if run.stop <= start or stop <= run.start:
            return []
        if run.start <= start and stop <= run.stop:
            return [Tile(start, stop)]
        middle = halves(start, stop)
        return within(start, middle) + within(middle, stop)

    return tuple(within(0, leaves)) if leaves else ()


# --- assignment: every rank computes the same answer by itself --------------------------------------------------------


class Costed(Protocol):
    """Is work that has a cost, by which it is assigned."""

    @property
    def cost(self) -> float: ...


J = TypeVar("J", bound=Costed)

Assigned = tuple[tuple[J, ...], ...]


def assigned(jobs: Sequence[J], ranks: int, relieved: bool = True) -> Assigned[J]:
    """Assigns jobs to ranks by cost, as `assign_by_cost` does; returns the jobs of each rank."""
    owned = assign_by_cost([job.cost for job in jobs], ranks, relieved)
    return tuple(tuple(jobs[j] for j in rank) for rank in owned)


def places(owners: Sequence[Sequence[Any]]) -> tuple[tuple[slice, ...], ...]:
    """Returns for each rank the places of its jobs' results in a flat array.

    owners: the jobs of each rank, each of which has a `place`.
    """
    return tuple(tuple(job.place for job in rank) for rank in owners)


IN_ORDER = 0.01
"""Jobs are assigned in contiguous runs if that gives the busiest rank at most this share more work."""

EVEN = 1e-3
"""Jobs are not exchanged between ranks for a gain of less than this share of the busiest rank's work."""

REPACKED = 9
"""Three ranks' jobs are packed again only if they are at most this many."""

IDLEST = 16
"""Two of the three ranks are among this many of the least busy ones."""


def contiguous_runs(n: int, ranks: int) -> tuple[Tile, ...]:
    """Divides n items into contiguous runs, one for each rank; some are empty if n < ranks."""
    bounds = [-(-n * r // ranks) for r in range(ranks + 1)]
    return tuple(Tile(a, b) for a, b in pairwise(bounds))


def assign_by_cost(costs: Sequence[float], ranks: int, relieved: bool = True) -> tuple[tuple[int, ...], ...]:
    """Assigns jobs to ranks: the costliest first, each to the least loaded rank; indices ascend in each rank.

    Ties go to the lower index and the lower rank, so every rank computes the same answer by itself.

    relieved: whether the busiest rank then exchanges a job with another rank, or gives one away, as long as that helps;
        and if this does not help, the jobs of three ranks are packed again.
    """
    loads = [(0.0, rank) for rank in range(ranks)]
    owned: list[list[int]] = [[] for _ in range(ranks)]
    for job in sorted(range(len(costs)), key=lambda j: (-costs[j], j)):
        load, rank = loads[0]
        heapreplace(loads, (load + costs[job], rank))
        owned[rank].append(job)
    for _ in range(10 * ranks if relieved else 0):
        if not _relieve(owned, costs) and not _repack(owned, costs):
            break
    return tuple(tuple(sorted(jobs)) for jobs in owned)


def assign_in_order(costs: Sequence[float], ranks: int) -> tuple[tuple[int, ...], ...]:
    """Assigns jobs to ranks as contiguous runs, unless a rank then has noticeably more than by `assign_by_cost`.

    Neighbouring jobs read the same data.  Every rank computes the same answer by itself.
    """
    owners = assign_by_cost(costs, ranks)
    most = (1.0 + IN_ORDER) * max(sum(costs[j] for j in jobs) for jobs in owners)
    runs: list[list[int]] = [[]]
    for job, cost in enumerate(costs):
        if runs[-1] and sum(costs[j] for j in runs[-1]) + cost > most:
            runs.append([])
        runs[-1].append(job)
    if len(runs) > ranks:
        return owners
    return tuple(tuple(run) for run in [*runs, *[[] for _ in range(ranks - len(runs))]])


def _relieve(owned: list[list[int]], costs: Sequence[float]) -> bool:
    """Lowers the load of the busiest rank by the best exchange of a job with another rank, or by giving one away.

    Tells whether any of these helped.

    owned: the jobs of each rank, changed in place.
    """
    loads = [sum(costs[j] for j in jobs) for jobs in owned]
    busiest = max(range(len(owned)), key=lambda r: (loads[r], -r))
    best, least = None, loads[busiest] * (1.0 - EVEN)
    for rank in (r for r in range(len(owned)) if r != busiest):
        for given, taken in product(owned[busiest], (None, *owned[rank])):
            moved = costs[given] - (0.0 if taken is None else costs[taken])
            longer = max(loads[busiest] - moved, loads[rank] + moved)
            if longer < least:
                best, least = (rank, given, taken), longer
    if best is None:
        return False
    rank, given, taken = best
    owned[busiest].remove(given)
    owned[rank].append(given)
    if taken is not None:
        owned[rank].remove(taken)
        owned[busiest].append(taken)
    return True


def _repack(owned: list[list[int]], costs: Sequence[float]) -> bool:
    """Packs the jobs of the busiest rank and two others so that none of them is as busy; tells whether it could.

    The three may have at most REPACKED jobs.

    owned: the jobs of each rank, changed in place.
    """
    loads = [sum(costs[j] for j in jobs) for jobs in owned]
    busiest, *others = sorted(range(len(owned)), key=lambda r: (-loads[r], r))
    most = loads[busiest] * (1.0 - EVEN)
    if len(owned[busiest]) < 2:
        return False
    for pair in combinations(others[-IDLEST:], 2):
        ranks = (busiest, *pair)
        jobs = [j for r in ranks for j in owned[r]]
        if len(jobs) <= REPACKED and (found := _packed(jobs, costs, most)):
            for rank, own in zip(ranks, found, strict=True):
                owned[rank] = own
            return True
    return False


def _packed(jobs: Sequence[int], costs: Sequence[float], most: float) -> list[list[int]] | None:
    """Divides jobs into three lists so that the costliest costs least; returns None if that is more than `most`."""
    ways = np.indices((3,) * len(jobs)).reshape(len(jobs), -1)
    loads = np.zeros((3, ways.shape[1]))
    for job, places in zip(jobs, ways, strict=True):
        loads[places, np.arange(len(places))] += costs[job]  # adds in the same order on every processor
    longest = loads.max(axis=0)
    best = int(longest.argmin())
    lists = [[job for job, place in zip(jobs, ways[:, best], strict=True) if place == p] for p in range(3)]
    return lists if longest[best] <= most else None
