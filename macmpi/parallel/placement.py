"""Each rank computes the rows of its own points, and a placement says which ranks then hold them.

`parallel.data` names a run's placement; only this module compares names.  Others ask it which rows a rank holds, how
many copies of them there are, and how many parts a minibatch is drawn from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from macmpi.parallel.tiles import Tile

MOST_OF_A_PART, LEAST_OF_A_PART = 2**16, 32
"""The most points of a part, which one rank holds, and the fewest that it gives to a minibatch, for faster products."""


@dataclass(frozen=True)
class Placement:
    """Says which ranks hold which rows of points.

    name: the word of parallel.data.
    words: a short description.
    all_rows: each rank holds the rows of all points, which it gets from the other ranks, and sums over all points by
        itself.  Otherwise a rank holds only the rows of its own points, and all ranks compute every sum jointly.
    one_copy: the ranks of a node share one copy of the rows that they hold.
    others: the names of placements that may need less memory.
    """

    name: str
    words: str
    all_rows: bool
    one_copy: bool
    others: tuple[str, ...]

    def copies(self, ranks: int, a_node: int) -> int:
        """Counts the copies of exchanged rows that some ranks hold, of which a node has `a_node`.  Collective: no."""
        return -(-ranks // a_node) if self.one_copy else ranks

    def held(self, own: Tile, n: int) -> Tile:
        """Returns which of n indices a rank holds; `own` are the indices that it owns.  Collective: no."""
        return Tile(0, n) if self.all_rows else own

    def bytes_of(self, numbers: Sequence[int], raw: Sequence[int], in_file: bool) -> int:
        """Counts the bytes that a rank keeps of each point that it holds.

        If no rank holds all rows, each array is kept in the smaller of its two types, or not at all.

        numbers: the bytes of its arrays in the run's precision.
        raw: the bytes of its arrays as their file has them.
        in_file: whether they may stay in the file.  Collective: no.
        """
        if self.all_rows:
            return sum(numbers)
        return 0 if in_file else sum(map(min, numbers, raw))

    def parts(self, wanted: int, n: int, batch: int) -> int:
        """Returns the number of parts of n points from which minibatches of `batch` points are drawn.

        It is `wanted` if a rank holds all rows.  Otherwise each part stays with one rank, and there are at least two.
        With many points there are more, as long as each part gives enough points to a minibatch.  Collective: no.
        """
        if self.all_rows:
            return wanted
        count = max(wanted, 2)
        while n > count * MOST_OF_A_PART and batch >= 2 * count * LEAST_OF_A_PART:
            count *= 2
        return count


EVERYWHERE = Placement("replicated", "each rank all rows", all_rows=True, one_copy=False, others=("node", "sharded"))
"""Every rank has all rows; this is the usual placement."""

ONE_A_NODE = Placement("node", "one copy a machine", all_rows=True, one_copy=True, others=("sharded",))

SHARDED = Placement("sharded", "each rank its rows", all_rows=False, one_copy=False, others=())

PLACEMENTS = {place.name: place for place in (EVERYWHERE, ONE_A_NODE, SHARDED)}
"""The placements by their names in parallel.data."""
