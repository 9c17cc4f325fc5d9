"""Data sets: read, split and scaled.  Rank 0 reads; `share` gives the arrays to the other ranks."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from macmpi import UsageError
from macmpi.config import Data
from macmpi.data.own_file import check, read_own
from macmpi.data.sources import SOURCES, Raw, check_there, read_file
from macmpi.data.split import order, sizes
from macmpi.typing import Array

HUGE_SINGLE = 1e12
"""The same for data held in single precision."""

MOST_CLASSES = 10_000
"""Targets are one-hot, so that every class is an output."""


@dataclass(frozen=True)
class Scaling:
    """x -> (x - shift) / scale, by column.  shift, scale: (D,)."""

    shift: Array
    scale: Array

    def apply(self, X: Array) -> Array:
        return (X - self.shift) / self.scale

    def undo(self, X: Array) -> Array:
        return X * self.scale + self.shift


@dataclass(frozen=True)
class Dataset:
    """Scaled training and validation points, rows of float64 or float32.  An autoencoder's Y is X itself, not a copy.

    classes: the label of each column of a classifier's one-hot Y; None for other data.  one_dimensional: the targets
    are numbers that their file has as (N,).  For pictures, on rank 0 alone:
    groups, a whole number of each training and of each validation point; order, its place on its group's closed curve;
    shape, height and width of a row that is an image; None where there are none.
    """

    X: Array
    Y: Array
    X_val: Array
    Y_val: Array
    scaling_x: Scaling
    scaling_y: Scaling
    sha256: str
    classes: Array | None = None
    one_dimensional: bool = False
    groups: tuple[Array, Array] | None = None
    order: tuple[Array, Array] | None = None
    shape: tuple[int, int] | None = None

    @property
    def autoencoder(self) -> bool:
        return self.Y is self.X

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Inputs, outputs, training and validation points."""
        return self.X.shape[1], self.Y.shape[1], len(self.X), len(self.X_val)


def fit_scaling(X: Array, kind: str) -> Scaling:
    """ "none"; "range": one shift and scale for all columns, to [0, 1]; "standard": mean 0, deviation 1 by column.

    A constant column keeps its scale.
    """
    shift, scale = np.zeros(X.shape[1]), np.ones(X.shape[1])
    if kind == "range":
        shift += X.min()
        scale *= (X.max() - X.min()) or 1.0
    elif kind == "standard":
        shift, scale = X.mean(axis=0), X.std(axis=0)
        scale[scale <= 1e-12 * np.abs(X).max(axis=0)] = 1.0
    return Scaling(shift, scale)


def load(config: Data, labels: bool = False, dtype: Any = np.float64) -> Dataset:
    """The data set of a config, checked, split and scaled; labels: with the class of each point as its target.

    Raises UsageError.  Collective: no (rank 0).
    """
    raw = split(SOURCES.get(config.source, read_own)(config, labels), config)
    kind = raw.scale if config.scale == "auto" else config.scale
    assert raw.X_val is not None
    check_enough(config, len(raw.X), len(raw.X_val))
    scaling_x = fit_scaling(raw.X, kind)
    X, X_val = _rows(scaling_x, raw.X), _rows(scaling_x, raw.X_val)
    Y, Y_val, scaling_y, classes = X, X_val, scaling_x, None
    if raw.Y is not None and raw.labels:
        classes = classes_of(raw.Y, raw.Y_val, config.source)
        Y, Y_val = (np.equal(np.asarray(y), classes).astype(np.float64) for y in (raw.Y, raw.Y_val))
        scaling_y = fit_scaling(Y, "none")
    elif raw.Y is not None:
        scaling_y = fit_scaling(raw.Y, raw.scale_y if config.scale == "auto" else config.scale)
        Y, Y_val = _rows(scaling_y, raw.Y), _rows(scaling_y, raw.Y_val)
    if dtype == "float32" and max(np.abs(A).max() for A in (X, X_val, Y, Y_val)) > HUGE_SINGLE:
        raise UsageError(
            f'data.source = "{config.source}" holds values beyond {HUGE_SINGLE:g}, too large for '
            'model.precision = "float32"; scale the data (data.scale), or use float64'
        )
    if raw.labels and not np.ptp(Y, axis=0).any():
        raise UsageError(f'data.source = "{config.source}": all training points belong to one class')
    if not np.ptp(Y, axis=0).any():
        what = "X" if raw.Y is None else "Y"
        raise UsageError(f'data.source = "{config.source}": every column of {what} is constant')
    digest = hashlib.sha256()
    for array in (X, Y, X_val, Y_val):
        digest.update(str(array.shape).encode() + array.tobytes())
    rows = {name: np.asarray(A, dtype) for name, A in (("X", X), ("X_val", X_val))}
    targets = (
        {"Y": rows["X"], "Y_val": rows["X_val"]}
        if Y is X
        else {"Y": np.asarray(Y, dtype), "Y_val": np.asarray(Y_val, dtype)}
    )
    return Dataset(
        **rows,
        **targets,
        scaling_x=scaling_x,
        scaling_y=scaling_y,
        sha256=digest.hexdigest(),
        classes=classes,
        one_dimensional=raw.one_dimensional,
        groups=raw.groups,
        order=raw.order,
        shape=raw.shape,
    )


