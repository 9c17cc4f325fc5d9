"""The user's own files: a data set, and the coordinates that a run can start from."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from macmpi import UsageError, files
from macmpi.config import Data
from macmpi.data.checks import GROUPS, as_labels, as_rows, check_datasets, is_text, not_negative
from macmpi.data.dataset import WEIGHTS
from macmpi.data.frames import Columns, columns_of
from macmpi.data.named_sets import NAMED_SETS
from macmpi.data.reading import LISTED, Raw, check_there, names_in, read_file, read_headers
from macmpi.data.scaling import ScalingRule
from macmpi.files import DAMAGE
from macmpi.typing import Array

POINTS = ("X", "Y", "X_val", "Y_val", *WEIGHTS)

MOST_CHANNELS = 4
"""Arrays (N, a, b, c) with more in their last place may have their channels elsewhere: they are no known images."""

COLUMNS = "macmpi_columns"
"""The dataset of a file that says which columns of a table its X is made of."""


def read_own(config: Data, labels: bool, unread: bool = False, missing: bool = False) -> Raw:
    """X and optionally Y, X_val, Y_val, weights, weights_val, groups, groups_val of the user's own file, checked.

    unread: of an HDF5 file its datasets, of which the headers alone are read and checked, and no groups.  missing:
    targets may be NaN.
    Raises UsageError.  Collective: no.
    """
    path = Path(config.source)
    if path.suffix not in (".h5", ".hdf5", ".npz"):
        known = ", ".join(f'"{name}"' for name in NAMED_SETS)
        raise UsageError(
            f'data.source = "{config.source}" is neither {known} nor an .h5, .hdf5 or .npz file, nor a table '
            '(.csv, .tsv, .parquet), an .npy file, a folder of images, "sklearn:NAME" or "openml:NAME"'
        )
    check_there(path, "data.source")
    sharded, unread = unread, unread and path.suffix != ".npz"
    held: dict[str, Any] = read_headers(path, POINTS) if unread else read_file(path, (*POINTS, *GROUPS, COLUMNS))
    check_names(path, held)
    described = held.pop(COLUMNS, None)
    raw = raw_arrays(held, path, labels, not sharded, missing, unread)
    if described is None:
        return raw
    try:
        return of_table(raw, columns_of(described, raw.X.shape[1]))
    except DAMAGE as error:
        raise UsageError(f"{path}: dataset {COLUMNS}: {files.first_line(error)}") from None


def check_names(path: Path, found: Iterable[str]) -> None:
    """Raises UsageError where a file holds a dataset whose name is one of POINTS but for its case, in place of it."""
    meant = {name.lower(): name for name in POINTS}
    for name in names_in(path):
        if (own := meant.get(name.lower(), name)) != name and own not in found:
            raise UsageError(
                f"{path} holds {name}, and a dataset of that kind is called {own}: rename it, or leave it out"
            )


def unread_in(source: str) -> str:
    """Names the datasets of the user's own file that are not read; "" where all are, and of other sources."""
    path = Path(source)
    if path.suffix not in (".h5", ".hdf5", ".npz") or not os.path.isfile(path):
        return ""
    names = [name for name in names_in(path) if name not in (*POINTS, *GROUPS, COLUMNS)]
    listed = ", ".join(ascii(name)[1:-1] for name in names[:LISTED]) + ", ..." * (len(names) > LISTED)
    return f"not read: {listed} of {path.name}; points are X, Y, X_val, Y_val, weights, weights_val" if names else ""


def of_table(raw: Raw, columns: Columns | None) -> Raw:
    """Arrays whose X the columns of a table have become, if there is one."""
    return raw if columns is None else replace(raw, columns=columns, scale=replace(raw.scale, flags=columns.flags))


def raw_arrays(
    held: dict[str, Any], path: Path, labels: bool, texts: bool = True, missing: bool = False, unread: bool = False
) -> Raw:
    """The arrays X and optionally Y, X_val, Y_val, weights, weights_val, groups, groups_val, checked, as rows.

    path: named in messages; texts: labels may be text or truth values; missing: targets may be NaN.  unread: they are
    HDF5 datasets, which stay as they are.  Raises UsageError.  Collective: no.
    """
    held = dict(held)
    names = numbered(held) if texts and labels else None
    check_datasets(held, path, labels)
    targets = held.get("Y", held["X"])
    images, images_y = (image_shape(array) is not None for array in (held["X"], targets))
    points = held if unread else {name: _rows(name, array, path, labels, missing) for name, array in held.items()}
    return Raw(
        **points,
        scale=ScalingRule("auto", images=images),
        scale_y=ScalingRule("auto", images=images_y, targets=True),
        labels=labels,
        label_type=targets.dtype if labels else np.int64,
        names=names,
        one_dimensional=not labels and len(targets.shape) == 1,
        shape=image_shape(held["X"]),
    )


def _rows(name: str, array: Array, path: Path, labels: bool, missing: bool) -> Array:
    """An array of a file, checked, in the form that it has in a Raw.  Raises UsageError."""
    called, of_targets = f"{path}: dataset {name}", name in ("Y", "Y_val")
    if name in GROUPS:
        return array.astype(np.int64)
    if name in WEIGHTS:
        return not_negative(as_rows(array, called, rows=1), called)
    if labels and of_targets:
        return as_labels(array, called)
    return as_rows(array, called, missing=missing if of_targets else None)


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
    if own and all(map(is_text, own.values())):
        flat = [np.asarray(files.texts(array.ravel()), dtype=str) for array in own.values()]
    elif own and not any(array.dtype.kind != "O" or is_text(array) for array in own.values()):  # declared to be classes
        flat = [np.array(array.ravel().tolist()) for array in own.values()]
    else:
        return None
    names, numbers = np.unique(np.concatenate(flat), return_inverse=True)
    for name, codes in zip(own, np.split(numbers, [len(flat[0])]), strict=False):
        held[name] = codes.reshape(own[name].shape)
    return names


def read_codes(path: Path, rows: int, columns: int) -> Array:
    """Coordinates (rows, columns) of the training points, in their order: dataset Z or codes of an HDF5 or npz file.

    Raises UsageError.
    """
    check_there(path, "start.coordinates")
    arrays = read_file(path, ("Z", "codes", "Y"))
    if not arrays:
        raise UsageError(f"start.coordinates = {str(path)!r}: there is no dataset Z or codes in it")
    name, array = next(iter(arrays.items()))
    Z = as_rows(array, f"{path}: dataset {name}")
    if Z.shape != (rows, columns):
        raise UsageError(
            f"{path}: dataset {name} has shape {Z.shape}; a code of {columns} for each of {rows} points is needed"
        )
    return Z
