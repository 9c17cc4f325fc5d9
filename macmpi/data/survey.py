"""What a data set holds, found without reading its points: sizes, classes, and the rows of each part.

Raises UsageError for all that headers tell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from macmpi import UsageError, files
from macmpi.config import Data
from macmpi.data.dataset import Dataset, Scaling, check_enough, check_points, classes_of
from macmpi.data.own_file import HUGE, check, check_labels, no_numbers, read_own, remedy
from macmpi.data.sources import SOURCES, Raw, check_there, contents
from macmpi.data.split import Rows, packed, sizes
from macmpi.files import first_line
from macmpi.parallel.tiles import Tile
from macmpi.typing import Array

GAP = 16
"""Rows between two wanted ones that are read along; a wider gap is skipped."""


@dataclass(frozen=True)
class Survey:
    """Sizes of a data set, and a classifier's classes: found by rank 0 before any rank reads its rows.

    undivided: the rows of which some are yet to be drawn for validation; 0 where the data set has rows for that.
    """

    n_in: int
    n_out: int
    n_train: int
    n_val: int
    classes: Array | None
    autoencoder: bool = False
    undivided: int = 0

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        return self.n_in, self.n_out, self.n_train, self.n_val

    def blank(self) -> Dataset:
        """A data set of these sizes without points, not scaled: what a net is compared with before any is read."""
        X, Y = np.empty((0, self.n_in)), np.empty((0, self.n_out))
        of_x, of_y = (Scaling(np.zeros(n), np.ones(n)) for n in (self.n_in, self.n_out))
        return Dataset(X, Y, X, Y, of_x, of_y, sha256="", classes=self.classes)


@dataclass(frozen=True)
class Part:
    """Some rows, ascending, of an array or of an HDF5 dataset (N, ...), which is read by runs.  name: for messages."""

    source: Any
    rows: range | Rows
    name: str

    @property
    def width(self) -> int:
        return int(np.prod(self.source.shape[1:], dtype=np.int64))

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, tile: Tile) -> Array:
        """Rows of the part (n, width), float64.  Raises UsageError at the first value that is no usable number."""
        rows = np.asarray(self.rows[tile.rows])
        runs = np.split(rows, np.flatnonzero(np.diff(rows) > GAP) + 1)
        try:
            blocks = [self.source[run[0] : run[-1] + 1][run - run[0]] for run in runs]
        except (OSError, RuntimeError) as error:
            raise UsageError(f"{self.name} cannot be read: {first_line(error)}") from None
        found = np.concatenate(blocks).reshape(len(rows), -1).astype(np.float64)
        bad = np.argwhere(~(np.abs(found) < HUGE))
        if len(bad):
            row, column = bad[0].tolist()
            value = found[row, column]
            raise UsageError(f"{self.name} is {value} at [{int(rows[row])}, {column}]; {remedy(value)} it")
        return found


@dataclass(frozen=True)
class Parts:
    """The training and validation rows of X and, but for autoencoders, of Y."""

    X: Part
    X_val: Part
    Y: Part | None
    Y_val: Part | None
    raw: Raw


Split = Callable[[int, Data], Sequence[range | Rows]]
"""Which of n rows are for training, and which for validation."""


def counted(n: int, config: Data) -> list[range]:
    """As many rows as there will be, not those that there will be.  Collective: no."""
    return [range(size) for size in sizes(n, config)]


def drawn(n: int, config: Data) -> list[Rows]:
    """The rows themselves.  Collective: no."""
    try:
        return [Rows(bits) for bits in packed(n, config)]
    except MemoryError:
        raise UsageError(f"{config.source}: dataset X has {n:,} rows, too many for this machine to number") from None


def opened(config: Data, labels: bool, split: Split = drawn) -> Parts:
    """The parts of a data set; of an .h5 file without reading its points.  Raises UsageError.  Collective: no."""
    path = Path(config.source)
    own = config.source not in SOURCES
    raw = _headers(path, labels) if own and path.suffix in (".h5", ".hdf5") else _whole(config, labels)
    n = len(raw.X)
    train: range | Rows
    held: range | Rows
    if raw.X_val is None:
        train, held = split(n, config)
        sources = raw.X, raw.X, raw.Y, raw.Y
    else:
        train, held = range(min(config.points or n, n)), range(len(raw.X_val))
        sources = raw.X, raw.X_val, raw.Y, raw.Y_val
    check_points(config, n - len(held) if raw.X_val is None else n)
    check_enough(config, len(train), len(held))
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
    check_there(path, "data.source")
    try:
        file = files.opened(path)
        held = set(file)
    except (OSError, RuntimeError) as error:
        raise UsageError(f"{path} cannot be read: {first_line(error)}") from None
    found = {name: _header(file, name, path) for name in ("X", "Y", "X_val", "Y_val") if name in held}
    if "X" not in found:
        raise UsageError(f"{path}: there is no dataset X; {contents(path)}")
    for a, b in (("X", "Y"), ("X_val", "Y_val")):
        if a in found and b in found and len(found[a]) != len(found[b]):
            raise UsageError(f"{path}: {a} has {len(found[a])} rows but {b} has {len(found[b])}")
    for a, b in (("X", "X_val"), ("Y", "Y_val")):
        if a in found and b in found and found[a].shape[1:] != found[b].shape[1:]:
            shapes = found[a].shape[1:], found[b].shape[1:]
            raise UsageError(f"{path}: the rows of {a} have shape {shapes[0]}, those of {b} {shapes[1]}")
    if ("Y" in found and "X_val" in found) != ("Y_val" in found):
        raise UsageError(f"{path}: Y_val goes with X_val and Y: give both validation datasets or neither")
    if labels and "Y" not in found:
        raise UsageError(f'{path}: model.loss = "cross_entropy" needs class labels, a dataset Y of shape (N,)')
    kinds = ["range" if name in found and found[name].dtype.kind in "iu" else "standard" for name in "XY"]
    flat = not labels and len(found["Y" if "Y" in found else "X"].shape) == 1
    return Raw(**found, scale=kinds[0], scale_y=kinds[1], labels=labels, one_dimensional=flat)


def _header(file: Any, name: str, path: Path) -> Any:
    try:
        dataset = files.dataset(file, name)
        dtype, shape = dataset.dtype, dataset.shape
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    except Exception as error:  # noqa: BLE001 - whatever h5py raises, the file is what is wrong
        raise UsageError(f"{path}: dataset {name} cannot be read: {first_line(error)}") from None
    if dtype.kind not in "biuf":
        raise UsageError(no_numbers(dtype, f"{path}: dataset {name}"))
    if not shape or shape[0] < 2 or not dataset.size:
        raise UsageError(f"{path}: dataset {name} has shape {shape}; at least 2 rows and 1 column are needed")
    return dataset


def survey(config: Data, labels: bool) -> Survey:
    """Sizes and classes.  Cost: of a classifier all labels are read.  Raises UsageError.  Collective: no (rank 0)."""
    parts = opened(config, labels, drawn if labels else counted)
    classes = None
    if labels:
        assert parts.Y is not None and parts.Y_val is not None
        classes = classes_of(_labels(parts.Y), _labels(parts.Y_val), config.source)
    width = parts.X.width if parts.Y is None else parts.Y.width
    n_out = width if classes is None else len(classes)
    undivided = len(parts.raw.X) if parts.raw.X_val is None else 0
    return Survey(parts.X.width, n_out, len(parts.X), len(parts.X_val), classes, parts.Y is None, undivided)


def _labels(part: Part) -> Array:
    """Those of a part (n, 1), once all of its dataset have been checked."""
    try:
        array = np.asarray(part.source[()] if part.width == 1 else part.source[:2])
    except (OSError, RuntimeError) as error:
        raise UsageError(f"{part.name} cannot be read: {first_line(error)}") from None
    labels = check(array, part.name)
    check_labels(array, part.name)
    return labels[np.asarray(part.rows[:])]
