"""Data of which each rank reads, checks and scales its own rows alone, tile by tile.

Scaling comes from sums, least and largest values of each block of points, which are exchanged: nothing of a point ever
leaves its rank, and the same bits come out on any number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from macmpi.config import Data
from macmpi.config.auto import Sizes
from macmpi.data.alike import check_same_data, opened_alike
from macmpi.data.checks import check_single, check_units, check_varied, classes_of, largest
from macmpi.data.dataset import Dataset, share_arrays
from macmpi.data.parts import Part, Parts, drawn_of, parts_of, raw_of, weight_parts
from macmpi.data.point_weights import check_some, not_negative
from macmpi.data.reading import Raw
from macmpi.data.scaling import (
    AS_IS,
    FARTHEST,
    Scaling,
    ScalingRule,
    Tails,
    compressed,
    range_of,
    spread_rows,
    standard,
    unscaled,
)
from macmpi.data.split import RowSet, counted
from macmpi.data.sums import SIDES, Sum, block_sum
from macmpi.data.wanted import NUMBERS, Wanted, check_known, check_seen
from macmpi.parallel import tiles
from macmpi.parallel.partition import Partitions, PointPartition
from macmpi.parallel.team import Team
from macmpi.parallel.tiles import Tile
from macmpi.parallel.tree_sum import TreeSum
from macmpi.typing import Array


def survey(config: Data, labels: bool, wanted: Wanted = NUMBERS) -> Sizes:
    """Sizes and classes, found without reading the points.  Cost: of a classifier all labels are read.

    wanted: what the config asks of them.  Raises UsageError for all that headers tell.  Collective: no (rank 0).
    """
    raw = raw_of(config, labels, unread=True, wanted=wanted)
    inputs, targets = parts_of(raw, config, drawn_of if labels else lambda raw, config: counted(len(raw.X), config))
    (X, X_val), classes = inputs, None
    if targets and labels:
        Y, Y_val = (part.labels() for part in targets)
        classes = classes_of(Y, Y_val, config.source, dtype=raw.label_type, drawn=raw.X_val is None)
    n_out = len(classes) if classes is not None else (targets or inputs)[0].width
    return Sizes(X.width, n_out, len(X), len(X_val), targets is None, classes, raw.shape, raw.weights is not None)


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
    raw = opened_alike(lambda: raw_of(config, classes is not None, unread=True, wanted=wanted), config, team)
    rows = _drawn(raw, config, team)
    inputs, targets = team.all_or_raise(lambda: parts_of(raw, config, lambda raw, keys: rows, wanted.missing))
    weights = weight_parts(raw, inputs, config.source)
    read = zip((*inputs, *(targets or ()), *weights), points * 3, strict=False)
    check_same_data(raw, [(part, among) for part, among in read if part is not None], config, team)
    first = Reader(points, team, np.dtype(float), config)
    w, w_val = first.weights(weights)
    reader = Reader(points, team, np.dtype(dtype), config, w)
    own = wanted if targets is None else NUMBERS
    X, X_val, scaling_x = reader.side(inputs, raw.scale, own, varied=targets is None)
    Y, Y_val, scaling_y = X, X_val, scaling_x
    if targets and classes is not None:
        Y, Y_val, scaling_y = reader.one_hot(targets, classes)
    elif targets:
        rule = raw.scale_y if wanted.scaled else AS_IS
        Y, Y_val, scaling_y = reader.side(targets, rule, wanted, varied=True)
    whole = Sum()
    for name, found_of in zip(("X", "X_val", "Y", "Y_val"), reader.sums, strict=False):
        whole.add(name, *found_of)
    for side, array, of_weights in zip(SIDES, (w, w_val), first.sums, strict=True):
        if array is not None:
            whole.add(f"weights{side}", *of_weights)
    found = Dataset(X, Y, X_val, Y_val, scaling_x, scaling_y, whole.hex, classes, raw.one_dimensional)
    return replace(found, weights=w, weights_val=w_val)


def _drawn(raw: Raw, config: Data, team: Team) -> list[RowSet]:
    """Rank 0 alone draws which rows are for training and for validation; none where X_val is.  Collective: yes."""
    own: list[Array] = []
    team.from_root(lambda: own.extend(rows.bits for rows in (drawn_of(raw, config) if raw.X_val is None else ())))
    return [RowSet(bits) for bits in share_arrays(team, own)]


class Reader:
    """Reads the rows of this rank: passes over its tiles, and tables by block that all ranks share.

    own_weights: of its training rows; sums: of each part that it has read, as `Sum.add` wants them.
    """

    def __init__(
        self, points: Partitions, team: Team, dtype: np.dtype, config: Data, own_weights: Array | None = None
    ) -> None:
        self.points, self.team, self.dtype, self.config = points, team, dtype, config
        self.own_weights = own_weights
        self.sums: list[tuple[int, Array]] = []

    def weights(self, parts: tuple[Part | None, Part | None]) -> tuple[Array | None, Array | None]:
        """The weights of this rank's training and validation rows (n,), None where those of all ranks are 1."""
        found = list[Array | None]()
        for part, among, what in zip(parts, self.points, ("training", "validation"), strict=True):
            if part is None:
                found.append(None)
                self.sums.append((0, np.empty(0)))
                continue
            name = part.name
            own = self._filled(part, among, 1, lambda A, name=name: not_negative(A, name))[:, 0]  # type: ignore[misc]
            most = self.team.max_over_ranks({"weight": float(own.max(initial=0.0)), "other": float((own != 1.0).any())})
            self.team.all_or_raise(lambda most=most, what=what: check_some(most["weight"], what, self.config.source))  # type: ignore[misc]
            found.append(own if most["other"] else None)
        return found[0], found[1]

    def _weights_at(self, tile: Tile) -> Array | None:
        """The weights of a tile of training rows, counted over all of them; None where there are none."""
        if self.own_weights is None:
            return None
        return self.own_weights[tile.after(self.points[0].own(self.team.rank).start).rows]

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
        low, high, mean, mass, sample = self._outline(part)
        steps = part.width // rule.features if rule.features else 0

        def alike(A: Array, join: Any = np.mean) -> Array:
            """The numbers of each feature of sequences joined over all steps; of other rows A (D,) itself."""
            return np.tile(join(A.reshape(steps, -1), axis=0), steps) if steps else A

        low, high, mean = alike(low, np.min), alike(high, np.max), alike(mean)
        self.team.all_or_raise(lambda: check_units(float(np.maximum(-low, high).max()), part.name))
        if varied:
            self.team.all_or_raise(lambda: check_varied(low, high, part.name, self.config.source))
        kind, D = rule.settled, part.width
        if kind == "none":
            return unscaled(D)
        if kind == "range":
            return range_of(low, high)
        if steps:
            rows = sample.reshape(-1, rule.features)
            tails = rule.tails(rows[spread_rows(len(rows))], low[: rule.features], high[: rule.features])
            tails = tails and Tails(**{name: np.tile(array, steps) for name, array in tails.arrays.items()})
        else:
            tails = rule.tails(sample, low, high)
        if tails is not None:
            mean = alike(self._mean(part, mass, lambda A: compressed(A, tails)))
        deviation = np.sqrt(alike(self._mean(part, mass, lambda A: np.square(compressed(A, tails) - mean))))
        farthest = FARTHEST if kind == "robust" else np.inf
        return standard(mean, deviation, compressed(low, tails), compressed(high, tails), tails, farthest)

    def _outline(self, part: Part) -> tuple[Array, Array, Array, Array, Array]:
        """Least, largest, mean and weight of each column's numbers in the training rows (D,), and some rows (n, D)."""
        among = self.points[0]
        rows = spread_rows(among.n)
        sample = np.zeros((len(rows), part.width))

        def look(block: list[Tile]) -> Array:
            none = np.zeros(part.width)
            table = np.stack([np.full(part.width, np.inf), np.full(part.width, -np.inf), none, none, none])
            for tile in block:
                A, w = part.read(tile), self._weights_at(tile)
                np.fmin(table[0], np.fmin.reduce(A), out=table[0])
                np.fmax(table[1], np.fmax.reduce(A), out=table[1])
                table[2] += _sums(A, w, bool(part.missing))
                table[3] += np.count_nonzero(~np.isnan(A), axis=0) if part.missing else len(A)
                table[4] += 0.0 if w is None else w @ ~np.isnan(A)
                first, end = np.searchsorted(rows, (tile.start, tile.stop))
                sample[first:end] = A[rows[first:end] - tile.start]
            return table

        joins = (np.minimum, np.maximum, np.add, np.add, np.add)
        low, high, total, seen, weight = self._table(among, part.width, look, joins)
        ends = [0, *(np.searchsorted(rows, among.held(r).stop).item() for r in range(self.team.size))]
        self.team.gather_rows(sample, np.diff(ends).tolist())
        self.team.all_or_raise(lambda: check_seen(seen, part.name))
        mass = seen if self.own_weights is None else np.where(weight > 0.0, weight, 1.0)
        return low, high, total / mass, mass, sample

    def _mean(self, part: Part, mass: Array, of: Callable[[Array], Array]) -> Array:
        """The mean over the training rows of `of(rows)` (n, D), of the numbers that are there, of this `mass` (D,)."""
        among, missing = self.points[0], bool(part.missing)

        def look(block: list[Tile]) -> Array:
            sums = [_sums(of(part.read(tile)), self._weights_at(tile), missing) for tile in block]
            found: Array = np.sum(sums, axis=0)
            return found[None]

        (total,) = self._table(among, part.width, look, (np.add,))
        return total / mass

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
        own, run = among.own(self.team.rank), among.runs[self.team.rank]
        out, sums = np.empty((len(own), width), self.dtype), np.zeros((len(among.blocks), 32), np.uint8)

        def put(tile: Tile) -> Array:
            raw = part.read(tile)
            A = made(raw)
            if self.dtype == np.float32:
                check_single(largest(A), self.config.source)
            out[tile.after(own.start).rows] = A
            return raw

        def fill() -> None:
            for b in range(run.start, run.stop):
                sums[b] = block_sum(map(put, among.blocks[b]))

        self.team.all_or_raise(fill)
        self.team.gather_rows(sums, among.block_counts)
        self.sums.append((among.n, sums))
        return out

    def _known(self, validation: Array) -> int:
        """Counts the numbers that are there among validation rows."""
        among = self.points[1]
        table = np.zeros((len(among.blocks), 1))
        for b, block in among.blocks_of(self.team.rank):
            table[b] = np.count_nonzero(~np.isnan(validation[block[0].start : block[-1].stop]))
        self.team.gather_rows(table, among.block_counts)
        return int(table.sum())


def _sums(A: Array, weights: Array | None, missing: bool) -> Array:
    """The sum of each column over the rows, as they weigh, and where some are missing of the numbers that are there."""
    if weights is not None:
        found: Array = weights @ (np.nan_to_num(A) if missing else A)
        return found
    return np.nansum(A, axis=0) if missing else A.sum(axis=0)
