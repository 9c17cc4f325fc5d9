"""Numbers, dates and slips that tables write as text: each is read, or refused with its column and the remedy."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sampled import examples

import macmpi
from macmpi import UsageError
from macmpi.config import Data
from macmpi.data.frames import Columns
from macmpi.data.texts import Unclear, kind_of_texts

pd = pytest.importorskip("pandas")
pytest.importorskip("narwhals")

often = examples(25)

DAYS = st.dates(datetime.date(1901, 1, 1), datetime.date(2100, 1, 1))


def counted(texts: list[str]) -> dict[str, int]:
    return {text: texts.count(text) for text in texts}


NOTATIONS: list[Any] = [
    *(
        "{0:.1f} kg",
        "{0:.1f}%",
        "${0:.2f}",
        "\u20b9{0:.2f}",
        "\u20ac {0:.2f}",
        "USD {0:.2f}",
        "kr. {0:.2f}",
        "~{0:.1f}",
    ),
    *("<{0:.1f}", "({0:.1f})", "\u2212{0:.1f}", "{0:.1f} mg/l", "{0:,.1f}"),
    lambda x: f"{1e3 * x:,.0f}".replace(",", " "),
    lambda x: f"{1e3 * x:,.0f}".replace(",", "\u202f"),
    lambda x: f"{1e3 * x:,.0f}".replace(",", "'"),
    lambda x: f"{1e3 * x:,.2f}".translate(str.maketrans(",.", ".,")),
    lambda x: f"{x:.1f} {'kg' if x > 5e3 else 'lb'}",
]


@pytest.mark.parametrize("notation", NOTATIONS, ids=lambda one: one if isinstance(one, str) else f"{one(1234.5)}")
@often
@given(st.lists(st.floats(1e3, 9e3), min_size=15, max_size=25, unique_by=lambda x: round(x)))
def test_numbers_in_a_notation_that_is_not_read_are_neither_categories_nor_names(
    notation: Any, numbers: list[float]
) -> None:
    texts = [notation.format(x) if isinstance(notation, str) else notation(x) for x in numbers]
    with pytest.raises(Unclear, match=r"write plain numbers|without commas"):
        kind_of_texts(counted(texts))
    assert Columns.of(pd.DataFrame({"a": texts * 2}), Data(categories=["a"])).each[0].kind == "category"


@pytest.mark.parametrize(
    "names", ["person {}", "t{}", "R2-{}", "10.0.{}.1", "{}-17", "a{}@b.c", "{}/50", "#{}", "[{},]", "No. {}"]
)
def test_names_that_hold_numbers_are_no_numbers(names: str) -> None:
    assert kind_of_texts(counted([names.format(i) for i in range(40)])) == ("category", "")


@often
@given(st.lists(DAYS, min_size=12, max_size=30, unique=True), st.sampled_from(["?", "unknown", "0000-00-00"]))
def test_a_slip_among_dates_is_refused_and_dates_are_no_categories(days: list[Any], slip: str) -> None:
    for form in ("%Y-%m-%d", "31/%m/%Y"):
        with pytest.raises(Unclear, match="date"):
            kind_of_texts(counted([day.strftime(form) for day in days] + [slip]))
    frame = pd.DataFrame({"d": [*map(str, days), slip]})
    assert Columns.of(frame, Data(empty=[slip])).each[0].kind == "date"


@often
@given(st.lists(st.integers(0, 10**4), min_size=12, max_size=30, unique=True), st.integers(1, 4), st.sampled_from(".,"))
def test_a_slip_is_one_in_every_row_that_has_it(tenths: list[int], times: int, point: str) -> None:
    """Of text that stands for a missing value there may be more than of numbers, whatever their form."""
    texts = [f"{i // 10}{point}{i % 10}" for i in tenths]
    with pytest.raises(Unclear, match=r"holds numbers, and '\?'"):
        kind_of_texts(counted(texts + ["?"] * len(texts) * times))


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["1,5", "20,25", "3,0"] * 9, ""),
        ([f"{i},5" for i in range(20)] + ["?"], "holds numbers, and"),
        ([f"{i} kg" for i in range(20)], "signs or units"),
        ([f"2020-01-{i:02}" for i in range(1, 20)] + ["?"], "holds dates, and"),
        ([f"{i}:30" for i in range(20)], "dates or times"),
    ],
)
def test_text_that_says_targets_is_read_as_text_that_says_inputs(texts: list[str], says: str) -> None:
    frame = pd.DataFrame({"x": np.linspace(0.0, 1.0, len(texts)), "y": texts})
    if says:
        with pytest.raises(UsageError, match=f"column y, a target, .*{says}"):
            macmpi.fit(frame, "y")
        return
    model = macmpi.fit(frame, "y", config={"run.max_iterations": 1})
    assert model.classes is None and not model.autoencoder
    assert_array_equal(
        model.predict(frame),
        macmpi.fit(
            frame.assign(y=[float(text.replace(",", ".")) for text in texts]), "y", config={"run.max_iterations": 1}
        ).predict(frame),
    )
