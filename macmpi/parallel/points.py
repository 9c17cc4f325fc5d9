"""Points are divided among ranks; a rank sees its own rows of them, sums over all points, and means over a sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from macmpi.parallel import tiles
from macmpi.parallel.placement import EVERYWHERE, Placement
from macmpi.parallel.shared_work import Join, MatrixAcrossRanks, Products, TreeSum, over_parts
from macmpi.parallel.streams import Stream
from macmpi.parallel.team import Team
from macmpi.parallel.tiles import Cut, Tile
from macmpi.reductions import EVERY, Average, OverPoints, Rows, sum_over
from macmpi.typing import Array

SAMPLE_POINTS = 100
"""The Z-solver averages its preconditioner over this number of points."""

MOST_AT_HAND = 50_000
"""If no rank holds all points, work that reads rows and no sums gets at most this number, the points at hand."""


@dataclass(frozen=True)
class PointPartition:
    """Assigns points to ranks; each owns consecutive blocks of tiles, so that one in-place gather exchanges rows.

    Sums over points go up a tree of blocks or of tiles, which are made when they are asked for, not kept.
    tiles: the tiles of all points.
    blocks, runs: the blocks, each a range of tiles; for each rank its range of blocks.
    placement: says of which points a rank holds the rows, which are counted from the first of them.
    """

    tiles: Cut
    blocks: Cut
    runs: tuple[Tile, ...]
    placement: Placement = EVERYWHERE

    @property
    def n(self) -> int:
        return self.tiles.n

    def points(self, first: int, stop: int) -> Tile:
        """Returns the points of the blocks first, ..., stop - 1."""
        run = self.blocks.run(first, stop)
        return self.tiles.run(run.start, run.stop)

    def tiles_in(self, b: int) -> tuple[Tile, ...]:
        """Returns the tiles of a block."""
        return self.tiles[self.blocks[b].rows]

    def own(self, rank: int) -> Tile:
        """Returns the points that a rank owns, counted over all points."""
        run = self.runs[rank]
        return self.points(run.start, run.stop)

    def held(self, rank: int) -> Tile:
        """Returns the points whose rows a rank holds."""
        return self.placement.held(self.own(rank), self.n)

    def blocks_of(self, rank: int) -> list[tuple[int, tuple[Tile, ...]]]:
        """Returns the number of each block that a rank owns, and its tiles, as rows that the rank holds."""
        run, first = self.runs[rank], self.held(rank).start
        return [(b, tuple(tile.after(first) for tile in self.tiles_in(b))) for b in range(run.start, run.stop)]

    def block(self, b: int, rank: int) -> Tile:
        """Returns the points of a block, counted as rows that a rank holds."""
        return self.points(b, b + 1).after(self.held(rank).start)

    def held_blocks(self, rank: int) -> list[tuple[int, Tile]]:
        """Returns number and rows of each block that a rank holds."""
        run = self.placement.held(self.runs[rank], len(self.blocks))
        return [(b, self.block(b, rank)) for b in range(run.start, run.stop)]

    def tiles_of(self, rank: int) -> list[Tile]:
        return [tile for _, block in self.blocks_of(rank) for tile in block]

    def minibatch(self, rank: int, first: int, apart: int) -> list[slice]:
        """Returns, tile by tile, a rank's own rows among the points first, first + apart, first + 2 apart, ...."""
        begin = first - self.held(rank).start
        found = [every(t.rows, begin, apart) for t in self.tiles_of(rank)]
        return [rows for rows in found if rows.start < rows.stop]

    def gathered(self, rows: Rows, numbers: Array, team: Team) -> Array:
        """Gathers the rows of the points `numbers` on every rank.

        rows: the rows of the points that this rank holds, an array or rows that are made tile by tile.
        Collective: if no rank holds all rows.
        """
        if self.placement.all_rows:
            return rows[numbers]
        first, order = self.held(team.rank).start, np.argsort(numbers, kind="stable")
        ascending, found = numbers[order], np.empty((len(numbers), *rows.shape[1:]), rows.dtype)
        held = [Tile(0, len(rows))] if isinstance(rows, np.ndarray) else self.tiles_of(team.rank)
        for tile in held:
            a, b = np.searchsorted(ascending, (first + tile.start, first + tile.stop)).tolist()
            if a < b:
                found[a:b] = rows[tile.rows if b - a == len(tile) else ascending[a:b] - first]
        ends = np.searchsorted(ascending, [self.own(rank).stop for rank in range(team.size)])
        team.gather_rows(found, np.diff(ends, prepend=0).tolist())
        back = np.empty_like(found)
        back[order] = found
        return back

    def tile_sums(self, team: Team, join: Join = np.add) -> TreeSum:
        """Makes the tree up which tiles are summed, or joined by `join`, whatever the blocks.  Collective: yes."""
        runs = [self.blocks.run(run.start, run.stop) for run in self.runs]
        return TreeSum(len(self.tiles), team, join=join, runs=runs)

    @cached_property
    def block_counts(self) -> tuple[int, ...]:
        return tuple(len(run) for run in self.runs)

    @cached_property
    def row_counts(self) -> tuple[int, ...]:
        return tuple(len(self.own(r)) for r in range(len(self.runs)))


