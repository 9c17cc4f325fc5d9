"""Placements: each rank makes the rows of its own points, and a placement says who has them then.

A run's placement is named by `parallel.data` and found here by that name; nobody else compares names.  Others ask what
follows from it: how many copies a node has, which rows a rank holds, what an exchange moves, who takes part in a sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from macmpi.parallel.team import Team
from macmpi.parallel.tiles import Tile

MOST_OF_A_PART, LEAST_OF_A_PART = 2**16, 32
"""Points of a part that one rank holds, and those that a part gives to a minibatch: products of fewer are slow."""


class Placement:
    """Every rank has the rows of all points: what a rank has made of its own ones is published.

    name: as parallel.data has it; words: in a few words for a person.
    sums_alone: each rank sums over all points by itself; else all ranks do it jointly.
    own_copies: 1 where a rank has the rows that it holds to itself, 0 where the ranks of a node share one copy.
    spreads: more ranks hold fewer rows each.
    by_all: no rank has all rows that a file holds: each reads and writes those of its own points.
    others: placements that may hold less, by name.
    """

    name = "replicated"
    words = "each rank all rows"
    sums_alone = True
    own_copies = 1
    spreads = False
    by_all = False
    others: tuple[str, ...] = ("node", "sharded")

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def copies(self, ranks: int, a_node: int) -> int:
        """Counts the copies of what ranks exchange, where a node has `a_node` of them.  Collective: no."""
        return ranks

    def held(self, own: Tile, n: int) -> Tile:
        """Gives which of n indices a rank holds, of which `own` are its own.  Collective: no."""
        return Tile(0, n)

    def moved(self, count: int) -> int:
        """Counts what is exchanged of `count` numbers that ranks have made of their points.  Collective: no."""
        return count

    def bytes_of(self, numbers: Sequence[int], raw: Sequence[int], in_file: bool) -> int:
        """Counts the bytes of a point that a rank holding it keeps: those of its arrays as numbers of the run.

        raw: as their file has them; in_file: they may stay there.  Collective: no.
        """
        return sum(numbers)

    def keeps(self, count: float, most: float) -> bool:
        """Tells whether `count` bytes of rows are kept once they are made, if `most` are; else they are made again.

        Collective: no.
        """
        return count <= most

    def blocks(self, wanted: int, only: int) -> int:
        """Gives the number of blocks of the points, `only` where the rows of a block stay with one rank.

        Collective: no.
        """
        return wanted

    def parts(self, wanted: int, n: int, batch: int) -> int:
        """Gives the number of parts of n points that minibatches of `batch` points are drawn from.  Collective: no."""
        return wanted

    def publish(self, team: Team, rows: Any, counts: Sequence[int]) -> None:
        """Gives the rows of its own points, `counts` of each rank, to all that hold them.  Collective: yes."""
        team.gather_rows(rows, counts)

    def summing(self, team: Team) -> Team:
        """Gives the ranks that sum over all points together: this one alone, or all of them.  Collective: no."""
        return Team()

    def has_sums(self, team: Team) -> bool:
        """Tells whether this rank takes part where numbers are made of sums over all points.  Collective: no."""
        return team.rank == 0


class OneANode(Placement):
    """Every rank has the rows of all points, in one copy that the ranks of a node share."""

    name = "node"
    words = "one copy a machine"
    own_copies = 0
    others = ("sharded",)

    def copies(self, ranks: int, a_node: int) -> int:
        return -(-ranks // a_node)


class Sharded(Placement):
    """Each rank has the rows of its own points, and nothing is published: every sum over points is made jointly."""

    name = "sharded"
    words = "each rank its rows"
    sums_alone = False
    spreads = True
    by_all = True
    others = ()

    def held(self, own: Tile, n: int) -> Tile:
        return own

    def moved(self, count: int) -> int:
        return 0

    def bytes_of(self, numbers: Sequence[int], raw: Sequence[int], in_file: bool) -> int:
        """Counts each array in the smaller of its two sizes; 0 where all stay in their file."""
        return 0 if in_file else sum(map(min, numbers, raw))

    def keeps(self, count: float, most: float) -> bool:
        return False

    def blocks(self, wanted: int, only: int) -> int:
        return only

    def parts(self, wanted: int, n: int, batch: int) -> int:
        """Gives the number of parts: `wanted`, two at least, since a part stays with one rank, and more of many points.

        Each part then gives some points to a minibatch.
        """
        count = max(wanted, 2)
        while n > count * MOST_OF_A_PART and batch >= 2 * count * LEAST_OF_A_PART:
            count *= 2
        return count

    def publish(self, team: Team, rows: Any, counts: Sequence[int]) -> None:
        pass

    def summing(self, team: Team) -> Team:
        return team

    def has_sums(self, team: Team) -> bool:
        return True


PLACEMENTS: dict[str, Placement] = {place.name: place for place in (Placement(), OneANode(), Sharded())}
"""By the name that parallel.data has for it."""

EVERYWHERE = PLACEMENTS["replicated"]
"""Every rank has all rows, where nothing else is said."""
