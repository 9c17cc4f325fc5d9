"""Data sets of scikit-learn, bundled or in its cache: "sklearn:NAME" stands for load_NAME or fetch_NAME."""

from __future__ import annotations

import difflib
import re
from typing import Any

import numpy as np

from macmpi import UsageError
from macmpi.files import first_line
from macmpi.typing import Array

PREFIX = "sklearn:"

WORD = re.compile(r"[a-z0-9_]+")

NO_SETS = ("files", "sample_image", "sample_images", "svmlight_file", "svmlight_files", "openml", "file")
"""Functions of scikit-learn, load_NAME and fetch_NAME, that give no data set of their own."""


def read_library_set(source: str) -> dict[str, Array]:
    """X and Y of a set, from this machine alone: never over a network.  Raises UsageError."""
    bunch = _bunch(source, fetch=False)
    X, Y = bunch.get("data"), bunch.get("target")
    if hasattr(X, "toarray"):
        raise UsageError(f'data.source = "{source}" is sparse; macmpi trains on dense rows')
    if not isinstance(X, np.ndarray) or not isinstance(Y, np.ndarray):
        raise UsageError(f'data.source = "{source}" gives no arrays of data and targets')
    images = bunch.get("images")
    if isinstance(images, np.ndarray) and images.ndim == 3 and images[0].size == X[0].size:
        X = images
    return {"X": X, "Y": _named(Y, bunch.get("target_names"))}


def fetch_library_set(source: str) -> None:
    """Downloads a set into the cache of scikit-learn.  Raises UsageError."""
    _bunch(source, fetch=True)


def _named(Y: Array, names: Any) -> Array:
    """Targets 0, 1, ... by their names, where these are text."""
    known = np.asarray([] if names is None else names)
    numbers = Y.ndim == 1 and Y.dtype.kind in "iu" and len(Y) > 0 and known.ndim == 1 and known.dtype.kind == "U"
    return known[Y] if numbers and Y.min() >= 0 and Y.max() < len(known) else Y


def _bunch(source: str, fetch: bool) -> Any:
    name = source.removeprefix(PREFIX)
    try:
        from sklearn import datasets
    except ImportError:
        raise UsageError(
            f'data.source = "{source}" comes with scikit-learn, which is not installed: pip install scikit-learn'
        ) from None
    known = {
        key.partition("_")[2]: key
        for key in dir(datasets)
        if key.startswith(("load_", "fetch_")) and key.partition("_")[2] not in NO_SETS
    }
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
