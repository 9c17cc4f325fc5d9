"""Tables of words, where what a word stands for is imported when it is looked up: most runs need few of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pkgutil import resolve_name
from typing import Any


class Table(Mapping[str, Any]):
    """Each word, and what it stands for, given by its place "module:name"."""

    def __init__(self, **places: str) -> None:
        self._places = places

    def __getitem__(self, word: str) -> Any:
        return resolve_name(self._places[word])

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
