"""Decides whether the targets of a data set are numbers or classes, where the config does not say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from macmpi import UsageError
from macmpi.config import Config
from macmpi.data.checks import columns
from macmpi.data.named_sets import NAMED_SETS
from macmpi.data.reading import read_file, read_headers
from macmpi.files import DAMAGE

FEW = 50
"""One column of whole numbers with at most this many different ones may be classes."""


def with_loss(config: Config) -> Config:
    """The config with a loss in the place of "auto": classes for truth values, numbers else.

    Raises UsageError where whole numbers may be either.  Cost: whole numbers are read.  Collective: no (rank 0).
    """
    if config.model.loss != "auto":
        return config
    Y = _targets(config.data.source)
    loss: Any = "cross_entropy" if Y is not None and Y.dtype.kind == "b" and columns(Y) == 1 else "squared"
    if Y is not None and Y.dtype.kind in "iu" and Y.shape and len(Y) and columns(Y) == 1:
        values = np.unique(np.asarray(Y))
        if len(values) <= FEW:
            raise UsageError(
                f"{config.data.source}: Y holds whole numbers, {len(values)} different ones from {values[0]} to "
                f'{values[-1]}: say what they are, model.loss = "cross_entropy" if classes, "squared" if amounts'
            )
    return replace(config, model=replace(config.model, loss=loss))


def _targets(source: str) -> Any:
    """Y of the user's own file, or None: an array, or of HDF5 a dataset.  Mistakes are left to who reads the data."""
    path = Path(source)
    if source in NAMED_SETS or path.suffix not in (".h5", ".hdf5", ".npz"):
        return None
    try:
        return (read_file if path.suffix == ".npz" else read_headers)(path, ("Y",)).get("Y")
    except (UsageError, *DAMAGE):
        return None