def classes_of(Y: Any, Y_val: Any, source: str) -> Array:
    """The labels that occur in (N, 1) and (M, 1), ascending.  Raises UsageError."""
    classes = np.unique(np.concatenate([Y, Y_val])).astype(np.int64)
    if not 2 <= len(classes) <= MOST_CLASSES:
        raise UsageError(
            f'data.source = "{source}": Y holds {len(classes)} classes; 2 to {MOST_CLASSES:,} are possible '
            '(for real targets use model.loss = "squared")'
        )
    _check_seen(Y, Y_val, source)
    return classes


def _check_seen(Y: Any, Y_val: Any, source: str) -> None:
    """Raises UsageError where none of the validation labels is among the several of training.  Cost: a sort."""
    if np.ptp(Y) and not np.isin(Y_val, Y).any():
        seen, asked = (", ".join(f"{int(c)}" for c in np.unique(A)[:5]) for A in (Y, Y_val))
        raise UsageError(
            f'data.source = "{source}": Y_val holds classes ({asked}) none of which occurs in Y ({seen}); '
            "a net cannot learn them"
        )


def _rows(scaling: Scaling, X: Any) -> Array:
    return np.ascontiguousarray(scaling.apply(X))


def drawn(n: int, config: Data) -> tuple[Array, Array]:
    """Rows for training, data.points of them if that is given, and rows for validation; each ascending.

    Collective: no.
    """
    found, (train, held) = order(n, config), sizes(n, config)
    return np.sort(found[held : held + train]), np.sort(found[:held])


def check_points(config: Data, left: int) -> None:
    """Raises UsageError where data.points asks for more than the `left` training points."""
    if config.points > left:
        raise UsageError(f"data.points = {config.points}, but there are {left} training points")


def check_enough(config: Data, n: int, n_val: int) -> None:
    """Raises UsageError unless n >= 2 training points are left, and a validation point."""
    if n < 2:
        raise UsageError(f'data.source = "{config.source}": only {n} training point is left; at least 2 are needed')
    if not n_val:
        raise UsageError(f'data.source = "{config.source}": there is no validation point; at least 1 is needed')


def split(raw: Raw, config: Data) -> Raw:
    """Draw data.validation of the points where the data have no validation set; keep data.points of the rest."""
    if raw.X_val is None:
        train, val = drawn(len(raw.X), config)
        left = len(raw.X) - len(val)
        held: dict[str, Any] = {"X_val": raw.X[val]}
        if raw.Y is not None:
            held["Y_val"] = raw.Y[val]
        later = [pair and pair[0][val] for pair in (raw.groups, raw.order)]
    else:
        left = len(raw.X)
        train = np.arange(min(config.points or left, left))
        held, later = {}, [pair and pair[1] for pair in (raw.groups, raw.order)]
    check_points(config, left)
    now = [pair and pair[0][train] for pair in (raw.groups, raw.order)]
    groups, places = (None if a is None or b is None else (a, b) for a, b in zip(now, later, strict=True))
    Y = None if raw.Y is None else raw.Y[train]
    return replace(raw, X=raw.X[train], Y=Y, groups=groups, order=places, **held)


def share(team: Any, data: Dataset | None) -> Dataset:
    """Rank 0's data set on every rank.  Collective: yes."""
    if team.size == 1:
        assert data is not None
        return data
    names = ("X", "X_val") if team.from_root(lambda: data and data.autoencoder) else ("X", "X_val", "Y", "Y_val")
    own = [getattr(data, name) for name in names] if data else []
    found = dict(zip(names, share_arrays(team, own), strict=True))
    sha256 = team.from_root(lambda: data and data.sha256)
    X, X_val = found["X"], found["X_val"]
    Y, Y_val = found.get("Y", X), found.get("Y_val", X_val)
    if data is not None:
        return replace(data, X=X, Y=Y, X_val=X_val, Y_val=Y_val)
    unit = fit_scaling(X[:1], "none"), fit_scaling(Y[:1], "none")
    return Dataset(X, Y, X_val, Y_val, *unit, sha256)


def share_arrays(team: Any, arrays: list[Array]) -> list[Array]:
    """Rank 0's arrays on every rank, one copy for the ranks of a node if they share memory.  Collective: yes.

    The list is emptied on the way, so that rank 0's own copies can go.
    """
    found = []
    for shape, dtype in team.from_root(lambda: [(A.shape, A.dtype.str) for A in arrays]):
        own = arrays.pop(0) if arrays else None
        if team.shares:
            array = team.array(shape, dtype)
            if own is not None:
                array[...] = own
        else:
            array = np.empty(shape, dtype) if own is None else own
        team.share_array(array)
        found.append(array)
    return found


def read_codes(path: Path, rows: int, columns: int) -> Array:
    """Coordinates (rows, columns) of the training points, in their order: dataset Z or codes of an HDF5 or npz file.

    Raises UsageError.
    """
    check_there(path, "start.coordinates")
    arrays = read_file(path, ("Z", "codes", "Y"))
    if not arrays:
        raise UsageError(f"start.coordinates = {str(path)!r}: there is no dataset Z or codes in it")
    name, array = next(iter(arrays.items()))
    Z = check(array, f"{path}: dataset {name}")
    if Z.shape != (rows, columns):
        raise UsageError(
            f"{path}: dataset {name} has shape {Z.shape}; a code of {columns} for each of {rows} points is needed"
        )
    return Z
