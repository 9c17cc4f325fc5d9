"""Assignment of work to ranks: contiguous runs, or by cost; every rank computes the same answer by itself."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapreplace
from itertools import combinations, pairwise, product
from typing import Any, Protocol, TypeVar

import numpy as np

from macmpi.parallel.tiles import Tile


class Costed(Protocol):
    """Work has a cost, by which it is assigned."""

    @property
    def cost(self) -> float: ...


J = TypeVar("J", bound=Costed)

Assigned = tuple[tuple[J, ...], ...]


def assigned(jobs: Sequence[J], ranks: int, relieved: bool = True) -> Assigned[J]:
    """Assigned to ranks by cost."""
    owned = assign_by_cost([job.cost for job in jobs], ranks, relieved)
    return tuple(tuple(jobs[j] for j in rank) for rank in owned)


def places(owners: Sequence[Sequence[Any]]) -> tuple[tuple[slice, ...], ...]:
    """Gives the places of the results of each rank."""
    return tuple(tuple(job.place for job in rank) for rank in owners)


IN_ORDER = 0.01
"""Jobs are assigned in runs if that costs the busiest rank no larger share of its work."""

EVEN = 1e-3
"""Jobs are not exchanged between ranks for less than this share of the busiest rank's work."""

REPACKED = 9
"""Jobs of three ranks at most that are packed again."""

IDLEST = 16
"""Two of the three ranks are sought among this many of the least busy."""


def contiguous_runs(n: int, ranks: int) -> tuple[Tile, ...]:
    """Cuts n items to ranks as contiguous runs, one a rank (some are empty when n < ranks)."""
    bounds = [-(-n * r // ranks) for r in range(ranks + 1)]
    return tuple(Tile(a, b) for a, b in pairwise(bounds))


def assign_by_cost(costs: Sequence[float], ranks: int, relieved: bool = True) -> tuple[tuple[int, ...], ...]:
    """Assigns jobs to ranks: the costliest first, each to the least loaded rank; indices ascend in each rank.

    relieved: then the busiest rank exchanges a job with another, or gives one away, as long as that helps; where that
    does not, the jobs of three ranks are packed again.

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


def assign_in_order(costs: Sequence[float], ranks: int) -> tuple[tuple[int, ...], ...]:
    """Assigns jobs to ranks as contiguous runs, unless a rank then has noticeably more than by `assign_by_cost`.

    Neighbouring jobs read alike; which of the two it is, every rank computes by itself.
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
    """Takes from the busiest rank what one exchange of jobs, or of a job for none, best can; whether it could."""
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
    """Packs the jobs of the busiest rank and of two others, if they are few, so that none of the three is as busy."""
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
    """Jobs in three lists, of which the costliest costs as little as can be; None where that is more than `most`."""
    ways = np.indices((3,) * len(jobs)).reshape(len(jobs), -1)
    loads = np.zeros((3, ways.shape[1]))
    for job, places in zip(jobs, ways, strict=True):
        loads[places, np.arange(len(places))] += costs[job]  # in this order on every processor
    longest = loads.max(axis=0)
    best = int(longest.argmin())
    lists = [[job for job, place in zip(jobs, ways[:, best], strict=True) if place == p] for p in range(3)]
    return lists if longest[best] <= most else None
