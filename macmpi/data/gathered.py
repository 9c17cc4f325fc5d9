"""Reads the points of a source into arrays, by name: from files of arrays, tables, folders of images and named sets."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from macmpi import UsageError, listed
from macmpi.config import Config, Data
from macmpi.config.auto import AUTO, IN_THE_PAPER, Decision
from macmpi.data.checks import columns
from macmpi.data.dataset import GROUPS, POINTS, Points, TargetRules, target_rules_of
from macmpi.data.frames import Columns, columns_of
from macmpi.data.images import images_of
from macmpi.data.named_sets import NAMED_SETS, PREFIX, folder, read_library_set
from macmpi.data.reading import SUFFIXES, check_there, contents, names_in, npy_rows, read_array, read_file, told, whole
from macmpi.data.series import USUAL, series_of, targets_of, weights_of
from macmpi.data.tables import ColumnByColumn, is_table, of_parquet, read_table, targets_within
from macmpi.data.wide import SparseRows
from macmpi.typing import Array

OPENML = "openml:"
OPENML_NAME = re.compile(r"(?P<name>[\w.()+-]+)(@(?P<version>[1-9]\d*))?", re.ASCII)

COLUMNS = "macmpi_columns"
"""The dataset of a file that describes the columns of the table from which its X was made."""

DECLARED = "macmpi_declared"
"""The dataset of a file that names the arrays that are classes, even if they hold numbers."""

SPARSE = "macmpi_sparse"
"""The dataset of a file that names the arrays that were sparse matrices."""

OF_A_FIT = COLUMNS, DECLARED, SPARSE


ARGUMENTS = "the arguments of fit"
"""The name, in messages, of points that the caller gives as arrays."""


OF_TABLES = ("target", "weights", "ignore", "categories", "empty", "missing")
"""The keys of [data] that are read for tables."""

KEYS = (*OF_TABLES, "image_size")
"""The keys of [data] that are read for some kinds of sources only."""


def check_keys(config: Data, keys: Iterable[str] = (), source: str = "") -> None:
    """Raises UsageError if the config gives a key of `KEYS` that is not read for its source.

    keys: the keys that are read for a source of this kind.
    source: its name in the message, "" for the name in the config.
    """
    for key in KEYS:
        if key not in keys and getattr(config, key) != getattr(USUAL, key):
            given = json.dumps(getattr(config, key), ensure_ascii=False)
            what = source or f'data.source = "{config.source}"'
            raise UsageError(f"data.{key} = {given}: {what} does not read it; leave it out")


def points_of(config: Config, columns: Columns | None = None) -> Points:
    """Reads the points that a config names.  columns: as in `TargetRules`.  Raises UsageError.

    Collective: no (rank 0).
    """
    known = config if config.model.loss != AUTO else replace(config, model=replace(config.model, loss="squared"))
    return gathered(config.data, replace(target_rules_of(known), columns=columns), config.parallel.by_rows)


def gathered(config: Data, rules: TargetRules, by_rows: bool) -> Points:
    """Reads the arrays of a source.  Raises UsageError.  Collective: no.

    by_rows: whether each rank will read its own rows; the arrays are then, for instance, datasets of an HDF5 file, of
    which only the headers are read here.
    """
    keys, by_rows_too, read = _kind_of(config, rules, by_rows)
    if by_rows and not by_rows_too:
        raise UsageError(
            f'parallel.data = "sharded": data.source = "{config.source}" is read whole; use parallel.data = "node" or '
            '"replicated", or write the points to an HDF5, .npy, .parquet or .zarr file (X, and Y)'
        )
    check_keys(config, keys)
    return read()


def _kind_of(config: Data, rules: TargetRules, by_rows: bool) -> tuple[tuple[str, ...], bool, Callable[[], Points]]:
    """Finds the kind of a source, and returns three things about it.

    These are the keys of [data] that are read for it; whether ranks can read their own rows of it; and the function
    that reads it.
    """
    path, source = Path(config.source), config.source
    if source in NAMED_SETS:
        return (), True, partial(NAMED_SETS[source], config, rules.loss.labels)
    if source.startswith(PREFIX):
        return (), False, lambda: Points(read_library_set(source))
    if source.startswith(OPENML) or is_table(path):
        by_groups = source.startswith(OPENML) or of_parquet(path)
        return OF_TABLES, by_groups, partial(_of_table, config, rules, by_rows and by_groups and not rules.columns)
    if path.suffix == ".npy":
        return ("target", "weights"), True, partial(_of_array, config, by_rows)
    if source and os.path.isdir(path) and path.suffix not in SUFFIXES:
        return ("target", "image_size"), False, partial(_of_images, config)
    return (), True, partial(_of_file, config, by_rows)


# --- files of arrays --------------------------------------------------------------------------------------------------


def _of_file(config: Data, by_rows: bool) -> Points:
    """Reads the arrays of a file, or with `by_rows` opens its datasets; an .npz file is always read.

    Raises UsageError.
    """
    path = Path(config.source)
    if path.suffix not in SUFFIXES:
        known = ", ".join(f'"{name}"' for name in NAMED_SETS)
        raise UsageError(
            f'data.source = "{config.source}" is neither {known} nor an .h5, .hdf5, .nc or .npz file, nor a table '
            '(.csv, .tsv, .parquet), an .npy file, a .zarr folder, a folder of images, "sklearn:NAME" or "openml:NAME"'
        )
    check_there(path, "data.source")
    unread = by_rows and path.suffix != ".npz"
    held = read_file(path, POINTS if unread else (*POINTS, *GROUPS, *OF_A_FIT), unread)
    meant = {name.lower(): name for name in POINTS}
    for name in names_in(path):
        if (own := meant.get(name.lower(), name)) != name and own not in held:
            raise UsageError(
                f"{path} holds {name}, and a dataset of that kind is called {own}: rename it, or leave it out"
            )
    if "X" not in held:
        raise UsageError(f"{path}: there is no dataset X; {contents(path)}")
    held |= {name: SparseRows.of(held[name]) for name in held.pop(SPARSE, ()) if name in held}
    held |= {name: held[name].astype(object) for name in held.pop(DECLARED, ()) if name in held}
    described = held.pop(COLUMNS, None)
    with told(f"{path}: dataset {COLUMNS}"):
        table = None if described is None else columns_of(described, columns(held["X"]))
    return Points(held, table)


def unread_in(source: str) -> str:
    """Writes a note that names the datasets in a file that are not read; "" if there are none."""
    path = Path(source)
    if path.suffix not in SUFFIXES or not os.path.exists(path):
        return ""
    names = [name for name in names_in(path) if name not in (*POINTS, *GROUPS, *OF_A_FIT)]
    said = f"not read: {listed(names)} of {path.name}; points are X, Y, X_val, Y_val, weights, weights_val"
    return said if names else ""


def _of_array(config: Data, by_rows: bool) -> Points:
    """Reads the rows of an .npy file, and splits them into inputs, targets and weights by the numbers of columns.

    Columns are counted from 0 or, backwards, from -1.  Raises UsageError.
    """
    path = Path(config.source)
    check_there(path, "data.source")
    X: Any = npy_rows(path) if by_rows else read_array(path)
    targets = [_column(X, text, "data.target", path) for text in config.targets or []]
    weights = [_column(X, config.weights, "data.weights", path)] if config.weights else []
    _check_once({"target": [*map(str, targets)], "weights": [*map(str, weights)]})
    answers = {"weights": X[:, weights[0]]} if weights else {}
    answers |= {"Y": X[:, targets[0] if len(targets) == 1 else targets]} if targets else {}
    inputs = X[:, np.delete(np.arange(X.shape[1]), targets + weights)] if answers else X
    return Points({"X": inputs, **answers})


def _column(X: Any, text: str, key: str, path: Path) -> int:
    """Reads the number of a column of X, counted from 0 or backwards from -1.  key: names it in messages.

    Raises UsageError.
    """
    width = X.shape[1] if len(X.shape) == 2 else 0
    if not re.fullmatch(r"-?\d{1,9}", text) or not -width <= int(text) < width:
        raise UsageError(
            f'{key} = "{text}": {path} holds {X.dtype} of shape {X.shape}; the number of one of its columns '
            'is needed, as "-1" for the last'
        )
    return int(text) % width


def _of_images(config: Data) -> Points:
    if config.targets:
        raise UsageError(
            f"data.target: {config.source} is a folder of images, whose folders are the classes; [] is none"
        )
    pixels, labels = images_of(Path(config.source), config.image_size)
    targets = {} if labels is None or config.targets == [] else {"Y": labels}
    return Points({"X": pixels, **targets}, classes=True)


# --- tables -----------------------------------------------------------------------------------------------------------


def openml_file(source: str) -> Path:
    """Returns the path of a fetched data set of OpenML, "openml:NAME" or "openml:NAME@VERSION".  Raises UsageError."""
    found = OPENML_NAME.fullmatch(source.removeprefix(OPENML))
    if found is None:
        raise UsageError(f'"{source}" is no data set: "openml:NAME" or "openml:NAME@VERSION" is needed')
    return folder() / "openml" / f"{found[0]}.parquet"


def _of_table(config: Data, rules: TargetRules, by_rows: bool) -> Points:
    """Reads the columns of a table; a data set of OpenML names its targets itself.  Raises UsageError.

    by_rows: whether the inputs of a Parquet file stay there, to be read by row groups; each column is read once first,
    to decide how it becomes numbers.
    """
    fetched = config.source.startswith(OPENML)
    path = openml_file(config.source) if fetched else Path(config.source)
    if fetched and not os.path.isfile(path):
        raise UsageError(
            f'data.source = "{config.source}": {path} does not exist; fetch it: python -m macmpi.fetch {config.source}'
        )
    check_there(path, "data.source")
    table = ColumnByColumn(path) if by_rows else read_table(path, empty=config.empty)
    targets = targets_within(table) if fetched and config.targets is None else config.targets or []
    return of_frame(table, config, targets, rules.loss.missing, rules.columns)


def of_frame(frame: Any, config: Data, targets: list[str], missing: bool, columns: Columns | None = None) -> Points:
    """Splits a table into X, Y and weights; X has all columns but targets, weights and those to be ignored.

    missing: whether targets may be NaN.
    columns: how the columns become X; empty if all are numbers as in an array; None if the table decides.
    Raises UsageError.
    """
    source = config.source
    series = series_of(frame, source)
    weights = [config.weights] if config.weights else []
    asked = {"target": targets, "ignore": config.ignore, "weights": weights, "categories": config.categories}
    for key, names in asked.items():
        for name in names:
            if name not in series:
                known = {other.casefold(): other for other in series}
                close = difflib.get_close_matches(name.casefold(), known, n=1)
                hint = f"did you mean {known[close[0]]!r}?" if close else f"it has {', '.join(list(series)[:20])}"
                raise UsageError(f"data.{key}: {source} has no column {name!r}; {hint}")
    _check_once(asked)
    without = {*targets, *weights, *config.ignore}
    kept = Columns.of(frame, config, without, source) if columns is None else columns
    found = kept if kept.each else Columns.plain({key: one for key, one in series.items() if key not in without})
    arrays = {"X": frame.rows(found) if isinstance(frame, ColumnByColumn) else found.encode(frame, source)}
    for name in weights:
        arrays["weights"] = weights_of(series[name], f"{source}: column {name}, data.weights,")
    if targets:
        arrays["Y"] = targets_of({name: series[name] for name in targets}, source, missing, config)
    return Points(arrays, kept if kept.each else None)


def _check_once(named: Mapping[str, list[str]]) -> None:
    """Raises UsageError if two keys of [data] name the same column; only a target may also be a category.

    named: for each key the columns that it names.
    """
    targets = named["target"]
    if twice := sorted({name for name in targets if targets.count(name) > 1}):
        raise UsageError(f"data.target names {twice[0]!r} twice; name each target once")
    for (other, others), (key, names) in combinations(named.items(), 2):
        if (both := sorted({*names} & {*others})) and (other, key) != ("target", "categories"):
            raise UsageError(f"data.{key}: column {both[0]!r} stands in data.{other}; take it out of one of them")


# --- numbers or classes -----------------------------------------------------------------------------------------------

FEW = 50
"""A column of whole numbers, of any type, may be classes if it has at most this number of different values."""


def with_loss(config: Config, points: Points | None = None) -> tuple[Config, list[Decision]]:
    """Replaces the loss "auto" of a config, and returns the config and the decision.

    Truth values and text are classes, other targets are numbers.  Raises UsageError for whole numbers that may be both.
    points: points that the caller has or has read; None to read them.  Cost: whole numbers are read.
    Collective: no (rank 0).
    """
    if config.model.loss != AUTO:
        return config, []  # Y need not be read
    points, named = points or points_of(config), config.data.targets
    names = f" (target {', '.join(named)})" if named and config.data.source else ""
    Y: Any = points.arrays.get("Y")
    kind = "" if Y is None or not Y.shape or not len(Y) or columns(Y) != 1 else Y.dtype.kind
    loss: Any = "cross_entropy" if kind in ("b", "S", "U", "O") else "squared"
    why = "the targets are numbers" if Y is not None else IN_THE_PAPER
    if config.data.classes:
        loss, why = "cross_entropy", "data.classes names labels"
    elif kind in ("i", "u", "f"):
        why = _amounts(np.unique(whole(Y)), len(Y), f"{config.data.source or ARGUMENTS}{names}")
    elif loss == "cross_entropy":
        why = f"the targets are {'truth values' if kind == 'b' else 'text'}"
    return replace(config, model=replace(config.model, loss=loss)), [Decision("model.loss", loss, why)]


def _amounts(found: Array, rows: int, source: str) -> str:
    """Returns the reason why targets are amounts and no classes.

    found: their different values, ascending; rows: the number of targets.
    Raises UsageError if they may be classes: a few whole numbers that repeat, and either two different ones or more
    than half of the numbers in their range.
    """
    known = found[~np.isnan(found)] if found.dtype.kind == "f" else found
    whole = len(known) > 0 and bool(np.isfinite(known).all() and (known == np.round(known)).all())
    if not whole or len(known) > FEW or len(known) == 1 or 2 * len(known) > rows:
        return "the targets are numbers"
    least, most = int(known[0]), int(known[-1])
    if len(known) > 2 and 2 * len(known) <= most - least + 1:
        return f"the targets are {len(known)} whole numbers from {least} to {most}, too far apart for classes"
    raise UsageError(
        f"{source}: Y holds whole numbers, {len(known)} different ones from {least} to {most}: "
        'say what they are, model.loss = "cross_entropy" if classes, "squared" if amounts'
    )
