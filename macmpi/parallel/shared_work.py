"""Ranks share work: a matrix by blocks, a product by rows, a sum up one fixed tree; each part is done by one rank.

Afterwards all ranks have the whole.  If the ranks of a node share memory, they exchange their parts there.  Sums have
the same bits whichever ranks own which parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from macmpi.parallel import tiles
from macmpi.parallel.team import Team
from macmpi.parallel.tiles import Tile
from macmpi.reductions import EVERY, Make, OverPoints, Partial, SharedMatrix
from macmpi.typing import Array

ROWS = 6
"""Ranks share a product in this number of ranges of rows: more would be narrower, and slower."""

LARGE = 2e7
"""Ranks share products of at least this number of flops, which take longer than a meeting of the ranks."""


RowMaker = Callable[[slice], Array]
"""Makes some rows of a matrix."""


class DoubleBuffer:
    """Makes arrays that ranks exchange, alternately in two pieces of memory, which the ranks of a node may share.

    A rank may write the next array while others still read the present one, since all ranks have read the previous one.
    So each array must be exchanged before the next one is requested, and copied if it must stay.

    capacity: the bytes that the largest array is likely to take.
    Collective: yes, to make one.
    """

    def __init__(self, team: Team, capacity: int = 0) -> None:
        self._team = team
        self._memory: list[Array] = []
        if team.shares:
            self.array((capacity,), np.uint8)

    def array(self, shape: tuple[int, ...], dtype: np.dtype | type) -> Array:
        """Returns an array whose values are arbitrary.  Collective: yes."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if not size or not self._team.shares:  # an empty array is not exchanged, so the pieces do not swap
            return np.empty(shape, dtype)
        if not self._memory or len(self._memory[0]) < size:
            self._memory = [self._team.array((size,), np.uint8) for _ in range(2)]
        self._memory.reverse()
        return self._memory[0][:size].view(dtype).reshape(shape)


assigned = lru_cache(maxsize=256)(tiles.assign_by_cost)
"""Assigns pieces of some sizes to ranks, alike on every rank."""


class MatrixAcrossRanks(SharedMatrix):
    """Lets ranks fill a matrix together, each block by one rank; all ranks then have all of it.  Collective: yes."""

    def __init__(self, team: Team) -> None:
        self.team, self._buffer = team, DoubleBuffer(team)
        self._common: Array | None = None

    def matrix(self, rows: int, columns: int) -> Array:
        made: Array = self.team.array((rows, columns), np.float64)
        self._common = made if self.team.common(made) else None
        return made

    def fill(self, blocks: Sequence[Array], make: Make) -> None:
        sizes, found = tuple(block.size for block in blocks), list(blocks)
        owned = assigned(sizes, self.team.size)
        in_place = self.team.size == 1 or self._common is not None
        if not in_place:
            flat, at = self._buffer.array((sum(sizes),), np.float64), 0
            for i in (i for rank in owned for i in rank):
                found[i] = flat[at : at + sizes[i]].reshape(blocks[i].shape)
                at += sizes[i]
        for i in owned[self.team.rank]:
            found[i][:] = make(i)
        if in_place:
            return self.team.fence(self._common)  # all ranks have written their blocks
        self.team.gather_rows(flat, [sum(sizes[i] for i in rank) for rank in owned])
        for block, part in zip(blocks, found, strict=True):
            block[:] = part

    def from_rank0(self, found: Array) -> Array:
        shared = np.ascontiguousarray(found)
        self.team.share_array(shared)
        found[...] = shared
        return found

    def anywhere(self, failed: bool) -> bool:
        return self.team.max_over_ranks({"failed": float(failed)})["failed"] > 0.0


class Products:
    """Computes V^T M V for V (h, d) and M (h, h), of which each rank makes some rows.  Collective: yes.

    capacity: the bytes that the largest product is likely to take.
    """

    def __init__(self, team: Team, capacity: int = 0) -> None:
        self.team, self._buffer = team, DoubleBuffer(team, capacity)

    def form(self, V: Array, M: Array | None) -> Array:
        """Returns V^T M V, or V^T V if M is None, in an array of its own.  Collective: yes."""
        return self.weighted(V, M, None).copy()

    def weighted(self, V: Array, M: Array | None, times: RowMaker | None) -> Array:
        """Returns V^T M V, or V^T V if M is None, times another matrix element by element.

        It may be read until the next product is computed, which uses its memory again.

        times: makes rows of that matrix (d, d); a rank asks for the rows that it needs.  None: there is none.
        Collective: yes.
        """
        if 2 * V.size * (V.shape[1] + (0 if M is None else len(V))) < LARGE:
            small = V.T @ (V if M is None else M @ V)
            return small if times is None else small * times(EVERY)
        side = V.shape[1]
        cut = tiles.cut(side, ROWS)
        runs = tiles.contiguous_runs(len(cut), self.team.size)
        product = self._buffer.array((side, side), V.dtype)
        for tile in cut[runs[self.team.rank].rows]:
            left, own = V[:, tile.rows].T, product[tile.rows]
            np.matmul(left if M is None else left @ M, V, out=own)
            if times is not None:
                own *= times(tile.rows)
        self.team.gather_rows(product, [sum(map(len, cut[run.rows])) for run in runs])
        return product


