"""Splits the arrays of a data set into training and validation rows, which are read and checked when they are used.

If the split is random, one rank draws it and sends it to the others as one bit a row.
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
from macmpi.data.dataset import NUMBERS, SIDES, WEIGHTS, Points, Raw, TargetRules
from macmpi.data.gathered import ARGUMENTS, gathered
from macmpi.data.reading import declared, facts_of, told, whole
from macmpi.data.scaling import BOUNDED, ScalingRule
from macmpi.data.series import labels_among
from macmpi.data.wide import SparseRows
from macmpi.parallel.rows import RowSet
from macmpi.parallel.streams import stream
from macmpi.parallel.tiles import Tile
from macmpi.reductions import LazyRows
from macmpi.typing import Array

MOST_CHANNELS = 4
"""Arrays (N, a, b, c) with a larger c are not taken for images, because their channels may be another axis."""


def raw_of(config: Data, rules: TargetRules = NUMBERS, by_rows: bool = False, points: Points | None = None) -> Raw:
    """Reads or opens the arrays of a data set, checks their shapes, and decides how they are scaled.

    rules: the rules of the config for its data.
    by_rows: whether each rank will read its own rows, so that the datasets of a file are opened and not read.
    points: points that have been read; None to read them.  Raises UsageError.  Collective: no.
    """
    points = points or gathered(config, rules, by_rows)
    held, labels = dict(points.arrays), rules.loss.labels
    if points.classes and not labels:
        held.pop("Y", None)
    path = "" if points.classes or points.columns else place_of(config)
    names = numbered(held, rules.classes, path) if labels and not by_rows else None  # no rank holds all texts
    if not points.named:
        checks.check_datasets(held, place_of(config), labels)
    X, targets = held["X"], held.get("Y", held["X"])
    shape, steps = image_shape(X), 0
    kind = "none" if points.named and config.scale == "auto" else config.scale
    kind_y = (BOUNDED.get(rules.output, kind) if rules.loss.scaled else "none") if kind == "auto" else kind
    kind = "range" if "Y" not in held and kind_y != kind else kind
    of_x, of_y = rules.like or (None, None)
    scale = ScalingRule(kind, shape is not None, flags=kind == "auto", like=of_x, running=rules.stream)
    kind_y = kind_y if rules.loss.scaled else "none"
    scale_y = ScalingRule(kind_y, image_shape(targets) is not None, targets=True, like=of_y, running=rules.stream)
    if scale.ranged not in (None, scale.settled == "range"):
        raise UsageError(f'data.scale = "{config.scale}": the stream that goes on has another kind; leave it out')
    if rules.sequences and len(X.shape) > 2:
        if rules.sequences == X.shape[1]:  # a point is steps x features, not an image
            features = checks.columns(X) // rules.sequences
            scale, steps, shape = replace(scale, images=False, features=features), rules.sequences, None
        elif kind == "auto":
            raise UsageError(
                f'data.source = "{config.source}": X holds {X.shape[1]} steps a point, and the first layer has steps = '
                f'{rules.sequences}: give it as many, or, of images, data.scale = "range"'
            )
    plain = not labels and len(targets.shape) == 1
    return Raw(held, scale, scale_y, labels, names, plain, points.columns, shape, steps)


def place_of(config: Data) -> str:
    """Returns the name of the source for messages about its arrays."""
    return str(Path(config.source)) if config.source else ARGUMENTS


def image_shape(array: Any) -> tuple[int, ...] | None:
    """Returns (h, w) or (h, w, c) of an array or dataset of images, (N, h, w) or (N, h, w, c) with c <= MOST_CHANNELS.

    It returns None for arrays of other shapes, and for those that are one pixel high or wide.
    """
    shape: tuple[int, ...] = array.shape[1:]
    known = len(shape) == 2 or (len(shape) == 3 and shape[2] <= MOST_CHANNELS)
    return shape if known and min(shape[:2]) > 1 else None


def numbered(held: dict[str, Any], known: Array | None = None, path: str = "") -> Array | None:
    """Replaces labels Y and Y_val that are text or truth values by numbers 0, 1, ..., in place.

    It returns the label for which each number stands, or None if the labels are numbers already.
    held: the arrays by name.
    known: the labels that may occur, where they are known; labels of the data that equal one of them, whatever their
        type, are replaced by it.  Otherwise labels of Y_val are matched to the labels of Y in this way.
    path: the name of the source where labels may be missing, as "" or "nan" among texts; otherwise "".
    Raises UsageError if a label is missing.
    """
    targets = {name: held[name] for name in ("Y", "Y_val") if name in held}
    for name, array in targets.items():
        of = targets.get("Y", array) if known is None else known
        if known is not None or array.dtype.kind != of.dtype.kind:
            targets[name] = held[name] = labels_among(np.unique(of), array)
    if targets and all(array.dtype.kind == "b" for array in targets.values()):
        return np.array([False, True])
    if targets and all(map(checks.is_text, targets.values())):
        flat = [np.asarray(files.texts(array.ravel()), dtype=str) for array in targets.values()]
        for name, labels in zip(targets, flat, strict=True):
            if path and (bad := [i for i, label in enumerate(labels.tolist()) if label.strip() in ("", "nan")]):
                raise UsageError(
                    f'{path}: dataset {name} is "{labels[bad[0]]}" at [{bad[0]}] ({len(bad)} such), a label that is '
                    "missing; remove these rows, or name them"
                )
    elif any(array.dtype.kind == "O" and not checks.is_text(array) for array in targets.values()):  # declared classes
        flat = [np.array(array.ravel().tolist()) for array in targets.values()]
    else:
        return None
    named = known is not None and known.dtype.kind == "U"
    names, numbers = np.unique(np.concatenate([*flat, known] if named else flat), return_inverse=True)
    for name, codes in zip(targets, np.split(numbers, np.cumsum([*map(len, flat)])), strict=False):
        held[name] = codes.reshape(targets[name].shape)
    return names


# --- which rows -------------------------------------------------------------------------------------------------------


def split_sizes(n: int, config: Data) -> tuple[int, int]:
    """Returns how many of n rows become training rows (data.points, if given) and validation rows.  Collective: no."""
    held = min(max(1, round(config.validation * n)), n - 1)
    return min(config.points or n - held, n - held), held


def drawn(n: int, config: Data, labels: Array | None = None) -> list[RowSet]:
    """Draws the training and the validation rows of n; with labels (n,), in proportion to their classes.

    Raises UsageError.  Cost: 5 bytes of memory a row.  Collective: no.
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
    """Rearranges a random order (n,) of rows: first the `held` validation rows, then one of each class, then the rest.

    So each class has a training row, and its other rows are among the validation rows in proportion, to within one row.
    If there are not enough other rows, the first rows of some classes are validation rows.
    labels (n,): the label of each row.  Collective: no.
    """
    _, classes = np.unique(labels[order], return_inverse=True)
    sequence = np.argsort(classes, kind="stable")
    first = np.r_[True, np.diff(classes[sequence]) > 0]
    one_each, rest = sequence[first], sequence[~first]
    count = min(held, len(rest))
    out = np.zeros(len(rest), bool)
    out[(np.arange(count) * len(rest) + len(rest) // 2) // max(count, 1)] = True
    held_out, left = np.sort(rest[out]), np.sort(rest[~out])
    if count < held:  # most classes have a single row
        one_each, held_out = one_each[held - count :], np.r_[held_out, one_each[: held - count]]
    return order[np.r_[held_out, np.sort(one_each), left]]


def _bits(rows: Array, n: int) -> Array:
    among = np.zeros(n, bool)
    among[rows] = True
    return np.packbits(among)


# --- parts ------------------------------------------------------------------------------------------------------------

GAP = 16
"""Rows whose numbers differ by at most this are read together with the rows between; wider gaps are skipped."""


RUN = 2**22
"""The number of bytes of rows that are read from a file at a time."""


@dataclass(frozen=True)
class DataPart:
    """Some rows of an array or of an HDF5 dataset (N, ...), which are checked when they are read.

    source: the array or dataset.
    rows: the numbers of the rows, ascending.
    name: the name of the dataset, for messages.
    missing: whether NaN may stand for a missing number, as in `check_values`.
    present: weights of the numbers, of the same shape; a number whose weight is not above 0 is read as NaN.
    """

    source: Any
    rows: range | RowSet
    name: str
    missing: bool | None = None
    present: DataPart | None = None

    @property
    def gaps(self) -> bool:
        """Tells whether numbers of the part may be read as NaN."""
        return bool(self.missing) or self.present is not None

    @property
    def width(self) -> int:
        return checks.columns(self.source)

    @property
    def raw_bytes(self) -> int:
        """The number of bytes of a row in the type of the source."""
        return self.width * int(self.source.dtype.itemsize)

    @cached_property
    def facts(self) -> dict[str, Any]:
        return facts_of(self.source)

    def __len__(self) -> int:
        return len(self.rows)

    def raw(self, places: Any) -> Array:
        """Reads rows of the part in the type of the source, (n, width).

        places: a slice of the part's rows, or their numbers within the part.
        Raises UsageError, with file, dataset and rows, where they cannot be read.
        """
        if not isinstance(places, slice):
            first = int(min(places, default=0))
            rows = np.asarray(self.rows[first : int(max(places, default=-1)) + 1])[places - first]
            ordered, back = np.unique(rows, return_inverse=True)
            return self._at(ordered)[back]
        return self._at(np.asarray(self.rows[places]))

    def _at(self, rows: Array) -> Array:
        """Reads rows of the source, (n, width).  rows: their numbers in the source, ascending."""
        if type(self.source) is np.ndarray:
            return self.source.take(rows, axis=0).reshape(len(rows), self.width)
        numbers, first = np.empty((len(rows), self.width), self.source.dtype), 0
        for run in np.split(rows, np.flatnonzero(np.diff(rows) > GAP) + 1) if len(rows) else []:
            with told(f"{self.name}, rows {run[0]:,} to {run[-1]:,}"):
                some = self.source[run[0] : run[-1] + 1]
                some = some if len(some) == len(run) else some[run - run[0]]
                numbers[first : first + len(run)] = some.reshape(len(run), -1)
            first += len(run)
        return numbers

    def read(self, tile: Tile) -> Array:
        """Reads and checks rows of the part: (n, width) float64.

        Raises UsageError if a value is no usable number, and names the first; for an array in memory it also counts
        all of them.
        """
        return self.checked(self.raw(tile.rows), tile)

    def checked(self, raw: Array, tile: Tile) -> Array:
        """Checks rows that `raw` has read, and converts them to float64.  Raises UsageError as `read` does."""
        numbers = numbers_of(raw, self.facts)
        if not checks.usable(numbers, self.missing).all():
            if isinstance(self.source, np.ndarray):
                checks.as_rows(self.source, self.name, 0, self.missing)
            checks.check_values(numbers, self.name, np.asarray(self.rows[tile.rows]), self.missing)
        return numbers if self.present is None else np.where(self.present.read(tile) > 0.0, numbers, np.nan)

    def labels(self) -> Array:
        """Reads the labels of the part, (n, 1), and checks all labels of its dataset.  Raises UsageError."""
        with told(self.name):
            array = whole(self.source)
        return checks.as_labels(array, self.name)[np.asarray(self.rows[:])]

    def sparse(self) -> SparseRows:
        """Reads the rows of a sparse source.  Raises UsageError if a number is not usable, and names the first."""
        rows = np.asarray(self.rows[:])
        some = SparseRows(self.source.matrix[rows], self.source.shift)
        if len(bad := np.flatnonzero(~checks.usable(some.matrix.data))):
            first = [np.searchsorted(some.matrix.indptr, bad[0], side="right").item() - 1]
            checks.check_values(some[first].astype(np.float64), self.name, rows[first])
        return some

    def in_file(self, run: Tile) -> LazyRows:
        """Returns a range of the part's rows (n, width) that stays in the file, in its type, and is read when used.

        run: the numbers of the rows within the part.
        Rows that are used in order are read by RUN bytes at a time, which are kept until others are read.
        """
        shape, dtype = (len(run), self.width), self.source.dtype
        kept = [(0, np.empty((0, self.width), dtype))]  # the first place of the rows read last, and these rows

        def make(places: Any) -> Array:
            if not isinstance(places, slice):
                return self.raw(np.asarray(places) + run.start)
            (at, rows), (start, stop, step) = kept[0], places.indices(len(run))
            if not at <= start <= stop <= at + len(rows):
                after = min(max(stop, start + RUN // max(dtype.itemsize * self.width, 1)), len(run))
                at, rows = kept[0] = start, self.raw(slice(run.start + start, run.start + after))
            return rows[start - at : stop - at : step]

        return LazyRows(make, shape, dtype)

    def whole_numbers(self) -> Array:
        """Reads all rows of the part, of an array of whole numbers (N,): (n,) int64."""
        return self.source[np.asarray(self.rows[:])].astype(np.int64)


def numbers_of(raw: Array, facts: dict[str, Any]) -> Array:
    """Converts rows in the type of their file to float64, by the facts of `facts_of`; missing numbers become NaN."""
    return declared(raw, facts).astype(np.float64, copy=False)


DataParts = dict[str, DataPart]
"""The training rows of each array, by its name, and the validation rows, by that name with "_val"."""


def split_of(raw: Raw, config: Data, rules: TargetRules = NUMBERS, draw: bool = True) -> Sequence[range | RowSet]:
    """Decides which rows are training rows and which are validation rows, and returns both.

    If the data have X_val, all its rows are validation rows, and the first data.points rows of X training rows.
    In a piece of a stream the first data.points rows are training rows.  Validation rows are evenly spaced among the
    training rows with a weight above 0 and a target that is not missing, or among all if there are no such rows.
    Otherwise both are drawn from X, with labels in proportion to their classes.
    rules: the rules of the config for its data.
    draw: False if only the numbers of rows are needed, so that nothing is drawn.
    Raises UsageError.  Collective: no.
    """
    n = len(raw.arrays["X"])
    if "X_val" in raw.arrays:
        return [range(min(config.points or n, n)), range(len(raw.arrays["X_val"]))]
    if rules.stream:
        rows, counting = range(min(config.points or n, n)), np.ones(n, bool)
        if "weights" in raw.arrays:
            counting &= (whole(raw.arrays["weights"]) > 0.0).reshape(n, -1).any(axis=1)
        if rules.loss.missing and "Y" in raw.arrays:
            counting &= ~np.isnan(whole(raw.arrays["Y"])).reshape(n, -1).all(axis=1)
        held = np.flatnonzero(counting[: rows.stop] if counting[: rows.stop].any() else np.ones(rows.stop))
        return [rows, RowSet(_bits(held[:: max(round(1.0 / config.validation), 1)], n))]
    if not draw:
        return [range(size) for size in split_sizes(n, config)]
    return drawn(n, config, np.ravel(raw.arrays["Y"][()]) if raw.labels else None)


def parts_of(raw: Raw, config: Data, rows: Sequence[range | RowSet], missing: bool = False) -> DataParts:
    """Returns the training and the validation rows of each array of a data set, as parts.

    rows: the training and the validation rows, as `split_of` returns them.
    missing: whether numbers of Y may be missing.  Targets of weight 0 are read as missing.
    Raises UsageError.  Collective: no.
    """
    given, (n, n_val) = "X_val" in raw.arrays, map(len, rows)
    checks.check_enough(config, n, n_val, len(raw.arrays["X"]) - (0 if given else n_val))
    found: DataParts = {}
    for name in ("X", "Y", "weights", "groups", "order"):
        for side, own in zip(SIDES, rows, strict=True):
            held = f"{name}{side}" if given else name
            if held in raw.arrays:
                may_miss = missing if name == "Y" and not raw.labels else None
                called = f"{place_of(config)}: dataset {held}"
                found[f"{name}{side}"] = DataPart(raw.arrays[held], own, called, may_miss)
    for name, side in zip(WEIGHTS, SIDES, strict=True):
        if name in found and found[name].width > 1:
            _check_each(found[name], found)
            found[f"Y{side}"] = replace(found[f"Y{side}"], present=found[name])
    return found


def _check_each(weights: DataPart, parts: DataParts) -> None:
    """Raises UsageError unless weights (N, L), of training and validation points alike, have one for each target."""
    outputs = parts["Y"].width if "Y" in parts else 1
    text = f"{weights.name} has shape {tuple(weights.source.shape)}; one weight a point is needed, (N,)"
    if "Y" not in parts and weights.width == parts["X"].width:
        raise UsageError(f"{text}: weights of an autoencoder's outputs need targets of their own, Y = X")
    if weights.width != outputs:
        raise UsageError(text + (f", or one for each of the {outputs} targets, (N, {outputs})" if outputs > 1 else ""))
    if any(name in parts and parts[name].width != outputs for name in WEIGHTS):
        raise UsageError(f"{text}, or one for each of the {outputs} targets in both weights and weights_val")


def classes_in(parts: DataParts, raw: Raw, source: str, known: Array | None = None) -> Array | None:
    """Returns the classes: the labels in rows of a weight above 0, ascending; None for data without labels.

    known: the labels that may occur, ascending; where they are known, they are the classes.
    Raises UsageError.  Collective: no.
    """
    if not raw.labels:
        return None
    Y, Y_val = (_counting(parts, side) for side in SIDES)
    with told(f'data.source = "{source}"'):
        return checks.classes_of(Y, Y_val, raw, source, known)


def _counting(parts: DataParts, side: str) -> Array:
    """Returns the labels (n, 1) of the points with a weight above 0, or of all points if there is none of these.

    side: "" for training points, "_val" for validation points.  Raises UsageError.
    """
    labels, weights = parts[f"Y{side}"].labels(), parts.get(f"weights{side}")
    some = labels if weights is None else labels[weights.read(Tile(0, len(weights)))[:, 0] > 0.0]
    return some if len(some) else labels
