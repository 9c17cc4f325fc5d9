"""Bounds of the config's values, as annotated_types has them, which rank 0 alone imports, to check a config."""

from __future__ import annotations

from collections.abc import Iterator
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


def Ge(least: float) -> Bound:
    return Bound("Ge", least)


def Gt(below: float) -> Bound:
    return Bound("Gt", below)


def Le(most: float) -> Bound:
    return Bound("Le", most)


def Lt(above: float) -> Bound:
    return Bound("Lt", above)


def Len(least: int, most: int | None = None) -> Bound:
    return Bound("Len", least, most)


def Interval(**bounds: float) -> Bound:
    return Bound("Interval", **bounds)


def Predicate(holds: Any) -> Bound:
    return Bound("Predicate", holds)
