"""Converts tables to numbers: each category to a column, dates to days, missing numbers to the median.

A column with missing values gets a further column that tells where they are.  `Columns` describes the conversion, as
the training table determines it.  A model keeps it, so that later tables are converted in the same way, whatever types
and values their columns have.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property
from itertools import chain, count
from typing import Annotated, Any, ClassVar, Literal
from zlib import crc32

import numpy as np
from annotated_types import Interval, Len

from macmpi import UsageError, caution, listed, many
from macmpi.config import Data
from macmpi.data.series import EXACT, USUAL, is_categorical, kind_of, name_of, numbers, series_of, text_of, values
from macmpi.data.texts import FORMS, Unclear, is_number, kind_of_texts, missing_in
from macmpi.typing import Array

MOST_CATEGORIES, FREQUENT, OFTEN, MOST_FREQUENT, HASHED = 100, 50, 10, 300, 16
"""Up to MOST_CATEGORIES categories have a column each.  Of more, the FREQUENT most frequent ones have; and others that
are in at least OFTEN rows, up to MOST_FREQUENT in all.  The rest share HASHED columns by a hash of their text."""

FEW_CATEGORIES = 20
"""A column of more different texts than these, each in fewer than two rows on average, is left out as names of rows."""

LISTED = 8
"""The number of columns that a message names; it counts the others."""

SEEN = 100
"""The number of rows in which a value is searched first, because most columns have one there."""

UNSEEN, NO_VALUE = -1, -2
"""The numbers that stand for a category which the training table does not have, and for a missing value."""


@dataclass(frozen=True)
class Column:
    """One column of a table, and how it becomes one or more columns of numbers.

    kind: "number"; "truth", 0 or 1; "date", days since 1970; "category", 1 in the column of its category, otherwise 0.
    categories: the categories with a column of their own, in the order of the columns.
    fill: the number for a missing value (a missing category is 0 in all columns); None if no value may be missing.
    missing: the number of missing values in the training table; if there are some, a further column is 1 where a value
        is missing.
    form: how text is read as numbers or dates (data/texts.py).
    hashed: the number of columns that the other categories share, by a hash of their text.
    empty: texts that stand for a missing value.
    flag: not read; older files have it.
    """

    __pydantic_config__: ClassVar[Any] = {"strict": True, "extra": "forbid", "allow_inf_nan": False}
    """The rules by which pydantic checks a description of a column that others may have written."""

    name: str
    kind: Literal["number", "truth", "date", "category"]
    categories: tuple[str, ...] = ()
    fill: float | None = None
    missing: Annotated[int, Interval(ge=0)] = 0
    form: str = ""
    hashed: Annotated[int, Interval(ge=0, le=MOST_CATEGORIES)] = 0
    empty: tuple[str, ...] = ()
    flag: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError if the fields contradict each other."""
        good = (
            len(set(self.categories)) == len(self.categories)
            and bool(self.categories) == (self.kind == "category")
            and (self.fill is not None or not self.missing)
            and self.form in FORMS
            and (self.kind == "category" or not self.hashed)
        )
        if not good:
            raise ValueError(f"its column {self.name!r:.40} is not described as columns are")

    @property
    def names(self) -> list[str]:
        """The names of the columns of numbers, such as city_Paris, city_Rome, missingindicator_city."""
        own = [f"{self.name}_{category}" for category in self.categories] or [self.name]
        own += [f"{self.name}_other{i}" for i in range(self.hashed)]
        return own + [f"missingindicator_{self.name}"] * (self.missing > 0)

    def encode(self, series: Any, table: str) -> Array:
        """Converts a column of N values to numbers (N, len(names)).  Each row depends on its own value alone.

        series: the column; table: the table's name, for messages.
        Raises UsageError, and warns where no value is one of the categories.
        """
        place = f"{table}: column {self.name}"
        if self.kind == "category":
            held = values(series, self.empty)
            codes = np.array([self._code(value) for value in held], dtype=np.int64)
            missing, unseen = codes == NO_VALUE, np.flatnonzero(codes == UNSEEN)
            if len(unseen) and (codes < 0).all():
                seen, first = listed([repr(one) for one in self.categories]), text_of(held[unseen[0]])
                caution(f"{place}: none of its values was seen in training, as {first!r:.40}; seen were {seen}")
            own = (codes[:, None] == np.arange(len(self.categories) + self.hashed)).astype(np.float64)
        else:
            own = numbers(series, self.kind, place, self.form, self.empty)[:, None]
            missing = np.isnan(own[:, 0])
            own[missing] = np.nan if self.fill is None else self.fill
        if self.fill is None and missing.any():
            rows = np.flatnonzero(missing)
            raise UsageError(
                f"{place} has {many(len(rows), 'missing value')}, the first in row {rows[0]}; fill them (where a net "
                'is trained, data.missing = "impute" does)'
            )
        return np.column_stack([own, missing]) if self.missing else own

    @cached_property
    def _places(self) -> dict[Any, int]:
        """The place of each category."""
        return {category: i for i, category in enumerate(self.categories)}

    def _code(self, value: Any) -> int:
        """Returns the column of a value: the column of its category, or the shared column of its hash.

        It returns UNSEEN for a value that has no column, and NO_VALUE for None and for words such as "NA", unless these
        are categories themselves.
        """
        if value is None:
            return NO_VALUE
        name = name_of(value if type(value) is str else text_of(value))
        place = self._places.get(name, UNSEEN)
        if place == UNSEEN and isinstance(value, str) and missing_in(value) is not None:
            return NO_VALUE
        return len(self.categories) + crc32(name.encode()) % self.hashed if place == UNSEEN and self.hashed else place


