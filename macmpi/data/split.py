"""One rank draws which rows of a data set are for training and which for validation: a bit a row for the others."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from macmpi import UsageError
from macmpi.config import Data
from macmpi.parallel.streams import stream
from macmpi.typing import Array

BYTES = 1 << 9
"""Bytes of bits that are unpacked at a time."""


def sizes(n: int, config: Data) -> tuple[int, int]:
    """Training rows, data.points of them if that is given, and validation rows, of n.  Collective: no."""
    held = min(max(1, round(config.validation * n)), n - 1)
    return min(config.points or n - held, n - held), held


def counted(n: int, config: Data) -> list[range]:
    """Counts the rows that there will be for each; they are not those that there will be.  Collective: no."""
    return [range(size) for size in sizes(n, config)]


def drawn(n: int, config: Data, labels: Array | None = None) -> list[RowSet]:
    """The training and the validation rows, drawn; of labels (n,) in proportion to their classes.  5 bytes a row.

    Raises UsageError.  Collective: no.
    """
    train, held = sizes(n, config)
    try:
        found = np.arange(n, dtype=np.uint32 if n <= 2**32 else np.int64)
        stream(config.seed, "split").shuffle(found)
        if labels is not None:
            found = by_class(found, labels, held)
        return [RowSet(_bits(rows, n)) for rows in (found[held : held + train], found[:held])]
    except MemoryError:
        raise UsageError(f"{config.source}: dataset X has {n:,} rows, too many for this machine to number") from None


def by_class(order: Array, labels: Array, held: int) -> Array:
    """The rows of `order` (n,) with those that are held out first, then one of each class, then the others.

    Every class but its first row, which is for training, lies evenly among those held out, to within one row.
    labels: (n,); held: rows that are held out, fewer where there are more classes than rows left.  Collective: no.
    """
    _, classes = np.unique(labels[order], return_inverse=True)
    sequence = np.argsort(classes, kind="stable")
    first = np.r_[True, np.diff(classes[sequence]) > 0]
    one_each, rest = sequence[first], sequence[~first]
    count = min(held, len(rest))
    out = np.zeros(len(rest), bool)
    out[(np.arange(count) * len(rest) + len(rest) // 2) // max(count, 1)] = True
    held_out, left = np.sort(rest[out]), np.sort(rest[~out])
    if count < held:  # nearly every row is the only one of its class
        one_each, held_out = one_each[held - count :], np.r_[held_out, one_each[: held - count]]
    return order[np.r_[held_out, np.sort(one_each), left]]


def _bits(rows: Array, n: int) -> Array:
    among = np.zeros(n, bool)
    among[rows] = True
    return np.packbits(among)


class RowSet:
    """Numbers of rows, ascending, kept as a bit for each row that there is: rows[a:b] are those from the a-th on."""

    def __init__(self, bits: Array) -> None:
        self.bits = bits

    @cached_property
    def _ends(self) -> Array:
        """Counts the rows up to the end of each block of bits."""
        starts = range(0, len(self.bits), BYTES)
        return np.cumsum([int(np.bitwise_count(self.bits[i : i + BYTES]).sum()) for i in starts])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, run: slice) -> Array:
        start, stop, _ = run.indices(len(self))
        if start >= stop:
            return np.empty(0, np.int64)
        first, last = np.searchsorted(self._ends, [start, stop - 1], side="right").tolist()
        bits = np.unpackbits(self.bits[first * BYTES : (last + 1) * BYTES])
        before = int(self._ends[first - 1]) if first else 0
        return np.flatnonzero(bits)[start - before : stop - before] + first * BYTES * 8
