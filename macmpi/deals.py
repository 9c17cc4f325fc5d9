"""What is dealt to ranks: points, tiles of units, shared factors, layers that trainers fit; and where results lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heapreplace
from typing import Any, Protocol, TypeVar

from macmpi import tiles
from macmpi.tiles import Tile


class Costed(Protocol):
    """What is dealt by what it costs."""

    @property
    def cost(self) -> float: ...


J = TypeVar("J", bound=Costed)
Dealt = tuple[tuple[J, ...], ...]

LITTLE = 0.25
"""A factor that costs at most so much of a job is made again by the job's rank rather than waited for."""

LIMITS = 32
"""How many lengths of the first round are compared at most."""


@dataclass(frozen=True)
class Job:
    """The atom of the W-step: a tile of units of a segment's parameter block, or, where `units` is None, a segment.

    place: where its weights lie in the flat buffer.
    """

    segment: int
    units: Tile | None
    place: slice
    cost: float


@dataclass(frozen=True)
class Share:
    """The factor that the units of a segment share, or some rows of it.  place: where they lie among the factors."""

    segment: int
    rows: Tile | None
    place: slice
    cost: float


@dataclass(frozen=True)
class Layer:
    """A layer that a trainer fits: map number `map` of a segment.  place: where its weights lie."""

    segment: int
    map: int
    block: int
    place: slice
    cost: float


@dataclass(frozen=True)
class Deal:
    """Jobs of the W-step dealt to ranks, and the shared factors that they need; `*_parts`: where results lie.

    early: jobs done before factors are exchanged; late: the others.  copies: what a rank makes of others' factors for
    its early jobs.  Where all ranks do all jobs together (`apart` is False) there are no places; travelling: jobs that
    then go round a ring instead.
    """

    early: tuple[tuple[Job, ...], ...]
    late: tuple[tuple[Job, ...], ...]
    shares: tuple[tuple[Share, ...], ...]
    copies: tuple[tuple[Share, ...], ...]
    apart: bool = True
    travelling: tuple[Job, ...] = ()

    @property
    def jobs(self) -> tuple[tuple[Job, ...], ...]:
        """Those in which each rank has a part."""
        return tuple(a + b + self.travelling for a, b in zip(self.early, self.late, strict=True))

    @cached_property
    def segments(self) -> frozenset[int]:
        """Those that have jobs."""
        return frozenset(job.segment for rank in self.jobs for job in rank)

    @cached_property
    def fresh(self) -> frozenset[int]:
        """Those whose shared factor is made anew."""
        return frozenset(share.segment for rank in self.shares for share in rank)

    @cached_property
    def weight_parts(self) -> tuple[tuple[slice, ...], ...]:
        return places(self.jobs) if self.apart else ()

    @cached_property
    def shared_parts(self) -> tuple[tuple[slice, ...], ...]:
        return places(self.shares) if self.apart else ()


def dealt(jobs: Sequence[J], ranks: int) -> Dealt[J]:
    """Dealt to ranks by cost."""
    owned = tiles.deal_by_cost([job.cost for job in jobs], ranks)
    return tuple(tuple(jobs[j] for j in rank) for rank in owned)


