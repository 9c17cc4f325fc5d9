"""Data of which each rank reads, checks and scales its own rows alone, tile by tile.

Rank 0 surveys the headers.  Scaling comes from sums, least and largest values of each block of points, which are
exchanged: nothing of a point ever leaves its rank, and the same bits come out on any number of ranks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from macmpi import UsageError, untrusted
from macmpi.config import Data
from macmpi.data import HUGE, HUGE_SINGLE, Dataset, Scaling, check_labels, classes_of, drawn, read_own
from macmpi.deals import PointDeal
from macmpi.layers import Array
from macmpi.sources import SOURCES, Raw
from macmpi.team import AnyTeam
from macmpi.tiles import Tile


@dataclass(frozen=True)
class Survey:
    """Sizes of a data set, and a classifier's classes: found by rank 0 before any rank reads its rows."""

    n_in: int
    n_out: int
    n_train: int
    n_val: int
    classes: Array | None

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        return self.n_in, self.n_out, self.n_train, self.n_val


@dataclass(frozen=True)
class Part:
    """Some rows, ascending, of an array or of an HDF5 dataset (N, ...), which is read by runs.  name: for messages."""

    source: Any
    rows: Array
    name: str

    @property
    def width(self) -> int:
        return int(np.prod(self.source.shape[1:], dtype=np.int64))

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, tile: Tile) -> Array:
        """Rows of the part (n, width), float64.  Raises UsageError at the first value that is no usable number."""
        rows = self.rows[tile.rows]
        first = int(rows[0])
        try:
            block = np.asarray(self.source[first : int(rows[-1]) + 1])
        except OSError as error:
            raise UsageError(f"{self.name} cannot be read: {error}") from None
        found = block[rows - first].reshape(len(rows), -1).astype(np.float64)
        bad = np.argwhere(~(np.abs(found) < HUGE))
        if len(bad):
            row, column = bad[0].tolist()
            raise UsageError(f"{self.name} is {found[row, column]} at [{int(rows[row])}, {column}]; remove or fill it")
        return found


@dataclass(frozen=True)
class Parts:
    """The training and validation rows of X and, but for autoencoders, of Y."""

    X: Part
    X_val: Part
    Y: Part | None
    Y_val: Part | None
    raw: Raw


def opened(config: Data, labels: bool) -> Parts:
    """The parts of a data set; of an .h5 file without reading its points.  Raises UsageError.  Collective: no."""
    path = Path(config.source)
    own = config.source not in SOURCES
    raw = _headers(path, labels) if own and path.suffix in (".h5", ".hdf5") else _whole(config, labels)
    n = len(raw.X)
    if raw.X_val is None:
        train, held = drawn(n, config)
        sources = raw.X, raw.X, raw.Y, raw.Y
    else:
        train, held = np.arange(config.points or n), np.arange(len(raw.X_val))
        sources = raw.X, raw.X_val, raw.Y, raw.Y_val
    if len(train) > n:
        raise UsageError(f"data.points = {config.points}, but there are {n} training points")
    names = [f"{config.source}: dataset {name}" for name in ("X", "X_val", "Y", "Y_val")]
    if raw.X_val is None:
        names[1], names[3] = names[0], names[2]
    parts = [
        None if source is None else Part(source, rows, name)
        for source, rows, name in zip(sources, (train, held, train, held), names, strict=True)
    ]
    return Parts(*parts, raw=raw)  # type: ignore[arg-type, misc]


def _whole(config: Data, labels: bool) -> Raw:
    """A named data set, or an .npz file: small, and read whole by every rank."""
    return SOURCES.get(config.source, read_own)(config, labels)


def _headers(path: Path, labels: bool) -> Raw:
    if not path.is_file():
        raise UsageError(f"data.source: {path.resolve()} does not exist")
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {str(error).splitlines()[0]}") from None
    found = {name: _header(file, name, path) for name in ("X", "Y", "X_val", "Y_val") if name in file}
    if "X" not in found:
        raise UsageError(f"{path}: there is no dataset X")
    for a, b in (("X", "Y"), ("X_val", "Y_val")):
        if a in found and b in found and len(found[a]) != len(found[b]):
            raise UsageError(f"{path}: {a} has {len(found[a])} rows but {b} has {len(found[b])}")
    for a, b in (("X", "X_val"), ("Y", "Y_val")):
        if a in found and b in found and found[a].shape[1:] != found[b].shape[1:]:
            raise UsageError(f"{path}: the rows of {a} have shape {found[a].shape[1:]}, those of {b} another")
    if ("Y" in found and "X_val" in found) != ("Y_val" in found):
        raise UsageError(f"{path}: Y_val goes with X_val and Y: give both validation datasets or neither")
    if labels and "Y" not in found:
        raise UsageError(f'{path}: model.loss = "cross_entropy" needs class labels, a dataset Y of shape (N,)')
    kinds = ["range" if name in found and found[name].dtype.kind in "iu" else "standard" for name in "XY"]
    return Raw(**found, scale=kinds[0], scale_y=kinds[1], labels=labels)


