"""The ring of ParMAC: which submodel is at which block of points when, and which rank then has it.

B blocks of points stand in a ring, contiguous runs of them on ranks.  A submodel, a job of the W-step, starts at a
block of its own and goes from each block to the next, from the last to the first; a round takes it once to each.  What
it becomes depends on its way alone.  A rank takes it through all of its own blocks before it passes it on: a leg.  So
a round is as many passes as there are ranks, whatever B is, and in each leg every rank works on what it has.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

from macmpi.parallel import balance
from macmpi.parallel.tiles import BLOCKS, Tile
from macmpi.plan.work_lists import Job


@dataclass(frozen=True)
class Ring:
    """jobs: what travels; runs: of each rank's blocks; rounds: how often each job comes to each block.  Collective: no.

    Costs are even over the blocks that jobs start from, whatever the runs.
    """

    jobs: tuple[Job, ...]
    runs: tuple[Tile, ...]
    rounds: int

    @property
    def blocks(self) -> int:
        return self.runs[-1].stop

    @property
    def ranks(self) -> int:
        return len(self.runs)

    @property
    def legs(self) -> int:
        """Between two legs all ranks pass on what they have; the last leg ends where the first began."""
        return self.rounds * self.ranks + 1

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The block that each job starts from: evenly spaced ones, where there are more blocks than jobs."""
        places = self.blocks if self.blocks <= BLOCKS else min(self.blocks, len(self.jobs))
        owners = balance.assign_by_cost([job.cost for job in self.jobs], places)
        found = {j: place * self.blocks // places for place, owned in enumerate(owners) for j in owned}
        return tuple(found[j] for j in range(len(self.jobs)))

    @cached_property
    def homes(self) -> tuple[int, ...]:
        """The rank that owns the block where each job starts, and where it ends."""
        stops = [run.stop for run in self.runs]
        return tuple(bisect_right(stops, b) for b in self.starts)

    def at(self, rank: int, leg: int) -> list[int]:
        """The jobs that a rank has in a leg, by number."""
        return [j for j, home in enumerate(self.homes) if (home + leg) % self.ranks == rank]

    def at_home(self) -> list[list[int]]:
        """The jobs of each rank in the first and in the last leg, by number."""
        found: list[list[int]] = [[] for _ in self.runs]
        for j, home in enumerate(self.homes):
            found[home].append(j)
        return found

    def round_of(self, job: int, block: int, leg: int) -> int | None:
        """In which round the job comes to a block of the rank that has it in this leg; None if it does not.

        At home a leg begins a round at the job's own block, and ends the round before in the blocks before it.
        """
        at_home = leg % self.ranks == 0
        number = leg // self.ranks - (at_home and block < self.starts[job])
        return number if 0 <= number < self.rounds else None
