"""Reads columns of tables of pandas, polars or pyarrow, as values, numbers, targets or weights.

narwhals gives these libraries one interface; it is imported only where a table is read.
"""

from __future__ import annotations

import datetime
import decimal
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from macmpi import UsageError
from macmpi.config import Data
from macmpi.data.reading import told
from macmpi.data.texts import Unclear, kind_of_texts, missing_in, moment_of, number_of, plain_text, truth_of
from macmpi.typing import Array

EXACT = 2.0**53
"""Beyond this float64 rounds whole numbers."""

LARGEST = float(np.finfo(np.float64).max)

USUAL = Data()
"""The keys of [data] at their defaults."""

DAY = 86_400_000_000
"""The number of microseconds in a day."""

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

FACES = ("__dataframe__", "__arrow_c_stream__", "collect_schema")
"""A class whose objects are tables has one of these attributes, and `columns`."""


def is_frame(X: Any) -> bool:
    """Tells whether X is a table with named columns, of pandas, polars, pyarrow or a similar library."""
    return hasattr(type(X), "columns") and any(hasattr(type(X), face) for face in FACES)


def is_series(Y: Any) -> bool:
    """Tells whether Y is a single column of pandas or polars; an Index of pandas is not."""
    return all(hasattr(type(Y), name) for name in ("to_frame", "dtype", "head")) and not is_frame(Y)


def series_of(frame: Any, name: str) -> Mapping[str, Any]:
    """Returns the columns of a table by their names as text.  A mapping of columns is returned as it is.

    name: the name of the table, for messages; it becomes the name of the column where `frame` is a single column.
    Raises UsageError if `frame` is no table, or two columns have the same name.
    """
    if isinstance(frame, Mapping):
        return frame
    with told(name):
        import narwhals as nw
    try:
        if is_series(frame):
            return {name: _of_64_bits(nw.from_native(frame, series_only=True), name)}
        if hasattr(frame, "collect"):
            raise UsageError(f"{name} is a table that is still to be computed; give {name}.collect()")
        given = [str(column) for column in getattr(frame, "column_names", None) or frame.columns]
        if len(set(given)) < len(given):
            raise UsageError(f"{name}: two of its columns have one name; rename them")
        table = nw.from_native(frame, eager_only=True)
        return {
            str(column): _of_64_bits(table.get_column(column), f"{name}: column {column}") for column in table.columns
        }
    except (TypeError, nw.exceptions.NarwhalsError) as error:
        why = " ".join(str(error).split())
        raise UsageError(
            f"{name} is no table that can be read ({why}); give a DataFrame of pandas or polars, or a Table of pyarrow"
        ) from None


def _of_64_bits(series: Any, place: str) -> Any:
    """Casts a column of 128-bit whole numbers to 64 bits; others stay.  Raises UsageError if they are too large."""
    import narwhals as nw

    if not isinstance(series.dtype, nw.Int128 | nw.UInt128):
        return series
    if any(value is not None and not -(2**63) <= value < 2**63 for value in (series.min(), series.max())):
        raise UsageError(f"{place} holds whole numbers that 64 bits do not hold; scale them")
    return series.cast(nw.Int64)


def is_categorical(series: Any) -> bool:
    """Tells whether the type of a column says that its values are categories."""
    import narwhals as nw

    return isinstance(series.dtype, nw.Categorical | nw.Enum)


def kind_of(series: Any, empty: Collection[str] = ()) -> str:
    """Returns the kind of a column: "number", "truth", "category" (text), "date" or "other".

    A column of text or objects is "nothing" where every value is missing.  empty: texts that stand for a missing value.
    """
    import narwhals as nw

    dtype = series.dtype
    if dtype.is_numeric():
        return "number"
    if dtype == nw.Boolean:
        return "truth"
    if isinstance(dtype, nw.Date | nw.Datetime):
        return "date"
    if is_categorical(series):
        return "category"
    if isinstance(dtype, nw.String | nw.Object | nw.Unknown):
        return _kind_of_values(values(series, empty))
    return "other"


def values(series: Any, empty: Collection[str] = ()) -> list[Any]:
    """Lists the values of a column as Python objects, None if one is missing (null, NaN, NaT, a text in `empty`)."""
    missing = series.is_null().to_numpy()
    return [
        None if gone or (isinstance(value, float) and value != value) or (empty and value in empty) else value
        for value, gone in zip(series.to_list(), missing, strict=True)
    ]