def _header(file: Any, name: str, path: Path) -> Any:
    try:
        dataset = untrusted.dataset(file, name)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    if dataset.dtype.kind not in "biuf":
        raise UsageError(f"{path}: dataset {name} holds {dataset.dtype}; real numbers are needed")
    if dataset.ndim == 0 or len(dataset) < 2 or not dataset.size:
        raise UsageError(f"{path}: dataset {name} has shape {dataset.shape}; at least 2 rows and 1 column are needed")
    return dataset


def survey(config: Data, labels: bool) -> Survey:
    """Sizes and classes.  Cost: of a classifier all labels are read.  Raises UsageError.  Collective: no (rank 0)."""
    parts = opened(config, labels)
    classes = None
    if labels:
        assert parts.Y is not None and parts.Y_val is not None
        for part in (parts.Y, parts.Y_val):
            check_labels(np.asarray(part.source).reshape(len(part.source), -1), part.name)
        Y, Y_val = (np.asarray(part.source)[part.rows].reshape(-1, 1) for part in (parts.Y, parts.Y_val))
        classes = classes_of(Y, Y_val, config.source)
    width = parts.X.width if parts.Y is None else parts.Y.width
    n_out = width if classes is None else len(classes)
    return Survey(parts.X.width, n_out, len(parts.X), len(parts.X_val), classes)


def load(config: Data, found: Survey, dtype: Any, deals: tuple[PointDeal, PointDeal], team: AnyTeam) -> Dataset:
    """This rank's rows of a data set, checked and scaled.  deals: of training and validation points.

    Raises UsageError on all ranks if one of them finds something wrong.  Collective: yes.
    """
    parts = team.together(lambda: opened(config, found.classes is not None))
    reader = Reader(deals, team, np.dtype(dtype), config)
    raw = parts.raw
    X, X_val, scaling_x = reader.side(parts.X, parts.X_val, raw.scale)
    if parts.Y is None or parts.Y_val is None:
        Y, Y_val, scaling_y = X, X_val, scaling_x
    elif found.classes is not None:
        Y, Y_val, scaling_y = reader.one_hot(parts.Y, parts.Y_val, found.classes)
    else:
        Y, Y_val, scaling_y = reader.side(parts.Y, parts.Y_val, raw.scale_y)
    sha256 = reader.digest((X, X_val) if Y is X else (X, X_val, Y, Y_val))
    return Dataset(X, Y, X_val, Y_val, scaling_x, scaling_y, sha256, found.classes)


class Reader:
    """Reads the rows of this rank: passes over its tiles, and tables by block that all ranks share."""

    def __init__(self, deals: tuple[PointDeal, PointDeal], team: AnyTeam, dtype: np.dtype, config: Data) -> None:
        self.deals, self.team, self.dtype, self.config = deals, team, dtype, config

    def side(self, part: Part, part_val: Part, kind: str) -> tuple[Array, Array, Scaling]:
        """Scaled training and validation rows, and the scaling, which the training rows determine."""
        scaling = self._scaling(part, kind if self.config.scale == "auto" else self.config.scale)
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
            raise self._agreed("all training points belong to one class")
        return rows[0], rows[1], Scaling(np.zeros(len(classes)), np.ones(len(classes)))

    def _scaling(self, part: Part, kind: str) -> Scaling:
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
        if not (high > low).any():
            raise self._agreed(f"every column of {part.name.rsplit(' ', 1)[-1]} is constant")
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

    def _table(self, deal: PointDeal, width: int, look: Callable[[list[Tile]], Array], rows: int) -> Array:
        """look(tiles) (rows, width) of each block, its tiles counted over all points: (rows, blocks, width)."""
        table = np.zeros((len(deal.blocks), rows, width))

        def fill() -> None:
            run = deal.runs[self.team.rank]
            for b in range(run.start, run.stop):
                table[b] = look(list(deal.blocks[b]))

        self.team.together(fill)
        self.team.gather_rows(table, deal.block_counts)
        return table.transpose(1, 0, 2)

    def _filled(self, part: Part, deal: PointDeal, width: int, made: Callable[[Array], Array]) -> Array:
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

        self.team.together(fill)
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

    def _agreed(self, what: str) -> UsageError:
        """An error that every rank finds."""
        error = UsageError(f'data.source = "{self.config.source}": {what}')
        error.agreed = True
        return error
