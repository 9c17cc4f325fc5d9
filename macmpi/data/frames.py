"""Tables become numbers: categories one column each, dates days, missing numbers the median and a column that tells.

`Columns` says how, by what the training table holds; a model keeps it, so that new tables are read in the same way,
whatever types their columns have and whatever other rows they hold.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from itertools import chain, count
from typing import Any
from zlib import crc32

import numpy as np

from macmpi import UsageError, caution, many
from macmpi.data.series import is_categorical, is_frame, is_index, kind_of, numbers, series_of, text_of, values
from macmpi.data.texts import FORMS, Unclear, is_number, kind_of_texts, missing_in, number_of, truth_of
from macmpi.typing import Array

__all__ = ["Column", "Columns", "is_frame"]

KINDS = ("number", "truth", "date", "category")

MOST_CATEGORIES, FREQUENT, OFTEN, MOST_FREQUENT, HASHED = 100, 50, 10, 300, 16
"""Each of up to MOST_CATEGORIES is a column.  Of more, the FREQUENT most frequent are, and so are others, up to
MOST_FREQUENT in all, that are in OFTEN rows at least; the rest share HASHED columns by a hash of their text."""

FEW_CATEGORIES = 20
"""Text of more categories than these, most of which occur once or twice, names the rows rather than sorts them."""

LISTED = 8
"""Columns that a message names; the others it counts."""

SEEN = 100
"""Rows that are looked at first for a value: most columns have one there."""

EXACT = 2.0**53
"""From here on float64 rounds whole numbers."""


@dataclass(frozen=True)
class Column:
    """One column of a table, and what stands for it.

    kind: "number"; "truth": 0 or 1; "date": days since 1970; "category": 1 in the column of its own category, else 0.
    categories: in their order.  fill: stands for a missing value (0 in each category); None: none may be missing.
    missing: values that the training table lacks; where there are some, a further column is 1 where one is missing.
    form: how its text is read (data/texts.py).  hashed: columns that the categories without one of their own share, by
    a hash of their text.  empty: texts that stand for a missing value.  flag: numbers of which the training table has 0
    and 1 alone.
    """

    name: str
    kind: str
    categories: tuple[str, ...] = ()
    fill: float | None = None
    missing: int = 0
    form: str = ""
    hashed: int = 0
    empty: tuple[str, ...] = ()
    flag: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError where the parts do not fit each other, as in a file that others wrote."""
        good = (
            isinstance(self.name, str)
            and self.kind in KINDS
            and _is_texts(self.categories)
            and _is_texts(self.empty)
            and bool(self.categories) == (self.kind == "category")
            and (self.fill is None or (type(self.fill) is float and bool(np.isfinite(self.fill))))
            and type(self.missing) is int
            and self.missing >= 0
            and (self.fill is not None or not self.missing)
            and self.form in FORMS
            and type(self.hashed) is int
            and 0 <= self.hashed <= MOST_CATEGORIES
            and (self.kind == "category" or not self.hashed)
            and type(self.flag) is bool
        )
        if not good:
            raise ValueError(f"its column {self.name!r:.40} is not described as columns are")

    @property
    def names(self) -> list[str]:
        """The names of the columns of numbers: city_Paris, city_Rome, missingindicator_city."""
        own = [f"{self.name}_{category}" for category in self.categories] or [self.name]
        own += [f"{self.name}_other{i}" for i in range(self.hashed)]
        return own + [f"missingindicator_{self.name}"] * (self.missing > 0)

    def encode(self, series: Any, table: str) -> Array:
        """A column of N values as numbers (N, len(names)).  Raises UsageError, naming the table and the column.

        Warns where no value is one of the categories.  A value depends on itself alone, not on other rows.
        """
        place = f"{table}: column {self.name}"
        if self.kind == "category":
            held = [None if self._is_missing(value) else value for value in values(series, self.empty)]
            codes = np.array([-1 if value is None else self._code(value) for value in held], dtype=np.int64)
            missing = np.array([value is None for value in held], dtype=bool)
            if not missing.all() and (codes < 0).all():
                seen = ", ".join(repr(one) for one in self.categories[:LISTED])
                first = next(value for value in held if value is not None)
                caution(
                    f"{place}: none of its values was seen in training, as {text_of(first)!r:.40}; seen were {seen}"
                )
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
        """The place of each category by its text, and by the number or truth value that it alone says."""
        said = [_said_by(category) for category in self.categories]
        once = Counter(said)
        alone = {value: i for i, value in enumerate(said) if value is not None and once[value] == 1}
        return alone | {category: i for i, category in enumerate(self.categories)}

    def _is_missing(self, value: Any) -> bool:
        """Tells whether a value is a word for none, as "NA", that is no category."""
        return isinstance(value, str) and value not in self._places and missing_in(value) is not None

    def _code(self, value: Any) -> int:
        """The place of a value's category, or of the hash that it shares; -1 of a value that was not seen."""
        text = value if type(value) is str else text_of(value)
        found = self._places.get(text, self._places.get(_said_by(text), -1))
        return len(self.categories) + crc32(text.encode()) % self.hashed if found < 0 and self.hashed else found


