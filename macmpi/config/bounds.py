"""Bounds of the config's values, as annotated_types has them, which rank 0 alone imports, to check a config."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any


class Bound:
    """Metadata of a type: stands for that annotated_types class with those arguments."""

    __is_annotated_types_grouped_metadata__ = True
    """By this name annotated_types knows metadata that are made when somebody iterates over them."""

    def __init__(self, kind: str, *arguments: Any, **named: Any) -> None:
        self.kind, self.arguments, self.named = kind, arguments, named

    def __iter__(self) -> Iterator[Any]:
        import annotated_types

        yield getattr(annotated_types, self.kind)(*self.arguments, **self.named)


Ge, Gt, Le, Lt = (partial(Bound, kind) for kind in ("Ge", "Gt", "Le", "Lt"))
Len, Interval, Predicate = (partial(Bound, kind) for kind in ("Len", "Interval", "Predicate"))
