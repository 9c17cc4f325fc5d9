"""The arrays of a data set become rows, some for training and some for validation, each read when it is asked for.

One rank draws which rows are for which, and gives the others a bit a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from macmpi import UsageError, files
from macmpi.config import Data
from macmpi.data import checks
from macmpi.data.dataset import SIDES, Raw
from macmpi.data.gathered import ARGUMENTS, Points, check_keys, gathered
from macmpi.data.named_sets import NAMED_SETS
from macmpi.data.reading import declared, facts_of, told
from macmpi.data.scaling import ScalingRule
from macmpi.data.sparse import SparseRows
from macmpi.data.targets import NUMBERS, Wanted
from macmpi.parallel.streams import stream
from macmpi.parallel.tiles import Tile
from macmpi.typing import Array

MOST_CHANNELS = 4
"""Arrays (N, a, b, c) with more in their last place may have their channels elsewhere: they are no known images."""


def raw_of(config: Data, wanted: Wanted = NUMBERS, by_rows: bool = False, points: Points | None = None) -> Raw:
    """The arrays of a data set, checked, as rows; by_rows: of an HDF5 file its datasets, unread.

    wanted: what the config asks of them; points: those that have been read.  Raises UsageError.  Collective: no.
    """
    if config.source in NAMED_SETS:
        check_keys(config)
        return scaled_as(NAMED_SETS[config.source](config, wanted.loss.labels), config, wanted)
    points = points or gathered(config, wanted.loss.missing, by_rows)
    held, labels = dict(points.arrays), wanted.loss.labels
    place = place_of(config)
    if points.classes and not labels:
        held.pop("Y", None)
    names = numbered(held) if labels and not by_rows else None  # no rank sees all that is text
    checks.check_datasets(held, place, labels)
    targets, shape = held.get("Y", held["X"]), image_shape(held["X"])
    found = Raw(
        held,
        scale=ScalingRule("auto", images=shape is not None, flags=points.columns.flags if points.columns else ()),
        scale_y=ScalingRule("auto", images=image_shape(targets) is not None, targets=True),
        labels=labels,
        label_type=targets.dtype if labels else np.int64,
        names=names,
        one_dimensional=not labels and len(targets.shape) == 1,
        columns=points.columns,
        shape=shape,
    )
    return scaled_as(found, config, wanted)


def place_of(config: Data) -> str:
    """The name of the source in messages about its arrays."""
    return str(Path(config.source)) if config.source else ARGUMENTS


def image_shape(array: Any) -> tuple[int, ...] | None:
    """Height, width, and channels if there are some, of images (N, h, w) or (N, h, w, c), c at most MOST_CHANNELS.

    None of other arrays or HDF5 datasets.
    """
    shape: tuple[int, ...] = array.shape[1:]
    return shape if len(shape) == 2 or (len(shape) == 3 and shape[2] <= MOST_CHANNELS) else None


def numbered(held: dict[str, Any]) -> Array | None:
    """Puts numbers 0, 1, ... in the place of labels Y and Y_val that are text or truth values; what each stands for.

    None of numbers, which stay.
    """
    own = {name: held[name] for name in ("Y", "Y_val") if name in held}
    if own and all(array.dtype.kind == "b" for array in own.values()):
        return np.array([False, True])
    if own and all(map(checks.is_text, own.values())):
        flat = [np.asarray(files.texts(array.ravel()), dtype=str) for array in own.values()]
    elif any(array.dtype.kind == "O" and not checks.is_text(array) for array in own.values()):  # declared to be classes
        flat = [np.array(array.ravel().tolist()) for array in own.values()]
    else:
        return None
    names, numbers = np.unique(np.concatenate(flat), return_inverse=True)
    for name, codes in zip(own, np.split(numbers, [len(flat[0])]), strict=False):
        held[name] = codes.reshape(own[name].shape)
    return names


def scaled_as(raw: Raw, config: Data, wanted: Wanted) -> Raw:
    """The arrays, to be scaled as data.scale says, and as the net reads them."""
    if config.scale != "auto":
        raw = replace(raw, scale=ScalingRule(config.scale), scale_y=ScalingRule(config.scale, targets=True))
    steps, shape = wanted.sequences, raw.shape
    if steps and shape is not None and steps == shape[0]:  # steps x features, and no picture
        scale = replace(raw.scale, images=False, features=shape[-1])
        raw = replace(raw, shape=None, steps=steps, scale=scale)
    elif steps and shape is not None and raw.scale.kind == "auto":
        raise UsageError(
            f'data.source = "{config.source}": X holds {shape[0]} steps a point, and the first layer has steps = '
            f'{steps}: give it as many, or, of images, data.scale = "range"'
        )
    if wanted.like is not None:
        of_x, of_y = wanted.like
        raw = replace(raw, scale=replace(raw.scale, like=of_x), scale_y=replace(raw.scale_y, like=of_y))
    return raw


# --- which rows -------------------------------------------------------------------------------------------------------

BYTES = 1 << 9
"""Bytes of bits that are unpacked at a time."""


def split_sizes(n: int, config: Data) -> tuple[int, int]:
    """Training rows, data.points of them if that is given, and validation rows, of n.  Collective: no."""
    held = min(max(1, round(config.validation * n)), n - 1)
    return min(config.points or n - held, n - held), held


def drawn(n: int, config: Data, labels: Array | None = None) -> list[RowSet]:
    """The training and the validation rows, drawn; of labels (n,) in proportion to their classes.  5 bytes a row.

    Raises UsageError.  Collective: no.
    """
    train, held = split_sizes(n, config)
    try:
        found = np.arange(n, dtype=np.uint32 if n <= 2**32 else np.int64)
        stream(config.seed, "split").shuffle(found)
        if labels is not None:
            found = by_class(found, labels, held)
        return [RowSet(_bits(rows, n)) for rows in (found[held : held + train], found[:held])]
    except MemoryError:
        raise UsageError(f"{config.source}: dataset X has {n:,} rows, too many for this machine to number") from None


def by_class(order: Array, labels: Array, held: int) -> Array:
    """The rows of `order` (n,) with those that are held out first, then one of each class, then the others.

    Every class but its first row, which is for training, lies evenly among those held out, to within one row.
    labels: (n,); held: rows that are held out, fewer where there are more classes than rows left.  Collective: no.
    """
    _, classes = np.unique(labels[order], return_inverse=True)
    sequence = np.argsort(classes, kind="stable")
    first = np.r_[True, np.diff(classes[sequence]) > 0]
    one_each, rest = sequence[first], sequence[~first]
    count = min(held, len(rest))
    out = np.zeros(len(rest), bool)
    out[(np.arange(count) * len(rest) + len(rest) // 2) // max(count, 1)] = True
    held_out, left = np.sort(rest[out]), np.sort(rest[~out])
    if count < held:  # nearly every row is the only one of its class
        one_each, held_out = one_each[held - count :], np.r_[held_out, one_each[: held - count]]
    return order[np.r_[held_out, np.sort(one_each), left]]


def _bits(rows: Array, n: int) -> Array:
    among = np.zeros(n, bool)
    among[rows] = True
    return np.packbits(among)


class RowSet:
    """Numbers of rows, ascending, kept as a bit for each row that there is: rows[a:b] are those from the a-th on."""

    def __init__(self, bits: Array) -> None:
        self.bits = bits

    @cached_property
    def _ends(self) -> Array:
        """Counts the rows up to the end of each block of bits."""
        starts = range(0, len(self.bits), BYTES)
        return np.cumsum([int(np.bitwise_count(self.bits[i : i + BYTES]).sum()) for i in starts])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, run: slice) -> Array:
        start, stop, _ = run.indices(len(self))
        if start >= stop:
            return np.empty(0, np.int64)
        first, last = np.searchsorted(self._ends, [start, stop - 1], side="right").tolist()
        bits = np.unpackbits(self.bits[first * BYTES : (last + 1) * BYTES])
        before = int(self._ends[first - 1]) if first else 0
        return np.flatnonzero(bits)[start - before : stop - before] + first * BYTES * 8


# --- parts ------------------------------------------------------------------------------------------------------------

GAP = 16
"""Rows between two wanted ones that are read along; a wider gap is skipped."""


@dataclass(frozen=True)
class Part:
    """Some rows, ascending, of an array or of an HDF5 dataset (N, ...), which is read by runs.

    name: for messages; missing: as of `check_values`.  present: has as many numbers; where one is not above 0, that of
    this part is NaN.
    """

    source: Any
    rows: range | RowSet
    name: str
    missing: bool | None = None
    present: Part | None = None

    @property
    def gaps(self) -> bool:
        """Some of its numbers may be NaN."""
        return bool(self.missing) or self.present is not None

    @property
    def width(self) -> int:
        return checks.columns(self.source)

    @cached_property
    def _facts(self) -> dict[str, Any]:
        return facts_of(self.source)

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, tile: Tile) -> Array:
        """Rows of the part (n, width), float64.  Raises UsageError at the first value that is no usable number.

        Of an array in memory the message counts all such values.
        """
        rows = np.asarray(self.rows[tile.rows])
        runs = np.split(rows, np.flatnonzero(np.diff(rows) > GAP) + 1)
        with told(self.name):
            blocks = [self.source[run[0] : run[-1] + 1][run - run[0]] for run in runs]
            found = declared(np.concatenate(blocks), self._facts).reshape(len(rows), -1).astype(np.float64, copy=False)
        if not checks.usable(found, self.missing).all():
            if isinstance(self.source, np.ndarray):
                checks.as_rows(self.source, self.name, 0, self.missing)
            checks.check_values(found, self.name, rows, self.missing)
        return found if self.present is None else np.where(self.present.read(tile) > 0.0, found, np.nan)

    def labels(self) -> Array:
        """The labels of a part are (n, 1), once all of its dataset have been checked.  Raises UsageError."""
        with told(self.name):
            array = declared(np.asarray(self.source[()]), self._facts)
        return checks.as_labels(array, self.name)[np.asarray(self.rows[:])]

    def whole_numbers(self) -> Array:
        """All rows of an array of whole numbers, (n,) int64."""
        found: Array = self.source[np.asarray(self.rows[:])].astype(np.int64)
        return found


def sparse_rows(part: Part) -> SparseRows:
    """The rows of a part whose source is sparse.  Raises UsageError at the first that holds no usable number."""
    rows = np.asarray(part.rows[:])
    found: SparseRows = part.source.taken(rows)
    if len(bad := np.flatnonzero(~checks.usable(found.matrix.data))):
        first = [np.searchsorted(found.matrix.indptr, bad[0], side="right").item() - 1]
        checks.check_values(found[first].astype(np.float64), part.name, rows[first])
    return found


Parts = dict[str, Part]
"""The training rows of each array by its name, and the validation rows by that name and "_val"."""


def split_of(raw: Raw, config: Data, draw: bool = True) -> list[range] | list[RowSet]:
    """The rows for training and for validation: the first data.points of X and all of X_val.

    Where there is no X_val they are drawn, those of labels in proportion to their classes.  draw: without it they are
    only as many, not those that there will be.  Raises UsageError.  Collective: no.
    """
    n = len(raw.arrays["X"])
    if "X_val" in raw.arrays:
        return [range(min(config.points or n, n)), range(len(raw.arrays["X_val"]))]
    if not draw:
        return [range(size) for size in split_sizes(n, config)]
    return drawn(n, config, np.ravel(raw.arrays["Y"][()]) if raw.labels else None)


def parts_of(raw: Raw, config: Data, rows: Sequence[range | RowSet], missing: bool = False) -> Parts:
    """The parts of all arrays that there are.  missing: numbers of Y may be.  Raises UsageError.  Collective: no.

    rows: those for training and for validation, as of `split_of`.
    """
    given, (n, n_val) = "X_val" in raw.arrays, map(len, rows)
    checks.check_enough(config, n, n_val, len(raw.arrays["X"]) - (0 if given else n_val))
    found: Parts = {}
    for name in ("X", "Y", "weights", "groups", "order"):
        for side, own in zip(SIDES, rows, strict=True):
            held = f"{name}{side}" if given else name
            if held in raw.arrays:
                may_miss = missing if name == "Y" and not raw.labels else None
                called = f"{place_of(config)}: dataset {held}"
                found[f"{name}{side}"] = Part(raw.arrays[held], own, called, may_miss)
    return found


def classes_in(parts: Parts, raw: Raw, source: str) -> Array | None:
    """The labels that occur, ascending; None of data without labels.  Raises UsageError.  Collective: no."""
    if not raw.labels:
        return None
    Y, Y_val = (parts[name].labels() for name in ("Y", "Y_val"))
    return checks.classes_of(Y, Y_val, source, raw.names, raw.label_type, "X_val" not in raw.arrays)
