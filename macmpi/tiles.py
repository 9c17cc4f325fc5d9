"""Tiles: fixed runs of global indices, the atoms of arithmetic.

A tile depends on the size of the problem alone, never on the number of ranks.  Whole tiles are dealt to
ranks and sums are taken in the order of the tiles, so a result has the same bits on any number of ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapreplace
from itertools import combinations, pairwise

POINT_ROWS, MANY_ROWS = 128, 216
"""Largest number of points in a tile: its rows of all layers stay near a core.  Of many points tiles are larger, for
products of more rows are faster; of fewer there would be too few tiles for many ranks."""

UNIT_WIDTH = 38
"""Number of units in a tile: wide enough for the matrix product, narrow enough to balance ranks."""

EXACT_WIDTH = 64
"""The most where a unit costs little: solved exactly, with one product over the points."""

GRAM_WHOLE, GRAM_ROWS = 512, 96
"""A Gram of at most so many columns is summed up by all ranks; a larger one is made in jobs of so many rows at most."""

RING_WIDTH = 16
"""The fewest units that travel together round a ring of blocks, if a layer has so many."""

CHUNK_ROWS = 1280
"""Largest number of points that a W-solver takes at a time."""

SUMMED_ROWS = 512
"""Fewest points of a block whose Gram is worth a sum of its own."""

SPLIT_EVENLY = 12
"""As many leaves of a tree of sums, if their number is even, are divided in the middle."""

IN_ORDER = 0.01
"""Jobs are dealt in runs if that costs the busiest rank no larger share of its work."""

EVEN = 1e-3
"""Jobs are not exchanged between ranks for less than this share of the busiest rank's work."""

REPACKED, IDLEST = 9, 16
"""Jobs of three ranks at most that are packed anew; among how many ranks, the least busy, two of them are sought."""

BLOCKS = 48
"""Largest number of blocks of points: 1, 2, 3, 4, 6, 8, 12, 16, 24 and 48 ranks divide it."""


@dataclass(frozen=True, order=True)
class Tile:
    """Global indices start, ..., stop - 1."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def rows(self) -> slice:
        return slice(self.start, self.stop)

    def after(self, start: int) -> Tile:
        """The same run, counted from `start` on."""
        return Tile(self.start - start, self.stop - start)


def cut(n: int, pieces: int) -> tuple[Tile, ...]:
    """Cut n indices into at most `pieces` non-empty runs whose lengths differ by one at most."""
    pieces = max(1, min(n, pieces))
    bounds = [n * i // pieces for i in range(pieces + 1)]
    return tuple(Tile(a, b) for a, b in pairwise(bounds))


def evenly(n: int, size: int) -> tuple[Tile, ...]:
    """Runs of at most `size` indices; more than 12 of them are a multiple of 12, so that 12 ranks have equally many."""
    count = -(-n // size)
    return cut(n, count if count <= 12 else 12 * -(-count // 12))


def point_tiles(n: int) -> tuple[Tile, ...]:
    """Tiles of points, of at most 128 or 216 rows; their number is 12, 24 or a multiple of 48 once n > 1,152.

    Few points are cut into at most 12 tiles of at most 96 rows, so that up to 12 ranks still have work.
    """
    if n <= 12 * 96:
        return cut(n, min(12, -(-n // 16)))
    for count in (12, 24):
        if n <= count * POINT_ROWS:
            return cut(n, count)
    return cut(n, BLOCKS * -(-n // (BLOCKS * MANY_ROWS)))


def point_chunks(n: int) -> tuple[Tile, ...]:
    """Runs of at most CHUNK_ROWS points: what a W-solver sweeps over when it sums over all points."""
    return cut(n, -(-n // CHUNK_ROWS))


def chunks_within(run: Tile) -> tuple[Tile, ...]:
    """The same of a run of points."""
    return tuple(Tile(run.start + t.start, run.start + t.stop) for t in point_chunks(len(run)))


def unit_tiles(h: int, width: int = UNIT_WIDTH) -> tuple[Tile, ...]:
    """Tiles of about `width` units, none much wider than another: it would weigh down the rank that has it.

    Their lengths are multiples of 8 but for the last: other products are slower.
    """
    eights = cut(-(-h // 8), max(1, (2 * h + width) // (2 * width)))
    return tuple(Tile(8 * t.start, min(8 * t.stop, h)) for t in eights)


def solved_tiles(h: int) -> tuple[Tile, ...]:
    """Of the units that linear systems are solved for: what one rank has at once, or a layer that ranks share."""
    return unit_tiles(h) if h > EXACT_WIDTH else cut(h, 1)


def ring_tiles(h: int, blocks: int) -> tuple[Tile, ...]:
    """As many even runs of units as there are blocks, so that each has work at any time, but none much too narrow."""
    return cut(h, min(blocks, -(-h // RING_WIDTH)))


def blocks(tiles: Sequence[Tile], count: int = BLOCKS) -> tuple[tuple[Tile, ...], ...]:
    """Group tiles into at most `count` runs.  A rank owns whole blocks; sums over points add block by block."""
    return tuple(tuple(tiles[run.rows]) for run in cut(len(tiles), count))


def sum_blocks(n: int) -> int:
    """Blocks of points whose Grams are added up: 48, or 24 or 12 where they would have fewer than SUMMED_ROWS points.

    Adding two Grams costs as much as the products of many points.
    """
    return next((count for count in (BLOCKS, BLOCKS // 2) if n >= count * SUMMED_ROWS), BLOCKS // 4)


def deal_runs(n: int, ranks: int) -> tuple[Tile, ...]:
    """Deal n items to ranks as contiguous runs, one a rank (some are empty when n < ranks)."""
    bounds = [-(-n * r // ranks) for r in range(ranks + 1)]
    return tuple(Tile(a, b) for a, b in pairwise(bounds))


def deal_by_cost(costs: Sequence[float], ranks: int, relieved: bool = True) -> tuple[tuple[int, ...], ...]:
    """Deal jobs to ranks: the costliest first, each to the least loaded rank; indices ascend in each rank.

    relieved: then the busiest rank exchanges a job with another, or gives one away, as long as that helps; where that
    does not, the jobs of three ranks are packed anew.

    Ties go to the lower index and the lower rank, so every rank computes the same answer by itself.
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


