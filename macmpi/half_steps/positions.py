"""Weights shared over positions: the points of a regression as rows of their own, one for each position.

A solver sees N P rows where a layer's weights multiply P patches of each of N points; with P = 1 all stays as it is.
"""

from __future__ import annotations

from typing import Any

from macmpi.reductions import EVERY, Made, OverPoints, Partial, Rows
from macmpi.typing import Array


def by_position(A: Rows, positions: int, units: slice = EVERY) -> Rows:
    """Rows (N, P H) as (N P, w): at each position `units` of H numbers.  A copy where memory asks for one.

    Of rows that are made, runs of whole points can be asked for.  Collective: no.
    """
    width = A.shape[1] // positions

    def taken(rows: Array) -> Array:
        pixels = rows.reshape(len(rows), positions, width)[:, :, units]
        return pixels.reshape(-1, pixels.shape[2])

    match A:
        case Made():
            shape = len(A) * positions, len(range(width)[units])
            return Made(lambda rows: taken(A[_points(rows, positions)]), shape, A.dtype)
    return A[:, units] if positions == 1 else taken(A)


def _points(rows: Any, positions: int) -> Any:
    """The points of a run of rows."""
    if positions == 1 or rows == EVERY:
        return rows
    return slice(rows.start // positions, rows.stop // positions)


def over_positions(over_points: OverPoints, positions: int) -> OverPoints:
    """Sums over points as sums over their rows.  Collective: where `over_points` is."""
    if positions == 1:
        return over_points

    def over(partial: Partial) -> tuple[Array, ...]:
        return over_points(lambda rows: partial(slice(rows.start * positions, rows.stop * positions)))

    return over
