"""Tables become numbers: categories one column each, dates days, missing numbers the median and a column that tells.

`Columns` says how, by what the training table holds; a model keeps it, so that new tables are read in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from macmpi import UsageError
from macmpi.data.series import is_frame, is_number, is_whole, kind_of, numbers, series_of, texts
from macmpi.typing import Array

__all__ = ["Column", "Columns", "are_whole", "is_frame"]

KINDS = ("number", "truth", "date", "category")

MOST_CATEGORIES = 100
"""Each category is a column of the inputs."""

FEW_CATEGORIES = 20
"""Text of more categories than these, most of which occur once or twice, names the rows rather than sorts them."""

LISTED = 8
"""Columns that a message names; the others it counts."""


@dataclass(frozen=True)
class Column:
    """One column of a table, and what stands for it.

    kind: "number"; "truth": 0 or 1; "date": days since 1970; "category": 1 in the column of its own category, else 0.
    categories: in their order.  fill: stands for a missing value (0 in each category); None: none may be missing.
    missing: values that the training table lacks; where there are some, a further column is 1 where one is missing.
    """

    name: str
    kind: str
    categories: tuple[str, ...] = ()
    fill: float | None = None
    missing: int = 0

    def __post_init__(self) -> None:
        """Raises ValueError where the parts do not fit each other, as in a file that others wrote."""
        texts_ = isinstance(self.categories, tuple) and all(isinstance(c, str) for c in self.categories)
        good = (
            isinstance(self.name, str)
            and self.kind in KINDS
            and texts_
            and bool(self.categories) == (self.kind == "category")
            and len(set(self.categories)) == len(self.categories)
            and (self.fill is None or (type(self.fill) is float and bool(np.isfinite(self.fill))))
            and type(self.missing) is int
            and self.missing >= 0
            and (self.fill is not None or not self.missing)
        )
        if not good:
            raise ValueError(f"its column {self.name!r:.40} is not described as columns are")

    @property
    def names(self) -> list[str]:
        """The names of the columns of numbers: city_Paris, city_Rome, missingindicator_city."""
        own = [f"{self.name}_{category}" for category in self.categories] or [self.name]
        return own + [f"missingindicator_{self.name}"] * (self.missing > 0)

    def encode(self, series: Any, table: str) -> Array:
        """A column of N values as numbers (N, len(names)).  Raises UsageError, naming the table and the column."""
        place = f"{table}: column {self.name}"
        if self.kind == "category":
            found = texts(series)
            at = {category: i for i, category in enumerate(self.categories)}
            codes = np.array([at.get(text, -1) if text is not None else -1 for text in found], dtype=np.int64)
            missing = np.array([text is None for text in found], dtype=bool)
            own = (codes[:, None] == np.arange(len(self.categories))).astype(np.float64)
        else:
            own = numbers(series, self.kind, place)[:, None]
            missing = np.isnan(own[:, 0])
            own[missing] = np.nan if self.fill is None else self.fill
        if self.fill is None and missing.any():
            rows = np.flatnonzero(missing)
            raise UsageError(
                f"{place} has {len(rows)} missing values, the first in row {rows[0]}; fill them (where a net is "
                'trained, data.missing = "impute" does)'
            )
        return np.column_stack([own, missing]) if self.missing else own


@dataclass(frozen=True)
class Columns:
    """The columns of a table, in their order, and what stands for each."""

    each: tuple[Column, ...]

    @classmethod
    def of(cls, frame: Any, missing: str = "impute", without: Iterable[str] = (), name: str = "X") -> Columns:
        """The columns of a training table (pandas, polars, pyarrow), but for those named in `without`.

        missing: "impute" or "refuse".  name: of the table, for messages.  Raises UsageError, naming every column that
        cannot become numbers.  Cost: a pass over the table.  Collective: no.
        """
        left_out = set(without)
        series = {key: one for key, one in series_of(frame, name).items() if key not in left_out}
        if not series:
            raise UsageError(f"{name}: no columns are left for the inputs")
        found: list[Column] = []
        wrong: dict[str, str] = {}
        for key, one in series.items():
            try:
                found.append(_column(key, one, missing == "impute", name))
            except _Unfit as error:
                wrong[key] = str(error)
        if wrong:
            ignored = ", ".join(json.dumps(key, ensure_ascii=False) for key in wrong)
            told = "; ".join(f"column {key} {why}" for key, why in list(wrong.items())[:LISTED])
            more = f"; {len(wrong) - LISTED} more columns like these" if len(wrong) > LISTED else ""
            raise UsageError(f"{name}: {told}{more}; leave out what is no input: data.ignore = [{ignored}]")
        return cls(tuple(found))

    @classmethod
    def plain(cls, frame: Any, name: str = "X") -> Columns:
        """Columns that are numbers as they are, none missing: of a table for a model that was trained on an array."""
        return cls(tuple(Column(key, "number") for key in series_of(frame, name)))

    @property
    def names(self) -> list[str]:
        """The D names of the columns of numbers."""
        return [name for column in self.each for name in column.names]

    @property
    def flags(self) -> tuple[bool, ...]:
        """Tells of each of the D columns of numbers whether it can be nothing but 0 and 1."""
        return tuple(
            not (name == column.name and column.kind in ("number", "date"))
            for column in self.each
            for name in column.names
        )

    def encode(self, frame: Any, name: str = "X") -> Array:
        """A table of N rows as float64 (N, D).  Columns are found by their names; others of the table are not read.

        A category that the training table does not have is 0 in every column of its own.  Raises UsageError, naming
        the table (`name`) and the columns that are missing or hold something else.  Collective: no.
        """
        series = series_of(frame, name)
        lost = [column.name for column in self.each if column.name not in series]
        if lost:
            raise UsageError(f"{name} has no column {_listed(lost)}; its columns are {_listed(list(series))}")
        return np.column_stack([column.encode(series[column.name], name) for column in self.each])

    @property
    def said(self) -> str:
        """One line about the missing values of the training table; nothing where there are none."""
        counts = [f"{column.name} {column.missing:,}" for column in self.each if column.missing]
        if not counts:
            return ""
        return f"missing values filled: {_listed(counts)}; for each of these columns one more tells where"

    def as_array(self) -> Array:
        """The columns as bytes, as files of arrays hold them: HDF5 attributes end at 64 KB."""
        return np.frombuffer(self.dumps().encode(), dtype=np.uint8)

    def dumps(self) -> str:
        """The columns as JSON, which `loads` reads."""
        return json.dumps([asdict(column) for column in self.each], ensure_ascii=False)

    @classmethod
    def loads(cls, text: str) -> Columns:
        """The columns of `dumps`.  Raises ValueError for any other text."""
        try:
            found = json.loads(text)
        except RecursionError:
            raise ValueError("its columns are nested too deeply") from None
        keys = {field.name for field in fields(Column)}
        if not isinstance(found, list) or not found or any(not isinstance(c, dict) or set(c) != keys for c in found):
            raise ValueError("its columns are not described as columns are")
        each = tuple(Column(**{**c, "categories": _tuple(c["categories"])}) for c in found)
        if len({column.name for column in each}) < len(each):
            raise ValueError("two of its columns have one name")
        return cls(each)


def columns_of(held: Array, width: int) -> Columns:
    """The columns of `Columns.as_array`, for arrays of that many columns.  Raises ValueError."""
    if held.ndim != 1 or held.dtype != np.uint8:
        raise ValueError("its columns are no text")
    columns = Columns.loads(held.tobytes().decode())
    if len(columns.names) != width:
        raise ValueError("its columns are not as many as its inputs")
    return columns


class _Unfit(Exception):
    """A column cannot become numbers: why."""


def _column(key: str, series: Any, impute: bool, table: str) -> Column:
    """The column of a training table.  Raises _Unfit."""
    kind = kind_of(series)
    if kind == "nothing":
        raise _Unfit("has no values")
    if kind == "other":
        raise _Unfit(f"holds {series.dtype}, which are neither numbers, truth values, dates nor text")
    categories: tuple[str, ...] = ()
    if kind == "category":
        found = texts(series)
        count = sum(text is None for text in found)
        held = [text for text in found if text is not None]
        categories = tuple(sorted(set(held)))
        if not categories:
            raise _Unfit("has no values")
        _check_categories(categories, held)
        fill = 0.0
    else:
        try:
            values = numbers(series, kind, f"{table}: column {key}")
        except UsageError as error:
            raise _Unfit(str(error).partition(f"column {key} ")[2]) from None
        known = values[~np.isnan(values)]
        count = len(values) - len(known)
        if not len(known):
            raise _Unfit("has no values")
        fill = float(np.median(known))
        fill = float(np.floor(fill)) if kind == "truth" else fill
    if count and not impute:
        raise _Unfit(f'has {count} missing values (data.missing = "impute" fills them)')
    return Column(key, kind, categories, fill if impute else None, count)


def _check_categories(categories: tuple[str, ...], held: list[str]) -> None:
    """Raises _Unfit where text is no sorting of the rows into categories: names, numbers with a slip among them."""
    few = len(categories) <= MOST_CATEGORIES and (len(categories) <= FEW_CATEGORIES or 2 * len(categories) <= len(held))
    if few:
        return
    odd = [text for text in categories if not is_number(text)]
    if not odd:
        raise _Unfit("holds numbers as text: make numbers of them, as frame.astype({column: float}) does")
    if all(is_number(text.replace(".", "").replace(",", ".")) for text in odd):
        raise _Unfit(f"holds numbers with commas, as {odd[0]!r:.40}: write them with a point, and without thousands")
    if 2 * len(odd) < len(categories):
        raise _Unfit(f"holds numbers and {odd[0]!r:.40}: write a number there, or nothing where it is missing")
    raise _Unfit(f"holds text with {len(categories):,} different values; at most {MOST_CATEGORIES} can be categories")


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


def are_whole(frame: Any, without: Iterable[str] = (), name: str = "X") -> bool:
    """Tells whether all columns of a table but those named hold whole numbers, none missing."""
    left_out = set(without)
    return all(is_whole(one) for key, one in series_of(frame, name).items() if key not in left_out)
