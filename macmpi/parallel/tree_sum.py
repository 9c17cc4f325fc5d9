"""Sums over parts that are assigned to ranks, added up one fixed tree: the same bits whoever owns which part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from macmpi.parallel import balance, tiles
from macmpi.parallel.blocks import Turns
from macmpi.parallel.team import Team
from macmpi.parallel.tiles import Tile
from macmpi.reductions import OverPoints, Partial
from macmpi.typing import Array

ALONE, WIDE, TABLE = 2, 4096, 48 * 4096
"""Up to ALONE subtrees, or sums less than WIDE that are TABLE numbers together, are added up by every rank; else each
adds its share of the columns."""

Add = Callable[[int, Array], None]
"""add(i, out) adds part i's share to `out` (width,), or, as it is agreed, writes all of it."""

Join = np.ufunc
"""Joins the sums of two subtrees: numpy.add, or minimum and maximum in the place of a sum."""

Order: TypeAlias = "int | tuple[Order, Order]"
"""A sum is one of the rows that were exchanged, or is joined from two such sums."""


def alone(subtrees: int, width: int) -> bool:
    """Tells whether every rank adds up the sums of all subtrees for itself.  Collective: no."""
    return subtrees <= ALONE or (width < WIDE and subtrees * width <= TABLE)


@dataclass(frozen=True)
class Sum:
    """A sum as the rows (subtrees, width) that it is joined from, in an order."""

    rows: Array
    order: Order
    join: Join

    def part(self, columns: slice, out: Array) -> Array:
        """Some columns of the sum: those of a row that is there, to be read only, or in `out`.  Collective: no."""
        return _joined(self.rows[:, columns], self.order, self.join, out)

    def put(self, columns: slice, out: Array) -> Array:
        """Puts some columns of the sum into `out`.  Collective: no."""
        found = self.part(columns, out)
        if found is not out:
            np.copyto(out, found)
        return out


class TreeSum:
    """Sums over `leaves` parts, runs of which belong to the ranks.

    A rank adds up the largest subtrees within its run; only these are exchanged, a few a rank however many parts.
    Of wide sums of many subtrees each rank gets its share of the columns, adds them up, and these are exchanged: so no
    rank ever has the sums of all others, but where the ranks of a node have one copy of them.

    widest: bytes that the largest sum is likely to take; join: what is done instead of adding two sums.
    Collective: yes, to make one.
    """

    def __init__(self, leaves: int, team: Team, widest: int = 0, join: Join = np.add) -> None:
        self.leaves, self.team, self._join = leaves, team, join
        self.runs = balance.contiguous_runs(leaves, team.size)
        self._nodes = [tiles.nodes(leaves, run) for run in self.runs]
        self._counts = [len(rank) for rank in self._nodes]
        rows = {node: i for i, node in enumerate(node for rank in self._nodes for node in rank)}
        self._order = _order(rows, Tile(0, leaves)) if leaves else 0
        self._turns = Turns(team, widest * len(rows))

    @property
    def own(self) -> Tile:
        """The parts of this rank."""
        return self.runs[self.team.rank]

    def __call__(self, add: Add, width: int, dtype: np.dtype | type = np.float64, sets: bool = False) -> Array:
        """The sum over all parts: add(i, out) adds part i's share to `out` (width,), or with `sets` writes all of it.

        Collective: yes.
        """
        found = self.exchanged(add, width, dtype, sets)
        return found.rows[0] if self.team.size == 1 else found.put(slice(0, width), np.empty(width, dtype))

    def exchanged(self, add: Add, width: int, dtype: np.dtype | type = np.float64, sets: bool = False) -> Sum:
        """A sum that is joined from those of subtrees only where it is read, until the next one is asked for.

        Collective: yes.
        """
        counts = self._counts
        if self.team.shares or alone(sum(counts), width):
            sums, first = self._turns.array((sum(counts), width), dtype), sum(counts[: self.team.rank])
            self._fill_own(add, sums[first:], sets)
            self.team.gather_rows(sums, counts)
        if alone(sum(counts), width):
            return Sum(sums, self._order, self._join)
        columns = balance.contiguous_runs(width, self.team.size)
        mine = columns[self.team.rank].rows
        if self.team.shares:
            own = sums[:, mine]
        else:
            rows = np.empty((counts[self.team.rank], width), dtype)
            self._fill_own(add, rows, sets)
            own = self.team.gather_columns(rows, counts, [run.rows for run in columns])
        total = self._turns.array((width,), dtype)
        Sum(own, self._order, self._join).put(slice(None), total[mine])
        self.team.gather_rows(total, [len(run) for run in columns])
        return Sum(total[None], 0, self._join)

    def _fill_own(self, add: Add, sums: Array, sets: bool) -> None:
        """The sums of this rank's subtrees, in the first rows of `sums`."""
        for row, node in zip(sums, self._nodes[self.team.rank], strict=False):
            _fill(add, row, node, sets, self._join)


def _fill(add: Add, out: Array, node: Tile, sets: bool, join: Join) -> Array:
    """The sum of a subtree, in `out`.  No closure: one that calls itself would keep alive, until the garbage collector
    comes by, all that `add` has at hand."""
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
    """The order in which the rows of some subtrees become the sum of a node."""
    if node in rows:
        return rows[node]
    middle = tiles.halves(node.start, node.stop)
    return _order(rows, Tile(node.start, middle)), _order(rows, Tile(middle, node.stop))


def _joined(sums: Array, order: Order, join: Join, out: Array | None = None) -> Array:
    """The sum of rows in that order."""
    if isinstance(order, int):
        return sums[order]
    return join(_joined(sums, order[0], join), _joined(sums, order[1], join), out=out)


def over_parts(
    tree: TreeSum, slices: Callable[[int], Sequence[slice]], dtype: np.dtype | type = np.float64
) -> OverPoints:
    """A W-solver's sums over points where each rank holds its own: part i's points are the rows slices(i).

    What is exchanged is sums, of a dtype, however many points there are.  A partial that gives nothing exchanges
    nothing.  Collective: yes.
    """
    own = {i: slices(i) for i in range(tree.own.start, tree.own.stop)}
    first = next((rows for i in own for rows in own[i]), slice(0, 0))

    def total(partial: Partial) -> tuple[Array, ...]:
        begun = [np.asarray(part) for part in partial(first)]
        if not begun:
            for rows in (rows for i in own for rows in own[i] if rows is not first):
                partial(rows)
            return ()
        bounds = np.cumsum([0, *(part.size for part in begun)]).tolist()

        def add(i: int, out: Array) -> None:
            for rows in own[i]:
                for a, b, part in zip(bounds, bounds[1:], begun if rows is first else partial(rows), strict=False):
                    out[a:b] += np.ravel(part)

        flat = tree(add, bounds[-1], dtype)
        return tuple(flat[a:b].reshape(part.shape) for a, b, part in zip(bounds, bounds[1:], begun, strict=False))

    return total
