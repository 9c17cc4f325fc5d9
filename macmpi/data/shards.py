"""Data of which each rank reads, checks and scales its own rows alone, tile by tile.

Scaling comes from sums, least and largest values of each block of points, which are exchanged: nothing of a point ever
leaves its rank, and the same bits come out on any number of ranks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from macmpi.config import Data
from macmpi.data.checks import check_single, check_units, check_varied, classes_of, largest
from macmpi.data.dataset import Dataset, Sizes, share_arrays
from macmpi.data.parts import Part, Parts, parts_of, raw_of
from macmpi.data.scaling import (
    AS_IS,
    Scaling,
    ScalingRule,
    compressed,
    range_of,
    spread_rows,
    standard,
    tails_of,
    unscaled,
)
from macmpi.data.split import RowSet, counted, drawn
from macmpi.data.wanted import NUMBERS, Wanted, check_known, check_seen
from macmpi.parallel import tiles
from macmpi.parallel.partition import Partitions, PointPartition
from macmpi.parallel.team import Team
from macmpi.parallel.tiles import Tile
from macmpi.parallel.tree_sum import TreeSum
from macmpi.typing import Array


def survey(config: Data, labels: bool, missing: bool = False) -> Sizes:
    """Sizes and classes, found without reading the points.  Cost: of a classifier all labels are read.

    missing: targets may be NaN.  Raises UsageError for all that headers tell.  Collective: no (rank 0).
    """
    raw = raw_of(config, labels, unread=True, missing=missing)
    inputs, targets = parts_of(raw, config, drawn if labels else counted)
    (X, X_val), classes = inputs, None
    if targets and labels:
        classes = classes_of(targets[0].labels(), targets[1].labels(), config.source)
    n_out = len(classes) if classes is not None else (targets or inputs)[0].width
    return Sizes(X.width, n_out, len(X), len(X_val), targets is None, classes, raw.shape)


def blank(sizes: Sizes) -> Dataset:
    """A data set of these sizes without points, not scaled: what a net is compared with before any is read."""
    X, Y = np.empty((0, sizes.n_in)), np.empty((0, sizes.n_out))
    of_x, of_y = (unscaled(n) for n in (sizes.n_in, sizes.n_out))
    return Dataset(X, Y, X, Y, of_x, of_y, sha256="", classes=sizes.classes)


def load(
    config: Data, classes: Array | None, dtype: Any, points: Partitions, team: Team, wanted: Wanted = NUMBERS
) -> Dataset:
    """This rank's rows of a data set, checked and scaled.  classes: of labels; wanted: what the loss asks of targets.

    Raises UsageError on all ranks if one of them finds something wrong.  Collective: yes.
    """
    raw = team.all_or_raise(lambda: raw_of(config, classes is not None, unread=True, missing=wanted.missing))
    rows = _drawn(len(raw.X) if raw.X_val is None else 0, config, team)
    inputs, targets = team.all_or_raise(lambda: parts_of(raw, config, lambda n, keys: rows, wanted.missing))
    reader = Reader(points, team, np.dtype(dtype), config)
    own = wanted if targets is None else NUMBERS
    X, X_val, scaling_x = reader.side(inputs, raw.scale, own, varied=targets is None)
    Y, Y_val, scaling_y = X, X_val, scaling_x
    if targets and classes is not None:
        Y, Y_val, scaling_y = reader.one_hot(targets, classes)
    elif targets:
        rule = raw.scale_y if wanted.scaled else AS_IS
        Y, Y_val, scaling_y = reader.side(targets, rule, wanted, varied=True)
    sha256 = reader.digest((X, X_val) if Y is X else (X, X_val, Y, Y_val))
    return Dataset(X, Y, X_val, Y_val, scaling_x, scaling_y, sha256, classes, raw.one_dimensional)


def _drawn(n: int, config: Data, team: Team) -> list[RowSet]:
    """Rank 0 alone draws which of n rows are for training and for validation; none of 0.  Collective: yes."""
    own: list[Array] = []
    team.from_root(lambda: own.extend(rows.bits for rows in (drawn(n, config) if n else ())))
    return [RowSet(bits) for bits in share_arrays(team, own)]


class Reader:
    """Reads the rows of this rank: passes over its tiles, and tables by block that all ranks share."""

    def __init__(self, points: Partitions, team: Team, dtype: np.dtype, config: Data) -> None:
        self.points, self.team, self.dtype, self.config = points, team, dtype, config

    def side(self, parts: Parts, rule: ScalingRule, wanted: Wanted, varied: bool) -> tuple[Array, Array, Scaling]:
        """Scaled training and validation rows, and the scaling, which the training rows determine.

        wanted: what these rows have to be; varied: raise UsageError if all columns are constant.
        """
        scaling, autoencoder = self._scaling(parts[0], rule, varied), parts[0].missing is None

        def made(A: Array) -> Array:
            scaled = scaling.apply(A)
            wanted.check(scaled, self.config.source, autoencoder)
            return scaled

        train, validation = (self._filled(p, among, p.width, made) for p, among in zip(parts, self.points, strict=True))
        if parts[1].missing:
            known = self._known(validation)
            self.team.all_or_raise(lambda: check_known(known, parts[1].name))
        return train, validation, scaling

    def one_hot(self, parts: Parts, classes: Array) -> tuple[Array, Array, Scaling]:
        """Targets of labels; they are not scaled."""
        Y, Y_val = (
            self._filled(p, among, len(classes), lambda y: np.equal(y, classes))
            for p, among in zip(parts, self.points, strict=True)
        )
        return Y, Y_val, unscaled(len(classes))

    def _scaling(self, part: Part, rule: ScalingRule, varied: bool) -> Scaling:
        """One pass over the rows for ranges, means and a sample; where deviations are asked for, one more for squares.

        Columns with long tails take a pass more, for the means once they are compressed.
        """
        low, high, mean, seen, sample = self._outline(part)
        self.team.all_or_raise(lambda: check_units(float(np.maximum(-low, high).max()), part.name))
        if varied:
            self.team.all_or_raise(lambda: check_varied(low, high, part.name, self.config.source))
        kind, D = rule.settled(low, high), part.width
        if kind == "none":
            return unscaled(D)
        if kind == "range":
            return range_of(low, high)
        tails = tails_of(sample, low, high) if kind == "robust" else None
        if tails is not None:
            mean = self._mean(part, seen, lambda A: compressed(A, tails))
        deviation = np.sqrt(self._mean(part, seen, lambda A: np.square(compressed(A, tails) - mean)))
        largest = np.abs(compressed(np.stack([low, high]), tails)).max(axis=0)
        return standard(mean, deviation, largest, tails)

    def _outline(self, part: Part) -> tuple[Array, Array, Array, Array, Array]:
        """Least, largest, mean and count of each column's numbers in the training rows (D,), and some rows (n, D)."""
        among = self.points[0]
        rows = spread_rows(among.n)
        sample = np.zeros((len(rows), part.width))

        def look(block: list[Tile]) -> Array:
            none = np.zeros(part.width)
            table = np.stack([np.full(part.width, np.inf), np.full(part.width, -np.inf), none, none])
            for tile in block:
                A = part.read(tile)
                np.fmin(table[0], np.fmin.reduce(A), out=table[0])
                np.fmax(table[1], np.fmax.reduce(A), out=table[1])
                table[2] += np.nansum(A, axis=0) if part.missing else A.sum(axis=0)
                table[3] += np.count_nonzero(~np.isnan(A), axis=0) if part.missing else len(A)
                first, end = np.searchsorted(rows, (tile.start, tile.stop))
                sample[first:end] = A[rows[first:end] - tile.start]
            return table

        low, high, total, seen = self._table(among, part.width, look, (np.minimum, np.maximum, np.add, np.add))
        ends = [0, *(np.searchsorted(rows, among.held(r).stop).item() for r in range(self.team.size))]
        self.team.gather_rows(sample, np.diff(ends).tolist())
        self.team.all_or_raise(lambda: check_seen(seen, part.name))
        return low, high, total / seen, seen, sample

    def _mean(self, part: Part, seen: Array, of: Callable[[Array], Array]) -> Array:
        """The mean over the training rows of `of(rows)` (n, D), of the numbers that are there, `seen` (D,)."""
        among, total = self.points[0], np.nansum if part.missing else np.sum

        def look(block: list[Tile]) -> Array:
            found: Array = np.sum([total(of(part.read(tile)), axis=0) for tile in block], axis=0)
            return found[None]

        (found,) = self._table(among, part.width, look, (np.add,))
        return found / seen

    def _table(
        self, among: PointPartition, width: int, look: Callable[[list[Tile]], Array], joins: Sequence[np.ufunc]
    ) -> list[Array]:
        """look(tiles) (rows, width) of each block, its tiles counted over all points: row r of all blocks, joined by
        joins[r] (width,), in the order of the blocks, or up a tree of more than `tiles.BLOCKS`.
        """
        run, rows = among.runs[self.team.rank], len(joins)
        own = np.zeros((len(run), rows, width))

        def fill() -> None:
            for b in range(run.start, run.stop):
                own[b - run.start] = look(list(among.blocks[b]))

        self.team.all_or_raise(fill)
        if len(among.blocks) <= tiles.BLOCKS:
            table = np.zeros((len(among.blocks), rows, width))
            table[run.rows] = own
            self.team.gather_rows(table, among.block_counts)
            return [join.reduce(table[:, r]) for r, join in enumerate(joins)]

        def joined(r: int) -> Array:
            def put(b: int, out: Array) -> None:
                out[:] = own[b - run.start, r]

            return TreeSum(len(among.blocks), self.team, join=joins[r])(put, width, sets=True)

        return [joined(r) for r in range(rows)]

    def _filled(self, part: Part, among: PointPartition, width: int, made: Callable[[Array], Array]) -> Array:
        """made(rows) of this rank's rows (n, width), in the precision of the run."""
        own = among.own(self.team.rank)
        out = np.empty((len(own), width), self.dtype)

        def fill() -> None:
            run = among.runs[self.team.rank]
            for tile in (tile for b in range(run.start, run.stop) for tile in among.blocks[b]):
                A = made(part.read(tile))
                if self.dtype == np.float32:
                    check_single(largest(A), self.config.source)
                out[tile.after(own.start).rows] = A

        self.team.all_or_raise(fill)
        return out

    def _known(self, validation: Array) -> int:
        """Counts the numbers that are there among validation rows."""
        among = self.points[1]
        table = np.zeros((len(among.blocks), 1))
        for b, block in among.blocks_of(self.team.rank):
            table[b] = np.count_nonzero(~np.isnan(validation[block[0].start : block[-1].stop]))
        self.team.gather_rows(table, among.block_counts)
        return int(table.sum())

    def digest(self, arrays: tuple[Array, ...]) -> str:
        """SHA-256 over those of the blocks of each array."""
        whole = hashlib.sha256()
        for array, among in zip(arrays, self.points * 2, strict=False):
            table = np.zeros((len(among.blocks), 32), np.uint8)
            for b, block in among.blocks_of(self.team.rank):
                rows = np.ascontiguousarray(array[block[0].start : block[-1].stop])
                table[b] = np.frombuffer(hashlib.sha256(rows.data).digest(), np.uint8)
            self.team.gather_rows(table, among.block_counts)
            whole.update(str((among.n, array.shape[1], array.dtype.str)).encode() + table.tobytes())
        return whole.hexdigest()
