"""Reductions that the mathematics asks of the ranks, each with its answer on one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from macmpi.typing import Array

EVERY = slice(None)


class Average:
    """Means over a sample of points that are all at hand."""

    def mean(self, part: Callable[[slice], Array], shape: tuple[int, ...]) -> Array:
        """The mean over the sample; part(rows) gives that over some of its rows, of that shape.  Collective: no."""
        return part(EVERY)

    def rows(self, part: Callable[[slice], Array]) -> Array:
        """Gives part(rows) for the sample, row by row.  Collective: no."""
        return part(EVERY)

    def form(self, V: Array, M: Array) -> Array:
        """V^T M V, for V (h, d) and M (h, h).  Collective: no."""
        return V.T @ M @ V


AT_ONCE = Average()

Partial = Callable[[slice], tuple[Array, ...]]

OverPoints = Callable[[Partial], tuple[Array, ...]]
"""Sums what a partial gives for each run of points, in order, in a W-solver in float64: one round of it."""


@dataclass(frozen=True)
class LazyRows:
    """Rows (N, H) that are made when they are asked for, some at a time, and never all kept.

    They are read like an array: `rows[some]` are made now, `rows[:, columns]` and `rows.reshape` when they are read.
    make(rows): some of them.
    """

    make: Callable[[Any], Array]
    shape: tuple[int, int]
    dtype: np.dtype

    def __getitem__(self, places: Any) -> Any:
        match places:
            case (_, columns):
                shape = len(self), len(range(self.shape[1])[columns])
                return LazyRows(lambda rows: self.make(rows)[:, columns], shape, self.dtype)
        return self.make(places)

    def __len__(self) -> int:
        return self.shape[0]

    def reshape(self, count: int, width: int) -> LazyRows:
        """Gives the same numbers in `count` rows of `width`, several of which are one of these rows.

        They can be asked for by number, or by slices that begin and end with a row of these.
        """
        each = self.shape[1] // width

        def make(rows: Any) -> Array:
            if np.ndim(rows):  # rows by number
                asked, back = np.unique(rows // each, return_inverse=True)
                return self.make(asked).reshape(-1, width)[back * each + rows % each]
            whole = rows if rows == EVERY else slice(rows.start // each, rows.stop // each)
            return self.make(whole).reshape(-1, width)

        return LazyRows(make, (count, width), self.dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self.make(EVERY), dtype)


Rows = Array | LazyRows
"""These are read by runs of rows."""


def sum_over(chunks: Sequence[slice]) -> OverPoints:
    """Sums over chunks of points, in their order, on this rank alone.  Collective: no."""

    def total(partial: Partial) -> tuple[Array, ...]:
        sums = tuple(np.array(part, dtype=np.float64) for part in partial(chunks[0]))
        for rows in chunks[1:]:
            for s, part in zip(sums, partial(rows), strict=True):
                s += part
        return sums

    return total


Make = Callable[[int], Array]


class SharedMatrix:
    """Makes a matrix block by block on this rank alone, which is the reference for ranks that share the work."""

    def matrix(self, rows: int, columns: int) -> Array:
        """Makes a float64 matrix that may hold anything.  Collective: where ranks share the work."""
        return np.empty((rows, columns))

    def fill(self, blocks: Sequence[Array], make: Make) -> None:
        """Puts make(i) into block i, a view of `matrix`: each is made by one rank, and all ranks then see all.

        Collective: where ranks share the work.
        """
        for i, block in enumerate(blocks):
            block[:] = make(i)

    def rows(self, runs: Sequence[slice], columns: int, make: Make) -> Array:
        """All rows of a matrix: make(i) gives those of runs[i].  Collective: where ranks share the work."""
        return np.concatenate([make(i) for i in range(len(runs))])

    def from_rank0(self, found: Array) -> Array:
        """Gives every rank, in place, the numbers of rank 0, before all decide by them which sum comes next.

        Processors of unlike kinds round them in different ways.  Collective: where ranks share the work.
        """
        return found

    def anywhere(self, failed: bool) -> bool:
        """Tells whether something has failed on any rank.  Collective: where ranks share the work."""
        return failed


ALONE = SharedMatrix()
