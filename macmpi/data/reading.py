"""Arrays of a file: HDF5 or npz, whole, or as headers whose numbers are still in the file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from macmpi import UsageError, files
from macmpi.data.frames import Columns
from macmpi.data.scaling import AS_IS, ScalingRule
from macmpi.files import first_line
from macmpi.typing import Array


@dataclass(frozen=True)
class Raw:
    """Arrays as read.  Y is None for an autoencoder; X_val is None when validation points are still to be drawn.
    labels: Y holds class labels, (N, 1); names: where they are text, that of labels 0, 1, ...; one_dimensional: the
    targets, Y or X, are numbers that the file has as (N,); columns: of a table, by which X was made.  weights: of the
    points of X, (N, 1); weights_val: of those of X_val.

    For pictures, else None: groups, whole numbers of the points of X and of X_val (none while those are to be drawn);
    order, the places of the same points on their group's closed curve; shape, height and width, and perhaps channels,
    of a row that is an image.
    """

    X: Array
    Y: Array | None = None
    X_val: Array | None = None
    Y_val: Array | None = None
    scale: ScalingRule = AS_IS
    scale_y: ScalingRule = AS_IS
    labels: bool = False
    names: Array | None = None
    one_dimensional: bool = False
    columns: Columns | None = None
    groups: tuple[Array, Array] | None = None
    order: tuple[Array, Array] | None = None
    shape: tuple[int, ...] | None = None
    weights: Any = None
    weights_val: Any = None


def check_there(path: Path, key: str) -> None:
    """Raises UsageError, naming the config's key, unless there is such a file; names that no file can have are none."""
    if not os.path.isfile(path):
        raise UsageError(f"{key}: {os.path.abspath(path)} does not exist")


LISTED = 8
"""Names of what a file holds that a message can list."""


def contents(path: Path) -> str:
    """Says in words what an HDF5 or npz file holds, one that `read_file` can read."""
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            names = list(file)
    else:
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
        with files.opened(path) as file:
            held = set(file)
            return {name: np.asarray(files.array(file, name)) for name in names if name in held}
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    except MemoryError:
        raise UsageError(f"{path} cannot be read: it says that it holds more than fits into memory") from None
    except Exception as error:  # noqa: BLE001 - whatever NumPy, zipfile and h5py raise, the file is what is wrong
        text = first_line(error)
        if "Object arrays" in text:
            text = "it holds Python objects: save numbers, and text as A.astype(str)"
        elif "pickle" in text:
            text = "it is not a file of plain arrays"
        raise UsageError(f"{path} cannot be read: {text}") from None


def read_array(path: Path) -> Array:
    """The array of an .npy file.  Nothing is ever unpickled.  Raises UsageError."""
    try:
        return np.asarray(np.load(path, allow_pickle=False))
    except MemoryError:
        raise UsageError(f"{path} cannot be read: it says that it holds more than fits into memory") from None
    except (OSError, ValueError, EOFError) as error:
        text = first_line(error)
        if "allow_pickle" in text or "Object arrays" in text:
            text = "it holds Python objects, or is no .npy file"
        raise UsageError(f"{path} cannot be read: {text}") from None


def read_headers(path: Path, names: tuple[str, ...]) -> dict[str, Any]:
    """The datasets of an HDF5 file that are there, as h5py gives them: none of their numbers is read.

    Raises UsageError.
    """
    try:
        file = files.opened(path)
        held = set(file)
    except (OSError, RuntimeError) as error:
        raise UsageError(f"{path} cannot be read: {first_line(error)}") from None
    return {name: _header(file, name, path) for name in names if name in held}


def _header(file: Any, name: str, path: Path) -> Any:
    try:
        dataset = files.dataset(file, name)
        dataset.dtype, dataset.shape  # noqa: B018 - h5py reads them here, and keeps them
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    except Exception as error:  # noqa: BLE001 - whatever h5py raises, the file is what is wrong
        raise UsageError(f"{path}: dataset {name} cannot be read: {first_line(error)}") from None
    return dataset
