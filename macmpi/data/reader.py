"""Reads the rows of a data set that a rank holds: it checks them, scales them, and computes checksums.

Rows are read tile by tile, whether they are in memory or in a file.  For the scaling, ranks exchange sums, least and
largest values of the blocks of points, and up to 2,000 evenly spaced rows for medians and quartiles.  No other row
leaves its rank, and the bits are the same on any number of ranks.

A data set is recognised by the SHA-256 of its points: as float64, not scaled, in blocks that depend on N alone.  So the
checksum does not depend on the type and place of the file, nor on the number of ranks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from macmpi.data.checks import check_columns, check_known, check_single, check_size, check_some, largest, not_negative
from macmpi.data.dataset import NUMBERS, SIDES, WEIGHTS, Dataset, Raw, TargetRules
from macmpi.data.parts import DataPart, DataParts, numbers_of
from macmpi.data.scaling import ColumnStatistics, Scaling, ScalingRule, sparse_scaling, spread_rows, unscaled
from macmpi.data.wide import SparseRows
from macmpi.parallel.points import Partitions
from macmpi.parallel.rows import Converted
from macmpi.parallel.team import Team
from macmpi.parallel.tiles import Tile
from macmpi.typing import Array

Make = Callable[[Array], Array]
Check = Callable[[Array], None]


def block_sum(pieces: Iterable[Array]) -> Array:
    """Computes the SHA-256 of rows that come in pieces: (32,) uint8; -0 counts as 0."""
    digest = hashlib.sha256()
    for rows in pieces:
        digest.update(np.add(rows, 0.0, dtype=np.float64).reshape(len(rows), -1).data)
    return np.frombuffer(digest.digest(), np.uint8)


def weights_in(parts: DataParts) -> int:
    """Returns how many weights a training point has: 0, 1, or one for each output.  Collective: no."""
    training, validation = (parts[name].width if name in parts else 0 for name in WEIGHTS)
    return training or (validation if validation > 1 else 0)


class Reader:
    """Reads the rows of a data set that this rank holds, tile by tile: it checks, scales and sums them.

    parts: the rows of each array.
    points: the partitions of the training and of the validation points.
    rules: the rules of the config for its data.
    source: the name of the data, for messages.
    by_rows: whether each rank holds only its own rows.  They stay in their file if the config demands it, and in the
        type of the file if that is smaller.
    weights (n,): the weights of this rank's training rows, float64; None before they are read, and where all ranks' are
        1.
    sums: for each array, by name, the SHA-256 of each block of its raw rows on all ranks, (blocks, 32) uint8.
    """

    def __init__(
        self, parts: DataParts, points: Partitions, team: Team, rules: TargetRules, source: str, by_rows: bool = False
    ) -> None:
        self.parts, self.points, self.team, self.source, self.by_rows = parts, points, team, source, by_rows
        self.rules, self.dtype = rules, np.dtype(rules.precision)
        self.weights: Array | None = None
        self._shares: dict[str, Array] = {}
        self.sums: dict[str, Array] = {}

    def dataset(self, raw: Raw, classes: Array | None) -> Dataset:
        """Reads this rank's rows of the data set, and checks and scales them.

        raw: the arrays, and how they are to be scaled; classes (C,): the labels of a classifier, ascending.
        Raises UsageError on all ranks if one of them finds something wrong.  Collective: yes.
        """
        parts, rules, (self.weights, w_val) = self.parts, self.rules, self._weights()
        outputs, targets, names = 0, "Y" in parts, classes
        if targets and not rules.stream and {type(parts[f"X{side}"].source) for side in SIDES} == {SparseRows}:
            side = self._sparse_side(raw.scale)
        else:
            of_x, varied = NUMBERS if targets else rules, not targets and not rules.stream
            side = self._side("X", raw.scale, of_x, varied)
        X, X_val, scaling_x = Y, Y_val, scaling_y = side
        if classes is not None:
            Y, Y_val = [self._filled(name, lambda y: y == classes, width=len(classes)) for name in ("Y", "Y_val")]
            scaling_y = unscaled(len(classes))
            names = classes if raw.names is None else raw.names[classes]
        elif targets:
            Y, Y_val, scaling_y = self._side("Y", raw.scale_y, rules, not rules.stream)
            if weights_in(parts) > 1:
                outputs = Y.shape[1]
                Y, Y_val = (self._with_shares(A, name) for A, name in zip((Y, Y_val), WEIGHTS, strict=True))
        data = Dataset(X, Y, X_val, Y_val, scaling_x, scaling_y, "", names, raw.one_dimensional, columns=raw.columns)
        data = replace(data, weights=self.weights, weights_val=w_val, outputs=outputs)
        digest = hashlib.sha256()
        for name in data.arrays:
            digest.update(f"{name} {len(parts[name])} ".encode() + self.sums[name].tobytes())
        if raw.names is not None and names is not None:
            digest.update("\0".join(map(str, names)).encode())
        return replace(data, sha256=digest.hexdigest())

    def _weights(self) -> list[Array | None]:
        """Reads the weights (n,) of this rank's training and validation rows; None if those of all ranks are 1.

        For weights (n, L) of outputs, the mean over a point's outputs is the weight of the point; the weights divided
        by this mean are kept for `_with_shares`.  Collective: yes.
        """
        weights = list[Array | None]()
        for name, what in zip(WEIGHTS, ("training", "validation"), strict=True):
            if name not in self.parts:
                weights.append(None)
                continue
            negative = partial(not_negative, name=self.parts[name].name)
            each = self._filled(name, negative, dtype=np.dtype(np.float64))
            w, other = each.mean(axis=1), float((each != 1.0).any())
            most = self.team.max_over_ranks({"weight": float(w.max(initial=0.0)), "other": other})
            self.team.all_or_raise(partial(check_some, most["weight"], what, self.source))
            weights.append(w if most["other"] else None)
            if each.shape[1] > 1:
                self._shares[name] = each / np.where(w > 0.0, w, 1.0)[:, None]
        return weights

    def _with_shares(self, Y: Array, name: str) -> Array:
        """Returns the targets [Y, V] of `WeightedOutputs`, (n, 2 L); V are the outputs' weights, 0 if missing.

        name: the name of the weights, "weights" or "weights_val".
        """
        V = self._shares.get(name, np.ones_like(Y))
        return np.hstack([Y, np.where(np.isnan(Y), 0.0, V).astype(Y.dtype)])

    def _weights_at(self, tile: Tile) -> Array | None:
        """Returns the weights (n,) of a tile of the training rows of all ranks; None if points have no weights."""
        if self.weights is None:
            return None
        return self.weights[tile.after(self.points[0].own(self.team.rank).start).rows]

    def _side(self, name: str, rule: ScalingRule, rules: TargetRules, varied: bool) -> tuple[Array, Array, Scaling]:
        """Reads and scales the training and the validation rows of X or Y; the training rows determine the scaling.

        name: "X" or "Y"; rule: how they are scaled.
        rules: the rules that the scaled rows must satisfy.
        varied: whether UsageError is raised where all columns are constant.
        Returns the training rows, the validation rows and the scaling.  Collective: yes.
        """
        part, held, source = self.parts[name], self.parts[f"{name}_val"], self.source
        columns = self.statistics(part, rule)
        seen = columns.seen + rules.stream  # a column may be missing in one piece of a stream
        facts = columns.low, columns.high, seen, part.source.dtype
        self.team.from_root(lambda: check_columns(*facts, part.name, source, varied))
        scaling = columns.scaling(rule)
        check = partial(rules.check, source=source, autoencoder=part.missing is None)
        train, validation = [self._filled(f"{name}{side}", scaling.apply, check) for side in SIDES]
        if held.gaps:
            known = self.team.max_over_ranks({"known": float(not np.isnan(validation).all())})["known"]
            self.team.all_or_raise(lambda: check_known(bool(known), held.name))
        return train, validation, scaling

    def _sparse_side(self, rule: ScalingRule) -> tuple[Any, Any, Scaling]:
        """Does for sparse inputs, all of them in this process, what `_side` does for others.  Raises UsageError."""
        both = [self.parts[f"X{side}"].sparse() for side in SIDES]
        low, high, mean, squares = both[0].moments(self.weights)
        check_size(float(np.maximum(-low, high).max()), both[0].dtype, self.parts["X"].name)
        scaling = sparse_scaling(rule, low, high, mean, squares)
        for side, A, among in zip(SIDES, both, self.points, strict=True):
            blocks = [A.matrix[among.points(b, b + 1).rows] for b in range(len(among.blocks))]
            facts = (np.concatenate([S.data, S.indices, S.indptr]) for S in blocks)
            self.sums[f"X{side}"] = np.array([block_sum([one]) for one in facts])
        train, validation = (A.scaled(scaling, self.dtype) for A in both)
        return train, validation, scaling

    def statistics(self, part: DataPart, rule: ScalingRule) -> ColumnStatistics:
        """Computes the statistics of the training rows of a part, by which they are scaled.

        Cost: one pass over the rows, and another for each call of the function `mean` that is part of the result.
        Collective: yes, and so is that function.
        """
        among, width = self.points[0], part.width
        rows, d = spread_rows(among.n), rule.features or width
        sample = np.zeros((len(rows), width))

        def look(tile: Tile) -> Array:
            A, w = part.read(tile), self._weights_at(tile)
            first, end = np.searchsorted(rows, (tile.start, tile.stop))
            sample[first:end] = A[rows[first:end] - tile.start]
            there = np.count_nonzero(~np.isnan(A), axis=0) if part.gaps else np.full(width, len(A))
            weight = there if w is None else w @ ~np.isnan(A)
            other = ((A != 0.0) & (A != 1.0)).any(axis=0)
            return np.stack([np.fmin.reduce(A), np.fmax.reduce(A), _sums(A, w, part.gaps), there, weight, other])

        joins = (np.fmin, np.fmax, np.add, np.add, np.add, np.fmax)
        low, high, total, seen, weight, other = self._table(width, look, joins)
        low, high = (np.where(seen > 0, end, 0.0) for end in (low, high))
        ends = [0, *(np.searchsorted(rows, among.held(r).stop).item() for r in range(self.team.size))]
        self.team.gather_rows(sample, np.diff(ends).tolist())
        mass = np.where(weight > 0.0, weight, 1.0)

        def mean(function: Callable[[Array], Array] | None) -> Array:
            """Computes a mean over the points and, for sequences, then over the steps."""
            sums = total if function is None else self._total(part, function, d)
            return (sums / mass).reshape(-1, d).mean(axis=0)

        steps = sample.reshape(-1, d)
        return ColumnStatistics(low, high, seen, steps[spread_rows(len(steps))], mean, mass, other == 0.0)

    def _total(self, part: DataPart, function: Callable[[Array], Array], d: int) -> Array:
        """Sums a function of the numbers over the training rows, each times its weight: (width,), by column.

        function: (n, d) -> (n, d), where a row of the part is one of the n rows, or a sequence of several.
        Missing numbers are left out.  Collective: yes.
        """

        def look(tile: Tile) -> Array:
            A = part.read(tile)
            return _sums(function(A.reshape(-1, d)).reshape(A.shape), self._weights_at(tile), part.gaps)[None]

        return self._table(part.width, look, (np.add,))[0]

    def _table(self, width: int, look: Callable[[Tile], Array], joins: Sequence[np.ufunc]) -> list[Array]:
        """Reduces all training rows, over all ranks, to one row of numbers (width,) for each of `joins`.

        look: look(tile) reduces the rows of one tile, to (len(joins), width).
        joins: joins[r], such as np.add, then joins the r-th rows of all tiles, in a fixed order that does not depend on
            which rank has which tile.
        Collective: yes.
        """
        among = self.points[0]
        trees = [among.tile_sums(self.team, join) for join in joins]
        own = trees[0].own
        table = np.empty((len(own), len(joins), width))

        def fill() -> None:
            for row, tile in zip(table, among.tiles[own.rows], strict=True):
                row[:] = look(tile)

        self.team.all_or_raise(fill)

        def put(r: int, i: int, out: Array) -> None:
            out[:] = table[i - own.start, r]

        return [tree(partial(put, r), width, sets=True) for r, tree in enumerate(trees)]

    def _filled(
        self, name: str, made: Make, check: Check = lambda rows: None, width: int = 0, dtype: np.dtype | None = None
    ) -> Any:
        """Reads this rank's rows of an array, and converts them by made(rows), to (n, width) in the run's precision.

        made: converts rows of numbers.
        check: raises UsageError where converted rows are not admissible.
        width: the width of converted rows; 0 for the width of the array.
        dtype: the type of converted rows; None for the run's precision.
        If each rank reads its own rows, and they stay in the file or in its smaller type (`_kept`), they are
        converted each time they are used.  Collective: yes.
        """
        part, among = self.parts[name], self.points[name.endswith("_val")]
        width = width or part.width
        own, run = among.own(self.team.rank), among.runs[self.team.rank]
        sums, plain = np.zeros((len(among.blocks), 32), np.uint8), not (part.gaps or dtype)
        kept, dtype = self._kept(part, own, width) if plain else None, dtype or self.dtype
        out: Any = np.empty((len(own), width), dtype) if kept is None else kept

        def put(tile: Tile) -> Array:
            raw = part.raw(tile.rows)
            A = part.checked(raw, tile)
            rows = made(A)
            check(rows)
            if dtype == np.float32:
                check_single(largest(rows), self.source)
            if isinstance(out, np.ndarray):
                out[tile.after(own.start).rows] = rows if kept is None else raw
            return A

        def fill() -> None:
            for b in range(run.start, run.stop):
                sums[b] = block_sum(map(put, among.tiles_in(b)))

        self.team.all_or_raise(fill)
        self.team.gather_rows(sums, among.block_counts)
        self.sums[name] = sums
        facts = part.facts  # so that the Converted keeps no reference to the file
        return out if kept is None else Converted(out, lambda raw: made(numbers_of(raw, facts)), width, dtype)

    def _kept(self, part: DataPart, own: Tile, width: int) -> Any:
        """Returns where this rank's rows are kept in the type of the file: the file itself, or an array to be filled.

        It returns None if rows are kept converted, as `width` numbers in the precision of the run.
        """
        if self.by_rows and self.rules.in_file and not isinstance(part.source, np.ndarray):
            return part.in_file(own)
        narrower = self.by_rows and part.raw_bytes < width * self.dtype.itemsize
        return np.empty((len(own), part.width), part.source.dtype) if narrower else None


def _sums(A: Array, weights: Array | None, missing: bool) -> Array:
    """Sums each column of A over the rows, times their weights; with `missing`, NaN is left out."""
    if weights is not None:
        return weights @ (np.nan_to_num(A) if missing else A)
    return np.nansum(A, axis=0) if missing else A.sum(axis=0)
