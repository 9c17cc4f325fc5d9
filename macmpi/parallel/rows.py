"""A rank holds rows as sets of row numbers, as rows of a file that are converted when they are read, or joined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from macmpi.parallel import tiles
from macmpi.parallel.points import MOST_AT_HAND, PointPartition, Points
from macmpi.parallel.team import Team
from macmpi.reductions import LazyRows, Rows
from macmpi.typing import Array

BYTES = 1 << 9
"""This many bytes of bits are unpacked at a time."""


class RowSet:
    """Is an ascending list of row numbers, kept as one bit for each row of the file.

    rows[a:b] are the a-th to the (b - 1)-th number of the list.
    """

    def __init__(self, bits: Array) -> None:
        self.bits = bits

    @cached_property
    def _ends(self) -> Array:
        """The number of listed rows up to the end of each block of bits."""
        starts = range(0, len(self.bits), BYTES)
        return np.cumsum([int(np.bitwise_count(self.bits[i : i + BYTES]).sum()) for i in starts])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, run: slice) -> Array:
        start, stop, step = run.indices(len(self))
        if start >= stop:
            return np.empty(0, np.int64)
        first, last = np.searchsorted(self._ends, [start, stop - 1], side="right").tolist()
        bits = np.unpackbits(self.bits[first * BYTES : (last + 1) * BYTES])
        before = int(self._ends[first - 1]) if first else 0
        return np.flatnonzero(bits)[start - before : stop - before : step] + first * BYTES * 8


class Converted(LazyRows):
    """Holds rows as they are given, in memory or in a file, and converts them to numbers when they are read.

    The range that was read last is kept, since an autoencoder's inputs are its targets.

    source: rows (N, D) of any type, read by runs or by number.
    convert: convert(rows) makes (n, H) numbers of some of them.
    """

    source: Any
    convert: Callable[[Array], Array]

    def __init__(self, source: Any, convert: Callable[[Array], Array], width: int, dtype: Any) -> None:
        last: list[tuple[slice, Array]] = []

        def make(rows: Any) -> Array:
            run = isinstance(rows, slice) and rows != slice(None)
            if run and last and last[0][0] == rows:
                return last[0][1]
            found = convert(source[rows]).astype(dtype, copy=False)
            if run:
                found.flags.writeable = False
                last[:] = [(rows, found)]
            return found

        super().__init__(make, (source.shape[0], width), np.dtype(dtype))
        vars(self).update(source=source, convert=convert)

    def of(self, source: Any) -> Converted:
        """Makes other rows that are converted in the same way.  Collective: no."""
        return Converted(source, self.convert, self.shape[1], self.dtype)


def in_single(points: Points, rows: Rows, out: Array | None) -> Rows:
    """Makes rows in single precision: once, or if they are converted when they are read, each time.

    out: as in `Points.rows`.  Collective: yes.
    """
    single = np.dtype(np.float32)
    if isinstance(rows, Converted):
        return LazyRows(lambda some: rows[some].astype(single), rows.shape, single)
    return points.rows(lambda some: rows[some], rows.shape[1], single, out)


def appended(sets: Sequence[tuple[PointPartition, Any]], to: PointPartition, team: Team) -> Any:
    """Joins the rows of several sets of points, one set after the other; returns those that this rank then holds.

    If no rank holds all rows, every rank sees them in ranges of MOST_AT_HAND rows, and keeps its own rows.  Rows that
    are converted when they are read stay unconverted.

    sets: partition and rows of each set.
    to: the partition of the joined points.
    Collective: if no rank holds all rows.
    """
    first = sets[0][1]
    if isinstance(first, Converted):
        return first.of(appended([(points, rows.source) for points, rows in sets], to, team))
    held, rows, at = to.held(team.rank), sets[0][1], 0
    if (whole := _whole([rows for _, rows in sets])) is not None and len(whole) == len(held):
        return whole
    out = np.empty((len(held), *rows.shape[1:]), rows.dtype)
    for points, rows in sets:
        for run in tiles.cut(points.n, -(-points.n // MOST_AT_HAND)):
            found = points.gathered(rows, np.arange(run.start, run.stop), team)
            a, b = max(held.start, at + run.start), min(held.stop, at + run.stop)
            out[a - held.start : max(b, a) - held.start] = found[a - at - run.start : max(b, a) - at - run.start]
        at += points.n
    return out


def _whole(parts: Sequence[Any]) -> Array | None:
    """Returns the array whose rows the parts are, one part after the other; None if there is no such array."""
    first, base = parts[0], getattr(parts[0], "base", None)
    if not isinstance(base, np.ndarray) or (base.dtype, base.shape[1:]) != (first.dtype, first.shape[1:]):
        return None
    (begin, end), bounds = byte_bounds(base), [byte_bounds(A) for A in parts]
    one_by_one = [begin, *(stop for _, stop in bounds)] == [*(start for start, _ in bounds), end]
    return base if one_by_one and all(A.flags.c_contiguous for A in parts) else None
