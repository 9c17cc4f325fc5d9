"""Work lists say which tiles of units, rows of Grams and layers each rank has, and where the results lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from macmpi.parallel import balance
from macmpi.parallel.balance import Assigned, assigned, places
from macmpi.parallel.tiles import Tile

SPLITS = 32
"""How many numbers of early jobs are compared at most."""


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
    """The Gram that the units of a segment share, or some rows of it.  place: where they lie among the Grams."""

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
class WorkList:
    """Jobs of the W-step assigned to ranks, and the Grams that they need; `*_parts`: where results lie.

    summed: Grams that all ranks sum up together before anything else.  shares: rows of the large ones; early: jobs done
    before these are exchanged; late: the others.  Where all ranks do all jobs together (`apart` is False) there are no
    places; travelling: jobs that then go round a ring instead.
    """

    early: tuple[tuple[Job, ...], ...]
    late: tuple[tuple[Job, ...], ...]
    shares: tuple[tuple[Share, ...], ...]
    summed: tuple[Share, ...] = ()
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
        """Those whose Gram is made again."""
        return frozenset(share.segment for share in (*self.summed, *(s for rank in self.shares for s in rank)))

    @property
    def widest(self) -> int:
        """Bytes of the largest Gram that ranks sum up together."""
        return 8 * max((share.place.stop - share.place.start for share in self.summed), default=0)

    @cached_property
    def weight_parts(self) -> tuple[tuple[slice, ...], ...]:
        return places(self.jobs) if self.apart else ()

    @cached_property
    def shared_parts(self) -> tuple[tuple[slice, ...], ...]:
        return places(self.shares) if self.apart else ()


def schedule(jobs: Sequence[Job], shares: Sequence[Share], ranks: int) -> WorkList:
    """Two rounds: rows of large Grams with some of the jobs that need not wait for them, then the other jobs.

    Early are as many of the costliest of these as make the busiest ranks of both rounds together least busy.  Whole
    Grams are summed up before.
    """
    none: Assigned[Any] = ((),) * ranks
    whole, rows = (tuple(s for s in shares if (s.rows is None) is alike) for alike in (True, False))
    if not rows:
        return WorkList(none, assigned(jobs, ranks), none, whole)
    waiting = {share.segment for share in rows}
    free = sorted((j for j in jobs if j.segment not in waiting), key=lambda j: (-j.cost, j.place.start))
    bound = [j for j in jobs if j.segment in waiting]

    def rounds(count: int, last: bool) -> tuple[WorkList, float]:
        """With so many early jobs: the deal, and what the busiest ranks of both rounds have to do."""
        costs, M = [*(row.cost for row in rows), *(job.cost for job in free[:count])], len(rows)
        owned, late = balance.assign_by_cost(costs, ranks, last), assigned([*bound, *free[count:]], ranks, last)
        own = tuple(tuple(rows[i] for i in rank if i < M) for rank in owned)
        early = tuple(tuple(free[i - M] for i in rank if i >= M) for rank in owned)
        longest = max(sum(costs[i] for i in rank) for rank in owned) + max(sum(j.cost for j in rank) for rank in late)
        return WorkList(early, late, own, whole), longest

    counts = range(0, len(free) + 1, -(-(len(free) + 1) // SPLITS)) if ranks > 1 else [0]
    return rounds(min(counts, key=lambda count: rounds(count, False)[1]), True)[0]


@dataclass(frozen=True)
class LayerWork:
    """Layers that trainers fit: `copied` from coordinates by every rank for itself, the others each by one rank."""

    copied: tuple[Layer, ...]
    fitted: tuple[tuple[Layer, ...], ...]
    parts: tuple[tuple[slice, ...], ...]
