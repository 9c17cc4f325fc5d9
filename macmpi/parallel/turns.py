"""Memory of a node's ranks for what they exchange again and again."""

from __future__ import annotations

import math

import numpy as np

from macmpi.parallel.team import Team
from macmpi.typing import Array


class Turns:
    """Arrays for what ranks exchange, where the ranks of a node can share them in turn one of two pieces of memory.

    A rank that has exchanged the present array may write the next one while others still read the present; they have
    read the one before.  So each is exchanged before the next is asked for, and copied if it is to live on.

    capacity: bytes that the largest of them is likely to take.  Collective: yes, to make one.
    """

    def __init__(self, team: Team, capacity: int = 0) -> None:
        self._team = team
        self._memory: list[Array] = []
        if capacity and team.shares:
            self._take(capacity)

    def _take(self, size: int) -> None:
        self._memory = [self._team.array((size,), np.uint8) for _ in range(2)]

    def array(self, shape: tuple[int, ...], dtype: np.dtype | type) -> Array:
        """Gives an array that may hold anything.  Collective: yes."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if not size or not self._team.shares:  # nothing is exchanged of an empty one: no turn
            return np.empty(shape, dtype)
        if not self._memory or len(self._memory[0]) < size:
            self._take(size)
        self._memory.reverse()
        flat: Array = self._memory[0][:size].view(dtype)
        return flat.reshape(shape)
