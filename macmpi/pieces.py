"""Work in pieces: each made by one rank, then had by all."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

import numpy as np

from macmpi import tiles
from macmpi.layers import Array
from macmpi.regression import Make, alone
from macmpi.sums import Turns
from macmpi.team import AnyTeam


class Pieces:
    """regression.InPieces among the ranks of a team, dealt by size; they live until the next are asked for.

    Collective: yes.
    """

    def __init__(self, team: AnyTeam) -> None:
        self.team, self._turns = team, Turns(team)

    def __call__(self, shapes: Sequence[tuple[int, int]], make: Make) -> list[Array]:
        if self.team.size == 1:
            return alone(shapes, make)
        sizes = tuple(prod(shape) for shape in shapes)
        owned = deal(sizes, self.team.size)
        flat, found, at = self._turns.array((sum(sizes),), np.float64), [np.empty((0, 0))] * len(sizes), 0
        for i in (i for rank in owned for i in rank):
            found[i] = flat[at : at + sizes[i]].reshape(shapes[i])
            at += sizes[i]
        for i in owned[self.team.rank]:
            found[i][:] = make(i)
        self.team.gather_rows(flat, [sum(sizes[i] for i in rank) for rank in owned])
        return found


@lru_cache(maxsize=256)
def deal(sizes: tuple[int, ...], ranks: int) -> tuple[tuple[int, ...], ...]:
    """Whose piece each is, the same on every rank.  Collective: no."""
    return tiles.deal_by_cost(sizes, ranks)
