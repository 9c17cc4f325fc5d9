"""How ranks that solve a regression together share what does not depend on points; and the same for one rank alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from macmpi.layers import Array
from macmpi.tiles import Tile

Make = Callable[[int], Array]


class InPieces:
    """A matrix made block by block, and what is decided by numbers: on this rank alone, the reference for ranks that
    share the work.
    """

    def matrix(self, rows: int, columns: int) -> Array:
        """Of float64, anything in it.  Collective: where ranks share the work."""
        return np.empty((rows, columns))

    def fill(self, blocks: Sequence[Array], make: Make) -> None:
        """Block i, a view of `matrix`, becomes make(i): each made by one rank, all seen by all.

        Collective: where ranks share the work.
        """
        for i, block in enumerate(blocks):
            block[:] = make(i)

    def rows(self, runs: Sequence[Tile], columns: int, make: Make) -> Array:
        """All rows of a matrix: make(i) gives those of runs[i].  Collective: where ranks share the work."""
        return np.concatenate([make(i) for i in range(len(runs))])

    def agreed(self, found: Array) -> Array:
        """What the first rank has found, in place, on every rank: before all decide by it which sum comes next.

        Processors may round it in different ways.  Collective: where ranks share the work.
        """
        return found

    def anywhere(self, failed: bool) -> bool:
        """Whether something has failed on any rank.  Collective: where ranks share the work."""
        return failed


ALONE = InPieces()
