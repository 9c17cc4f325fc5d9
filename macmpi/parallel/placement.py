"""Placements: each rank makes the rows of its own points, and a placement says who has them then.

A run's placement is named by `parallel.data` and found here by that name; nobody else compares names.  Others ask what
follows from it: which rows a rank holds, how many copies a node has, how many parts a minibatch is drawn from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from macmpi.parallel.tiles import Tile

MOST_OF_A_PART, LEAST_OF_A_PART = 2**16, 32
"""Points of a part that one rank holds, and those that a part gives to a minibatch: products of fewer are slow."""


@dataclass(frozen=True)
class Placement:
    """A placement of the rows of points among the ranks.

    name: as parallel.data has it.
    words: in a few words for a person.
    all_rows: each rank holds the rows of all points, since what it has made of its own ones is published, and sums over
        all points by itself.  Else it holds those of its own points alone, and all ranks make every sum jointly.
    one_copy: the ranks of a node share one copy of the rows that they hold.
    others: the names of placements that may hold less.
    """

    name: str
    words: str
    all_rows: bool
    one_copy: bool
    others: tuple[str, ...]

    def copies(self, ranks: int, a_node: int) -> int:
        """Counts the copies of what ranks exchange, where a node has `a_node` of them.  Collective: no."""
        return -(-ranks // a_node) if self.one_copy else ranks

    def held(self, own: Tile, n: int) -> Tile:
        """Gives which of n indices a rank holds, of which `own` are its own.  Collective: no."""
        return Tile(0, n) if self.all_rows else own

    def bytes_of(self, numbers: Sequence[int], raw: Sequence[int], in_file: bool) -> int:
        """Counts the bytes of a point that a rank holding it keeps: those of its arrays as numbers of the run.

        Where no rank holds all rows, each array is kept in the smaller of its two sizes, or not at all.
        raw: as their file has them; in_file: they may stay there.  Collective: no.
        """
        if self.all_rows:
            return sum(numbers)
        return 0 if in_file else sum(map(min, numbers, raw))

    def parts(self, wanted: int, n: int, batch: int) -> int:
        """Gives the number of parts of n points that minibatches of `batch` points are drawn from.

        It is `wanted` where a rank holds all rows.  Else a part stays with one rank: there are two at least, and more
        of many points, as long as each part gives some points to a minibatch.  Collective: no.
        """
        if self.all_rows:
            return wanted
        count = max(wanted, 2)
        while n > count * MOST_OF_A_PART and batch >= 2 * count * LEAST_OF_A_PART:
            count *= 2
        return count


EVERYWHERE = Placement("replicated", "each rank all rows", all_rows=True, one_copy=False, others=("node", "sharded"))
"""Every rank has all rows, where nothing else is said."""

ONE_A_NODE = Placement("node", "one copy a machine", all_rows=True, one_copy=True, others=("sharded",))

SHARDED = Placement("sharded", "each rank its rows", all_rows=False, one_copy=False, others=())

PLACEMENTS = {place.name: place for place in (EVERYWHERE, ONE_A_NODE, SHARDED)}
"""By the name that parallel.data has for it."""
