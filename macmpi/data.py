"""Data sets: find, read, check, split and scale.  Rank 0 reads; `share` gives the arrays to the other ranks."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from macmpi import UsageError
from macmpi.config import Data
from macmpi.layers import Array
from macmpi.streams import stream

FOLDER_VARIABLE = "MACMPI_DATA"
HUGE = 1e100
"""Values from here on are taken for mistakes: their squares would overflow."""


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
    """Scaled training and validation points, rows of float64.  An autoencoder's Y is X itself, not a copy."""

    X: Array
    Y: Array
    X_val: Array
    Y_val: Array
    scaling_x: Scaling
    scaling_y: Scaling
    sha256: str

    @property
    def autoencoder(self) -> bool:
        return self.Y is self.X


@dataclass(frozen=True)
class Raw:
    """Arrays as read.  Y is None for an autoencoder; X_val is None when validation points are still to be drawn."""

    X: Array
    Y: Array | None = None
    X_val: Array | None = None
    Y_val: Array | None = None
    scale: str = "standard"
    scale_y: str = "standard"


def folder() -> Path:
    """Where the named data sets lie: $MACMPI_DATA, by default data/ in the current folder."""
    return Path(os.environ.get(FOLDER_VARIABLE, "data"))


def read_digits(config: Data) -> Raw:
    """scikit-learn's 1,797 bundled digits of 8 x 8 pixels, scaled to [0, 1]."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise UsageError(
            'data.source = "digits" comes with scikit-learn, which is not installed: pip install scikit-learn'
        ) from None
    return Raw(load_digits().data / 16.0, scale="none")


def read_usps(config: Data) -> Raw:
    """USPS as in section 4.2: 5,000 + 5,000 images of 16 x 16 pixels in [0, 1], equal over digits."""
    path = folder() / "usps.h5"
    if not path.exists():
        raise UsageError(
            f'data.source = "usps": {path} does not exist; put usps.h5 there or set {FOLDER_VARIABLE} to its folder '
            "(data/README.md says where the data come from)"
        )
    arrays = read_file(path, ("images", "labels"))
    images, labels = arrays["images"].reshape(len(arrays["images"]), -1) / 255.0, arrays["labels"]
    random = stream(config.seed, "split")
    drawn = [random.permutation(np.flatnonzero(labels == digit))[:1000] for digit in range(10)]
    train = random.permutation(np.concatenate([d[:500] for d in drawn]))
    validation = np.concatenate([d[500:] for d in drawn])
    return Raw(images[train], X_val=images[validation], scale="none")


SOURCES: dict[str, Callable[[Data], Raw]] = {"digits": read_digits, "usps": read_usps}


def read_own(config: Data) -> Raw:
    """X and optionally Y, X_val, Y_val of the user's own file."""
    path = Path(config.source)
    if path.suffix not in (".h5", ".hdf5", ".npz"):
        known = ", ".join(f'"{name}"' for name in SOURCES)
        raise UsageError(f'data.source = "{config.source}" is neither {known} nor an .h5, .hdf5 or .npz file')
    if not path.is_file():
        raise UsageError(f"data.source: {path.resolve()} does not exist")
    arrays = read_file(path, ("X", "Y", "X_val", "Y_val"))
    if "X" not in arrays:
        raise UsageError(f"{path}: there is no dataset X")
    checked = {name: check(array, f"{path}: dataset {name}") for name, array in arrays.items()}
    for a, b in (("X", "Y"), ("X_val", "Y_val")):
        if a in checked and b in checked and len(checked[a]) != len(checked[b]):
            raise UsageError(f"{path}: {a} has {len(checked[a])} rows but {b} has {len(checked[b])}")
    for a, b in (("X", "X_val"), ("Y", "Y_val")):
        if a in checked and b in checked and checked[a].shape[1] != checked[b].shape[1]:
            raise UsageError(f"{path}: {a} has {checked[a].shape[1]} columns but {b} has {checked[b].shape[1]}")
    if ("Y" in checked and "X_val" in checked) != ("Y_val" in checked):
        raise UsageError(f"{path}: Y_val goes with X_val and Y: give both validation datasets or neither")
    kinds = ("range" if name in arrays and arrays[name].dtype.kind in "iu" else "standard" for name in "XY")
    return Raw(**checked, scale=next(kinds), scale_y=next(kinds))