Partitions = tuple[PointPartition, PointPartition]
"""The partitions of the training and of the validation points."""


def every(rows: slice, first: int, apart: int) -> slice:
    """Returns which rows of a range are first + i apart, for any whole number i.  Collective: no."""
    return slice(rows.start + (first - rows.start) % apart, rows.stop, apart)


def partition_points(
    n: int,
    ranks: int,
    blocks: int | None = None,
    placement: Placement = EVERYWHERE,
    tiled: Callable[[int], Cut] = tiles.point_tiles,
) -> PointPartition:
    """Decides which points each rank owns: consecutive blocks, whose numbers on two ranks differ by at most one.

    blocks: the largest number of blocks; None: that of `tiles.block_count`.  tiled: cuts n points into tiles.
        Collective: no.
    """
    of_points = tiled(n)
    cut = tiles.cut(len(of_points), tiles.block_count(n) if blocks is None else blocks)
    return PointPartition(of_points, cut, tiles.contiguous_runs(len(cut), ranks), placement)


def some(n: int, count: int, random: Stream) -> Array:
    """Draws `count` of n points, one from each of `count` even ranges, or takes all n; returns their indices.

    Collective: no.
    """
    ends = np.arange(min(count, n) + 1) * n // max(min(count, n), 1)
    return ends[:-1] + random.integers(np.diff(ends))