def share_on_node(team: Team, array: Array) -> Array:
    """Moves an array to memory that the ranks of a node share, if they share any.

    Collective: yes.
    """
    if not team.shares or team.common(array):
        return array
    found: Array = team.array(array.shape, array.dtype)
    runs = tiles.contiguous_runs(len(array), team.size)
    own = runs[team.rank].rows
    found[own] = array[own]
    team.gather_rows(found, [len(run) for run in runs])
    return found


# --- sums -------------------------------------------------------------------------------------------------------------


ALONE, WIDE, TABLE = 2, 4096, 48 * 4096
"""Every rank adds up all columns if there are at most ALONE subtrees, or if the sum is narrower than WIDE and all
subtrees have at most TABLE numbers; otherwise each rank adds up its share of the columns."""

Add = Callable[[int, Array], None]
"""add(i, out) adds part i's share to `out` (width,), or if the caller says `sets`, writes it there."""

Join = np.ufunc
"""Joins the sums of two subtrees: numpy.add, or numpy.minimum or maximum instead of a sum."""

Order: TypeAlias = "int | tuple[Order, Order]"
"""Describes a sum: it is one of the exchanged rows, by its number, or is joined from two such sums."""


def alone(subtrees: int, width: int) -> bool:
    """Tells whether every rank adds up the sums of all subtrees by itself.  Collective: no."""
    return subtrees <= ALONE or (width < WIDE and subtrees * width <= TABLE)


@dataclass(frozen=True)
class Sum:
    """Holds a sum that is not added up yet.

    rows (subtrees, width): the sums of subtrees.
    order, join: the order in which they are joined, and by which function.
    """

    rows: Array
    order: Order
    join: Join

    def part(self, columns: slice, out: Array) -> Array:
        """Adds up some columns in `out`, and returns them; for a single row, a view that must not be written to.

        Collective: no.
        """
        return _joined(self.rows[:, columns], self.order, self.join, out)

    def put(self, columns: slice, out: Array) -> Array:
        """Puts some columns of the sum into `out`.  Collective: no."""
        found = self.part(columns, out)
        if found is not out:
            np.copyto(out, found)
        return out


