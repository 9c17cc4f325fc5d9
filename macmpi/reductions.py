"""Reductions that the mathematics needs from the ranks, each as one process computes it.

macmpi/parallel has the versions for many ranks; code that computes sees only the classes of this module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from macmpi.typing import Array

EVERY = slice(None)


class Average:
    """Computes means over a sample of points; this class is for samples that one process holds whole."""

    def mean(self, part: Callable[[slice], Array], shape: tuple[int, ...]) -> Array:
        """Computes the mean of a quantity over the sample.  Collective: if the sample is spread over ranks.

        part(rows): computes its mean over some rows of the sample, an array of that shape.
        """
        return part(EVERY)

    def rows(self, part: Callable[[slice], Array]) -> Array:
        """Returns part(rows) for the rows of the sample that this rank holds.  Collective: no."""
        return part(EVERY)

    def form(self, V: Array, M: Array) -> Array:
        """V^T M V, for V (h, d) and M (h, h).  Collective: no."""
        return V.T @ M @ V


AT_ONCE = Average()

Partial = Callable[[slice], tuple[Array, ...]]

OverPoints = Callable[[Partial], tuple[Array, ...]]
"""A function that sums partial(rows) over all ranges of points, in their order; a W-solver's sums are in float64."""


@dataclass(frozen=True)
class LazyRows:
    """An array (N, H) whose rows are computed when they are read, and not kept.

    It is read like an array: `lazy[rows]` computes these rows at once; `lazy[:, columns]` and `lazy.reshape` are lazy
    arrays again.
    make(rows): computes some rows.
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
        """Cuts each row into several rows of `width`, `count` in all.

        The new rows can be read by number, or by slices that begin and end where an old row does.
        """
        each = self.shape[1] // width

        def make(rows: Any) -> Array:
            if np.ndim(rows):  # the numbers of rows
                asked, back = np.unique(rows // each, return_inverse=True)
                return self.make(asked).reshape(-1, width)[back * each + rows % each]
            whole = rows if rows == EVERY else slice(rows.start // each, rows.stop // each)
            return self.make(whole).reshape(-1, width)

        return LazyRows(make, (count, width), self.dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self.make(EVERY), dtype)


Rows = Array | LazyRows
"""An array, or a lazy one, that is read by ranges of rows."""


def sum_over(chunks: Sequence[slice]) -> OverPoints:
    """Returns an `OverPoints` that sums over chunks of points, in their order, on this rank alone.  Collective: no."""

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
        """Allocates a float64 matrix, uninitialised.  Collective: if ranks share the work."""
        return np.empty((rows, columns))

    def fill(self, blocks: Sequence[Array], make: Make) -> None:
        """Puts make(i) into block i, a view of `matrix`.  Collective: if ranks share the work.

        Each block is computed by one rank; at the end all ranks see all blocks.
        """
        for i, block in enumerate(blocks):
            block[:] = make(i)

    def rows(self, runs: Sequence[slice], columns: int, make: Make) -> Array:
        """Returns a whole matrix, of which make(i) computes rows runs[i].  Collective: if ranks share the work."""
        whole = self.matrix(runs[-1].stop, columns)
        self.fill([whole[run] for run in runs], make)
        return whole

    def from_rank0(self, found: Array) -> Array:
        """Overwrites the numbers in `found` by rank 0's numbers, on every rank.  Collective: if ranks share the work.

        It is called before ranks decide by these numbers what to sum next, because processors of different kinds may
        round them differently.
        """
        return found

    def anywhere(self, failed: bool) -> bool:
        """Tells whether `failed` is True on any rank.  Collective: if ranks share the work."""
        return failed


ALONE = SharedMatrix()