SCALARS: dict[str, tuple[type, ...]] = {
    "truth": (bool, np.bool_),
    "number": (int, float, decimal.Decimal, np.integer, np.floating),
    "date": (datetime.date,),
    "category": (str,),
}
"""The types of single values of each kind, in the order in which they are tried: True is an int too."""


def _kind_of_values(found: list[Any]) -> str:
    """Returns the kind of a column by its values; text among numbers or truth values makes it a column of text."""
    types = {type(value) for value in found if value is not None}
    kinds = {next((kind for kind, own in SCALARS.items() if issubclass(of, own)), "other") for of in types}
    if len(kinds) <= 1:
        return kinds.pop() if kinds else "nothing"
    if kinds == {"truth", "number"}:  # NumPy makes numbers of both
        return "number"
    return "category" if kinds <= {"truth", "number", "category"} else "other"


def text_of(value: Any) -> str:
    """Writes a value as text, equal values alike: 1 and 1.0, Python's and NumPy's numbers, a day and its midnight."""
    if isinstance(value, str | bytes):
        return plain_text(value)
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, datetime.datetime) and value.tzinfo is None and value.time() == datetime.time():
        value = value.date()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


DIGITS = re.compile(r"\s*([+-]?)0*([0-9]+)\s*", re.ASCII)
"""A text that is a whole number: its sign, and its digits without leading zeros."""


@lru_cache(4096)
def name_of(text: str) -> str:
    """Returns the name of a category by its text: True for TRUE, 7 for 007 and 7.0, 2024-12-31 for 31.12.2024.

    Texts that stand for the same number, truth value or moment are the same category, because libraries and file
    formats write these differently.
    """
    if whole := DIGITS.fullmatch(text):  # of any number of digits
        return whole[2] if whole[1] != "-" or whole[2] == "0" else f"-{whole[2]}"
    said = [truth_of(text), number_of(text), moment_of(text)]
    found = [bool(said[0])] if said[0] is not None else [one for one in said if one is not None and one == one]
    return text_of(found[0]) if found else text


def numbers(series: Any, kind: str, place: str, form: str = "", empty: Collection[str] = ()) -> Array:
    """Converts a column to float64 (N,): dates to days since 1970, true to 1, missing values to NaN.

    kind: "number", "truth" or "date"; form: how text is read (data/texts.py).
    place: the name of the column, for messages; empty: texts that stand for a missing value.
    Raises UsageError if a value is not of this kind, or infinite, and names the first.
    """
    import narwhals as nw

    dtype = series.dtype
    direct = dtype.is_numeric() and not isinstance(dtype, nw.Decimal)
    if kind == "date" and isinstance(dtype, nw.Date | nw.Datetime):
        found = np.asarray(series.dt.timestamp("us").to_numpy(), np.float64) / DAY
    elif kind != "date" and direct and series.to_numpy().dtype.kind in "iuf":
        found = np.array(series.to_numpy(), np.float64)
    else:
        held, of = values(series, empty), NUMBERS[kind]
        found = np.full(len(held), np.nan)
        for row, value in enumerate(held):
            if value is None:
                continue
            number = of(value, form)
            if number is None:
                raise UsageError(f"{place} holds {text_of(value)!r:.40} in row {row}; {WANTED[kind]} are needed")
            found[row] = number
    if kind == "truth":
        _check(found, ~np.isin(found, (0.0, 1.0)) & ~np.isnan(found), place, f"{WANTED[kind]} are needed")
    _check(found, np.isinf(found), place, "remove or fill it")
    return found


def _check(found: Array, bad: Array, place: str, remedy: str) -> None:
    rows = np.flatnonzero(bad)
    if len(rows):
        raise UsageError(f"{place} holds {found[rows[0]]:g} in row {rows[0]}; {remedy}")


def _number(value: Any, form: str) -> float | None:
    """Returns the number that a value stands for, 1 for true and 0 for false; None if it stands for none."""
    if isinstance(value, str):
        truth = truth_of(value)
        return number_of(value, form) if truth is None else truth
    number: Any = value if isinstance(value, (*SCALARS["number"], *SCALARS["truth"])) else None
    return None if number is None else np.inf if abs(number) > LARGEST else float(number)


def _days(value: Any, form: str) -> float | None:
    """Returns the days since 1970 of a date or a time; a time without a zone is taken for UTC.  None for others."""
    if isinstance(value, str):
        text, value = value, moment_of(value, form)
        if value is None:
            return missing_in(text)
    if not isinstance(value, datetime.date):
        return None
    moment = value if isinstance(value, datetime.datetime) else datetime.datetime(value.year, value.month, value.day)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
    return (moment - EPOCH) // datetime.timedelta(microseconds=1) / DAY


