"""The user's own file: datasets that fit each other, numbers that one can train on, and labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from macmpi import UsageError
from macmpi.config import Data
from macmpi.data.sources import SOURCES, Raw, check_there, contents, read_file
from macmpi.typing import Array

HUGE = 1e100
"""Values from here on are taken for mistakes: their squares would overflow."""

EXACT = 2.0**53
"""From here on float64 rounds whole numbers."""


def read_own(config: Data, labels: bool) -> Raw:
    """X and optionally Y, X_val, Y_val, groups, groups_val of the user's own file."""
    path = Path(config.source)
    if path.suffix not in (".h5", ".hdf5", ".npz"):
        known = ", ".join(f'"{name}"' for name in SOURCES)
        raise UsageError(f'data.source = "{config.source}" is neither {known} nor an .h5, .hdf5 or .npz file')
    check_there(path, "data.source")
    arrays = read_file(path, ("X", "Y", "X_val", "Y_val", "groups", "groups_val"))
    if "X" not in arrays:
        raise UsageError(f"{path}: there is no dataset X; {contents(path)}")
    numbers: dict[str, Array] = {name: arrays.pop(name) for name in ("groups", "groups_val") if name in arrays}
    checked: dict[str, Any] = {name: check(array, f"{path}: dataset {name}") for name, array in arrays.items()}
    for a, b in (("X", "Y"), ("X_val", "Y_val")):
        if a in checked and b in checked and len(checked[a]) != len(checked[b]):
            raise UsageError(f"{path}: {a} has {len(checked[a])} rows but {b} has {len(checked[b])}")
    for a, b in (("X", "X_val"), ("Y", "Y_val")):
        if a in checked and b in checked and checked[a].shape[1] != checked[b].shape[1]:
            raise UsageError(f"{path}: {a} has {checked[a].shape[1]} columns but {b} has {checked[b].shape[1]}")
    if ("Y" in checked and "X_val" in checked) != ("Y_val" in checked):
        raise UsageError(f"{path}: Y_val goes with X_val and Y: give both validation datasets or neither")
    if labels:
        if "Y" not in checked:
            raise UsageError(f'{path}: model.loss = "cross_entropy" needs class labels, a dataset Y of shape (N,)')
        for name in ("Y", "Y_val"):
            if name in arrays:
                check_labels(arrays[name], f"{path}: dataset {name}")
    kinds = ("range" if name in arrays and arrays[name].dtype.kind in "iu" else "standard" for name in "XY")
    groups = _groups(numbers, checked, str(path)) if numbers else None
    shape = arrays["X"].shape[1:] if arrays["X"].ndim == 3 else None
    checked["one_dimensional"] = not labels and arrays["Y" if "Y" in arrays else "X"].ndim == 1
    return Raw(**checked, scale=next(kinds), scale_y=next(kinds), labels=labels, groups=groups, shape=shape)


def _groups(numbers: dict[str, Array], points: dict[str, Array], path: str) -> tuple[Array, Array]:
    """groups and groups_val of a file, whole numbers (N,), one for each of its points."""
    for name, array in numbers.items():
        if array.dtype.kind not in "iu" or array.ndim != 1:
            raise UsageError(
                f"{path}: dataset {name} holds {array.dtype} of shape {array.shape}; integers of shape (N,) are needed"
            )
    if "groups" not in numbers or ("X_val" in points) != ("groups_val" in numbers):
        raise UsageError(f"{path}: groups_val goes with X_val and groups: give both datasets or neither")
    for a, b in (("X", "groups"), ("X_val", "groups_val")):
        if b in numbers and len(points[a]) != len(numbers[b]):
            raise UsageError(f"{path}: {a} has {len(points[a])} rows but {b} has {len(numbers[b])}")
    groups = numbers["groups"].astype(np.int64)
    return groups, numbers.get("groups_val", groups[:0]).astype(np.int64)


def check_labels(labels: Array, name: str) -> None:
    """Raises UsageError unless labels, (N,) or more as they are in the file, hold one whole number a row that float64
    tells from its neighbours.
    """
    columns = int(np.prod(labels.shape[1:]))
    if columns != 1:
        raise UsageError(
            f"{name} has {columns} columns; class labels are one whole number a row (of one-hot rows: Y.argmax(1))"
        )
    flat = labels.ravel()
    bad = np.flatnonzero(flat != np.round(flat))
    if len(bad):
        raise UsageError(
            f"{name} is {flat[bad[0]]:g} at [{bad[0]}]; class labels are whole numbers "
            '(for real targets use model.loss = "squared")'
        )
    large = np.flatnonzero(np.abs(flat.astype(np.float64)) >= EXACT)
    if len(large):
        raise UsageError(
            f"{name} is {flat[large[0]]:g} at [{large[0]}]: labels at or beyond 2^53 may be several in one; "
            "number the classes from 0"
        )


def no_numbers(dtype: Any, name: str) -> str:
    """What is to be said of a dataset of another kind."""
    text = f"{name} holds {dtype}; real numbers are needed"
    if dtype.kind in "SUO" and name.endswith(("dataset Y", "dataset Y_val")):
        text += ": number classes that are text by np.unique(Y, return_inverse=True)[1], those of Y and Y_val together"
    return text


def remedy(value: float) -> str:
    """What helps against a value that `check` refuses."""
    return f"the limit is {HUGE:g}: rescale" if np.isfinite(value) else "remove or fill"


def check(array: Array, name: str, rows: int = 2) -> Array:
    """`array` as float64 rows: (N,) becomes (N, 1), images (N, h, w) become (N, h w).

    Raises UsageError naming the first bad index.
    """
    if array.dtype.kind not in "biuf":
        raise UsageError(no_numbers(array.dtype, name))
    if array.ndim == 0:
        raise UsageError(f"{name} is a single number; rows of features are needed: (N, D)")
    if array.ndim == 1:
        array = array[:, None]
    if len(array) < rows or array.size == 0:
        raise UsageError(f"{name} has shape {array.shape}; at least {rows} rows and 1 column are needed")
    numbers = np.ascontiguousarray(array.reshape(len(array), -1), dtype=np.float64)
    bad = np.argwhere(~(np.abs(numbers) < HUGE))
    if len(bad):
        at = tuple(int(i) for i in bad[0])
        raise UsageError(f"{name} is {numbers[at]} at {list(at)} ({len(bad)} such values); {remedy(numbers[at])} them")
    largest = np.abs(numbers).max()
    if 0.0 < largest < 1.0 / HUGE:
        raise UsageError(f"{name} holds nothing larger than {largest:g}; choose other units")
    return numbers