class TreeSum:
    """Sums over `leaves` parts up a fixed tree; each rank has consecutive parts.

    A rank adds up the largest subtrees within its run.  Only their sums are exchanged, a few per rank however many
    parts there are.  If the sum is wide and there are many subtrees, each rank gets its share of the columns, adds them
    up, and the results are exchanged: so no rank ever has the sums of all others, unless a node has one copy of them.

    widest: the bytes that the largest sum is likely to take.
    join: the function that replaces the addition of two sums.
    runs: the range of parts of each rank; None: even ranges.
    Collective: yes, to make one.
    """

    def __init__(
        self, leaves: int, team: Team, widest: int = 0, join: Join = np.add, runs: Sequence[Tile] | None = None
    ) -> None:
        self.leaves, self.team, self._join = leaves, team, join
        self.runs = tiles.contiguous_runs(leaves, team.size) if runs is None else runs
        self._nodes = [tiles.nodes(leaves, run) for run in self.runs]
        self._counts = [len(rank) for rank in self._nodes]
        rows = {node: i for i, node in enumerate(node for rank in self._nodes for node in rank)}
        self._order = _order(rows, Tile(0, leaves)) if leaves else 0
        self._buffer = DoubleBuffer(team, widest * len(rows))

    @property
    def own(self) -> Tile:
        """The range of parts that this rank has."""
        return self.runs[self.team.rank]

    def __call__(self, add: Add, width: int, dtype: np.dtype | type = np.float64, sets: bool = False) -> Array:
        """Computes the sum (width,) over all parts.

        add: add(i, out) adds part i's share to `out` (width,), or with `sets` writes it there.
        Collective: yes.
        """
        found = self.exchanged(add, width, dtype, sets)
        return found.rows[0] if self.team.size == 1 else found.put(slice(0, width), np.empty(width, dtype))

    def exchanged(self, add: Add, width: int, dtype: np.dtype | type = np.float64, sets: bool = False) -> Sum:
        """Sums over all parts, but returns a `Sum`, which adds up columns only when somebody reads them.

        They may be read until the next sum is computed, which uses the same memory.

        add, width, dtype, sets: as in a call.  Collective: yes.
        """
        counts = self._counts
        if self.team.shares or alone(sum(counts), width):
            sums, first = self._buffer.array((sum(counts), width), dtype), sum(counts[: self.team.rank])
            self._fill_own(add, sums[first:], sets)
            self.team.gather_rows(sums, counts)
        if alone(sum(counts), width):
            return Sum(sums, self._order, self._join)
        columns = tiles.contiguous_runs(width, self.team.size)
        mine = columns[self.team.rank].rows
        if self.team.shares:
            own = sums[:, mine]
        else:
            rows = np.empty((counts[self.team.rank], width), dtype)
            self._fill_own(add, rows, sets)
            own = self.team.gather_columns(rows, counts, [run.rows for run in columns])
        total = self._buffer.array((width,), dtype)
        Sum(own, self._order, self._join).put(slice(None), total[mine])
        self.team.gather_rows(total, [len(run) for run in columns])
        return Sum(total[None], 0, self._join)

    def _fill_own(self, add: Add, sums: Array, sets: bool) -> None:
        """Puts the sums of this rank's subtrees into the first rows of `sums`."""
        for row, node in zip(sums, self._nodes[self.team.rank], strict=False):
            _fill(add, row, node, sets, self._join)


def _fill(add: Add, out: Array, node: Tile, sets: bool, join: Join) -> Array:
    """Puts the sum over the parts of a subtree into `out`, and returns it.

    It is not a closure, since a closure that calls itself would keep all objects that `add` refers to alive until the
    garbage collector runs.

    add: add(i, out) adds part i's share, or with `sets` writes it.
    join: joins two sums.
    """
    if len(node) == 1:
        if not sets:
            out.fill(0.0)
        add(node.start, out)
    else:
        middle = tiles.halves(node.start, node.stop)
        _fill(add, out, Tile(node.start, middle), sets, join)
        join(out, _fill(add, np.empty_like(out), Tile(middle, node.stop), sets, join), out=out)
    return out


def _order(rows: Mapping[Tile, int], node: Tile) -> Order:
    """Returns the order in which the rows of subtrees are joined to the sum of a node.  rows: subtree -> its row."""
    if node in rows:
        return rows[node]
    middle = tiles.halves(node.start, node.stop)
    return _order(rows, Tile(node.start, middle)), _order(rows, Tile(middle, node.stop))


def _joined(sums: Array, order: Order, join: Join, out: Array | None = None) -> Array:
    """Joins rows in an order; returns their sum, in `out` if that is given."""
    if isinstance(order, int):
        return sums[order]
    return join(_joined(sums, order[0], join), _joined(sums, order[1], join), out=out)


def over_parts(
    tree: TreeSum, slices: Callable[[int], Sequence[slice]], dtype: np.dtype | type = np.float64
) -> OverPoints:
    """Makes the function by which solvers sum over points, along a tree whose part i has the points slices(i).

    Ranks exchange only sums, of `dtype`, however many points there are; and nothing if a partial gives no arrays.
    Collective: the sums are, if the tree is of several ranks.
    """
    own = {i: slices(i) for i in range(tree.own.start, tree.own.stop)}
    first = next((rows for i in own for rows in own[i]), slice(0, 0))

    def total(partial: Partial) -> tuple[Array, ...]:
        begun = [np.asarray(part) for part in partial(first)]
        shapes = [part.shape for part in begun]
        bounds = np.cumsum([0, *(part.size for part in begun)]).tolist()

        def add(i: int, out: Array) -> None:
            for rows in own[i]:
                for a, b, part in zip(bounds, bounds[1:], begun if rows is first else partial(rows), strict=False):
                    out[a:b] += np.ravel(part)
                if rows is first:
                    begun.clear()  # saves the memory of one Gram during the sum

        flat = tree(add, bounds[-1], dtype)
        return tuple(flat[a:b].reshape(shape) for a, b, shape in zip(bounds, bounds[1:], shapes, strict=False))

    return total
