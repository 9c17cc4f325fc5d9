"""Points that are no .h5 or .npz file: tables, arrays, folders of images, data sets of scikit-learn and of OpenML."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from macmpi import UsageError
from macmpi.config import Data
from macmpi.data.frame_targets import targets_of, weights_of
from macmpi.data.frames import Columns
from macmpi.data.images import images_of
from macmpi.data.library_sets import PREFIX, read_library_set
from macmpi.data.named_sets import NAMED_SETS, folder
from macmpi.data.reading import check_there, read_array
from macmpi.data.series import series_of
from macmpi.data.tables import is_table, read_table, targets_within
from macmpi.typing import Array

OPENML = "openml:"
OPENML_NAME = re.compile(r"(?P<name>[\w.()+-]+)(@(?P<version>[1-9]\d*))?", re.ASCII)


@dataclass(frozen=True)
class Gathered:
    """X (N, ...) and, where there are targets, Y (N,) or (N, L), as numbers or text; columns: of a table.

    classes: Y can be nothing but classes, and is there for those who want them.
    """

    arrays: dict[str, Array]
    columns: Columns | None = None
    classes: bool = False


@dataclass(frozen=True)
class Kind:
    """A kind of source: how it is read (targets may be missing), and which keys of [data] say how."""

    read: Callable[[Data, bool], Gathered]
    keys: tuple[str, ...]


KEYS: dict[str, Any] = {"target": "", "weights": "", "ignore": [], "categories": [], "empty": []}
KEYS |= {"missing": "impute", "image_size": []}
"""Keys that only some kinds of sources read, and their defaults."""

OF_TABLES = ("target", "weights", "ignore", "categories", "empty", "missing")
"""Tables read these."""


def kind_of_source(source: str) -> Kind | None:
    """The kind of a source; None of a named set, an .h5, .hdf5 or .npz file, and of what is nothing."""
    path = Path(source)
    if source in NAMED_SETS:  # "./digits" is a folder of that name
        return None
    if source.startswith(PREFIX):
        return Kind(_of_library, ())
    if source.startswith(OPENML) or is_table(path):
        return Kind(_of_table, OF_TABLES)
    if path.suffix == ".npy":
        return Kind(_of_array, ("target", "weights"))
    return Kind(_of_images, ("target", "image_size")) if source and os.path.isdir(path) else None


def check_keys(config: Data, keys: tuple[str, ...] = ()) -> None:
    """Raises UsageError where a key is given that a source of this kind does not read."""
    for key, default in KEYS.items():
        if key not in keys and getattr(config, key) != default:
            given = json.dumps(getattr(config, key), ensure_ascii=False)
            raise UsageError(f'data.{key} = {given}: data.source = "{config.source}" does not read it; leave it out')


def check_whole(source: str) -> None:
    """Raises UsageError where ranks cannot read their own rows of a source, as sharded data are read."""
    if kind_of_source(source) is not None:
        raise UsageError(
            f'parallel.data = "sharded": data.source = "{source}" is read whole; use parallel.data = "node" or '
            '"replicated", or write the points to an HDF5 file (X, and Y)'
        )


def gathered(config: Data, missing: bool = False) -> Gathered | None:
    """The arrays of a source of a kind that is read here, else None.  Raises UsageError.  Collective: no.

    missing: targets may be NaN.  They are kept until `forget`, so that who asks for the targets first reads no file
    twice.
    """
    kind = kind_of_source(config.source)
    if kind is None:
        return None
    check_keys(config, kind.keys)
    asked = config, missing, _stamp(config.source)
    if [before for before, _ in _kept] != [asked]:
        _kept[:] = [(asked, kind.read(config, missing))]
    return _kept[0][1]


_kept: list[tuple[Any, Gathered]] = []
"""The arrays that were gathered last, behind what was asked for: a source, and the state of its file."""


def forget() -> None:
    """Lets go of arrays that `gathered` keeps."""
    _kept.clear()


def _stamp(source: str) -> tuple[int, ...]:
    try:
        status = os.stat(source)
    except (OSError, ValueError):
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns


# --- kinds of sources -------------------------------------------------------------------------------------------------


def openml_file(source: str) -> Path:
    """The file of a set of OpenML that has been fetched, "openml:NAME" or "openml:NAME@VERSION".  Raises UsageError."""
    found = OPENML_NAME.fullmatch(source.removeprefix(OPENML))
    if found is None:
        raise UsageError(f'"{source}" is no data set: "openml:NAME" or "openml:NAME@VERSION" is needed')
    return folder() / "openml" / f"{found[0]}.parquet"


def _of_table(config: Data, missing: bool) -> Gathered:
    """The columns of a table.  That of a set of OpenML names its targets itself."""
    fetched = config.source.startswith(OPENML)
    path = openml_file(config.source) if fetched else Path(config.source)
    if fetched and not os.path.isfile(path):
        raise UsageError(
            f'data.source = "{config.source}": {path} does not exist; fetch it: python -m macmpi.fetch {config.source}'
        )
    check_there(path, "data.source")
    table = read_table(path, empty=config.empty)
    targets = targets_within(table) if fetched and config.targets is None else config.targets or []
    return of_frame(table, config, targets, missing)


def of_frame(frame: Any, config: Data, targets: list[str], missing: bool = False) -> Gathered:
    """The columns of a table but the targets, weights and those to be ignored are X.  missing: targets may be NaN.

    Raises UsageError.
    """
    source = config.source
    series = series_of(frame, source)
    weights = [config.weights] if config.weights else []
    asked = {"target": targets, "weights": weights, "ignore": config.ignore, "categories": config.categories}
    for key, names in asked.items():
        for name in names:
            if name not in series:
                close = difflib.get_close_matches(name, series, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(list(series)[:20])}"
                raise UsageError(f"data.{key}: {source} has no column {name!r}; {hint}")
    check_once(targets)
    both = sorted(set(targets) & set(config.ignore))
    if both:
        raise UsageError(f"data.ignore: column {both[0]!r} is a target; take it out of one of them")
    if config.weights in {*targets, *config.ignore}:
        where = "target" if config.weights in targets else "ignore"
        raise UsageError(f"data.weights: column {config.weights!r} stands in data.{where}; take it out of one of them")
    without = {*targets, *weights, *config.ignore}
    columns = Columns.of(frame, config.missing, without, source, config.categories, config.empty)
    arrays = {"X": columns.encode(frame, source)}
    for name in weights:
        arrays["weights"] = weights_of(series[name], f"{source}: column {name}, data.weights,")
    if targets:
        arrays["Y"] = targets_of(
            {name: series[name] for name in targets}, source, missing, config.categories, config.empty
        )
    return Gathered(arrays, columns)


def check_once(targets: list[str]) -> None:
    """Raises UsageError where a column is named twice as a target."""
    if twice := sorted({name for name in targets if targets.count(name) > 1}):
        raise UsageError(f"data.target names {twice[0]!r} twice; name each target once")


def _of_array(config: Data, missing: bool) -> Gathered:
    """The rows of an .npy file; targets and weights are columns, counted from 0 or, backwards, from -1."""
    path = Path(config.source)
    check_there(path, "data.source")
    X, found = read_array(path), dict[str, Array]()
    columns = [_column(X, text, "data.target", path) for text in config.targets or []]
    check_once([str(column) for column in columns])
    weights = [_column(X, config.weights, "data.weights", path)] if config.weights else []
    if set(weights) & set(columns):
        raise UsageError(f"data.weights: column {config.weights} stands in data.target; take it out of one of them")
    if weights:
        found["weights"] = X[:, weights[0]]
    if columns:
        found["Y"] = X[:, columns[0]] if len(columns) == 1 else X[:, columns]
    return Gathered({"X": np.delete(X, columns + weights, axis=1) if found else X, **found})


def _column(X: Array, text: str, key: str, path: Path) -> int:
    """The number of a column of an array, counted from 0 or backwards from -1.  Raises UsageError."""
    width = X.shape[1] if X.ndim == 2 else 0
    if not re.fullmatch(r"-?\d{1,9}", text) or not -width <= int(text) < width:
        raise UsageError(
            f'{key} = "{text}": {path} holds {X.dtype} of shape {X.shape}; the number of one of its columns '
            'is needed, as "-1" for the last'
        )
    return int(text) % width


def _of_images(config: Data, missing: bool) -> Gathered:
    if config.targets:
        raise UsageError(
            f"data.target: {config.source} is a folder of images, whose folders are the classes; [] is none"
        )
    pixels, labels = images_of(Path(config.source), config.image_size)
    return Gathered(
        {"X": pixels} if labels is None or config.targets == [] else {"X": pixels, "Y": labels}, classes=True
    )


def _of_library(config: Data, missing: bool) -> Gathered:
    return Gathered(read_library_set(config.source))
