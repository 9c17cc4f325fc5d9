"""Arrays whose rows stay in a file, .npy, Zarr v3 or Parquet, until some of them are asked for.

They are read as datasets of HDF5 are: A[a:b] gives rows in the type that the file has, and A[()] all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from macmpi import UsageError
from macmpi.data.frames import Columns
from macmpi.data.reading import told
from macmpi.data.series import series_of
from macmpi.data.tables import parquet_file
from macmpi.typing import Array

RUN = 2**14
"""Rows that are read at a time where a few columns of all are wanted."""


class InFile:
    """Rows of a file, of some shape (N, ...) and type.

    read(start, stop): some of them; attrs, name: what their file declares of them, as `facts_of` reads it.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: Any,
        read: Callable[[int, int], Array],
        attrs: Mapping[str, Any] | None = None,
        name: str = "",
    ) -> None:
        self.shape, self.dtype, self._read, self.attrs, self.name = shape, np.dtype(dtype), read, attrs or {}, name

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Array:
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            return self._read(start, stop)[::step]
        runs = [self._read(start, min(start + RUN, len(self))) for start in range(0, len(self), RUN)]
        return np.concatenate(runs)

    def columns(self, which: Any) -> InFile:
        """Some columns of an array (N, D): (N, len(which)), or (N,) of a number."""
        shape = (len(self), *np.empty(self.shape[1])[which].shape)
        return InFile(shape, self.dtype, lambda start, stop: self._read(start, stop)[:, which])


def npy_rows(path: Path) -> InFile:
    """The array of an .npy file, unread; the file stays open.  Nothing is ever unpickled.  Raises UsageError."""
    with told(str(path), {"magic string.*": "it is no .npy file"}):
        file = path.open("rb")
        version = np.lib.format.read_magic(file)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, by_column, dtype = header(file)
        first = file.tell()
        if dtype.hasobject:
            raise ValueError("it holds Python objects: save numbers, and text as A.astype(str)")
        if by_column and len(shape) > 1:
            raise ValueError("its columns lie one after the other: save np.ascontiguousarray(A), so that its rows do")
        if path.stat().st_size < first + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize:
            raise ValueError(f"it is shorter than its header says, {shape} of {dtype}")
    each = int(np.prod(shape[1:], dtype=np.int64))

    def read(start: int, stop: int) -> Array:
        file.seek(first + start * each * dtype.itemsize)
        found = np.fromfile(file, dtype, (stop - start) * each)
        if len(found) < (stop - start) * each:
            raise ValueError("the file ends within them")
        return found.reshape(stop - start, *shape[1:])

    return InFile(shape, dtype, read)


def zarr_arrays(path: Path, names: tuple[str, ...]) -> dict[str, InFile]:
    """The arrays of a folder of Zarr v3, or v2, unread, of these names.  Raises UsageError."""
    try:
        import zarr
    except ImportError:
        raise UsageError(f"{path}: Zarr is read by zarr, which is missing: pip install 'zarr>=3'") from None
    with told(str(path)):
        group = zarr.open_group(path, mode="r")
        found = {name: array for name, array in group.arrays() if name in names}
        if "X" not in found:
            raise ValueError(f"there is no array X in it, but {', '.join(sorted(group)) or 'nothing'}")

    def rows(A: Any) -> InFile:
        return InFile(A.shape, A.dtype, lambda start, stop: np.asarray(A[start:stop]), dict(A.attrs), A.name)

    return {name: rows(A) for name, A in found.items()}


# --- Parquet ----------------------------------------------------------------------------------------------------------


class ColumnByColumn(Mapping[str, Any]):
    """The columns of a Parquet file by their names, as `series_of` gives them, each read when it is asked for."""

    def __init__(self, path: Path) -> None:
        self.path, self.file = path, parquet_file(path)
        self._names = [name for name in self.file.schema_arrow.names if not name.startswith("__index_level_")]

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        with told(f"{self.path}: column {name}"):
            return series_of(self.file.read(columns=[name]), str(self.path))[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def rows(self, columns: Columns) -> InFile:
        """Some columns as rows (N, D), read by row groups, in their own type where that holds all of them."""
        facts, names = self.file.metadata, [column.name for column in columns.each]
        ends = np.cumsum([0, *(facts.row_group(g).num_rows for g in range(facts.num_row_groups))])
        last: list[tuple[int, Array]] = []

        def group(g: int) -> Array:
            if not last or last[0][0] != g:
                made = columns.encode(self.file.read_row_group(g, columns=names), str(self.path))
                last[:] = [(g, made.astype(dtype, copy=False))]
            return last[0][1]

        def read(start: int, stop: int) -> Array:
            first, after = np.searchsorted(ends, start, side="right") - 1, np.searchsorted(ends, stop)
            parts = [group(g)[max(start - ends[g], 0) : stop - ends[g]] for g in range(first, after)]
            return np.concatenate(parts) if parts else np.empty((0, len(columns.names)), dtype)

        dtype = self._type(columns)
        return InFile((facts.num_rows, len(columns.names)), dtype, read)

    def _type(self, columns: Columns) -> np.dtype:
        """The type of the columns together where they are plain numbers of few bytes, else float64."""
        schema, double = self.file.schema_arrow, np.dtype(np.float64)
        types = [np.dtype(schema.field(column.name).type.to_pandas_dtype()) for column in columns.each]
        plain = all(c.kind in ("number", "truth") and not (c.missing or c.form) for c in columns.each)
        small = plain and all(of.kind in "biuf" and of.itemsize <= 4 for of in types)
        return np.result_type(*types) if small else double
