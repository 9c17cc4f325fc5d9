"""Tables become numbers: row by row, by the names of columns, and alike whichever library holds the table."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sampled import examples

from macmpi import UsageError
from macmpi.config import Data
from macmpi.data.frames import Column, Columns, columns_of
from macmpi.data.series import is_frame, series_of

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")

often = examples(60)

TYPES = {
    "age": pa.int64(),
    "height": pa.float64(),
    "city": pa.string(),
    "member": pa.bool_(),
    "born": pa.date32(),
    "seen": pa.timestamp("ms"),
    "paid": pa.decimal128(9, 2),
}

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "age": st.integers(-(2**40), 2**40),
    "height": st.floats(-1e6, 1e6),
    "city": st.sampled_from(["Paris", "Ürümqi", "", "a b", "1", "True"]),
    "member": st.booleans(),
    "born": st.dates(datetime.date(1900, 1, 1), datetime.date(2100, 1, 1)),
    "seen": st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2100, 1, 1)).map(
        lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    ),
    "paid": st.decimals(-100, 100, places=2),
}


@st.composite
def tables(draw: st.DrawFn, rows: int = 6) -> pa.Table:
    """Columns of all kinds, any of whose values but the first may be missing."""
    columns = {}
    for name, value in VALUES.items():
        rest = draw(st.lists(st.one_of(st.none(), value), min_size=rows - 1, max_size=rows - 1))
        columns[name] = pa.array([draw(value), *rest], TYPES[name])
    return pa.table(columns)


def pandas_of(table: pa.Table) -> Any:
    return table.to_pandas()


def nullable_pandas_of(table: pa.Table) -> Any:
    return table.to_pandas().convert_dtypes()


def categorical_pandas_of(table: pa.Table) -> Any:
    return table.to_pandas().astype({"city": "category"})


def polars_of(table: pa.Table) -> Any:
    return pytest.importorskip("polars").from_arrow(table)


OTHERS = [pandas_of, nullable_pandas_of, categorical_pandas_of, polars_of]


@pytest.mark.parametrize("other", OTHERS, ids=lambda f: f.__name__)
def test_every_library_gives_the_same_numbers(other: Any) -> None:
    other(tables_example())  # skipped as a whole where the library is missing

    @settings(often, max_examples=60)
    @given(table=tables())
    def law(table: pa.Table) -> None:
        frame = other(table)
        assert is_frame(table) and is_frame(frame)
        columns = Columns.of(table)
        assert Columns.of(frame) == columns
        assert columns.encode(frame).tobytes() == columns.encode(table).tobytes()

    law()


def tables_example() -> pa.Table:
    return pa.table({"city": ["Paris", None], "age": [3, 4]})


@often
@given(table=tables(), rows=st.lists(st.integers(0, 5), min_size=1, max_size=4), seed=st.integers(0, 9))
def test_rows_and_columns_may_come_in_any_order(table: pa.Table, rows: list[int], seed: int) -> None:
    """The encoding of some rows is those rows of the encoding; columns are found by their names."""
    columns = Columns.of(table)
    names = np.random.default_rng(seed).permutation(table.column_names).tolist()
    some = table.take(rows).select(names).append_column("more", pa.array(["x"] * len(rows)))
    assert_array_equal(columns.encode(some), columns.encode(table)[rows])
    assert columns.encode(table).shape == (6, len(columns.names))


def test_the_numbers_are_those_that_one_expects() -> None:
    table = pa.table(
        {
            "age": pa.array([30, None, 50, 10]),
            "city": ["Rome", "Oslo", None, "Rome"],
            "member": [True, False, None, True],
            "born": pa.array([datetime.date(1970, 1, 2), None, datetime.date(1969, 12, 31), datetime.date(1970, 1, 1)]),
            "height": [1.5, 2.5, 3.5, 4.5],
        }
    )
    columns = Columns.of(table)
    assert columns.names == [
        *("age", "missingindicator_age", "city_Oslo", "city_Rome", "missingindicator_city"),
        *("member", "missingindicator_member", "born", "missingindicator_born", "height"),
    ]
    assert columns.encode(table).tolist() == [
        [30, 0, 0, 1, 0, 1, 0, 1, 0, 1.5],
        [30, 1, 1, 0, 0, 0, 0, 0, 1, 2.5],
        [50, 0, 0, 0, 1, 1, 1, -1, 0, 3.5],
        [10, 0, 0, 1, 0, 1, 0, 0, 0, 4.5],
    ]
    assert columns.said.startswith("missing values filled: age 1, city 1, member 1, born 1; ")


def test_a_new_table_may_hold_what_the_training_table_does_not() -> None:
    """Unknown categories are 0 everywhere; what is missing where nothing was gets the median, and no column more."""
    columns = Columns.of(pa.table({"age": [1.0, 2.0, 9.0], "city": ["a", "b", "a"], "member": [True, False, True]}))
    new = pa.table({"city": ["c", None, "b"], "age": [None, np.nan, 4], "member": [None, 0, 1]})
    assert columns.encode(new).tolist() == [[2, 0, 0, 1], [2, 0, 0, 0], [4, 0, 1, 1]]
    assert columns.said == ""
    nothing = pa.table({"city": pa.nulls(1), "age": pa.nulls(1), "member": pa.nulls(1)})
    assert columns.encode(nothing).tolist() == [[2, 0, 0, 1]]


# --- refusals ---------------------------------------------------------------------------------------------------------


def refusal(frame: Any, without: Sequence[str] = (), **keys: Any) -> str:
    with pytest.raises(UsageError) as caught:
        Columns.of(frame, Data(**keys), without, "people.csv")
    assert "\n" not in str(caught.value)
    return str(caught.value)


GOOD = {"good": [float(i) for i in range(60)]}


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([str(i) for i in range(59)] + ["?"], "column bad holds numbers, and '?': write a number there"),
        ([1.0] * 59 + [float("inf")], "column bad holds inf in row 59; remove or fill it"),
        ([[1, 2]] * 60, "which are neither numbers, truth values, dates nor text"),
        ([datetime.time(3)] * 60, "which are neither numbers, truth values, dates nor text"),
    ],
)
def test_columns_that_cannot_become_numbers_are_named_with_the_remedy(values: list[Any], says: str) -> None:
    table = pa.table({**GOOD, "bad": values})
    text = refusal(table)
    assert text.startswith("people.csv: ")
    assert says in text
    assert 'data.ignore = ["bad"]' in text
    assert "good" not in text
    assert Columns.of(table, without=["bad"]).names == ["good"]


def test_missing_values_can_be_refused() -> None:
    table = pa.table({"age": [1, None, None], "city": ["a", None, "b"], "height": [1.0, 2.0, 3.0]})
    text = refusal(table, missing="refuse")
    assert "column age has 2 missing values" in text
    assert "column city has 1 missing value" in text
    assert "height" not in text
    columns = Columns.of(table.drop_columns(["age", "city"]), Data(missing="refuse"))
    assert columns.each == (Column("height", "number"),)
    with pytest.raises(UsageError, match=r"new\.csv: column height has 1 missing value, the first in row 1"):
        columns.encode(pa.table({"height": [1.0, None]}), "new.csv")


@pytest.mark.parametrize(
    ("new", "says"),
    [
        ({"age": [1]}, "new.csv has no column born, member; its columns are age"),
        ({"age": ["old"], "born": [None], "member": [True]}, "column age holds 'old' in row 0; numbers are needed"),
        ({"age": [1], "born": [3], "member": [True]}, "column born holds '3' in row 0; dates are needed"),
        (
            {"age": [1], "born": [None], "member": ["yes"]},
            "column member holds 'yes' in row 0; truth values",
        ),
        ({"age": [1], "born": [None], "member": [2]}, "column member holds 2 in row 0; truth values are needed"),
        ({"age": [-np.inf], "born": [None], "member": [True]}, "column age holds -inf in row 0"),
    ],
)
def test_a_new_table_that_does_not_fit_is_told_where(new: dict[str, list[Any]], says: str) -> None:
    columns = Columns.of(pa.table({"age": [1, 2], "born": [datetime.date(1970, 1, 1)] * 2, "member": [True, False]}))
    with pytest.raises(UsageError) as caught:
        columns.encode(pa.table(new), "new.csv")
    assert says in str(caught.value)


@often
@given(
    kind=st.sampled_from(["number", "truth"]),
    value=st.one_of(st.booleans(), st.integers(-1, 2), st.sampled_from([0.0, 1.0]), st.floats(-9, 9)),
)
def test_a_value_and_its_text_are_one(kind: str, value: bool | float) -> None:
    """A file is read as text, the DataFrame that pandas makes of it has types: both say the same, or are refused."""
    column = Column("a", kind, fill=0.0)

    def encoded(value: bool | float | str) -> list[Any] | None:
        try:
            return column.encode(series_of(pa.table({"a": [value]}), "X")["a"], "X").tolist()
        except UsageError:
            return None

    assert encoded(value) == encoded(str(value)) == encoded(str(value).upper())


def test_tables_that_cannot_be_read() -> None:
    twice = pd.DataFrame([[1, 2]], columns=["a", "a"])
    assert "people.csv: two of its columns have one name; rename them" in refusal(twice)
    assert "two of its columns have one name" in refusal(pd.DataFrame([[1, 2]], columns=["1", 1]))
    assert "no columns are left" in refusal(pa.table({"a": [1]}), without=["a"])
    assert "give a DataFrame of pandas" in refusal(pa.record_batch({"a": [1]}))


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "narwhals", None)
    assert "pip install narwhals" in refusal(tables_example())


def described(text: str) -> Columns:
    return columns_of(np.frombuffer(text.encode(), np.uint8), 1)


GOOD_COLUMN = {"name": "a", "kind": "number", "categories": [], "fill": 1.0, "missing": 0}


@pytest.mark.parametrize(
    "changed",
    [
        {"name": 3},
        {"kind": "text"},
        {"kind": "category"},
        {"categories": ["x"]},
        {"kind": "category", "categories": ["x", "x"]},
        {"kind": "category", "categories": [1]},
        {"kind": "category", "categories": "xy"},
        {"kind": ["number"]},
        {"fill": "1"},
        {"fill": float("nan")},
        {"fill": True},
        {"missing": -1},
        {"missing": 1.0},
        {"missing": True},
        {"missing": 2, "fill": None},
        {"more": 1},
    ],
    ids=str,
)
def test_descriptions_that_others_wrote_are_checked(changed: dict[str, Any]) -> None:
    assert described(json.dumps([GOOD_COLUMN])).names == ["a"]
    with pytest.raises(ValueError, match="columns are"):
        described(json.dumps([{**GOOD_COLUMN, **changed}]))


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "3", "[3]", '["a"]', "[" * 10**5, json.dumps([GOOD_COLUMN] * 2)])
def test_what_describes_no_columns_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        described(text)
