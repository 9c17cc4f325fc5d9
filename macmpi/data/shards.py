"""Data of which each rank reads, checks and scales its own rows alone, tile by tile.

Scaling comes from sums, least and largest values of each block of points, which are exchanged: nothing of a point ever
leaves its rank, and the same bits come out on any number of ranks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from macmpi import UsageError
from macmpi.config import Data
from macmpi.data.dataset import HUGE_SINGLE, Dataset, Scaling, share_arrays
from macmpi.data.own_file import HUGE
from macmpi.data.split import Rows
from macmpi.data.survey import Part, Survey, drawn, opened
from macmpi.parallel.partition import PointPartition
from macmpi.parallel.team import Team
from macmpi.parallel.tiles import Tile
from macmpi.typing import Array


def load(config: Data, found: Survey, dtype: Any, deals: tuple[PointPartition, PointPartition], team: Team) -> Dataset:
    """This rank's rows of a data set, checked and scaled.  deals: of training and validation points.

    Raises UsageError on all ranks if one of them finds something wrong.  Collective: yes.
    """
    rows = _divided(found.undivided, config, team)
    parts = team.all_or_raise(lambda: opened(config, found.classes is not None, lambda n, keys: rows))
    reader = Reader(deals, team, np.dtype(dtype), config)
    raw = parts.raw
    X, X_val, scaling_x = reader.side(parts.X, parts.X_val, raw.scale, varied=parts.Y is None)
    if parts.Y is None or parts.Y_val is None:
        Y, Y_val, scaling_y = X, X_val, scaling_x
    elif found.classes is not None:
        Y, Y_val, scaling_y = reader.one_hot(parts.Y, parts.Y_val, found.classes)
    else:
        Y, Y_val, scaling_y = reader.side(parts.Y, parts.Y_val, raw.scale_y, varied=True)
    sha256 = reader.digest((X, X_val) if Y is X else (X, X_val, Y, Y_val))
    return Dataset(X, Y, X_val, Y_val, scaling_x, scaling_y, sha256, found.classes, raw.one_dimensional)


def _divided(n: int, config: Data, team: Team) -> list[Rows]:
    """Which of n rows are for training and for validation, drawn by rank 0 alone; none of 0.  Collective: yes."""
    own: list[Array] = []

    def draw() -> None:
        own.extend(rows.bits for rows in (drawn(n, config) if n else ()))

    team.from_root(draw)
    return [Rows(bits) for bits in share_arrays(team, own)]


class Reader:
    """Reads the rows of this rank: passes over its tiles, and tables by block that all ranks share."""

    def __init__(self, deals: tuple[PointPartition, PointPartition], team: Team, dtype: np.dtype, config: Data) -> None:
        self.deals, self.team, self.dtype, self.config = deals, team, dtype, config

    def side(self, part: Part, part_val: Part, kind: str, varied: bool) -> tuple[Array, Array, Scaling]:
        """Scaled training and validation rows, and the scaling, which the training rows determine.

        varied: raise UsageError if all columns are constant.
        """
        scaling = self._scaling(part, kind if self.config.scale == "auto" else self.config.scale, varied)
        train, validation = (
            self._filled(p, deal, p.width, scaling.apply) for p, deal in zip((part, part_val), self.deals, strict=True)
        )
        return train, validation, scaling

    def one_hot(self, part: Part, part_val: Part, classes: Array) -> tuple[Array, Array, Scaling]:
        """Targets of labels; they are not scaled."""
        rows = [
            self._filled(p, deal, len(classes), lambda y: np.equal(y, classes))
            for p, deal in zip((part, part_val), self.deals, strict=True)
        ]
        start = self.deals[0].own(self.team.rank).start

        def seen(tiles: list[Tile]) -> Array:
            return rows[0][tiles[0].start - start : tiles[-1].stop - start].max(axis=0)[None]

        if np.count_nonzero(self._table(self.deals[0], len(classes), seen, 1).max(axis=(0, 1))) < 2:
            raise _agreed(f'data.source = "{self.config.source}": all training points belong to one class')
        return rows[0], rows[1], Scaling(np.zeros(len(classes)), np.ones(len(classes)))

    def _scaling(self, part: Part, kind: str, varied: bool) -> Scaling:
        deal, D = self.deals[0], part.width

        def look(tiles: list[Tile]) -> Array:
            table = np.stack([np.zeros(D), np.full(D, np.inf), np.full(D, -np.inf)])
            for tile in tiles:
                A = part.read(tile)
                table[0] += A.sum(axis=0)
                np.minimum(table[1], A.min(axis=0), out=table[1])
                np.maximum(table[2], A.max(axis=0), out=table[2])
            return table

        totals, lows, highs = self._table(deal, D, look, 3)
        low, high = lows.min(axis=0), highs.max(axis=0)
        largest = max(-low.min(), high.max())
        if 0.0 < largest < 1.0 / HUGE:
            raise _agreed(f"{part.name} holds nothing larger than {largest:g}; choose other units")
        if varied and not (high > low).any():
            what = part.name.rsplit(" ", 1)[-1]
            raise _agreed(f'data.source = "{self.config.source}": every column of {what} is constant')
        shift, scale = np.zeros(D), np.ones(D)
        if kind == "range":
            shift, scale = shift + low.min(), scale * ((high.max() - low.min()) or 1.0)
        elif kind == "standard":
            shift = totals.sum(axis=0) / deal.n

            def squares(tiles: list[Tile]) -> Array:
                return np.sum([np.square(part.read(t) - shift).sum(axis=0) for t in tiles], axis=0)[None]

            (found,) = self._table(deal, D, squares, 1)
            scale = np.sqrt(found.sum(axis=0) / deal.n)
            scale[scale <= 1e-12 * np.maximum(np.abs(low), np.abs(high))] = 1.0
        return Scaling(shift, scale)

    def _table(self, deal: PointPartition, width: int, look: Callable[[list[Tile]], Array], rows: int) -> Array:
        """look(tiles) (rows, width) of each block, its tiles counted over all points: (rows, blocks, width)."""
        table = np.zeros((len(deal.blocks), rows, width))

        def fill() -> None:
            run = deal.runs[self.team.rank]
            for b in range(run.start, run.stop):
                table[b] = look(list(deal.blocks[b]))

        self.team.all_or_raise(fill)
        self.team.gather_rows(table, deal.block_counts)
        return table.transpose(1, 0, 2)

    def _filled(self, part: Part, deal: PointPartition, width: int, made: Callable[[Array], Array]) -> Array:
        """made(rows) of this rank's rows (n, width), in the precision of the run."""
        own = deal.own(self.team.rank)
        out = np.empty((len(own), width), self.dtype)

        def fill() -> None:
            run = deal.runs[self.team.rank]
            for tile in (tile for b in range(run.start, run.stop) for tile in deal.blocks[b]):
                A = made(part.read(tile))
                if self.dtype == np.float32 and np.abs(A).max() > HUGE_SINGLE:
                    raise UsageError(
                        f'data.source = "{self.config.source}" holds values beyond {HUGE_SINGLE:g}, too large for '
                        'model.precision = "float32"; scale the data (data.scale), or use float64'
                    )
                out[tile.after(own.start).rows] = A

        self.team.all_or_raise(fill)
        return out

    def digest(self, arrays: tuple[Array, ...]) -> str:
        """SHA-256 over those of the blocks of each array."""
        whole = hashlib.sha256()
        for array, deal in zip(arrays, self.deals * 2, strict=False):
            table = np.zeros((len(deal.blocks), 32), np.uint8)
            for b, tiles in deal.blocks_of(self.team.rank):
                block = array[tiles[0].start : tiles[-1].stop]
                table[b] = np.frombuffer(hashlib.sha256(np.ascontiguousarray(block).data).digest(), np.uint8)
            self.team.gather_rows(table, deal.block_counts)
            whole.update(str((deal.n, array.shape[1], array.dtype.str)).encode() + table.tobytes())
        return whole.hexdigest()


def _agreed(text: str) -> UsageError:
    """An error that every rank finds."""
    error = UsageError(text)
    error.agreed = True
    return error
