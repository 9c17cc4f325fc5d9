"""Units that read some of their layer's inputs each: those with equal masks share a submatrix of its Gram."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from macmpi.solvers.grams import Subsystems, Whitening
from macmpi.solvers.shrinkage import alike
from macmpi.typing import Array


class Alike(NamedTuple):
    """Units with equal masks: their rows, the columns of their weights, the Gram of these columns and its factor."""

    rows: Array
    columns: Array
    G: Array
    factor: Any

    @property
    def places(self) -> tuple[Array, Array]:
        """Their weights in a matrix of all."""
        return self.rows[:, None], self.columns


def groups(connected: Array, systems: Subsystems) -> list[Alike]:
    """The units of a mask, by equal masks.  Cost: d^3 / 3 flops for a mask of d inputs that is new."""
    found = []
    for rows in alike(connected):
        columns = np.flatnonzero(connected[rows[0]])
        found.append(Alike(rows, columns, *systems.of(columns)))
    return found


def scattered(parts: Sequence[Alike], R: Array, made: Callable[[Alike, Array], Array]) -> Array:
    """Gives made(part, its weights of R) at those places, 0 elsewhere."""
    found = np.zeros_like(R)
    for part in parts:
        found[part.places] = made(part, R[part.places])
    return found


class MaskedWhitening(Whitening):
    """The whitening of each unit's own weights, in the submatrix of its mask."""

    def __init__(self, parts: Sequence[Alike]) -> None:
        super().__init__(None)
        self._parts = parts
        self._own = {id(part): Whitening(part.factor) for part in parts}

    def into(self, theta: Array) -> Array:
        return scattered(self._parts, theta, lambda part, own: self._own[id(part)].into(own))

    def back(self, phi: Array) -> Array:
        return scattered(self._parts, phi, lambda part, own: self._own[id(part)].back(own))

    def pull(self, G: Array) -> Array:
        return scattered(self._parts, G, lambda part, own: self._own[id(part)].pull(own))


def whitening(problem: Any) -> Whitening:
    """The coordinates in which a W-problem's units have the identity for a Gram: none where they share no Gram."""
    if problem.factor is None or problem.connected is None:
        return Whitening(problem.factor)
    return MaskedWhitening(groups(problem.connected, problem.factor))
