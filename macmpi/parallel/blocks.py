"""Work in pieces, each made by one rank, then had by all; and arrays of which the ranks of one node have one copy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from macmpi.parallel import balance, tiles
from macmpi.parallel.team import Team
from macmpi.reductions import EVERY, InPieces, Make
from macmpi.typing import Array

ROWS = 6
"""Runs of rows in which ranks share a product: more would be narrower, and slower."""

LARGE = 2e7
"""Flops of a product from which on ranks share it: it takes longer than a meeting of them."""


Rows = Callable[[slice], Array]
"""Some rows of a matrix, which are made when they are asked for."""


class Turns:
    """Arrays for what ranks exchange, where the ranks of a node can share them in turn one of two pieces of memory.

    A rank that has exchanged the present array may write the next one while others still read the present; they have
    read the one before.  So each is exchanged before the next is asked for, and copied if it is to live on.

    capacity: bytes that the largest of them is likely to take.  Collective: yes, to make one.
    """

    def __init__(self, team: Team, capacity: int = 0) -> None:
        self._team = team
        self._memory: list[Array] = []
        if team.shares:
            self.array((capacity,), np.uint8)

    def array(self, shape: tuple[int, ...], dtype: np.dtype | type) -> Array:
        """Gives an array that may hold anything.  Collective: yes."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if not size or not self._team.shares:  # nothing is exchanged of an empty one: no turn
            return np.empty(shape, dtype)
        if not self._memory or len(self._memory[0]) < size:
            self._memory = [self._team.array((size,), np.uint8) for _ in range(2)]
        self._memory.reverse()
        flat: Array = self._memory[0][:size].view(dtype)
        return flat.reshape(shape)


assigned = lru_cache(maxsize=256)(balance.assign_by_cost)
"""Assigns pieces of some sizes to ranks, alike on every rank."""


class Pieces(InPieces):
    """Blocks assigned to ranks by size; a matrix that they share is written in place.  Collective: yes."""

    def __init__(self, team: Team) -> None:
        self.team, self._turns = team, Turns(team)
        self._common: Array | None = None

    def matrix(self, rows: int, columns: int) -> Array:
        made: Array = self.team.array((rows, columns), np.float64)
        self._common = made if self.team.common(made) else None
        return made

    def fill(self, blocks: Sequence[Array], make: Make) -> None:
        if self.team.size == 1:
            return super().fill(blocks, make)
        sizes = tuple(block.size for block in blocks)
        owned = assigned(sizes, self.team.size)
        if self._common is not None:
            for i in owned[self.team.rank]:
                blocks[i][:] = make(i)
            return self.team.fence(self._common)  # all have written theirs
        flat, found, at = self._turns.array((sum(sizes),), np.float64), list(blocks), 0
        for i in (i for rank in owned for i in rank):
            found[i] = flat[at : at + sizes[i]].reshape(blocks[i].shape)
            at += sizes[i]
        for i in owned[self.team.rank]:
            found[i][:] = make(i)
        self.team.gather_rows(flat, [sum(sizes[i] for i in rank) for rank in owned])
        for block, part in zip(blocks, found, strict=True):
            block[:] = part

    def agreed(self, found: Array) -> Array:
        shared = np.ascontiguousarray(found)
        self.team.share_array(shared)
        found[...] = shared
        return found

    def anywhere(self, failed: bool) -> bool:
        return self.team.max_over_ranks({"failed": float(failed)})["failed"] > 0.0

    def rows(self, runs: Sequence[slice], columns: int, make: Make) -> Array:
        found = self.matrix(runs[-1].stop, columns)
        self.fill([found[run] for run in runs], make)
        return found


class Products:
    """V^T M V for V (h, d) and M (h, h), some rows by each rank.  Collective: yes.

    capacity: bytes that the largest is likely to take.
    """

    def __init__(self, team: Team, capacity: int = 0) -> None:
        self.team, self._turns = team, Turns(team, capacity)

    def form(self, V: Array, M: Array | None) -> Array:
        """V^T M V, or V^T V, to keep.  Collective: yes."""
        return self.weighted(V, M, None).copy()

    def weighted(self, V: Array, M: Array | None, times: Rows | None) -> Array:
        """V^T M V, each element times that of a matrix, of which a rank asks for the rows that it makes.

        It is to be read until the next product is asked for and made.  Collective: yes.
        """
        if 2 * V.size * (V.shape[1] + (0 if M is None else len(V))) < LARGE:
            small = V.T @ (V if M is None else M @ V)
            return small if times is None else small * times(EVERY)
        side = V.shape[1]
        cut = tiles.cut(side, ROWS)
        runs = balance.contiguous_runs(len(cut), self.team.size)
        product = self._turns.array((side, side), V.dtype)
        for tile in cut[runs[self.team.rank].rows]:
            left, own = V[:, tile.rows].T, product[tile.rows]
            np.matmul(left if M is None else left @ M, V, out=own)
            if times is not None:
                own *= times(tile.rows)
        self.team.gather_rows(product, [sum(map(len, cut[run.rows])) for run in runs])
        return product


def commonly(team: Team, array: Array) -> Array:
    """Move an array to where the ranks of a node have one copy of it, if they share memory.  Collective: yes."""
    if not team.shares or team.common(array):
        return array
    found: Array = team.array(array.shape, array.dtype)
    runs = balance.contiguous_runs(len(array), team.size)
    own = runs[team.rank].rows
    found[own] = array[own]
    team.gather_rows(found, [len(run) for run in runs])
    return found