def _said_by(text: str) -> tuple[str, float] | None:
    """The number or the truth value that a text says: other types and other files may write the same one in its place.

    None of other texts.
    """
    number = number_of(text)
    if number is not None and number == number:
        return "number", number
    truth = truth_of(text)
    return None if truth is None else ("truth", truth)


@dataclass(frozen=True)
class Columns:
    """The columns of a table, in their order, and what stands for each.

    notes: what is said of them where a net is trained; they are not kept.
    """

    each: tuple[Column, ...]
    notes: tuple[str, ...] = field(default=(), compare=False, repr=False)

    @classmethod
    def of(
        cls,
        frame: Any,
        missing: str = "impute",
        without: Iterable[str] = (),
        name: str = "X",
        categories: Collection[str] = (),
        empty: Sequence[str] = (),
    ) -> Columns:
        """The columns of a training table (pandas, polars, pyarrow), but for those named in `without`.

        missing: "impute" or "refuse".  name: of the table, for messages.  categories: columns that are categories,
        whatever they hold; empty: texts that stand for a missing value.  Raises UsageError, naming every column that
        cannot become numbers.  Cost: a pass over the table.  Collective: no.
        """
        left_out = set(without)
        series = {key: one for key, one in series_of(frame, name).items() if key not in left_out}
        if not series:
            raise UsageError(f"{name}: no columns are left for the inputs")
        if not len(next(iter(series.values()))):
            raise UsageError(f"{name} has no rows")
        found: list[Column] = []
        wrong: dict[str, str] = {}
        notes: list[str] = []
        for key, one in series.items():
            try:
                if len(series) > 1 and is_index(key, one):
                    notes.append(f"column {key!r} only numbers the rows, and is left out")
                    continue
                held = _held(one, tuple(empty), key in categories)
                if held.kind == "nothing":
                    notes.append(f"column {key} has no values, and is left out")
                    continue
                if held.names_rows:
                    notes.append(f"column {key} names the rows ({len(held.counts):,} different texts), and is left out")
                    continue
                found.append(_column(key, held, missing == "impute", name))
                notes += [f"column {key} {said}" for said in _said(found[-1], held)]
            except Unclear as error:
                wrong[key] = str(error)
        if wrong:
            ignored = ", ".join(json.dumps(key, ensure_ascii=False) for key in wrong)
            told = "; ".join(f"column {key} {why}" for key, why in list(wrong.items())[:LISTED])
            more = f"; {many(len(wrong) - LISTED, 'more column')} like these" if len(wrong) > LISTED else ""
            raise UsageError(f"{name}: {told}{more}; leave out what is no input: data.ignore = [{ignored}]")
        if not found:
            raise UsageError(f"{name}: no columns are left for the inputs: {_listed(notes)}")
        return cls(tuple(found), tuple(notes))

    @classmethod
    def plain(cls, frame: Any, name: str = "X") -> Columns:
        """Columns that are numbers as they are, none missing: of a table for a model that was trained on an array."""
        return cls(tuple(Column(key, "number") for key in series_of(frame, name)))

    @property
    def names(self) -> list[str]:
        """The D names of the columns of numbers, all different: city_Oslo_2 where city_Oslo is a column, too."""
        found: dict[str, None] = {}
        for name in (name for column in self.each for name in column.names):
            free = (f"{name}_{i}" for i in count(2))
            found[next(other for other in chain([name], free) if other not in found)] = None
        return list(found)

    @property
    def flags(self) -> tuple[bool, ...]:
        """Tells of each of the D columns of numbers whether it is nothing but 0 and 1, whatever its type."""
        return tuple(
            column.flag or not (name == column.name and column.kind in ("number", "date"))
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
        keys = {one.name for one in fields(Column)}
        needed = {"name", "kind", "categories", "fill", "missing"}  # files of older versions have no others
        good = (
            isinstance(found, list) and found and all(isinstance(c, dict) and needed <= c.keys() <= keys for c in found)
        )
        if not good:
            raise ValueError("its columns are not described as columns are")
        each = tuple(Column(**{key: _tuple(value) for key, value in c.items()}) for c in found)
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


@dataclass(frozen=True)
class _Held:
    """A column of a training table: its kind and form, and of categories how often each text occurs."""

    series: Any
    kind: str
    form: str = ""
    counts: Counter[str] = field(default_factory=Counter)
    names_rows: bool = False
    empty: tuple[str, ...] = ()


def _held(series: Any, empty: tuple[str, ...], declared: bool) -> _Held:
    """Looks at all values of a column of a training table.  declared: they are categories.  Raises Unclear."""
    kind = "category" if declared else kind_of(series, empty)
    if kind == "nothing" or not (_any_known(series.head(SEEN), empty) or _any_known(series, empty)):
        return _Held(series, "nothing")
    if kind == "other":
        raise Unclear(f"holds {series.dtype}, which are neither numbers, truth values, dates nor text")
    if kind != "category":
        return _Held(series, kind, empty=empty)
    known = values(series, empty)
    counts = Counter(text_of(value) for value in known if value is not None)
    if declared or is_categorical(series):
        return _Held(series, kind, "", counts, False, empty)
    if all(is_number(text) for text in counts) and len(known) - counts.total() > int(series.is_null().sum()):
        return _Held(series, "number", "", empty=empty)  # numbers, but for texts that stand for a missing value
    kind, form = kind_of_texts(counts)
    several = len(counts) > FEW_CATEGORIES and (len(counts) > MOST_CATEGORIES or 2 * len(counts) > counts.total())
    if kind == "category" and several and all(is_number(text) for text in counts):
        raise Unclear(
            "holds numbers as text: make numbers of them, as frame.astype({column: float}) does, or name the column in "
            "data.categories"
        )
    unique = len(counts) > FEW_CATEGORIES and 2 * len(counts) > counts.total()
    return _Held(series, kind, form, counts, kind == "category" and unique, empty)


def _any_known(series: Any, empty: tuple[str, ...]) -> bool:
    """Tells whether a column has a value."""
    return any(value is not None for value in values(series, empty))


def _column(key: str, held: _Held, impute: bool, table: str) -> Column:
    """The column of a training table.  Raises Unclear."""
    categories: tuple[str, ...] = ()
    hashed, flag = 0, False
    if held.kind == "category":
        count = len(held.series) - held.counts.total()
        often = sorted(held.counts, key=lambda text: (-held.counts[text], text))
        if len(often) > MOST_CATEGORIES:
            own = sum(held.counts[text] >= OFTEN for text in often[:MOST_FREQUENT])
            often = often[: max(own, FREQUENT)]
            hashed = HASHED * (len(often) < len(held.counts))
        categories = tuple(sorted(often))
        fill = 0.0
    else:
        try:
            found = numbers(held.series, held.kind, f"{table}: column {key}", held.form, held.empty)
        except UsageError as error:
            raise Unclear(str(error).partition(f"column {key} ")[2]) from None
        known = found[~np.isnan(found)]
        count = len(found) - len(known)
        fill = float(np.median(known))
        flag = held.kind == "number" and bool(np.isin(known, (0.0, 1.0)).all())
        fill = float(np.floor(fill)) if held.kind == "truth" or flag else fill
    if count and not impute:
        raise Unclear(f'has {many(count, "missing value")} (data.missing = "impute" fills in)')
    return Column(key, held.kind, categories, fill if impute else None, count, held.form, hashed, held.empty, flag)


def _said(column: Column, held: _Held) -> list[str]:
    """Says what a person should know of how a column was read."""
    found = []
    if column.form:
        what = "numbers" if column.kind == "number" else "dates"
        found.append(f"is read as {what}, {column.form}")
    elif column.kind == "date" and held.counts:
        found.append("is read as dates, year first")
    if column.hashed:
        rest = len(held.counts) - len(column.categories)
        found.append(f"holds {len(held.counts):,} different texts: those in few rows, {rest:,}, share {HASHED} columns")
    if column.kind == "number" and not held.series.dtype.is_float():
        whole = (one for one in values(held.series, held.empty) if one is not None and not isinstance(one, str | float))
        if max(map(abs, whole), default=0) > EXACT:
            found.append("holds whole numbers beyond 2^53, which are rounded: subtract the least, or leave it out")
    return found


def _is_texts(value: Any) -> bool:
    """Tells whether a value is a tuple of different texts."""
    return isinstance(value, tuple) and all(isinstance(c, str) for c in value) and len(set(value)) == len(value)


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more
