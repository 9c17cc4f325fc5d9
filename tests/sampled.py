"""Few cases of each test: what `make test` runs, where `make test-thorough` runs the others.

And a third of the examples that hypothesis draws for a law, where `make test-thorough` draws all.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from numbers import Number
from typing import Any

import pytest
from covering import cover
from hypothesis import settings

THOROUGH = False
"""Laws are tried on all of their examples; conftest.py says so before tests are collected."""

CASES = 4
PLACES = ("contracts", "theory", "unit")
"""Folders whose tests are laws over many cases; a launch has none too many."""


def examples(count: int) -> settings:
    """Settings of a law that hypothesis tries on a number of examples, the same ones every time."""
    return settings(derandomize=True, database=None, deadline=None, max_examples=count if THOROUGH else count // 3)


def is_drawn(item: pytest.Item) -> bool:
    """Its examples are drawn by hypothesis."""
    return hasattr(getattr(item, "obj", None), "hypothesis")


def few(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """What is taken of the items: of a test with more cases than CASES, some of them.

    These are as many as CASES, spread evenly over its cases, and the fewest others (nearly) with which every word of
    every argument is met: a registered layer, loss or solver is left out of no law.  A test that is marked
    `every_case` is taken whole: each number that it is given is a law of its own.  Every process finds the same items.
    """
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(item.nodeid.split("[")[0], []).append(item)
    taken: set[pytest.Item] = set()
    for cases in tests.values():
        whole = len(cases) <= CASES or cases[0].get_closest_marker("every_case") or not in_places(cases[0])
        taken.update(cases if whole else (cases[i] for i in sample([words(item) for item in cases])))
    return taken


def in_places(item: pytest.Item) -> bool:
    return item.path.parent.name in PLACES


def sample(cases: Sequence[set[Hashable]]) -> list[int]:
    """Numbers of CASES cases, evenly spread, and of others that have the words which these lack."""
    spread = [round(i * (len(cases) - 1) / (CASES - 1)) for i in range(CASES)]
    met = set().union(*(cases[i] for i in spread))
    return [*spread, *cover([case - met for case in cases])]


def words(item: pytest.Item) -> set[Hashable]:
    """The words among a case's arguments, each with the name of its argument."""
    arguments = getattr(item, "callspec").params  # noqa: B009 - of every item that has cases
    return {(name, word) for name, value in arguments.items() for word in words_of(value)}


def words_of(value: Any) -> Iterator[Hashable]:
    """A text is a word, and so is each table, class or function: all but numbers, of which a sample will do."""
    if isinstance(value, tuple | list):
        for part in value:
            yield from words_of(part)
    elif isinstance(value, str):
        yield value
    elif value is not None and not isinstance(value, Number):
        yield id(value)
