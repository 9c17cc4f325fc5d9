"""Arrays of a file: HDF5 or npz, whole, or as headers whose numbers are still in the file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import numpy as np

from macmpi import UsageError, files
from macmpi.data.frames import Columns
from macmpi.data.scaling import AS_IS, ScalingRule
from macmpi.files import first_line
from macmpi.typing import Array


@dataclass(frozen=True)
class Raw:
    """Arrays as read.  Y is None for an autoencoder; X_val is None when validation points are still to be drawn.
    labels: Y holds class labels, (N, 1), given in label_type; names: where they are text, that of labels 0, 1, ...;
    one_dimensional: the targets, Y or X, are numbers that the file has as (N,); columns: of a table, by which X was
    made.  weights: of the points of X, (N, 1), or of their targets, (N, L); weights_val: of those of X_val.

    For pictures, else None: groups, whole numbers of the points of X, and groups_val of those of X_val; order,
    order_val, the places of the same points on their group's closed curve; shape, height and width, and perhaps
    channels, of a row that is an image.  steps: of rows that are sequences, else 0.
    """

    X: Array
    Y: Array | None = None
    X_val: Array | None = None
    Y_val: Array | None = None
    scale: ScalingRule = AS_IS
    scale_y: ScalingRule = AS_IS
    labels: bool = False
    label_type: Any = np.int64
    names: Array | None = None
    one_dimensional: bool = False
    columns: Columns | None = None
    groups: Array | None = None
    groups_val: Array | None = None
    order: Array | None = None
    order_val: Array | None = None
    shape: tuple[int, ...] | None = None
    steps: int = 0
    weights: Any = None
    weights_val: Any = None


def check_there(path: Path, key: str) -> None:
    """Raises UsageError, naming the config's key, unless there is such a file; names that no file can have are none."""
    if not os.path.isfile(path):
        why = "is no file" if os.path.exists(path) else "does not exist"
        raise UsageError(f"{key}: {os.path.abspath(path)} {why}")


LISTED = 8
"""Names of what a file holds that a message can list."""


def names_in(path: Path) -> list[str]:
    """The names of what an HDF5 or npz file holds, one that `read_file` can read."""
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            return list(file)
    with files.opened(path) as file:
        return list(file)


def contents(path: Path) -> str:
    """Says in words what an HDF5 or npz file holds, one that `read_file` can read."""
    names = names_in(path)
    listed = [ascii(name)[1:-1] for name in names[:LISTED]]
    return f"it holds {', '.join(listed) or 'nothing'}{', ...' if len(names) > LISTED else ''}"


NO_ARRAY = "it holds Python objects, or is no .npy file"
OBJECTS = {"Object arrays": "it holds Python objects: save numbers, and text as A.astype(str)"}
OBJECTS |= {"pickle": "it is not a file of plain arrays"}
"""Words of NumPy's about what it would have to unpickle, and what is said in their place."""


@contextmanager
def told(what: str, instead: Mapping[str, str] = OBJECTS) -> Iterator[None]:
    """Names what is read where it cannot be, whatever NumPy, zipfile, h5py and Pillow raise: it is what is wrong.

    instead: what is said of errors with these words.  Raises UsageError.
    """
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{what}: {error}") from None
    except MemoryError:
        raise UsageError(f"{what} cannot be read: it says that it holds more than fits into memory") from None
    except Exception as error:  # noqa: BLE001 - there is no list of what these libraries raise
        said = first_line(error)
        said = next((text for words, text in instead.items() if words in said), said)
        raise UsageError(f"{what} cannot be read: {said}") from None


def read_file(path: Path, names: tuple[str, ...]) -> dict[str, Array]:
    """The datasets of an HDF5 or npz file that are there.  Nothing is ever unpickled.  Raises UsageError."""
    with told(str(path)):
        if path.suffix == ".npz":
            if not is_zipfile(path):
                raise ValueError("it is no .npz file; a single array is an .npy file")
            with np.load(path, allow_pickle=False) as file:
                found = {name: file[name] for name in names if name in file}
            if any(not isinstance(array, np.ndarray) for array in found.values()):  # bytes, of a member that is none
                raise ValueError("a member of it is no .npy file")
            return found
        with files.opened(path) as file:
            held = set(file).intersection(names)
            return {n: declared(np.asarray(files.array(file, n)), facts_of(file[n])) for n in names if n in held}


def facts_of(dataset: Any) -> dict[str, Any]:
    """Reads what a dataset of an HDF5 file declares of its numbers, as netCDF does: fill values, a scale, an offset.

    An array declares nothing, nor does a fill value of 0, which is the library's own.  Raises UsageError where a fact
    is no number.
    """
    found: dict[str, Any] = {"fill": [], "scale": 1.0, "add": 0.0}
    if isinstance(dataset, np.ndarray) or dataset.dtype.kind not in "iuf":
        return found
    names = {"_FillValue": "fill", "missing_value": "fill", "scale_factor": "scale", "add_offset": "add"}
    for key, fact in names.items():
        if key not in dataset.attrs:
            continue
        given = np.ravel(dataset.attrs[key])
        try:
            numbers = given.astype(np.float64)
        except (TypeError, ValueError):
            raise UsageError(
                f"dataset {dataset.name}: its attribute {key} is {str(given[0])!r}; a number is needed"
            ) from None
        if fact == "fill":
            found["fill"] += numbers.astype(dataset.dtype).tolist()
        elif len(numbers) != 1 or not np.isfinite(numbers[0]) or (key == "scale_factor" and not numbers[0]):
            raise UsageError(f"dataset {dataset.name}: its attribute {key} is {numbers.tolist()}; one number is needed")
        else:
            found[fact] = float(numbers[0])
    if not found["fill"] and dataset.fillvalue:
        found["fill"] = [dataset.fillvalue]
    return found


def declared(array: Array, facts: dict[str, Any]) -> Array:
    """The numbers that an array with these facts stands for: NaN where it holds a fill value, scaled and moved."""
    missing = np.isin(array, facts["fill"]) if facts["fill"] else np.zeros(0, bool)
    if not missing.any() and (facts["scale"], facts["add"]) == (1.0, 0.0):
        return array
    found = array.astype(np.float64) * facts["scale"] + facts["add"]
    if missing.any():
        found[missing] = np.nan
    return found


def read_array(path: Path) -> Array:
    """The array of an .npy file.  Nothing is ever unpickled.  Raises UsageError."""
    with told(str(path), dict.fromkeys(("allow_pickle", "Object arrays"), NO_ARRAY)):
        found = np.load(path, allow_pickle=False)
        if not isinstance(found, np.ndarray):
            raise ValueError("it is an .npz file: name it so")
        return found


def read_headers(path: Path, names: tuple[str, ...]) -> dict[str, Any]:
    """The datasets of an HDF5 file that are there, as h5py gives them: none of their numbers is read.

    Raises UsageError.
    """
    with told(str(path)):
        file = files.opened(path)
        held = set(file)
    return {name: _header(file, name, path) for name in names if name in held}


def _header(file: Any, name: str, path: Path) -> Any:
    with told(str(path)):
        dataset = files.dataset(file, name)
        facts_of(dataset)
    with told(f"{path}: dataset {name}"):
        dataset.dtype, dataset.shape  # noqa: B018 - h5py reads them here, and keeps them
    return dataset