def read_file(path: Path, names: tuple[str, ...]) -> dict[str, Array]:
    """The datasets of an HDF5 or npz file that are there.  Nothing is ever unpickled.  Raises UsageError."""
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as file:
                return {name: file[name] for name in names if name in file}
        import h5py

        with h5py.File(path, "r") as file:
            groups = [name for name in names if isinstance(file.get(name), h5py.Group)]
            if groups:
                raise UsageError(f"{path}: {groups[0]} is a group, not a dataset")
            return {name: np.asarray(file[name][()]) for name in names if name in file}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, BadZipFile, zlib.error) as error:
        text = (str(error).splitlines() or [type(error).__name__])[0]
        if "pickle" in text:
            text = "it is not a file of plain arrays"
        raise UsageError(f"{path} cannot be read: {text}") from None


def check(array: Array, name: str, rows: int = 2) -> Array:
    """`array` as float64 rows: (N,) becomes (N, 1), images (N, h, w) become (N, h w).

    Raises UsageError naming the first bad index.
    """
    if array.dtype.kind not in "biuf":
        raise UsageError(f"{name} holds {array.dtype}; real numbers are needed")
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
        raise UsageError(f"{name} is {numbers[at]} at {list(at)} ({len(bad)} such values); remove or fill them")
    largest = np.abs(numbers).max()
    if 0.0 < largest < 1.0 / HUGE:
        raise UsageError(f"{name} holds nothing larger than {largest:g}; choose other units")
    return numbers


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


def load(config: Data) -> Dataset:
    """The data set of a config, checked, split and scaled.  Raises UsageError.  Collective: no (rank 0)."""
    raw = split(SOURCES.get(config.source, read_own)(config), config)
    kind = raw.scale if config.scale == "auto" else config.scale
    if len(raw.X) < 2:
        raise UsageError(
            f'data.source = "{config.source}": only {len(raw.X)} training point is left; at least 2 are needed'
        )
    scaling_x = fit_scaling(raw.X, kind)
    X, X_val = _rows(scaling_x, raw.X), _rows(scaling_x, raw.X_val)
    Y, Y_val, scaling_y = X, X_val, scaling_x
    if raw.Y is not None:
        scaling_y = fit_scaling(raw.Y, raw.scale_y if config.scale == "auto" else config.scale)
        Y, Y_val = _rows(scaling_y, raw.Y), _rows(scaling_y, raw.Y_val)
    if not np.ptp(Y, axis=0).any():
        what = "X" if raw.Y is None else "Y"
        raise UsageError(f'data.source = "{config.source}": every column of {what} is constant')
    digest = hashlib.sha256()
    for array in (X, Y, X_val, Y_val):
        digest.update(str(array.shape).encode() + array.tobytes())
    return Dataset(X, Y, X_val, Y_val, scaling_x, scaling_y, digest.hexdigest())


def _rows(scaling: Scaling, X: Any) -> Array:
    return np.ascontiguousarray(scaling.apply(X))


def split(raw: Raw, config: Data) -> Raw:
    """Draw data.validation of the points where the data have no validation set; keep data.points of the rest."""
    if raw.X_val is None:
        n = len(raw.X)
        held = min(max(1, round(config.validation * n)), n - 1)
        order = stream(config.seed, "split").permutation(n)
        val, train = order[:held], order[held:]
        targets: dict[str, Any] = {} if raw.Y is None else {"Y": raw.Y[train], "Y_val": raw.Y[val]}
        raw = replace(raw, X=raw.X[train], X_val=raw.X[val], **targets)
    if config.points > len(raw.X):
        raise UsageError(f"data.points = {config.points}, but there are {len(raw.X)} training points")
    keep = config.points or len(raw.X)
    return replace(raw, X=raw.X[:keep], Y=None if raw.Y is None else raw.Y[:keep])


def share(team: Any, data: Dataset | None) -> Dataset:
    """Rank 0's data set on every rank.  Collective: yes."""
    if team.size == 1:
        assert data is not None
        return data
    names = ("X", "X_val", "Y", "Y_val")

    def shapes() -> tuple[bool, str, list[tuple[int, ...]]]:
        assert data is not None
        return data.autoencoder, data.sha256, [getattr(data, n).shape for n in names]

    autoencoder, sha256, sizes = team.from_root(shapes)
    arrays = [getattr(data, n) if data else np.empty(s) for n, s in zip(names, sizes, strict=True)]
    for array in arrays[: 2 if autoencoder else 4]:
        team.share_array(array)
    X, X_val, Y, Y_val = arrays
    if data is not None:
        return data
    if autoencoder:
        Y, Y_val = X, X_val
    unit = fit_scaling(X[:1], "none"), fit_scaling(Y[:1], "none")
    return Dataset(X, Y, X_val, Y_val, *unit, sha256)