NUMBERS: dict[str, Callable[[Any, str], float | None]] = {"number": _number, "truth": _number, "date": _days}
WANTED = {"number": "numbers", "truth": "truth values", "date": "dates"}


# --- targets and weights ----------------------------------------------------------------------------------------------


def targets_of(series: Mapping[str, Any], source: str, missing: bool = False, config: Data = USUAL) -> Array:
    """Converts one column to targets (N,): text, truth values, whole numbers or numbers; several to numbers (N, L).

    source: the name of the data, for messages.
    missing: whether numbers may be missing; they become NaN.
    config: says which columns are classes even if they hold numbers, and which texts stand for a missing value.
    Raises UsageError if a value is missing, or can be no target.
    """
    found = [
        _target(one, f"{source}: column {name}, a target,", missing, name in config.categories, config.empty)
        for name, one in series.items()
    ]
    if len(found) == 1:
        return found[0]
    for name, held in zip(series, found, strict=True):
        if held.dtype.kind == "U":
            raise UsageError(f"{source}: column {name} holds text; several targets are numbers: name one column")
    return np.column_stack([held.astype(np.float64) for held in found])


def weights_of(series: Any, place: str) -> Array:
    """Converts a column to weights (N,) float64.  place: its name, for messages.  Raises UsageError."""
    kind = kind_of(series)
    if kind != "number":
        raise UsageError(f"{place} holds {series.dtype}; numbers from 0 on are needed")
    found = numbers(series, kind, place)
    _check_complete(np.isnan(found), place, ", or give it the weight 0")
    return found


def _target(series: Any, place: str, missing: bool, classes: bool, empty: Collection[str]) -> Array:
    """Converts a column to a target (N,), whose type tells whether it may hold classes.  Raises UsageError."""
    kind, form = "category" if classes else kind_of(series, empty), ""
    if kind in ("other", "date"):
        raise UsageError(f"{place} holds {series.dtype}; numbers, truth values or text are needed")
    if kind in ("category", "nothing"):
        held = values(series, empty)
        _check_complete(np.array([value is None for value in held]), place)
        if classes or is_categorical(series):
            return _classes(held)
        words = [text_of(value) for value in held]
        try:
            kind, form = kind_of_texts(Counter(words))
        except Unclear as error:
            raise UsageError(f"{place} {error}") from None
        if kind == "date":
            raise UsageError(f"{place} holds dates; numbers, truth values or text are needed")
        if kind == "category":
            return np.array(words, dtype=str)
    if kind == "number" and series.dtype.is_integer() and not series.is_null().any():
        return np.asarray(series.to_numpy())
    held = values(series, empty) if kind == "number" and not series.dtype.is_numeric() else []
    if held and all(isinstance(value, int) for value in held) and (whole := np.array(held)).dtype.kind in "iu":
        return whole
    found = numbers(series, kind, place, form, empty)
    if missing and np.isnan(found).any():
        return found
    _check_complete(np.isnan(found), place, ", or let outputs be missing, loss.missing = true")
    return found.astype(bool) if kind == "truth" else found


def _classes(held: list[Any]) -> Array:
    """Converts values that the config declares to be classes: (N,) of numbers or truth values, or else of text."""
    if all(isinstance(value, bool | int | float | decimal.Decimal | np.number | np.bool_) for value in held):
        return np.array(held, dtype=object)
    truths = [truth_of(text_of(value)) for value in held]
    if None not in truths:
        return np.array([truth == 1.0 for truth in truths], dtype=object)
    return np.array([text_of(value) for value in held], dtype=str)


def labels_among(classes: Array, labels: Array) -> Array:
    """Replaces labels by the equal classes, as "01" by 1, in the labels' shape.  classes: (C,).

    If a label equals none of the classes, it returns the labels as they are.
    """
    named = {name_of(text_of(one)): one for one in classes.tolist()}
    values, places = np.unique(labels, return_inverse=True)
    found = [named.get(name_of(text_of(one))) for one in values.tolist()]
    return labels if None in found else np.array(found)[places].reshape(labels.shape)


def _check_complete(missing: Array, place: str, otherwise: str = "") -> None:
    rows = np.flatnonzero(missing)
    if len(rows) == 1:
        raise UsageError(f"{place} is missing in row {rows[0]}; take it out{otherwise}")
    if len(rows):
        first = f"the first of them row {rows[0]}"
        raise UsageError(f"{place} is missing in {len(rows):,} rows, {first}; take them out{otherwise}")
