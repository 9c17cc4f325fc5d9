"""Reads files of arrays, HDF5 (and so netCDF), npz, npy and Zarr, or opens them without reading the numbers.

Rows that stay in a file are read like those of an HDF5 dataset: A[a:b] gives some of them, in the type of the file, and
A[()] all of them.  The connections of sparse layers, which a config may name a file for, are read here too.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import numpy as np

from macmpi import UsageError, files, listed
from macmpi.config import Config, Sparse
from macmpi.config.model import GIVEN, RULES
from macmpi.files import first_line
from macmpi.nets.layers.masked import as_text
from macmpi.typing import Array

SUFFIXES = (".h5", ".hdf5", ".nc", ".npz", ".zarr")
"""The endings of the names of files that hold several arrays; a .zarr is a folder."""


def check_there(path: Path, key: str) -> None:
    """Raises UsageError, with a key of the config, unless there is such a file; for .zarr, such a folder."""
    folder = path.suffix == ".zarr"
    if not (os.path.isdir(path) if folder else os.path.isfile(path)):
        why = f"is no {'folder' if folder else 'file'}" if os.path.exists(path) else "does not exist"
        raise UsageError(f"{key}: {os.path.abspath(path)} {why}")


def names_in(path: Path) -> list[str]:
    """Lists the names of the arrays in a file that `read_file` can read, with escapes for unprintable characters."""
    with _opened(path) as file:
        return [ascii(name)[1:-1] for name in file]


def _opened(path: Path) -> Any:
    """Opens a file of arrays for a `with`, as a mapping from names to arrays.  Raises the errors of its library."""
    if path.suffix == ".npz" and not is_zipfile(path):
        raise ValueError("it is no .npz file; a single array is an .npy file")
    if path.suffix == ".zarr":
        return nullcontext(_zarr(path))
    return np.load(path, allow_pickle=False) if path.suffix == ".npz" else files.opened(path)


def contents(path: Path) -> str:
    """Writes, for a message, which arrays a file holds that `read_file` can read."""
    return f"it holds {listed(names_in(path)) or 'nothing'}"


OBJECTS = {".*Object arrays.*": "it holds Python objects: save numbers, and text as A.astype(str)"}
OBJECTS |= {".*pickle.*": "it is not a file of plain arrays"}
"""Patterns of NumPy's messages about arrays that it would have to unpickle, and our messages in their place."""

OTHERS = {
    ".nc": {".*signature not found.*": "it is no HDF5 file, as netCDF is from version 4: nccopy -k nc4 OLD NEW"},
    ".zarr": {".*array already exists.*": "it is one array: a group that holds an array X is needed"},
}
"""For files with these endings, patterns of the messages of their libraries, and our messages in their place."""

PACKAGES = {"PIL": "pillow", "sklearn": "scikit-learn", "zarr": "'zarr>=3'"}
"""The names by which pip installs libraries, where they differ from the names by which they are imported."""


@contextmanager
def told(what: str, instead: Mapping[str, str] = OBJECTS) -> Iterator[None]:
    """Turns any error inside the `with` into a UsageError that names what could not be read or written.

    what: its name, for the message; a library that is missing is named with it.
    instead: patterns of messages of libraries, and our messages in their place.
    """
    try:
        yield
    except UsageError as error:
        raise UsageError(str(error) if str(error).startswith(what) else f"{what}: {error}") from None
    except ImportError as error:
        library = (error.name or "").partition(".")[0]
        install = PACKAGES.get(library, library)
        raise UsageError(f"{what} needs {library}, which is missing: pip install {install}") from None
    except MemoryError:
        raise UsageError(f"{what} cannot be read: it says that it holds more than fits into memory") from None
    except Exception as error:  # noqa: BLE001 - there is no list of what these libraries raise
        of_system = error.strerror if isinstance(error, OSError) else ""  # the message without the error number
        said = first_line(OSError(of_system) if of_system else error)
        for pattern, words in instead.items():
            said = re.sub(pattern, words, said)
        raise UsageError(f"{what} cannot be read: {said}") from None


def read_file(path: Path, names: tuple[str, ...], unread: bool = False) -> dict[str, Any]:
    """Reads the named arrays that a file holds; others may be missing.  Nothing is ever unpickled.  Raises UsageError.

    unread: whether arrays of HDF5 and Zarr are only opened, as datasets of h5py and as `InFile`.
    """
    with told(str(path), OTHERS.get(path.suffix, OBJECTS)), ExitStack() as stack:
        file, plain = stack.enter_context(_opened(path)), path.suffix in (".npz", ".zarr")
        held = {name: file[name] if plain else files.dataset(file, name) for name in names if name in set(file)}
        if path.suffix == ".npz" and not all(isinstance(array, np.ndarray) for array in held.values()):
            raise ValueError("a member of it is no .npy file")
        for dataset in held.values():
            facts_of(dataset)  # refuses wrong ones before any numbers are read
        if not unread:
            return {name: whole(dataset) for name, dataset in held.items()}
        stack.pop_all()
        return held


def whole(dataset: Any) -> Array:
    """Reads all numbers of a dataset, and converts them by what the file declares of them (`declared`)."""
    return declared(np.asarray(dataset[()]), facts_of(dataset))


