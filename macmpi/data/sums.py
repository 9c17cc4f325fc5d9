"""Data are known again by SHA-256 of their raw points: not scaled, as float64, in blocks that depend on N alone.

So one data set has one sum in whatever type, file and place, held by one rank or by many, replicated or sharded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np

from macmpi.typing import Array

SIDES = ("", "_val")
"""The names of arrays of training and of validation points end so."""


def sum_of_blocks(arrays: Mapping[str, tuple[int, Array]], names: Array | None) -> str:
    """The sum of a data set, of each array its points and the sums of its blocks (blocks, 32), those of `block_sum`.

    names: of classes, where they have some.
    """
    found = hashlib.sha256()
    for name, (points, blocks) in arrays.items():
        found.update(f"{name} {points} ".encode() + blocks.tobytes())
    if names is not None:
        found.update("\0".join(map(str, names)).encode())
    return found.hexdigest()


def block_sum(pieces: Iterable[Array]) -> Array:
    """SHA-256 of rows that come in pieces, (32,) bytes; -0 counts as 0."""
    found = hashlib.sha256()
    for rows in pieces:
        found.update(np.add(rows, 0.0, dtype=np.float64).reshape(len(rows), -1).data)
    return np.frombuffer(found.digest(), np.uint8)
