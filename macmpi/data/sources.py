"""Where data come from: the named data sets, and how files are read."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from macmpi import UsageError
from macmpi.config import Data
from macmpi.parallel.streams import stream
from macmpi.typing import Array

FOLDER_VARIABLE = "MACMPI_DATA"
HELD_OBJECTS = (1, 4)
"""COIL's duck and cat: every other pose of theirs is for validation."""


@dataclass(frozen=True)
class Raw:
    """Arrays as read.  Y is None for an autoencoder; X_val is None when validation points are still to be drawn.
    labels: Y holds class labels, (N, 1); one_dimensional: the targets, Y or X, are numbers that the file has as (N,).

    For pictures, else None: groups, whole numbers of the points of X and of X_val (none while those are to be drawn);
    order, the places of the same points on their group's closed curve; shape, height and width of a row that is an
    image.
    """

    X: Array
    Y: Array | None = None
    X_val: Array | None = None
    Y_val: Array | None = None
    scale: str = "standard"
    scale_y: str = "standard"
    labels: bool = False
    one_dimensional: bool = False
    groups: tuple[Array, Array] | None = None
    order: tuple[Array, Array] | None = None
    shape: tuple[int, int] | None = None


def folder() -> Path:
    """Where the named data sets lie: $MACMPI_DATA, by default data/ in the current folder."""
    return Path(os.environ.get(FOLDER_VARIABLE, "data"))


def read_digits(config: Data, labels: bool) -> Raw:
    """scikit-learn's 1,797 bundled digits of 8 x 8 pixels, scaled to [0, 1]."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise UsageError(
            'data.source = "digits" comes with scikit-learn, which is not installed: pip install scikit-learn'
        ) from None
    bunch = load_digits()
    digits = bunch.target.astype(np.int64)
    Y = _column(digits) if labels else None
    return Raw(bunch.data / 16.0, Y, scale="none", labels=labels, groups=(digits, digits[:0]), shape=(8, 8))


def read_usps(config: Data, labels: bool) -> Raw:
    """USPS as in section 4.2: 5,000 + 5,000 images of 16 x 16 pixels in [0, 1], equal over digits."""
    images, digits = _read_fetched("usps")
    random = stream(config.seed, "split")
    drawn = [random.permutation(np.flatnonzero(digits == digit))[:1000] for digit in range(10)]
    train = random.permutation(np.concatenate([d[:500] for d in drawn]))
    validation = np.concatenate([d[500:] for d in drawn])
    return _pictures(images / 255.0, (16, 16), digits, (train, validation), labels)


def read_coil(config: Data, labels: bool) -> Raw:
    """COIL-20: 20 objects seen from 72 angles, 32 x 32 pixels in [0, 1].  Validation points are every other pose of the
    duck and of the cat, 72 in all; the other 1,368 are for training, in an order that the seed draws."""
    images, objects, poses = _read_fetched("coil")
    held = np.isin(objects, HELD_OBJECTS) & (poses % 2 == 1)
    train, validation = stream(config.seed, "split").permutation(np.flatnonzero(~held)), np.flatnonzero(held)
    raw = _pictures(images.astype(np.float64), (32, 32), objects, (train, validation), labels)
    places = poses.astype(np.int64)
    return replace(raw, order=(places[train], places[validation]))


SOURCES: dict[str, Callable[[Data, bool], Raw]] = {"digits": read_digits, "usps": read_usps, "coil": read_coil}

FILES = {"usps": "usps.h5", "coil": "coil20.h5"}

CONTENTS: dict[str, tuple[tuple[int, int], tuple[str, ...]]] = {
    "usps": ((16, 16), ("labels",)),
    "coil": ((32, 32), ("object", "pose")),
}
"""Height and width of their images, which are (N, height, width), and datasets of N whole numbers."""


def _read_fetched(name: str) -> list[Array]:
    path = folder() / FILES[name]
    if not os.path.isfile(path):
        raise UsageError(
            f'data.source = "{name}": {path} does not exist; fetch it (python -m macmpi.fetch {name}) or set '
            f"{FOLDER_VARIABLE} to the folder of {path.name} (data/README.md says where the data come from)"
        )
    shape, numbers = CONTENTS[name]
    arrays, again = read_file(path, ("images", *numbers)), f"make the file again: python -m macmpi.fetch {name}"
    for dataset in ("images", *numbers):
        if dataset not in arrays:
            raise UsageError(f"{path}: there is no dataset {dataset}; {again}")
    for dataset, array in arrays.items():
        inner, kinds = (shape, "uif") if dataset == "images" else ((), "iu")
        if array.shape != (*arrays["images"].shape[:1], *inner) or array.dtype.kind not in kinds:
            raise UsageError(f"{path}: dataset {dataset} is {array.dtype} of shape {array.shape}; {again}")
        if not np.isfinite(array).all():
            raise UsageError(f"{path}: dataset {dataset} holds what is no number; {again}")
    return [arrays[dataset] for dataset in ("images", *numbers)]


def _pictures(images: Array, shape: tuple[int, int], classes: Array, parts: tuple[Array, Array], labels: bool) -> Raw:
    """images: (N, h, w) as they are to be learnt; classes: (N,), label and group of each; parts: the rows to train on
    and those to validate with."""
    X, groups = images.reshape(len(images), -1), classes.astype(np.int64)
    train, validation = parts
    pair = groups[train], groups[validation]
    Y, Y_val = (_column(g) if labels else None for g in pair)
    return Raw(X[train], Y, X[validation], Y_val, scale="none", labels=labels, groups=pair, shape=shape)


def _column(labels: Array) -> Array:
    return labels.astype(np.float64)[:, None]


def check_there(path: Path, key: str) -> None:
    """Raises UsageError, naming the config's key, unless there is such a file; names that no file can have are none."""
    if not os.path.isfile(path):
        raise UsageError(f"{key}: {os.path.abspath(path)} does not exist")


LISTED = 8
"""Names of what a file holds that a message can list."""


def contents(path: Path) -> str:
    """What an HDF5 or npz file holds, in words, of one that `read_file` can read."""
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            names = list(file)
    else:
        from macmpi import files

        with files.opened(path) as file:
            names = list(file)
    listed = [ascii(name)[1:-1] for name in names[:LISTED]]
    return f"it holds {', '.join(listed) or 'nothing'}{', ...' if len(names) > LISTED else ''}"


def read_file(path: Path, names: tuple[str, ...]) -> dict[str, Array]:
    """The datasets of an HDF5 or npz file that are there.  Nothing is ever unpickled.  Raises UsageError."""
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as file:
                found = {name: file[name] for name in names if name in file}
            if any(not isinstance(array, np.ndarray) for array in found.values()):  # bytes, of a member that is none
                raise ValueError("a member of it is no .npy file")
            return found
        from macmpi import files

        with files.opened(path) as file:
            held = set(file)
            return {name: np.asarray(files.array(file, name)) for name in names if name in held}
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    except MemoryError:
        raise UsageError(f"{path} cannot be read: it says that it holds more than fits into memory") from None
    except Exception as error:  # noqa: BLE001 - whatever NumPy, zipfile and h5py raise, the file is what is wrong
        text = (str(error).splitlines() or [type(error).__name__])[0]
        if "pickle" in text:
            text = "it is not a file of plain arrays"
        raise UsageError(f"{path} cannot be read: {text}") from None