@dataclass(frozen=True)
class Columns:
    """The columns of a table, in their order, and how each becomes numbers.

    notes: messages for the user who trains a net on the table; a model does not keep them.
    """

    each: tuple[Column, ...]
    notes: tuple[str, ...] = field(default=(), compare=False, repr=False)

    @classmethod
    def of(cls, frame: Any, config: Data = USUAL, without: Iterable[str] = (), name: str = "X") -> Columns:
        """Decides how the columns of a training table (pandas, polars, pyarrow) become numbers.

        config: says which columns are categories, and which texts stand for missing values.
        without: the names of columns that are left out.
        name: the name of the table, for messages.
        Raises UsageError, with all columns that cannot become numbers.  Cost: a pass over the table.  Collective: no.
        """
        left_out = set(without)
        series = series_of(frame, name)
        keys = [key for key in series if key not in left_out]
        if not keys:
            raise UsageError(f"{name}: no columns are left for the inputs")
        if not len(series[keys[0]]):
            raise UsageError(f"{name} has no rows")
        found: list[Column] = []
        wrong: dict[str, str] = {}
        notes: list[str] = []
        for key in keys:
            one = series[key]
            if len(keys) > 1 and _is_index(key, one):
                notes.append(f"column {key!r} only numbers the rows, and is left out")
                continue
            try:
                column, said = _read(key, one, name, config)
            except Unclear as error:
                wrong[key] = str(error)
                continue
            found += [column] if column else []
            notes += [f"column {key} {text}" for text in said]
        if wrong:
            ignored = ", ".join(json.dumps(key, ensure_ascii=False) for key in wrong)
            told = "; ".join(f"column {key} {why}" for key, why in list(wrong.items())[:LISTED])
            more = f"; {many(len(wrong) - LISTED, 'more column')} like these" if len(wrong) > LISTED else ""
            raise UsageError(f"{name}: {told}{more}; leave out what is no input: data.ignore = [{ignored}]")
        if not found:
            raise UsageError(f"{name}: no columns are left for the inputs: {listed(notes)}")
        return cls(tuple(found), tuple(notes))

    @classmethod
    def plain(cls, frame: Any, name: str = "X") -> Columns:
        """Treats each column of a table as numbers without missing values, and does not look at the values.

        So a model that was trained on an array reads a table.
        """
        return cls(tuple(Column(key, "number") for key in series_of(frame, name)))

    @property
    def names(self) -> list[str]:
        """The D names of the columns of numbers, made different: city_Oslo_2 where city_Oslo exists already."""
        found: dict[str, None] = {}
        for name in (name for column in self.each for name in column.names):
            free = (f"{name}_{i}" for i in count(2))
            found[next(other for other in chain([name], free) if other not in found)] = None
        return list(found)

    def encode(self, frame: Any, name: str = "X") -> Array:
        """Converts a table of N rows to float64 (N, D).  It finds columns by their names and ignores all others.

        A category that the training table does not have is 0 in all columns of single categories.
        name: the name of the table, for messages.  Raises UsageError if columns are missing or hold something else.
        Collective: no.
        """
        series = series_of(frame, name)
        lost = [column.name for column in self.each if column.name not in series]
        if lost:
            raise UsageError(f"{name} has no column {listed(lost)}; its columns are {listed(list(series))}")
        return np.column_stack([column.encode(series[column.name], name) for column in self.each])

    @property
    def said(self) -> str:
        """A line that counts the missing values of the training table; "" if there are none."""
        counts = [f"{column.name} {column.missing:,}" for column in self.each if column.missing]
        if not counts:
            return ""
        return f"missing values filled: {listed(counts)}; for each of these columns one more tells where"

    def as_array(self) -> Array:
        """Writes the columns as an array of bytes (n,) uint8, which `columns_of` reads.

        A dataset of HDF5 can hold them all, while an attribute is limited to 64 KB.
        """
        text = json.dumps([asdict(column) for column in self.each], ensure_ascii=False)
        return np.frombuffer(text.encode(), dtype=np.uint8)


OF_ARRAYS = Columns(())
"""A table is read by these as an array is: each of its columns is numbers as they are."""


@cache
def _adapter() -> Any:
    """Returns pydantic's reader for descriptions of columns, which is made once and only where one is read."""
    from pydantic import TypeAdapter

    return TypeAdapter(Annotated[tuple[Column, ...], Len(1)])


