"""Tables of words, where what a word stands for is imported when it is looked up: most runs need few of them."""

from __future__ import annotations

from collections import UserDict
from importlib import import_module
from typing import Any


class Table(UserDict[str, Any]):
    """Each word and what it stands for, given as "module:name" or itself."""

    def __getitem__(self, word: str) -> Any:
        found = self.data[word]
        if isinstance(found, str):
            module, name = found.split(":")
            found = self.data[word] = getattr(import_module(module), name)
        return found