class Points:
    """Shows the points to one rank: its rows, which it writes, makes and keeps, and sums over all points.

    train, summed: the partition of the points, and the partition by which `jointly` sums; widest: the bytes of its
        widest sum.
    weights (n,): the weights of the points that this rank holds; None if all are 1.
    subset: indices of the points at hand; None if this rank holds all points.
    count, own: the number of rows that this rank holds, and the rows of its own points.
    total_weight: the sum of the points' weights, or their number if all are 1.
    sample: this rank's rows of points that are evenly spaced along the running sum of the weights.
    average: a mean over the sample.  Collective.
    over: a sum over all points.  Collective: unless each rank holds all points and sums alone.
    jointly: a sum over all points for which each rank does its share.  Collective.
    summing: whether this rank takes part in `once`.
    Collective: yes, to make one of points with weights, and where a method says so.
    """

    def __init__(
        self,
        train: PointPartition,
        summed: PointPartition,
        team: Team,
        widest: int = 0,
        weights: Array | None = None,
        subset: Array | None = None,
    ) -> None:
        self.subset = None if train.placement.all_rows else subset
        held, self._all_rows = train.held(team.rank), train.placement.all_rows
        self.total_weight = float(train.n)
        if weights is None:
            self._size = min(SAMPLE_POINTS, train.n)
            everywhere = np.arange(self._size) * train.n // self._size
            self.sample = everywhere[(everywhere >= held.start) & (everywhere < held.stop)] - held.start
        else:
            sums = block_sums(weights, summed, team)
            self.total_weight = float(sums[-1])
            self._size = min(SAMPLE_POINTS, max(train.n, int(min(self.total_weight, SAMPLE_POINTS))))
            marks = np.arange(self._size) * self.total_weight / self._size
            self.sample = spaced_along(weights, sums, marks, summed, team.rank)
        self.count, self.own = len(held), train.own(team.rank).after(held.start).rows
        self._own, self._summed, self._team, self._widest = train, summed, team, widest
        self._together = Team() if self._all_rows else team
        self.summing, self.shared_matrix = not self._all_rows or team.rank == 0, MatrixAcrossRanks(self._together)

    @cached_property
    def _tree(self) -> TreeSum:
        return TreeSum(len(self._summed.blocks), self._team, self._widest)

    @cached_property
    def _own_tree(self) -> TreeSum:
        """The tree of the same blocks for the ranks that take part in `over`: only this rank, or all."""
        return TreeSum(len(self._summed.blocks), self._together) if self._all_rows else self._tree

    def _sums(self, tree: TreeSum) -> OverPoints:
        summed, rank = self._summed, self._team.rank
        return over_parts(tree, lambda b: [t.rows for t in tiles.chunks_within(summed.block(b, rank))])

    @cached_property
    def jointly(self) -> OverPoints:
        """The sum over all points, of which each rank computes its share.  Collective: the sum, not this property."""
        return self._sums(self._tree)

    @cached_property
    def over(self) -> OverPoints:
        n = self._own.n
        if self._all_rows and n < len(self._summed.blocks) * tiles.LEAST_ROWS:
            return sum_over([chunk.rows for chunk in tiles.point_chunks(n)])
        return self._sums(self._own_tree)

    def minibatch(self, first: int, apart: int) -> Callable[[slice], slice]:
        """Returns a function that picks a range of rows among the points first, first + apart, ....  Collective: no."""
        return partial(every, first=first - self._own.held(self._team.rank).start, apart=apart)

    @property
    def share(self) -> float:
        """The share of all points that are at hand.  Collective: no."""
        return 1.0 if self.subset is None else len(self.subset) / self._own.n

    @cached_property
    def alone(self) -> OverPoints:
        """The sum over the points at hand, by this rank alone.  Collective: no."""
        if self.subset is None:
            return self.over
        points = partition_points(len(self.subset), 1, tiles.sum_blocks(len(self.subset)))
        return Points(points, points, Team()).over

    def at_hand(self, rows: Rows) -> Array:
        """Returns the rows of all points if this rank holds them, else the rows of the points at hand, on every rank.

        Collective: if this rank does not hold all points.
        """
        return rows[EVERY] if self.subset is None else self._own.gathered(rows, self.subset, self._team)

    def given(self, rows: Rows | None, width: int) -> Array:
        """Gives each rank the rows (n, width), float64, of the points that it holds, from rank 0's rows of all points.

        rows: on rank 0, which reads one rank's rows at a time if no rank holds all; None on other ranks.  Collective:
            yes.
        """
        if self.subset is None:
            out: Array = self._team.array((self.count, width), np.float64)
            if rows is not None:
                out[:] = rows
            self._team.share_array(out)
            return out
        for rank in range(self._team.size):
            run = self._own.own(rank)
            part = np.zeros((len(run), width))
            if rows is not None:
                part[:] = rows[run.rows]
            self._team.share_array(part)
            if rank == self._team.rank:
                out = part
        return out

    @cached_property
    def average(self) -> Average:
        blocks = self._summed.held_blocks(self._team.rank)
        return OverSample(self._team, self._own_tree, self.sample, blocks, self._size)

    def here(self, rows: Rows) -> Rows:
        """Computes lazy rows now, block by block, or returns them as they are if no rank holds all.  Collective: no."""
        if isinstance(rows, np.ndarray) or not self._all_rows:
            return rows
        each, blocks = len(rows) // max(self.count, 1), self._summed.held_blocks(self._team.rank)
        return np.concatenate([rows[each * block.start : each * block.stop] for _, block in blocks])

    def hold(self, rows: Rows, out: Any = None, most: float = np.inf) -> Rows:
        """Computes lazy rows of each rank's own points and keeps them, or returns the lazy rows.

        They are kept if each rank holds all rows and those of all points take at most `most` bytes.  out: as in `rows`.
        Collective: yes.
        """
        count = rows.shape[0] * rows.shape[1] * rows.dtype.itemsize
        if isinstance(rows, np.ndarray) or not self._all_rows or count > most:
            return rows
        return self.rows(rows.make, rows.shape[1], rows.dtype, out)

    @contextmanager
    def writing(self, rows: Array) -> Iterator[None]:
        """Lets each rank write the rows of its own points in a block; then all ranks that hold these rows get them.

        In the block a rank may read only its own rows.  Collective: yes.
        """
        self._team.fence(rows)
        yield
        if self._all_rows:
            self._team.gather_rows(rows, self._own.row_counts)

    def spare(self, rows: Array) -> Array:
        """Returns an array for rows of the same shape, or these rows themselves if memory may not hold both.

        Collective: yes.
        """
        if self.subset is None:
            return self._team.array(rows.shape, rows.dtype)
        return np.empty_like(rows) if self.share == 1.0 else rows

    def once(self, count: int, make: Callable[[], Array]) -> Array:
        """Calls `make`, which sums over all points with `over`, and gives its numbers (count,) to all ranks.

        Only rank 0 calls it if rank 0 can sum alone, else all ranks do.  Collective: yes.
        """
        found = np.zeros(count)
        if self.summing:
            found[:] = make()
        self._team.share_array(found)
        return found

    def rows(self, make: Callable[[slice], Array], width: int, dtype: np.dtype, out: Array | None = None) -> Array:
        """Computes make(rows) for every point that this rank holds: (n, width).  Collective: yes.

        Each rank does so for its own points, tile by tile, and all ranks that hold these rows get them.
        out: the array of an earlier call, which nobody needs any more, to be used again.
        """
        rows = self._team.array((self.count, width), dtype) if out is None else out
        with self.writing(rows):
            for tile in self._own.tiles_of(self._team.rank):
                rows[tile.rows] = make(tile.rows)
        return rows


