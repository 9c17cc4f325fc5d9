"""A selection from a grid of parameters: a law is tried on every two values of two parameters, not on the grid."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any


def covering(*parameters: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Rows of the product in which every two values of two parameters meet: greedily, each row with the most new pairs.

    Cost: the square of the product's size; the same rows every time.
    """
    columns = [list(values) for values in parameters]
    rows = list(itertools.product(*(range(len(values)) for values in columns)))
    missing = {pair for row in rows for pair in itertools.combinations(enumerate(row), 2)}
    found = []
    while missing:
        best = max(rows, key=lambda row: sum(pair in missing for pair in itertools.combinations(enumerate(row), 2)))
        missing -= set(itertools.combinations(enumerate(best), 2))
        found.append(tuple(values[i] for values, i in zip(columns, best, strict=True)))
    return found
