"""Tables within the list of hidden layers: which kind of layer each is meant for."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from macmpi.config.model import Convolution
from macmpi.config.sparse import Sparse

LAYERS = {"Sparse": "connections", "Convolution": "channels"}
"""The kinds, and the key that says which of them a table is; the last is meant where none does."""


def known() -> list[str]:
    """The keys of all kinds.  Collective: no."""
    return list(dict.fromkeys(f.name for kind in (Convolution, Sparse) for f in fields(kind)))


def meant(mistakes: list[Any]) -> list[Any]:
    """The mistakes without what is wrong with a table as a layer of another kind than its own.  Collective: no."""
    told: dict[Any, list[str]] = {}
    for loc in (m["loc"] for m in mistakes if m["type"] == "unexpected_keyword_argument"):
        told.setdefault(loc[:-2], []).extend(name for name, key in LAYERS.items() if loc[-1] == key)

    def own(loc: tuple[Any, ...]) -> bool:
        kinds = ((name, told.get(loc[:i])) for i, name in enumerate(loc) if name in LAYERS)
        return all(name == (found or [*LAYERS])[-1] for name, found in kinds)

    return [m for m in mistakes if own(m["loc"])]
