"""Data that one process reads whole: checked, split and scaled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from macmpi import UsageError
from macmpi.config import Data
from macmpi.data.dataset import Dataset
from macmpi.data.parts import classes_in, drawn_of, parts_of, raw_of
from macmpi.data.reading import Raw
from macmpi.data.shards import Reader
from macmpi.data.targets import NUMBERS, Wanted
from macmpi.parallel.partition import partition_points
from macmpi.parallel.team import Team


def load(config: Data, labels: bool = False, dtype: Any = np.float64, wanted: Wanted = NUMBERS) -> Dataset:
    """The data set of a config, checked, split and scaled; labels: with the class of each point as its target.

    wanted: what the loss asks of targets.  Raises UsageError.  Collective: no (rank 0).
    """
    return made_of(raw_of(config, labels, wanted=wanted), config, dtype, wanted)


def made_of(raw: Raw, config: Data, dtype: Any = np.float64, wanted: Wanted = NUMBERS) -> Dataset:
    """The arrays of a data set, checked, split and scaled.  Raises UsageError.  Collective: no (rank 0)."""
    parts = parts_of(raw, config, drawn_of, wanted.missing)
    classes = classes_in(parts, raw, config.source)
    points = partition_points(len(parts["X"]), 1), partition_points(len(parts["X_val"]), 1)
    found = Reader(points, Team(), dtype, config, whole=True).dataset(raw, parts, classes, wanted)
    w = found.weights
    if classes is not None and w is not None and np.count_nonzero(found.Y[w > 0.0].any(axis=0)) < 2:
        raise UsageError(f'data.source = "{config.source}": all training points with a weight above 0 are of one class')
    groups, order = (
        (parts[name].whole(), parts[f"{name}_val"].whole()) if name in parts else None for name in ("groups", "order")
    )
    of_pictures = replace(found, groups=groups, order=order, shape=raw.shape)
    return replace(of_pictures, drawn=raw.X_val is None, columns=raw.columns, steps=raw.steps)
