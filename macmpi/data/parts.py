"""The training and the validation rows of a data set, each read from its array or its file when it is asked for.

Data are known again by SHA-256 of their raw points: not scaled, as float64, in blocks that depend on N alone.  So one
data set has one sum in whatever type, file and place, held by one rank or by many, replicated or sharded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from macmpi import UsageError
from macmpi.config import Data
from macmpi.data.checks import as_labels, check_enough, check_values, classes_of, columns
from macmpi.data.dataset import WEIGHTS
from macmpi.data.gathered import Gathered, check_keys, check_whole, forget, gathered
from macmpi.data.named_sets import NAMED_SETS
from macmpi.data.reading import Raw, declared, facts_of, told
from macmpi.data.scaling import ScalingRule
from macmpi.data.split import RowSet, drawn
from macmpi.data.targets import NUMBERS, Wanted
from macmpi.data.user_file import of_table, raw_arrays, read_own
from macmpi.parallel.tiles import Tile
from macmpi.typing import Array

SIDES = ("", "_val")
"""The names of arrays of training and of validation points end so."""

GAP = 16
"""Rows between two wanted ones that are read along; a wider gap is skipped."""


@dataclass(frozen=True)
class Part:
    """Some rows, ascending, of an array or of an HDF5 dataset (N, ...), which is read by runs.

    name: for messages; missing: as of `check_values`.  weights: of targets, each by itself; one of weight 0 is NaN.
    """

    source: Any
    rows: range | RowSet
    name: str
    missing: bool | None = None
    weights: Part | None = None

    @property
    def gaps(self) -> bool:
        """Some of its numbers may be NaN."""
        return bool(self.missing) or self.weights is not None

    @property
    def width(self) -> int:
        return columns(self.source)

    @cached_property
    def _facts(self) -> dict[str, Any]:
        return facts_of(self.source)

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, tile: Tile) -> Array:
        """Rows of the part (n, width), float64.  Raises UsageError at the first value that is no usable number."""
        rows = np.asarray(self.rows[tile.rows])
        runs = np.split(rows, np.flatnonzero(np.diff(rows) > GAP) + 1)
        with told(self.name):
            blocks = [self.source[run[0] : run[-1] + 1][run - run[0]] for run in runs]
            found = declared(np.concatenate(blocks), self._facts).reshape(len(rows), -1).astype(np.float64)
        check_values(found, self.name, rows, self.missing)
        return found if self.weights is None else np.where(self.weights.read(tile) > 0.0, found, np.nan)

    def labels(self) -> Array:
        """The labels of a part are (n, 1), once all of its dataset have been checked.  Raises UsageError."""
        with told(self.name):
            array = declared(np.asarray(self.source[()]), self._facts)
        return as_labels(array, self.name)[np.asarray(self.rows[:])]

    def whole(self) -> Array:
        """All rows, as they are in an array that has been checked."""
        rows: Any = self.rows
        found: Array = self.source[rows.start : rows.stop] if isinstance(rows, range) else self.source[rows[:]]
        return found if self.weights is None else np.where(self.weights.whole() > 0.0, found, np.nan)


Parts = dict[str, Part]
"""The training rows of each array by its name, and the validation rows by that name and "_val"."""

Draw = Callable[[Raw, Data], Sequence[range | RowSet]]
"""Draws which rows are for training, and which for validation."""


def drawn_of(raw: Raw, config: Data) -> list[RowSet]:
    """The rows drawn for training and for validation, those of labels in proportion to their classes."""
    labels = np.ravel(raw.Y[()]) if raw.labels and raw.Y is not None else None
    return drawn(len(raw.X), config, labels)


def raw_of(config: Data, labels: bool, unread: bool = False, wanted: Wanted = NUMBERS) -> Raw:
    """The arrays of a data set; unread: of the user's own HDF5 file as datasets, else small and read whole.

    wanted: what the config asks of them.

    Raises UsageError.  Collective: no.
    """
    if unread:
        check_whole(config.source)
    found = gathered(config, wanted.missing)
    if found is not None:
        raw = _of_gathered(found, config, labels, wanted.missing)
    else:
        check_keys(config)
        named = NAMED_SETS.get(config.source)
        raw = named(config, labels) if named else read_own(config, labels, unread, wanted.missing)
    return scaled_as(raw, config, wanted)


def _of_gathered(found: Gathered, config: Data, labels: bool, missing: bool) -> Raw:
    forget()
    arrays = dict(found.arrays)
    if not labels and found.classes:
        arrays.pop("Y", None)
    if labels and "Y" not in arrays:
        raise UsageError(
            f'{config.source}: model.loss = "cross_entropy" needs class labels: name their column in data.target, or '
            "put images into folders, one a class"
        )
    return of_table(raw_arrays(arrays, Path(config.source), labels, missing=missing), found.columns)


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


def parts_of(raw: Raw, config: Data, draw: Draw, missing: bool = False) -> Parts:
    """The parts of all arrays that there are.  missing: numbers of Y may be.  Raises UsageError.  Collective: no.

    Their rows are the first data.points of X and all of X_val, or where there is no X_val those that are drawn.
    """
    left = n = len(raw.X)
    if raw.X_val is not None:
        rows: Sequence[range | RowSet] = [range(min(config.points or n, n)), range(len(raw.X_val))]
    else:
        rows = draw(raw, config)
        left = n - len(rows[1])
    check_enough(config, len(rows[0]), len(rows[1]), left)
    found: Parts = {}
    for name in ("X", "weights", "Y", "groups", "order"):
        for side, own in zip(SIDES, rows, strict=True):
            given = name if raw.X_val is None else f"{name}{side}"
            if (array := getattr(raw, given)) is not None:
                may_miss = missing if name == "Y" and not raw.labels else None
                heavy = found.get(f"weights{side}") if name == "Y" else None
                by_output = heavy if heavy is not None and heavy.width > 1 else None
                found[f"{name}{side}"] = Part(array, own, f"{config.source}: dataset {given}", may_miss, by_output)
    return found


def of_outputs(parts: Parts) -> bool:
    """Tells whether weights are those of points and outputs, (N, L).  Collective: no."""
    return any(name in parts and parts[name].width > 1 for name in WEIGHTS)


def classes_in(parts: Parts, raw: Raw, source: str) -> Array | None:
    """The labels that occur, ascending; None of data without labels.  Raises UsageError.  Collective: no."""
    if not raw.labels:
        return None
    Y, Y_val = (parts[name].labels() for name in ("Y", "Y_val"))
    return classes_of(Y, Y_val, source, raw.names, raw.label_type, raw.X_val is None)


# --- sums -------------------------------------------------------------------------------------------------------------


def sum_of_blocks(arrays: Mapping[str, tuple[int, Array]], names: Array | None) -> str:
    """The sum of a data set, of each array its points and the sums of its blocks (blocks, 32), those of `block_sum`.

    names: of classes, where they have some.
    """
    found = hashlib.sha256()
    for name, (points, blocks) in arrays.items():
        found.update(f"{name} {points} ".encode() + blocks.tobytes())
    if names is not None:
        found.update("\0".join(map(str, names)).encode())
    return found.hexdigest()


def block_sum(pieces: Iterable[Array]) -> Array:
    """SHA-256 of rows that come in pieces, (32,) bytes; -0 counts as 0."""
    found = hashlib.sha256()
    for rows in pieces:
        found.update(np.add(rows, 0.0, dtype=np.float64).reshape(len(rows), -1).data)
    return np.frombuffer(found.digest(), np.uint8)