def deal_jobs(jobs: Sequence[Job], shares: Sequence[Share], ranks: int) -> Deal:
    """Two rounds: shares with some of the jobs that need not wait for them, then the other jobs.

    Early are the costliest of these that fit, beside the shares, into as much of each rank's time as makes the busiest
    ranks of both rounds together least busy.  A job need not wait for a factor that costs little beside it, and is not
    cut into rows: its rank makes that too.
    """
    none: Dealt[Any] = ((),) * ranks
    if not shares:
        return Deal(none, dealt(jobs, ranks), none, none)
    of = {k: [s for s in shares if s.segment == k] for k in {s.segment for s in shares}}

    def waits(job: Job) -> bool:
        return any(s.rows is not None or s.cost > LITTLE * job.cost for s in of.get(job.segment, ()))

    free = sorted((j for j in jobs if not waits(j)), key=lambda j: (-j.cost, j.place.start))
    bound = [j for j in jobs if waits(j)]
    own = dealt(shares, ranks)

    def rounds(limit: float) -> tuple[Dealt[Job], Dealt[Job]]:
        early, rest = _filled(own, free, limit)
        return early, dealt([*bound, *rest], ranks)

    def longest(limit: float) -> float:
        early, late = rounds(limit)
        return max(_loads(own, early)) + max(_loads(late))

    counts = range(0, len(free) + 1, -(-(len(free) + 1) // LIMITS))
    limits = sorted({max(_loads(dealt([*shares, *free[:count]], ranks))) for count in counts})
    early, late = rounds(min(limits, key=longest))
    needed = (
        {j.segment for j in rank} & of.keys() - {s.segment for s in mine} for rank, mine in zip(early, own, strict=True)
    )
    return Deal(early, late, own, tuple(tuple(s for k in sorted(segments) for s in of[k]) for segments in needed))


def _loads(*rounds: Dealt[Any]) -> list[float]:
    """What each rank has to do."""
    return [sum(item.cost for items in rank for item in items) for rank in zip(*rounds, strict=True)]


def _filled(own: Dealt[Share], free: Sequence[Job], limit: float) -> tuple[Dealt[Job], list[Job]]:
    """Jobs dealt to ranks beside what they have, the first first, as long as none has more than the limit; the rest."""
    loads = [(load, rank) for rank, load in enumerate(_loads(own))]
    early: list[list[Job]] = [[] for _ in own]
    rest = []
    heapify(loads)
    for job in free:
        load, rank = loads[0]
        if load + job.cost <= limit * (1.0 + 1e-9):
            heapreplace(loads, (load + job.cost, rank))
            early[rank].append(job)
        else:
            rest.append(job)
    return tuple(map(tuple, early)), rest


@dataclass(frozen=True)
class LayerDeal:
    """Layers that trainers fit: `copied` by every rank for itself, the others dealt to ranks."""

    copied: tuple[Layer, ...]
    fitted: tuple[tuple[Layer, ...], ...]
    parts: tuple[tuple[slice, ...], ...]


@dataclass(frozen=True)
class PointDeal:
    """Tiles of points dealt to ranks: whole blocks, contiguous, so that one in-place gather exchanges their rows.

    sharded: a rank holds the rows of its own blocks alone; rows are then counted from the first of these.
    """

    blocks: tuple[tuple[Tile, ...], ...]
    runs: tuple[Tile, ...]
    sharded: bool = False

    @property
    def n(self) -> int:
        return self.blocks[-1][-1].stop

    def own(self, rank: int) -> Tile:
        """The points of a rank, counted over all of them."""
        run = self.runs[rank]
        start = self.blocks[run.start][0].start if run.start < len(self.blocks) else self.n
        return Tile(start, self.blocks[run.stop - 1][-1].stop if len(run) else start)

    def held(self, rank: int) -> Tile:
        """The points whose rows a rank holds."""
        return self.own(rank) if self.sharded else Tile(0, self.n)

    def blocks_of(self, rank: int) -> list[tuple[int, tuple[Tile, ...]]]:
        """Number and tiles of each block of a rank, the tiles as rows of what it holds."""
        run, first = self.runs[rank], self.held(rank).start
        return [(b, tuple(tile.after(first) for tile in self.blocks[b])) for b in range(run.start, run.stop)]

    def tiles_of(self, rank: int) -> list[Tile]:
        return [tile for _, block in self.blocks_of(rank) for tile in block]

    @property
    def block_counts(self) -> tuple[int, ...]:
        return tuple(len(run) for run in self.runs)

    @property
    def row_counts(self) -> tuple[int, ...]:
        return tuple(len(self.own(r)) for r in range(len(self.runs)))


def deal_points(n: int, ranks: int, blocks: int = tiles.BLOCKS, sharded: bool = False) -> PointDeal:
    cut = tiles.blocks(tiles.point_tiles(n), blocks)
    return PointDeal(cut, tiles.deal_runs(len(cut), ranks), sharded)


def places(dealt: Sequence[Sequence[Any]]) -> tuple[tuple[slice, ...], ...]:
    """Where the results of each rank lie."""
    return tuple(tuple(job.place for job in rank) for rank in dealt)
