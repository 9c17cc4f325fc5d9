"""Data are known again by SHA-256 of their raw points: not scaled, as float64, in blocks that depend on N alone.

So one data set has one sum in whatever type, file and place, held by one rank or by many, replicated or sharded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from macmpi.typing import Array

SIDES = ("", "_val")
"""The names of arrays of training and of validation points end so."""


class Sum:
    """The sum of the arrays of a data set, added one after the other.  Collective: no."""

    def __init__(self) -> None:
        self._sum = hashlib.sha256()

    def add(self, name: str, points: int, blocks: Array) -> None:
        """Adds an array of that number of points by the sums of its blocks (blocks, 32), those of `block_sum`."""
        self._sum.update(f"{name} {points} ".encode() + blocks.tobytes())

    def add_names(self, names: Array) -> None:
        """Adds the names of classes."""
        self._sum.update("\0".join(map(str, names)).encode())

    @property
    def hex(self) -> str:
        return self._sum.hexdigest()


def block_sum(pieces: Iterable[Array]) -> Array:
    """SHA-256 of rows that come in pieces, (32,) bytes; -0 counts as 0."""
    found = hashlib.sha256()
    for rows in pieces:
        found.update(np.add(rows, 0.0, dtype=np.float64).reshape(len(rows), -1).data)
    return np.frombuffer(found.digest(), np.uint8)
