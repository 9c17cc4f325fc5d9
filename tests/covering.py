"""Small selections: rows of a grid in which any two values of two parameters meet; sets that together hold all.

And fixtures that take some values in turn.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import pytest


def each(values: Iterable[Any], ids: Callable[[Any], str] | None = None) -> Any:
    """Makes a fixture that is one of the values in each test that takes it."""

    @pytest.fixture(params=values, ids=ids)
    def value(request: pytest.FixtureRequest) -> Any:
        return request.param

    return value


def covering(*parameters: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Rows of the product in which every two values of two parameters meet."""
    columns = [list(values) for values in parameters]
    rows = list(itertools.product(*(range(len(values)) for values in columns)))
    numbers = cover([list(itertools.combinations(enumerate(row), 2)) for row in rows])
    return [tuple(values[i] for values, i in zip(columns, rows[k], strict=True)) for k in numbers]


def cover(sets: Sequence[Iterable[Hashable]]) -> list[int]:
    """Numbers of sets whose union is that of all: greedily, each the first with the most elements that are new.

    Cost: the number of sets times that of the chosen ones; the same numbers every time.
    """
    bits: dict[Hashable, int] = {}
    masks = [sum(1 << bits.setdefault(element, len(bits)) for element in set(elements)) for elements in sets]
    missing, found = (1 << len(bits)) - 1, []
    while missing:
        best = max(range(len(masks)), key=lambda k: (masks[k] & missing).bit_count())
        missing &= ~masks[best]
        found.append(best)
    return found
