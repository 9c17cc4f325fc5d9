"""Reads and writes tables in CSV and Parquet files with pyarrow, which is imported only where a table is used.

frames.py decides which columns are categories and which are numbers.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from csv import reader
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from macmpi import UsageError
from macmpi.data.frames import Columns
from macmpi.data.reading import InFile, told
from macmpi.data.series import series_of
from macmpi.data.texts import MISSING, NUMBER, is_number
from macmpi.typing import Array

CSV, PARQUET = (".csv", ".tsv", ".csv.gz", ".tsv.gz"), (".parquet",)

TARGETS = b"macmpi.targets"
"""The key in the metadata of a Parquet file under which the names of its targets stand, as JSON."""

HEAD = re.compile(rb'(?:"[^"]*(?:"|\Z)|[^"\n])*')
"""The first line of a CSV file; quoted names in it may contain line breaks."""

QUOTED = re.compile(r'"[^"]*"')
"""A quoted text, inside which a separator does not count."""

SEPARATORS = ",;\t|"
"""The separator of a .csv file is the one of these that is most frequent in its first line, or else the comma."""

SEPARATOR = re.compile(rb"(?:\xef\xbb\xbf)?sep=([,;\t|])\r?\n")
"""A line before the names by which spreadsheets declare the separator."""

WORDS = {
    "CSV parse error: ": "",
    r"Expected (\d+) columns, got (\d+): (.{,60}).*": r"a line has \2 cells, where the first has \1: \3",
    "Empty CSV file.*": "it has no rows",
    "field larger than field limit.*": "a quote in its first line is not closed",
    "Not a gzipped file.*": "it is not compressed by gzip, as its name says",
}
"""Patterns of messages of libraries about a file, and our messages in their place."""

PACKED = (b"\x1f\x8b", b"PK\3\4", b"PAR1", b"BZh", b"\xfd7zXZ")
"""The first bytes of files of gzip, zip (and Excel), Parquet, bzip2 and xz."""

LARGEST = 2**31 - 1
"""The largest block, in bytes, that pyarrow reads at once; it decides the type of a column by the whole block."""


def is_table(path: Path) -> bool:
    """Tells by its name whether a file is a table, in CSV or in Parquet."""
    return path.name.lower().endswith((*CSV, *PARQUET))


def read_table(path: Path, typed: bool = True, empty: Sequence[str] = ()) -> Any:
    """Reads a CSV or Parquet file as a table of pyarrow, without columns that hold an index of pandas.

    typed: whether the cells of a column in a CSV file decide its type; otherwise all are text, and a model that knows
        its columns converts them.
    empty: texts that stand for a missing value, besides the usual ones.
    Raises UsageError.  Collective: no.
    """
    with told(str(path), WORDS):
        table = parquet_file(path).read() if of_parquet(path) else _read_csv(path, typed, empty)
        _check_columns(table.schema)
    return table.select([name for name in table.column_names if not name.startswith("__index_level_")])


def of_parquet(path: Path) -> bool:
    """Tells by its name whether a file is a Parquet file."""
    return path.name.lower().endswith(PARQUET)


def parquet_file(path: Path) -> Any:
    """Opens a Parquet file with pyarrow and checks its columns, without reading a row.  Raises UsageError."""
    with told(str(path), WORDS):
        from pyarrow import parquet

        found = parquet.ParquetFile(path)
        _check_columns(found.schema_arrow)
    return found


def _check_columns(schema: Any) -> None:
    """Raises UsageError if two columns have the same name, or a column holds bytes."""
    from pyarrow import types

    names = schema.names
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"several columns have the name {json.dumps(twice[0])}; rename them")
    for field in schema:
        if types.is_binary(field.type):
            raise UsageError(f"column {field.name} holds bytes that are no UTF-8; save the file as UTF-8")


def targets_within(table: Any) -> list[str]:
    """Returns the names of the targets that the file of a table declares; [] if it declares none."""
    held = (table.schema.metadata or {}).get(TARGETS)
    try:
        found = json.loads(held) if held else []
    except (ValueError, RecursionError):
        return []
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def table_bytes(path: Path, columns: dict[str, Any], targets: list[str] | None = None) -> bytes:
    """Encodes columns (N,) with their names as a file in the format that the ending of the path names.

    targets: names of columns that a Parquet file declares to be its targets.
    Raises UsageError if pyarrow is missing.
    """
    with told(str(path)):
        import pyarrow as pa
        from pyarrow import csv, parquet

    name, buffer = path.name.lower(), io.BytesIO()
    table = pa.table(columns)
    if name.endswith(PARQUET):
        facts = {} if targets is None else {TARGETS: json.dumps(targets)}
        parquet.write_table(table.replace_schema_metadata(facts), buffer)
    else:
        separator = "\t" if ".tsv" in name else ","
        csv.write_csv(table, buffer, csv.WriteOptions(delimiter=separator, quoting_style="needed"))
    content = buffer.getvalue()
    return gzip.compress(content, mtime=0) if name.endswith(".gz") else content


def _read_csv(path: Path, typed: bool, empty: Sequence[str]) -> Any:
    """Reads a CSV file as one block, so that all cells of a column decide its type.

    typed, empty: as in `read_table`.  Raises ValueError if it is no table.
    """
    import pyarrow as pa
    from pyarrow import csv

    content = path.read_bytes()
    if path.suffix.lower() == ".gz":
        content = gzip.decompress(content)
    content = _in_utf8(content)
    if b"\0" in content:
        raise ValueError("it holds zero bytes, and is no text, or UTF-16 without its mark: save it as UTF-8")
    if b"\r" in content and b"\n" not in content:
        content = content.replace(b"\r", b"\n")
    named = SEPARATOR.match(content)
    content = content[named.end() :] if named else content
    names = HEAD.match(content)[0].decode("utf-8-sig").rstrip("\r")  # type: ignore[index]
    if not names.strip():
        raise ValueError("its first line is empty; it should hold the names of the columns")
    unquoted = QUOTED.sub("", names)
    separator = "\t" if ".tsv" in path.name.lower() else max(SEPARATORS, key=unquoted.count)
    separator = named[1].decode() if named else separator
    given = next(reader(io.StringIO(names, newline=""), delimiter=separator))
    if all(is_number(name) for name in given):
        raise ValueError(f"its first line holds numbers ({names:.40}); it should hold the names of the columns")
    table = csv.read_csv(
        pa.BufferReader(content),
        csv.ReadOptions(block_size=min(max(len(content), 1 << 20), LARGEST)),
        csv.ParseOptions(delimiter=separator, newlines_in_values=True),
        csv.ConvertOptions(
            null_values=[*MISSING, *empty] if typed else [],
            strings_can_be_null=True,
            column_types=dict.fromkeys(given, pa.string()),
        ),
    )
    if not typed or len(set(given)) < len(given):
        return table
    return pa.table({name: _typed(table.column(name)) for name in table.column_names})


def _typed(column: Any) -> Any:
    """Converts a column of text to whole numbers or numbers if all its cells are numbers with a decimal point."""
    import pyarrow as pa
    from pyarrow import compute

    known = compute.utf8_trim_whitespace(compute.drop_null(column))
    if not len(known) or not compute.all(compute.match_substring_regex(known, f"^({NUMBER})$")).as_py():
        return column
    text = compute.utf8_trim_whitespace(column)
    if compute.all(compute.match_substring_regex(known, r"^-?[0-9]+$")).as_py():
        for whole in (pa.int64(), pa.uint64()):
            with suppress(pa.ArrowInvalid):
                return text.cast(whole)
        return column  # whole numbers of more than 64 bits
    return compute.replace_substring_regex(text, r"^\+", "").cast(pa.float64())


def _in_utf8(content: bytes) -> bytes:
    """Converts the text of a file, UTF-8 or UTF-16, to UTF-8.  Raises ValueError for other encodings."""
    if content.startswith(PACKED):
        raise ValueError("it is compressed, or no text: give it the name of what it is, as .csv.gz or .parquet")
    try:
        if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return content.decode("utf-16").encode()
        content.decode()
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ValueError(
            f"line {line} is no {error.encoding.upper()}, perhaps Latin-1: save the file as UTF-8"
        ) from None
    return content


# --- columns that stay in a file --------------------------------------------------------------------------------------


class ColumnByColumn(Mapping[str, Any]):
    """The columns of a Parquet file by their names, in the form of `series_of`; each is read when it is used."""

    def __init__(self, path: Path) -> None:
        self.path, self.file = path, parquet_file(path)
        self.schema = self.file.schema_arrow
        self._names = [name for name in self.schema.names if not name.startswith("__index_level_")]

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
        """Returns the table as rows (N, D) that stay in the file and are read by row groups.

        They have the common type of the columns where these are plain numbers of at most 4 bytes, otherwise float64.

        columns: the columns that are read, and how they become numbers.
        """
        facts, names = self.file.metadata, [column.name for column in columns.each]
        ends = np.cumsum([0, *(facts.row_group(g).num_rows for g in range(facts.num_row_groups))])

        @lru_cache(maxsize=1)
        def group(g: int) -> Array:
            made = columns.encode(self.file.read_row_group(g, columns=names), str(self.path))
            return made.astype(dtype, copy=False)

        def read(start: int, stop: int) -> Array:
            first, after = np.searchsorted(ends, start, side="right") - 1, np.searchsorted(ends, stop)
            parts = [group(g)[max(start - ends[g], 0) : stop - ends[g]] for g in range(first, after)]
            return np.concatenate(parts) if parts else np.empty((0, len(columns.names)), dtype)

        types = [np.dtype(self.schema.field(column.name).type.to_pandas_dtype()) for column in columns.each]
        plain = all(c.kind in ("number", "truth") and not (c.missing or c.form) for c in columns.each)
        small = plain and all(of.kind in "biuf" and of.itemsize <= 4 for of in types)
        dtype = np.result_type(*types) if small else np.dtype(np.float64)
        return InFile((facts.num_rows, len(columns.names)), dtype, read)