def deal_in_order(costs: Sequence[float], ranks: int) -> tuple[tuple[int, ...], ...]:
    """Deal jobs to ranks as contiguous runs, where that leaves no rank with noticeably more than `deal_by_cost` does.

    Jobs that stand together read alike; which deal it is, every rank computes by itself.
    """
    dealt = deal_by_cost(costs, ranks)
    room = (1.0 + IN_ORDER) * max(sum(costs[j] for j in jobs) for jobs in dealt)
    runs: list[list[int]] = [[]]
    for job, cost in enumerate(costs):
        if runs[-1] and sum(costs[j] for j in runs[-1]) + cost > room:
            runs.append([])
        runs[-1].append(job)
    if len(runs) > ranks:
        return dealt
    return tuple(tuple(run) for run in [*runs, *[[] for _ in range(ranks - len(runs))]])


def merged(runs: Iterable[slice]) -> list[slice]:
    """The same indices in as few runs as possible, in order."""
    found: list[slice] = []
    for run in sorted(runs, key=lambda run: (run.start, run.stop)):
        if found and run.start <= found[-1].stop:
            found[-1] = slice(found[-1].start, max(run.stop, found[-1].stop))
        elif run.stop > run.start:
            found.append(run)
    return found


def _relieve(owned: list[list[int]], costs: Sequence[float]) -> bool:
    """Takes from the busiest rank what one exchange of jobs, or of a job for none, best can; whether it could."""
    loads = [sum(costs[j] for j in jobs) for jobs in owned]
    busiest = max(range(len(owned)), key=lambda r: (loads[r], -r))
    best, least = None, loads[busiest] * (1.0 - EVEN)
    for rank in (r for r in range(len(owned)) if r != busiest):
        for given in owned[busiest]:
            for taken in (None, *owned[rank]):
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
    """Packs the jobs of the busiest rank and of two others, if they are few, so that none of the three is as busy."""
    loads = [sum(costs[j] for j in jobs) for jobs in owned]
    busiest, *others = sorted(range(len(owned)), key=lambda r: (-loads[r], r))
    most = loads[busiest] * (1.0 - EVEN)
    if len(owned[busiest]) < 2:
        return False
    for pair in combinations(others[-IDLEST:], 2):
        ranks = (busiest, *pair)
        jobs = sorted((j for r in ranks for j in owned[r]), key=lambda j: (-costs[j], j))
        if len(jobs) <= REPACKED and (found := _packed(jobs, costs, most)):
            for rank, own in zip(ranks, found, strict=True):
                owned[rank] = own
            return True
    return False


def _packed(jobs: Sequence[int], costs: Sequence[float], most: float) -> list[list[int]] | None:
    """Jobs, the costliest first, in three lists none of which costs more than `most`; None if there are none."""
    lists: list[list[int]] = [[], [], []]
    room = [most] * 3

    def placed(i: int) -> bool:
        if i == len(jobs):
            return True
        job = jobs[i]
        for place in sorted(range(3), key=lambda p: (-room[p], p)):
            if costs[job] <= (free := room[place]):
                lists[place].append(job)
                room[place] -= costs[job]
                if placed(i + 1):
                    return True
                lists[place].pop()
                room[place] = free
        return False

    return lists if placed(0) else None


def halves(start: int, stop: int) -> int:
    """Where the tree of sums over leaves start, ..., stop - 1 divides: in the middle, a few behind a power of two.

    Of 12, 24 or 48 leaves each of 2 ranks has one whole subtree, of 4, 8, 12 or 24 ranks at most two.
    """
    count = stop - start
    even = count >= SPLIT_EVENLY and count % 2 == 0
    return start + (count // 2 if even else 1 << ((count - 1).bit_length() - 1))


def nodes(leaves: int, run: Tile) -> tuple[Tile, ...]:
    """The largest subtrees of the tree over all leaves that lie within a run of them, in order.

    Ranks that own runs of leaves exchange the sums of these; added up the tree they have the same bits for any runs.
    """

    def within(start: int, stop: int) -> list[Tile]:
        if run.stop <= start or stop <= run.start:
            return []
        if run.start <= start and stop <= run.stop:
            return [Tile(start, stop)]
        middle = halves(start, stop)
        return within(start, middle) + within(middle, stop)

    return tuple(within(0, leaves)) if leaves else ()
