"""The training points as a rank sees them: which rows it holds, sums over all of them, means over a sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np

from macmpi.parallel import tiles
from macmpi.parallel.blocks import Pieces, Products
from macmpi.parallel.partition import PointPartition
from macmpi.parallel.team import Team
from macmpi.parallel.tree_sum import TreeSum, over_parts
from macmpi.reductions import ALONE, EVERY, Average, OverPoints, Rows, sum_over
from macmpi.typing import Array

SAMPLE_POINTS = 100
"""Points over which the Z-solver averages its preconditioner."""


class Points:
    """Replicated, every rank has all rows and sums by itself; sharded, it has its own, and sums are exchanged.

    count: how many rows this rank holds; own: which of them are its own points'; sample: evenly spaced points, as rows
    of what it holds; average: a mean over the sample; over: a sum over all points; jointly: a sum over all points for
    which each rank does its share; weight: the sum of the points' weights, their number where all are 1.  `jointly`
    and averages are collective, `over` where points are sharded.

    train: of the points; summed: as `jointly` sums over them; widest: bytes of its widest sum.  weights: of the points
    that this rank holds, (N,): the sample is spaced evenly along their running sum, as that of w_n copies would be.
    """

    def __init__(
        self,
        train: PointPartition,
        summed: PointPartition,
        team: Team,
        widest: int = 0,
        weights: Array | None = None,
    ) -> None:
        held = train.held(team.rank)
        self.weight = float(train.n)
        if weights is None:
            size = min(SAMPLE_POINTS, train.n)
            everywhere = np.arange(size) * train.n // size
            here = everywhere[(everywhere >= held.start) & (everywhere < held.stop)]
        else:
            sums = block_sums(weights, train, team)
            self.weight = float(sums[-1])
            size = min(SAMPLE_POINTS, max(train.n, int(min(self.weight, SAMPLE_POINTS))))
            here = spaced_along(weights, sums, np.arange(size) * self.weight / size, train, team.rank)
        self.count, self.own = len(held), train.own(team.rank).after(held.start).rows
        self.sample = here - held.start
        self._own, self._summed, self._team, self._widest = train, summed, team, widest
        if not train.sharded:
            self.average: Average = OverSample(team)
            self.over, self.in_pieces = sum_over([tile.rows for tile in tiles.point_chunks(train.n)]), ALONE
            return
        self.in_pieces = Pieces(team)
        self.over = self.jointly
        blocks = train.blocks_of(team.rank)
        runs = {b: _within(self.sample, block[0].start, block[-1].stop) for b, block in blocks}
        self.average = OverSampleByBlocks(team, self._tree, runs, size)

    @cached_property
    def _tree(self) -> TreeSum:
        return TreeSum(len(self._summed.blocks), self._team, self._widest)

    @cached_property
    def jointly(self) -> OverPoints:
        blocks = dict(self._summed.blocks_of(self._team.rank))
        return over_parts(self._tree, lambda b: _chunks(blocks[b]))

    def here(self, rows: Rows) -> Rows:
        """Rows that are made, made at once; of sharded points, of which there may be many, later.  Collective: no."""
        return rows if self._own.sharded or isinstance(rows, np.ndarray) else rows[EVERY]

    def hold(self, rows: Rows, out: Any = None, most: float = np.inf) -> Rows:
        """Rows that are made, each of its own points by each rank, for all; of sharded points later, and so of many.

        out: as of `rows`; most: bytes of all of them.  Collective: yes.
        """
        large = rows.shape[0] * rows.shape[1] * rows.dtype.itemsize > most
        if self._own.sharded or large or isinstance(rows, np.ndarray):
            return rows
        return self.rows(rows.make, rows.shape[1], rows.dtype, out)

    @contextmanager
    def writing(self, rows: Array) -> Iterator[None]:
        """Inside, each rank writes its own points' rows and reads no others; then all are here.  Collective: yes."""
        self._team.fence(rows)
        yield
        if not self._own.sharded:
            self._team.gather_rows(rows, self._own.row_counts)

    def spare(self, rows: Array) -> Array:
        """Rows of the same shape to be written; of sharded points, which memory may not hold twice, these themselves.

        Collective: yes.
        """
        return rows if self._own.sharded else self._team.array(rows.shape, rows.dtype)

    def once(self, count: int, make: Callable[[], Array]) -> Array:
        """Numbers (count,) that are made of sums over all points (`over`): by rank 0 for all, or by all jointly.

        Collective: yes.
        """
        found = np.zeros(count)
        if self._own.sharded or self._team.rank == 0:
            found[:] = make()
        if not self._own.sharded:
            self._team.share_array(found)
        return found

    def rows(self, make: Callable[[slice], Array], width: int, dtype: np.dtype, out: Array | None = None) -> Array:
        """make(rows) of every point that this rank holds, tile by tile: (N, width).

        Each rank makes those of its own points; replicated, all get all, and the ranks of a node may share them.
        out: what an earlier call gave, and nobody needs any more.  Collective: yes.
        """
        own, team = self._own, self._team
        if out is None:
            shape = self.count, width
            out = np.empty(shape, dtype) if own.sharded else team.array(shape, dtype)
        else:
            team.fence(out)
        for tile in own.tiles_of(team.rank):
            out[tile.rows] = make(tile.rows)
        if not own.sharded:
            team.gather_rows(out, own.row_counts)
        return out