def facts_of(dataset: Any) -> dict[str, Any]:
    """Reads what a dataset of HDF5 or Zarr declares of its numbers, as in netCDF: fill values, a scale, an offset.

    A fill value of 0 that the file does not name as an attribute is ignored, because it is the default of the library.
    Arrays in memory declare nothing.  Raises UsageError if a declared value is no number.
    """
    facts: dict[str, Any] = {"fill": [], "scale": 1.0, "add": 0.0}
    if not hasattr(dataset, "attrs") or dataset.dtype.kind not in "iuf":
        return facts
    names = {"_FillValue": "fill", "missing_value": "fill", "scale_factor": "scale", "add_offset": "add"}
    for key, fact in names.items():
        if key not in dataset.attrs:
            continue
        given = np.ravel(dataset.attrs[key])
        try:
            numbers = given if given.dtype.kind in "iuf" else given.astype(np.float64)
        except (TypeError, ValueError):
            raise UsageError(
                f"dataset {dataset.name}: its attribute {key} is {str(given[0])!r}; a number is needed"
            ) from None
        if fact == "fill":
            with np.errstate(invalid="ignore", over="ignore"):
                held = numbers.astype(dataset.dtype)
            facts["fill"] += held[(held == numbers) | (held.dtype.kind == "f")].tolist()  # an int holds no fraction
        elif len(numbers) != 1 or not np.isfinite(numbers[0]) or (key == "scale_factor" and not numbers[0]):
            raise UsageError(f"dataset {dataset.name}: its attribute {key} is {numbers.tolist()}; one number is needed")
        else:
            facts[fact] = float(numbers[0])
    if not facts["fill"] and (fill := getattr(dataset, "fillvalue", 0)):
        facts["fill"] = [fill]
    return facts


def declared(array: Array, facts: dict[str, Any]) -> Array:
    """array * scale + offset, and NaN in place of fill values, by the facts of `facts_of`."""
    missing = np.isin(array, facts["fill"]) if facts["fill"] else np.zeros(0, bool)
    if not missing.any() and (facts["scale"], facts["add"]) == (1.0, 0.0):
        return array
    found = array.astype(np.float64) * facts["scale"] + facts["add"]
    if missing.any():
        found[missing] = np.nan
    return found


def read_array(path: Path) -> Array:
    """Reads the array of an .npy file.  Nothing is ever unpickled.  Raises UsageError."""
    with told(str(path), {".*(allow_pickle|Object arrays).*": "it holds Python objects, or is no .npy file"}):
        found = np.load(path, allow_pickle=False)
        if not isinstance(found, np.ndarray):
            raise ValueError("it is an .npz file: name it so")
        return found


# --- rows that stay in a file -----------------------------------------------------------------------------------------

RUN = 2**14
"""The number of rows that are read at a time where all rows of an array are read."""


@dataclass(frozen=True)
class InFile:
    """An array (N, ...) that stays in its file, and whose rows are read when they are used.

    read(start, stop): reads some of its rows.
    attrs, name, fillvalue: what the file declares of the numbers, as `facts_of` reads it.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    read: Callable[[int, int], Array]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    fillvalue: Any = 0

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, places: Any) -> Any:
        """Reads rows, [a:b] or all, [()].  Of an array (N, D), [:, columns] is another array that stays in the file."""
        match places:
            case slice():
                start, stop, step = places.indices(len(self))
                return self.read(start, stop)[::step]
            case (_, columns):
                shape = (len(self), *np.empty(self.shape[1])[columns].shape)
                return InFile(shape, self.dtype, lambda start, stop: self.read(start, stop)[:, columns])
        runs = [self.read(start, min(start + RUN, len(self))) for start in range(0, len(self), RUN)]
        return np.concatenate(runs)


NPY = {
    ".*magic string.*": "it is no .npy file",
    ".*Python objects.*": "it holds Python objects: save numbers, and text as A.astype(str)",
    "mmap length.*": "it is shorter than its header says",
}
"""Patterns of NumPy's messages about .npy files that it cannot open, and our messages in their place."""


def npy_rows(path: Path) -> InFile:
    """Opens the array of an .npy file without reading it.  Nothing is ever unpickled.  Raises UsageError."""
    with told(str(path), NPY):
        held = np.lib.format.open_memmap(path, mode="r")
        if held.ndim > 1 and not held.flags.c_contiguous:
            raise ValueError("its columns lie one after the other: save np.ascontiguousarray(A), so that its rows do")
    shape, dtype, first, file = held.shape, held.dtype, held.offset, path.open("rb")
    each = int(np.prod(shape[1:], dtype=np.int64))

    def read(start: int, stop: int) -> Array:
        file.seek(first + start * each * dtype.itemsize)
        found = np.fromfile(file, dtype, (stop - start) * each)
        if len(found) < (stop - start) * each:
            raise ValueError("the file ends within them")
        return found.reshape(stop - start, *shape[1:])

    return InFile(shape, dtype, read)


def _zarr(path: Path) -> dict[str, InFile]:
    """Opens the arrays of a folder of Zarr, version 2 or 3, by their names.

    xarray writes the fill value of floating-point numbers as its bytes, in base64; that is read too.
    """
    import zarr

    def rows(A: Any) -> InFile:
        attrs = dict(A.attrs)
        if isinstance(fill := attrs.get("_FillValue"), str) and A.dtype.kind == "f":
            attrs["_FillValue"] = np.frombuffer(base64.b64decode(fill))
        return InFile(A.shape, A.dtype, lambda start, stop: np.asarray(A[start:stop]), attrs, A.name, A.fill_value)

    return {name: rows(A) for name, A in zarr.open_group(path, mode="r").arrays()}


# --- connections ------------------------------------------------------------------------------------------------------


def with_connections(config: Config) -> Config:
    """Replaces each file that `connections` of a sparse layer names by its mask.  Raises UsageError.

    So checkpoints and model cards hold the mask itself, and a file that has changed since is another config.
    Collective: no (rank 0).
    """
    hidden = config.model.hidden
    if hidden == "auto":
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
    """Reads the numbers of an .npy file, or of a text file with commas between them.  Raises UsageError."""
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