def block_sums(weights: Array, train: PointPartition, team: Team) -> Array:
    """Computes the running sum of the points' weights at the end of each block: (blocks,).  Collective: yes.

    weights: the weights of the points that this rank holds.
    """
    sums = np.zeros((len(train.blocks), 1))
    for b in range(train.runs[team.rank].start, train.runs[team.rank].stop):
        sums[b] = weights[train.block(b, team.rank).rows].sum()
    team.gather_rows(sums, train.block_counts)
    return np.cumsum(sums[:, 0])


def spaced_along(weights: Array, sums: Array, marks: Array, train: PointPartition, rank: int) -> Array:
    """Finds the points at which the running sum of all weights passes the marks, as rows that a rank holds, ascending.

    sums: from `block_sums`.  Collective: no.
    """
    found = list[Array]()
    of = np.minimum(np.searchsorted(sums, marks, side="right"), len(sums) - 1)
    for b, block in train.held_blocks(rank):
        own = marks[of == b] - (sums[b - 1] if b else 0.0)
        places = np.searchsorted(np.cumsum(weights[block.rows]), own, side="right")
        found.append(block.start + np.minimum(places, len(block) - 1))
    return np.concatenate([np.zeros(0, dtype=np.int64), *found])


class OverSample(Average):
    """Computes means over a sample that is spread over ranks, which share products of large matrices.  Collective: yes.

    sample: the rows that this rank holds; blocks: number and rows of each block that it holds; size: the size of the
        sample.
    """

    def __init__(self, team: Team, tree: TreeSum, sample: Array, blocks: Sequence[tuple[int, Tile]], size: int) -> None:
        self._products, self._tree, self._size = Products(team), tree, size
        runs = {b: np.searchsorted(sample, [block.start, block.stop]).tolist() for b, block in blocks}
        self._runs = {b: slice(first, last) for b, (first, last) in runs.items() if last > first}

    def mean(self, part: Callable[[slice], Array], shape: tuple[int, ...]) -> Array:
        def add(b: int, out: Array) -> None:
            if b in self._runs:
                rows = self._runs[b]
                out += np.ravel(part(rows)) * ((rows.stop - rows.start) / self._size)

        return self._tree(add, int(np.prod(shape))).reshape(shape)

    def rows(self, part: Callable[[slice], Array]) -> Array:
        """Computes part(rows) for the points of the sample that this rank holds, row by row.  Collective: no.

        `part` is called block by block, so that the bits do not depend on which blocks a rank holds.
        """
        parts = [part(rows) for rows in self._runs.values()]
        return np.concatenate(parts) if parts else part(slice(0, 0))

    def form(self, V: Array, M: Array) -> Array:
        return self._products.form(V, M)
