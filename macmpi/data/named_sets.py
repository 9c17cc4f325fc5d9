"""The named data sets: where their files lie, and what is made of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from macmpi import UsageError
from macmpi.config import Data
from macmpi.data.library_sets import read_library_set
from macmpi.data.reading import Raw, read_file
from macmpi.data.usps_large import usps_large
from macmpi.parallel.streams import stream
from macmpi.typing import Array

FOLDER_VARIABLE = "MACMPI_DATA"
HELD_OBJECTS = (1, 4)
"""COIL's duck and cat: every other pose of theirs is for validation."""


def folder() -> Path:
    """The named data sets lie in $MACMPI_DATA, by default data/ in the current folder."""
    return Path(os.environ.get(FOLDER_VARIABLE, "data"))


def read_digits(config: Data, labels: bool) -> Raw:
    """scikit-learn's 1,797 bundled digits of 8 x 8 pixels, scaled to [0, 1]."""
    table = _bundled_digits()
    digits = table[:, -1].astype(np.int64)
    Y = _column(digits) if labels else None
    return Raw(table[:, :-1] / 16.0, Y, labels=labels, groups=digits, shape=(8, 8))


def _bundled_digits() -> Array:
    """Pixels and, last, the digit of each image: (1797, 65).  Raises UsageError.

    Where the file lies at its place, scikit-learn is not imported: that takes longer than most runs on it.
    """
    found = find_spec("sklearn")
    for package in (found and found.submodule_search_locations) or ():
        path = Path(package) / "datasets" / "data" / "digits.csv.gz"
        if os.path.isfile(path):
            return np.loadtxt(path, delimiter=",")
    bunch = read_library_set("digits")
    return np.column_stack([bunch["X"].reshape(len(bunch["X"]), -1), bunch["Y"]])


def read_usps(config: Data, labels: bool) -> Raw:
    """USPS as in section 4.2: 5,000 + 5,000 images of 16 x 16 pixels in [0, 1], equal over digits."""
    images, digits = _read_fetched("usps")
    return _pictures(images / 255.0, (16, 16), digits, _usps_parts(digits, config.seed), labels)


def _usps_parts(digits: Array, seed: int) -> tuple[Array, Array]:
    """The 5,000 images to train on, and those to validate with."""
    random = stream(seed, "split")
    drawn = [random.permutation(np.flatnonzero(digits == digit))[:1000] for digit in range(10)]
    train = random.permutation(np.concatenate([d[:500] for d in drawn]))
    return train, np.concatenate([d[500:] for d in drawn])


def read_usps_large(config: Data, labels: bool) -> Raw:
    """60,000 + 10,000 images of 28 x 28 pixels in [0, 1], in single precision, made from those of `read_usps`."""
    images, digits = _read_fetched("usps", "usps-large")
    parts = _usps_parts(digits, 0)
    train, held = usps_large(folder(), *((images[rows], digits[rows]) for rows in parts))
    X, X_val = (A.reshape(len(A), -1).astype(np.float32) / np.float32(255.0) for A, _ in (train, held))
    return _labelled(X, train[1], X_val, held[1], (28, 28), labels)


def read_coil(config: Data, labels: bool) -> Raw:
    """COIL-20: 20 objects seen from 72 angles, 32 x 32 pixels in [0, 1].  Validation points are every other pose of the
    duck and of the cat, 72 in all; the other 1,368 are for training, in an order that the seed draws."""
    images, objects, poses = _read_fetched("coil")
    held = np.isin(objects, HELD_OBJECTS) & (poses % 2 == 1)
    train, validation = stream(config.seed, "split").permutation(np.flatnonzero(~held)), np.flatnonzero(held)
    raw = _pictures(images.astype(np.float64), (32, 32), objects, (train, validation), labels)
    places = poses.astype(np.int64)
    return replace(raw, order=places[train], order_val=places[validation])


NAMED_SETS: dict[str, Callable[[Data, bool], Raw]] = {
    "digits": read_digits,
    "usps": read_usps,
    "usps-large": read_usps_large,
    "coil": read_coil,
}

FILES = {"usps": "usps.h5", "coil": "coil20.h5"}

CONTENTS: dict[str, tuple[tuple[int, int], tuple[str, ...]]] = {
    "usps": ((16, 16), ("labels",)),
    "coil": ((32, 32), ("object", "pose")),
}
"""Height and width of their images, which are (N, height, width), and datasets of N whole numbers."""


def _read_fetched(name: str, source: str = "") -> list[Array]:
    """The arrays of a fetched set.  source: the set that is made of it.  Raises UsageError."""
    path = folder() / FILES[name]
    if not os.path.isfile(path):
        raise UsageError(
            f'data.source = "{source or name}": {path} does not exist; fetch it (python -m macmpi.fetch {name}) or set '
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
    X, (train, validation) = images.reshape(len(images), -1), parts
    return _labelled(X[train], classes[train], X[validation], classes[validation], shape, labels)


def _labelled(X: Array, classes: Array, X_val: Array, classes_val: Array, shape: tuple[int, int], labels: bool) -> Raw:
    """Rows that are images of this shape, and the class of each, which is its label and its group."""
    groups, groups_val = classes.astype(np.int64), classes_val.astype(np.int64)
    Y, Y_val = (_column(g) if labels else None for g in (groups, groups_val))
    return Raw(X, Y, X_val, Y_val, labels=labels, groups=groups, groups_val=groups_val, shape=shape)


def _column(labels: Array) -> Array:
    return labels.astype(np.float64)[:, None]