def columns_of(held: Array, width: int) -> Columns:
    """Reads what `Columns.as_array` wrote.  Raises ValueError unless it describes `width` columns of numbers."""
    if held.ndim != 1 or held.dtype != np.uint8:
        raise ValueError("its columns are no text")
    try:
        columns = Columns(_adapter().validate_json(held.tobytes()))
    except ValueError:
        raise ValueError("its columns are not described as columns are") from None
    if len({column.name for column in columns.each}) < len(columns.each):
        raise ValueError("two of its columns have one name")
    if len(columns.names) != width:
        raise ValueError("its columns are not as many as its inputs")
    return columns


def _is_index(name: str, series: Any) -> bool:
    """Tells whether a column is a saved index: it has no name, and a different whole number in each row."""
    if name.strip() and not name.startswith("Unnamed: "):
        return False
    dtype = series.dtype
    if not dtype.is_numeric() or series.is_null().any():
        return False
    found = np.asarray(series.to_numpy(), np.float64)
    whole = bool(np.isfinite(found).all() and (found == np.round(found)).all())
    return whole and len(np.unique(found)) == len(found) and bool(np.ptp(found) < 100.0 * len(found))


def _read(key: str, series: Any, table: str, config: Data) -> tuple[Column | None, list[str]]:
    """Decides, by all values of a column, whether it holds numbers, dates, truth values or categories.

    key, table: the names of the column and of the training table.
    Returns the column, or None if it is left out, and notes on it for the user.  Raises Unclear.
    """
    impute, declared, empty = config.missing == "impute", key in config.categories, tuple(config.empty)
    kind, form, counts = "category" if declared else kind_of(series, empty), "", Counter[str]()
    seen = (value for part in (series.head(SEEN), series) for value in values(part, empty))
    if kind == "nothing" or all(value is None for value in seen):
        return None, ["has no values, and is left out"]
    if kind == "other":
        raise Unclear(f"holds {series.dtype}, which are neither numbers, truth values, dates nor text")
    if kind == "category":
        texts = Counter(text_of(value) for value in values(series, empty) if value is not None)
        for text, rows in texts.items():
            counts[name_of(text)] += rows
        if not (declared or is_categorical(series)):
            kind, form = _kind_of_text(series, texts)
            if kind == "category" and len(counts) > FEW_CATEGORIES and 2 * len(counts) > counts.total():
                return None, [f"names the rows ({len(counts):,} different texts), and is left out"]
    categories, hashed, fill = tuple[str, ...](), 0, 0.0
    if kind == "category":
        missing = len(series) - counts.total()
        categories = _with_their_own(counts)
        hashed = HASHED * (len(categories) < len(counts))
    else:
        try:
            found = numbers(series, kind, f"{table}: column {key}", form, empty)
        except UsageError as error:
            raise Unclear(str(error).partition(f"column {key} ")[2]) from None
        known = found[~np.isnan(found)]
        missing = len(found) - len(known)
        fill = float(np.median(known))
        fill = float(np.floor(fill)) if np.isin(known, (0.0, 1.0)).all() else fill
    if missing and not impute:
        raise Unclear(f'has {many(missing, "missing value")} (data.missing = "impute" fills in)')
    column = Column(key, kind, categories, fill if impute else None, missing, form, hashed, empty)  # type: ignore[arg-type]
    said = []
    if form or (kind == "date" and counts):
        said.append(f"is read as {'numbers' if kind == 'number' else 'dates'}, {form or 'year first'}")
    if hashed:
        rest = len(counts) - len(categories)
        said.append(f"holds {len(counts):,} different texts: those in few rows, {rest:,}, share {HASHED} columns")
    if kind == "number" and not series.dtype.is_float():
        whole = (one for one in values(series, empty) if one is not None and not isinstance(one, str | float))
        if max(map(abs, whole), default=0) > EXACT:
            said.append("holds whole numbers beyond 2^53, which are rounded: subtract the least, or leave it out")
    return column, said


def _kind_of_text(series: Any, counts: Counter[str]) -> tuple[str, str]:
    """Returns the kind and the form of a column of text.  counts: how often each text occurs.  Raises Unclear."""
    plain = all(is_number(text) for text in counts)
    if plain and len(series) - counts.total() > int(series.is_null().sum()):
        return "number", ""  # all other texts stand for a missing value
    kind, form = kind_of_texts(counts)
    several = len(counts) > FEW_CATEGORIES and (len(counts) > MOST_CATEGORIES or 2 * len(counts) > counts.total())
    if kind == "category" and several and plain:
        raise Unclear(
            "holds numbers as text: make numbers of them, as frame.astype({column: float}) does, or name the column in "
            "data.categories"
        )
    return kind, form


def _with_their_own(counts: Counter[str]) -> tuple[str, ...]:
    """Returns, sorted, the categories that get a column of their own: all where they are few, else frequent ones.

    counts: the number of rows of each category.
    """
    often = sorted(counts, key=lambda text: (-counts[text], text))
    if len(often) > MOST_CATEGORIES:
        own = sum(counts[text] >= OFTEN for text in often[:MOST_FREQUENT])
        often = often[: max(own, FREQUENT)]
    return tuple(sorted(often))
