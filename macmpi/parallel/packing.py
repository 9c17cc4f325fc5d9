"""Parts of a flat array laid end to end, as they travel, and back in their places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def size(parts: Sequence[slice]) -> int:
    """Counts the numbers that some parts hold."""
    return sum(part.stop - part.start for part in parts)


def starts_of(counts: Sequence[int]) -> list[int]:
    """Gives the start of each of some runs that lie end to end."""
    return [sum(counts[:i]) for i in range(len(counts))]


def pack(flat: Any, packed: Any, parts: Sequence[slice]) -> None:
    """The parts of `flat` into `packed`, which is as long as all of them."""
    at = 0
    for part in parts:
        packed[at : at + part.stop - part.start] = flat[part]
        at += part.stop - part.start


def unpack(flat: Any, packed: Any, parts: Sequence[slice]) -> None:
    """Copy what `pack` has packed into the parts of another flat array."""
    at = 0
    for part in parts:
        flat[part] = packed[at : at + part.stop - part.start]
        at += part.stop - part.start
