"""Reads data sets that have a name: "digits", "usps", "usps-large", "coil" and "sklearn:NAME"."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from macmpi import UsageError
from macmpi.config import Data
from macmpi.data.dataset import SIDES, Points
from macmpi.data.reading import read_file, told
from macmpi.files import first_line
from macmpi.parallel.streams import stream
from macmpi.typing import Array

FOLDER_VARIABLE = "MACMPI_DATA"
HELD_OBJECTS = (1, 4)
"""The numbers of the duck and the cat in COIL-20; every other pose of theirs is a validation point."""


def folder() -> Path:
    """Returns the folder of the named data sets: $MACMPI_DATA, by default data/ in the current folder."""
    return Path(os.environ.get(FOLDER_VARIABLE, "data"))


def read_digits(config: Data, labels: bool) -> Points:
    """Reads the 1,797 digits of 8 x 8 pixels that scikit-learn bundles, scaled to [0, 1]."""
    table = _bundled_digits()
    return _pictures(table[:, :-1].reshape(-1, 8, 8) / 16.0, table[:, -1], [slice(None)], labels)


def _bundled_digits() -> Array:
    """Returns the 64 pixels of each image and, in the last column, its digit: (1797, 65).  Raises UsageError.

    It reads the file itself, if it finds it, because importing scikit-learn takes longer than most runs on these data.
    """
    found = find_spec("sklearn")
    for package in (found and found.submodule_search_locations) or ():
        path = Path(package) / "datasets" / "data" / "digits.csv.gz"
        if os.path.isfile(path):
            return np.loadtxt(path, delimiter=",")
    bunch = read_library_set("digits")
    return np.column_stack([bunch["X"].reshape(len(bunch["X"]), -1), bunch["Y"]])


def read_usps(config: Data, labels: bool) -> Points:
    """Reads USPS as in section 4.2: 5,000 + 5,000 images of 16 x 16 pixels in [0, 1], equally many of each digit."""
    images, digits = _read_fetched("usps")
    return _pictures(images / 255.0, digits, usps_parts(digits, config.seed), labels)


def usps_parts(digits: Array, seed: int) -> tuple[Array, Array]:
    """Draws the numbers of the 5,000 training and the 5,000 validation images, equally many of each digit."""
    random = stream(seed, "split")
    drawn = [random.permutation(np.flatnonzero(digits == digit))[:1000] for digit in range(10)]
    train = random.permutation(np.concatenate([d[:500] for d in drawn]))
    return train, np.concatenate([d[500:] for d in drawn])


def read_usps_large(config: Data, labels: bool) -> Points:
    """Reads 60,000 + 10,000 images of 28 x 28 pixels in [0, 1], float32, which were made from those of USPS."""
    images, digits = _read_fetched("usps-large")
    X = images.astype(np.float32) / np.float32(255.0)
    return _pictures(X, digits, [slice(60_000), slice(60_000, None)], labels)


def read_coil(config: Data, labels: bool) -> Points:
    """Reads COIL-20: images of 20 objects from 72 angles, 32 x 32 pixels in [0, 1].

    Every other pose of the duck and of the cat is a validation point, 72 in all.  The other 1,368 images are training
    points, in an order that the seed draws.
    """
    images, objects, poses = _read_fetched("coil")
    held = np.isin(objects, HELD_OBJECTS) & (poses % 2 == 1)
    parts = stream(config.seed, "split").permutation(np.flatnonzero(~held)), np.flatnonzero(held)
    return _pictures(images.astype(np.float64), objects, parts, labels, order=poses.astype(np.int64))


NAMED_SETS: dict[str, Callable[[Data, bool], Points]] = {
    "digits": read_digits,
    "usps": read_usps,
    "usps-large": read_usps_large,
    "coil": read_coil,
}

FILES = {"usps": "usps.h5", "usps-large": "usps-large.h5", "coil": "coil20.h5"}

CONTENTS = {
    "usps": ((16, 16), ("labels",)),
    "usps-large": ((28, 28), ("labels",)),
    "coil": ((32, 32), ("object", "pose")),
}
"""For each set the height and width of its images, and the names of its datasets of N whole numbers."""


def _read_fetched(name: str) -> list[Array]:
    """Reads the arrays of a set that was fetched or made before, and checks their shapes.  Raises UsageError."""
    path = folder() / FILES[name]
    verb, command = "fetch", f"python -m macmpi.fetch {name}"
    if name == "usps-large":
        verb, command = "make", "python run/bench/usps_large.py"
    if not os.path.isfile(path):
        raise UsageError(
            f'data.source = "{name}": {path} does not exist; {verb} it ({command}) or set '
            f"{FOLDER_VARIABLE} to the folder of {path.name} (data/README.md says where the data come from)"
        )
    shape, numbers = CONTENTS[name]
    arrays, again = read_file(path, ("images", *numbers)), f"make the file again: {command}"
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


def _pictures(images: Array, classes: Array, parts: Sequence[Any], labels: bool, **more: Array) -> Points:
    """Makes the points of a set of images.

    images (N, h, w): with the values that a net shall learn.
    classes (N,): the label of each image, which is also its group.
    parts: the training rows and, unless they are to be drawn, the validation rows.
    labels: whether the labels are the targets; more: further arrays (N,) by name.
    """
    own = {"X": images, "groups": classes.astype(np.int64), **more}
    if labels:
        own["Y"] = own["groups"]
    arrays = {f"{name}{side}": A[rows] for side, rows in zip(SIDES, parts, strict=False) for name, A in own.items()}
    return Points(arrays, named=True)


# --- those of scikit-learn --------------------------------------------------------------------------------------------

PREFIX = "sklearn:"
"""Names of data sets of scikit-learn begin with this: "sklearn:NAME" stands for its load_NAME or fetch_NAME."""

WORD = re.compile(r"[a-z0-9_]+")

NO_SETS = ("files", "sample_image", "sample_images", "svmlight_file", "svmlight_files", "openml", "file")
"""The names of functions load_NAME and fetch_NAME of scikit-learn that return no particular data set."""


def read_library_set(source: str) -> dict[str, Array]:
    """Returns X and Y of a data set of scikit-learn that is on this machine; nothing is downloaded.

    Raises UsageError.
    """
    bunch = library_set(source, fetch=False)
    X, Y = bunch.get("data"), bunch.get("target")
    if hasattr(X, "toarray"):
        raise UsageError(f'data.source = "{source}" is sparse; macmpi trains on dense rows')
    if not isinstance(X, np.ndarray) or not isinstance(Y, np.ndarray):
        raise UsageError(f'data.source = "{source}" gives no arrays of data and targets')
    images = bunch.get("images")
    if isinstance(images, np.ndarray) and images.ndim == 3 and images[0].size == X[0].size:
        X = images
    return {"X": X, "Y": _named(Y, bunch.get("target_names"))}


def _named(Y: Array, names: Any) -> Array:
    """Replaces targets 0, 1, ... by the names of the classes, where these are text."""
    known = np.asarray([] if names is None else names)
    numbers = Y.ndim == 1 and Y.dtype.kind in "iu" and len(Y) > 0 and known.ndim == 1 and known.dtype.kind == "U"
    return known[Y] if numbers and Y.min() >= 0 and Y.max() < len(known) else Y


def library_set(source: str, fetch: bool) -> Any:
    """Loads a data set with scikit-learn, and returns what its function returns.  Raises UsageError.

    fetch: whether a set that is not in scikit-learn's cache is downloaded.
    """
    name = source.removeprefix(PREFIX)
    with told(f'data.source = "{source}"'):
        from sklearn import datasets
    keys = (key for key in dir(datasets) if key.startswith(("load_", "fetch_")))
    known = {key.partition("_")[2]: key for key in keys if key.partition("_")[2] not in NO_SETS}
    if not WORD.fullmatch(name) or name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {PREFIX}{close[0]}?" if close else f"it has {', '.join(sorted(known))}"
        raise UsageError(f'data.source = "{source}": scikit-learn has no such set; {hint}')
    options = {"download_if_missing": fetch} if known[name].startswith("fetch_") else {}
    try:
        return getattr(datasets, known[name])(**options)
    except Exception as error:  # noqa: BLE001 - whatever the network, a damaged cache or scikit-learn raises
        remedy = "fetch it by hand, as scikit-learn says" if fetch else f"fetch it: python -m macmpi.fetch {source}"
        raise UsageError(f'data.source = "{source}" is not on this machine ({first_line(error)}); {remedy}') from None