def block_sums(weights: Array, train: PointPartition, team: Team) -> Array:
    """The running sum of the points' weights at the end of each block: (blocks,).  Collective: where sharded.

    weights: of the points that this rank holds.
    """
    first, sums = train.held(team.rank).start, np.zeros((len(train.blocks), 1))
    run = train.runs[team.rank] if train.sharded else tiles.Tile(0, len(train.blocks))
    for b in range(run.start, run.stop):
        block = train.blocks[b]
        sums[b] = weights[block[0].start - first : block[-1].stop - first].sum()
    if train.sharded:
        team.gather_rows(sums, train.block_counts)
    return np.cumsum(sums[:, 0])


def spaced_along(weights: Array, sums: Array, marks: Array, train: PointPartition, rank: int) -> Array:
    """The points, of those that a rank holds, in which the running sum of all weights passes the marks, ascending.

    sums: as `block_sums`.  Collective: no.
    """
    first, found = train.held(rank).start, list[Array]()
    run = train.runs[rank] if train.sharded else tiles.Tile(0, len(train.blocks))
    of = np.minimum(np.searchsorted(sums, marks, side="right"), len(sums) - 1)
    for b in range(run.start, run.stop):
        start, stop = train.blocks[b][0].start, train.blocks[b][-1].stop
        own = marks[of == b] - (sums[b - 1] if b else 0.0)
        places = np.searchsorted(np.cumsum(weights[start - first : stop - first]), own, side="right")
        found.append(start + np.minimum(places, stop - start - 1))
    return np.concatenate([np.zeros(0, dtype=np.int64), *found])


def _chunks(block: tuple[tiles.Tile, ...]) -> list[slice]:
    """Runs of a block's rows that a W-solver takes at a time."""
    return [t.rows for t in tiles.chunks_within(tiles.Tile(block[0].start, block[-1].stop))]


def _within(sample: Array, start: int, stop: int) -> slice:
    """Finds the sample's points among the rows start, ..., stop - 1."""
    first, last = np.searchsorted(sample, [start, stop]).tolist()
    return slice(first, last)


class OverSample(Average):
    """Means over a sample that every rank has; products of large matrices are shared.  Collective: yes."""

    def __init__(self, team: Team) -> None:
        self._products = Products(team)

    def form(self, V: Array, M: Array) -> Array:
        return self._products.form(V, M)


class OverSampleByBlocks(OverSample):
    """Means over a sample of which each rank holds some: `runs[b]` are its rows in block b.  Collective: yes."""

    def __init__(self, team: Team, tree: TreeSum, runs: dict[int, slice], size: int) -> None:
        super().__init__(team)
        self._tree, self._size = tree, size
        self._runs = {b: rows for b, rows in runs.items() if rows.stop > rows.start}

    def mean(self, part: Callable[[slice], Array], shape: tuple[int, ...]) -> Array:
        def add(b: int, out: Array) -> None:
            if b in self._runs:
                rows = self._runs[b]
                out += np.ravel(part(rows)) * ((rows.stop - rows.start) / self._size)

        return self._tree(add, int(np.prod(shape))).reshape(shape)

    def rows(self, part: Callable[[slice], Array]) -> Array:
        """Block by block, so that the bits do not depend on which blocks a rank holds.  Collective: no."""
        parts = [part(rows) for rows in self._runs.values()]
        return np.concatenate(parts) if parts else part(slice(0, 0))
