"""The connections of sparse layers that a file has: read once, so that they are a part of the config from then on."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from macmpi import UsageError
from macmpi.config import Config, Sparse
from macmpi.config.model import GIVEN, RULES
from macmpi.data.reading import check_there, read_array
from macmpi.nets.layers.masked import as_text
from macmpi.typing import Array


def with_connections(config: Config) -> Config:
    """The config with the masks of its files in the place of their names.  Raises UsageError.  Collective: no (rank 0).

    A checkpoint and a model's card hold them, so that a file that has changed is another config.
    """
    hidden = config.model.hidden
    if hidden == "auto" or not any(config.model.sparse):
        return config
    read = [_read(layer, f"model.hidden.{i}") if isinstance(layer, Sparse) else layer for i, layer in enumerate(hidden)]
    return replace(config, model=replace(config.model, hidden=read))


def _read(layer: Sparse, key: str) -> Sparse:
    if layer.connections in RULES or layer.connections.startswith(GIVEN):
        return layer
    path = Path(layer.connections)
    if not path.suffix and not os.path.exists(path):
        raise UsageError(
            f'{key}.connections = "{layer.connections}" is no file (.npy, .csv), nor "random", "banded" or "local"'
        )
    check_there(path, f"{key}.connections")
    numbers = _numbers(path)
    if np.isnan(numbers).any():
        raise UsageError(
            f"{key}.connections: {path} holds NaN; use 0 where a weight does not exist, and 1 where it does"
        )
    found = numbers != 0
    if found.ndim != 2 or len(found) != layer.units:
        raise UsageError(
            f"{key}.connections: {path} holds {' x '.join(map(str, found.shape))} numbers; "
            f"give a matrix of {layer.units} rows, one for each unit, and a column for each input"
        )
    return replace(layer, connections=f"{GIVEN}{as_text(found)}")


def _numbers(path: Path) -> Array:
    """The array of an .npy file, or the numbers of a text, with commas between them."""
    if path.suffix == ".npy":
        found = read_array(path)
    else:
        try:
            found = np.loadtxt(path, delimiter=",", ndmin=2)
        except (OSError, ValueError) as error:
            raise UsageError(f"{path} is neither an .npy file nor a matrix of numbers with commas: {error}") from None
    if found.dtype.kind not in "biuf":
        raise UsageError(f"{path} holds no numbers")
    return found
