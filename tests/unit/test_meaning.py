"""What data mean is decided by their values: never by a type, by the other rows of a file, or by how they are kept."""

from __future__ import annotations

import csv
import datetime
import decimal
import enum
import io
import re
import warnings
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sampled import examples
from scipy.sparse import csr_array

import macmpi
from macmpi import MacmpiWarning, UsageError, config
from macmpi.config import Config, Data
from macmpi.data.dataset import Points, TargetRules, target_rules_of
from macmpi.data.frames import Columns, columns_of
from macmpi.data.gathered import with_loss
from macmpi.data.loading import Source, load
from macmpi.data.parts import drawn
from macmpi.data.reading import read_file
from macmpi.data.series import series_of, targets_of
from macmpi.data.tables import read_table
from macmpi.data.texts import Unclear, kind_of_texts
from macmpi.nets.losses import LOSSES

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

often = examples(60)

WHOLE = st.integers(-(10**6), 10**6)
DAYS = st.dates(datetime.date(1901, 1, 1), datetime.date(2100, 1, 1))


def data_of(path: Path, loss: str = "auto", **keys: Any) -> tuple[Config, Any]:
    """The config with a loss, and the data set, of a file."""
    found, _ = with_loss(Config(data=Data(str(path), **keys), model=config.Model(loss=loss)))  # type: ignore[arg-type]
    return found, load(found.data, target_rules_of(found))


# --- types ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_", ["int32", "int64", "float32", "float64", "Int64"])
@often
@given(rows=st.lists(st.tuples(WHOLE, st.integers(0, 5), WHOLE), min_size=8, max_size=20, unique=True))
def test_whole_numbers_mean_the_same_in_every_type(type_: str, rows: list[tuple[int, int, int]]) -> None:
    """Inputs and targets of any spans, as columns of a table and as arrays."""
    A = np.array(rows, np.float64)
    frame = pd.DataFrame(A, columns=["a", "b", "y"])
    own, other = (Columns.of(one, without=["y"]) for one in (frame, frame.astype(type_)))
    assert own == other
    assert_array_equal(own.encode(frame), other.encode(frame.astype(type_)))


@pytest.mark.parametrize("name", ["x.npz", "x.h5"])
@pytest.mark.parametrize("type_", [np.int64, np.float32])
def test_arrays_of_whole_numbers_are_scaled_alike_in_every_type(
    name: str, type_: type, tmp_path: Path, random: np.random.Generator
) -> None:
    X = np.c_[random.integers(20_000, 100_000, 60), random.integers(0, 6, 60), random.integers(0, 2, 60)]
    Y = np.c_[random.integers(0, 10**6, 60), random.integers(0, 5, 60)]
    found = []
    for kind in (np.float64, type_):
        arrays = {"X": X.astype(kind), "Y": Y.astype(kind)}
        if name.endswith(".npz"):
            np.savez(tmp_path / name, **arrays)
        else:
            with h5py.File(tmp_path / name, "w") as file:
                file.update(arrays)
        found.append(data_of(tmp_path / name)[1])
    assert found[0].sha256 == found[1].sha256
    assert_array_equal(found[0].scaling_x.scale, found[1].scaling_x.scale)
    assert found[0].scaling_y.scale[0] > 1e4 * found[0].scaling_y.scale[1], "each output in its own unit"


@pytest.mark.parametrize(
    ("values", "answer"),
    [
        ([0, 1], "asks"),
        ([-1, 1], "asks"),
        ([1, 2, 3, 4], "asks"),
        ([3, 4, 5, 6, 7, 8], "asks"),
        ([10, 200], "asks"),
        ([0, 10, 20, 50, 1000], "squared"),
        (range(320, 640, 8), "squared"),
        (range(60), "squared"),
    ],
    ids=str,
)
@pytest.mark.parametrize("type_", [np.int64, np.uint8, np.float64])
def test_whole_targets_are_amounts_or_asked_for_by_their_values(values: Any, answer: str, type_: type) -> None:
    Y = np.array([*values] * 3).astype(type_)
    if len(np.unique(Y)) < len(set(values)) or Y.min() != min(values):
        pytest.skip("this type does not hold these values")
    if answer == "asks":
        with pytest.raises(UsageError, match="say what they are"):
            with_loss(Config(), Points({"Y": Y}))
    else:
        found, (decision,) = with_loss(Config(), Points({"Y": Y}))
        assert found.model.loss == answer and decision.value == answer


def test_numbers_beyond_what_float64_tells_apart_are_said() -> None:
    big = pd.DataFrame({"t": np.array([2**60, 2**60 + 1, 7], np.int64), "x": [0.1, 0.2, 0.3]})
    assert "column t holds whole numbers beyond 2^53" in Columns.of(big).notes[0]
    unsigned = pd.DataFrame({"h": np.array([2**64 - 1, 2**63, 5], np.uint64)})
    assert_array_equal(Columns.of(unsigned).encode(unsigned)[:, 0], [2.0**64, 2.0**63, 5.0])
    assert Columns.of(big[["x"]]).notes == ()


@pytest.mark.parametrize("beyond", [2**53 + 1, 2**62 + 1, 2**63 + 1, 2**64 - 1, -(2**60) - 1])
def test_numbers_beyond_what_float64_tells_apart_are_said_however_they_are_kept(beyond: int, tmp_path: Path) -> None:
    held = [beyond, 7, 9]
    tables: list[Any] = [pd.DataFrame({"t": held}), pd.DataFrame({"t": held}, dtype=object)]
    tables += [pl.from_pandas(tables[0]), pa.Table.from_pandas(tables[0])]
    tables.append(pa.table({"t": pa.array(map(decimal.Decimal, held), pa.decimal128(30, 2))}))
    tables[0].to_csv(tmp_path / "t.csv", index=False)
    tables[0].to_parquet(tmp_path / "t.parquet")
    tables += [read_table(tmp_path / name) for name in ("t.csv", "t.parquet")]
    for table in tables:
        columns = Columns.of(table)
        assert "column t holds whole numbers beyond 2^53" in columns.notes[0]
        assert_array_equal(columns.encode(table)[:, 0], np.array([float(one) for one in held]))


@pytest.mark.parametrize("held", [[10**400, 1], [0.5, -(10**400)]], ids=["whole", "numbers"])
def test_whole_numbers_beyond_float64_are_refused(held: list[Any]) -> None:
    frame = pd.DataFrame({"t": held}, dtype=object)
    for what, words in (("inputs", "column t holds inf"), ("targets", "column t, a target, holds inf")):
        with pytest.raises(UsageError, match=words):
            Columns.of(frame) if what == "inputs" else targets_of(series_of(frame, "it"), "it")


def test_whole_numbers_that_no_type_of_64_bits_holds_are_no_floats(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("\n".join(["t", *(str(10**25 + i) for i in range(30))]) + "\n")
    with pytest.raises(UsageError, match="column t holds numbers as text"):
        Columns.of(read_table(tmp_path / "t.csv"))


# --- other rows, other keeping ----------------------------------------------------------------------------------------

CELLS = {
    "code": st.sampled_from(["01", "02", "0A", "7"]),
    "flag": st.sampled_from(["TRUE", "FALSE", "unknown"]),
    "truth": st.sampled_from(["True", "False"]),
    "size": st.floats(-1e6, 1e6).map(repr),
    "count": WHOLE.map(str),
    "day": DAYS.map(str),
    "german": st.integers(0, 10**6).map(lambda i: f"{i // 10},{i % 10}"),
    "british": DAYS.map(lambda day: day.strftime("%d/%m/%Y")),
}
"""Cells of columns by kind, as a file has them."""

FIXED = {
    "code": ["01", "0A"],
    "flag": ["TRUE", "unknown"],
    "truth": ["True", "False"],
    "size": ["1.5", "2.5"],
    "count": ["1", "2"],
    "day": ["2020-12-31", "2021-01-01"],
    "german": ["1,5", "20,25"],
    "british": ["31/12/2020", "01/02/2021"],
}
"""First rows of a training table, which make a column what it is."""


def csv_bytes(columns: dict[str, list[str]]) -> bytes:
    lines = [";".join(columns), *(";".join(row) for row in zip(*columns.values(), strict=True))]
    return ("\n".join(lines) + "\n").encode()


def read_again(content: bytes, typed: bool) -> Any:
    path = Path(read_again.folder) / "table.csv"  # type: ignore[attr-defined]
    path.write_bytes(content)
    return read_table(path, typed=typed)


def test_a_row_means_the_same_alone_and_however_it_is_kept(tmp_path: Path) -> None:
    """A new table's types are guessed by nobody: the model's columns say how its cells are read."""
    read_again.folder = tmp_path  # type: ignore[attr-defined]

    @settings(often, max_examples=60)
    @given(st.fixed_dictionaries({name: st.lists(cell, min_size=3, max_size=3) for name, cell in CELLS.items()}))
    def law(new: dict[str, list[str]]) -> None:
        trained = {name: FIXED[name] + cells for name, cells in new.items()}
        columns = Columns.of(read_again(csv_bytes(trained), typed=True))
        whole = columns.encode(read_again(csv_bytes(new), typed=False))
        assert whole.tobytes() == columns.encode(read_again(csv_bytes(trained), typed=True))[2:].tobytes()
        frame = pd.read_csv(io.BytesIO(csv_bytes(new)), sep=";")
        for other in (frame, frame.astype(str), pl.from_pandas(frame), pa.Table.from_pandas(frame)):
            assert columns.encode(other).tobytes() == whole.tobytes()
        for i in range(3):
            alone = csv_bytes({name: cells[i : i + 1] for name, cells in new.items()})
            assert columns.encode(read_again(alone, typed=False)).tobytes() == whole[i : i + 1].tobytes()
            frame = pd.read_csv(io.BytesIO(alone), sep=";")
            assert columns.encode(frame).tobytes() == whole[i : i + 1].tobytes()

    law()


@pytest.mark.parametrize("validation", ["read_csv", "text", "polars", "arrow"])
def test_a_validation_table_is_read_by_the_columns_of_the_training_table(validation: str) -> None:
    frame = pd.DataFrame(FIXED).loc[[0, 1] * 10].assign(y=np.linspace(0.0, 1.0, 20))
    frame["size"] = frame["size"].astype(float)
    few = frame[:9:2]  # which hold no 0A, nor unknown
    copy: Any = pd.read_csv(io.StringIO(few.to_csv(index=False)))
    copy = {"text": lambda t: t.astype({"code": str}), "polars": pl.from_pandas, "arrow": pa.Table.from_pandas}.get(
        validation, lambda t: t
    )(copy)
    short = {"run.max_iterations": 1, "run.refit": False}
    one, other = (macmpi.fit(frame, "y", validation=table, config=short) for table in (few, copy))
    assert one.history[0]["E1_val"] == other.history[0]["E1_val"]


def test_a_column_of_which_no_value_was_seen_is_named() -> None:
    columns = Columns.of(pd.DataFrame({"city": ["Oslo", "Rome"] * 5, "x": np.arange(10.0)}))
    with pytest.warns(MacmpiWarning, match="column city: none of its values was seen in training, as 'Bern'"):
        columns.encode(pd.DataFrame({"city": ["Bern", "Paris"], "x": [1.0, 2.0]}))
    columns.encode(pd.DataFrame({"city": ["Bern", "Rome"], "x": [1.0, 2.0]}))


@pytest.mark.parametrize(
    "cells",
    [["0", "1", "true"], ["0x10", "0x20"], ["1", "2.5", "1e3"], ["+1", "-2"], ["True", "False"]],
    ids=str,
)
def test_a_csv_file_is_the_table_that_pandas_makes_of_it(cells: list[str], tmp_path: Path) -> None:
    content = csv_bytes({"k": cells * 8, "x": [str(0.5 * i) for i in range(8 * len(cells))]})
    (tmp_path / "t.csv").write_bytes(content)
    own, frame = read_table(tmp_path / "t.csv"), pd.read_csv(io.BytesIO(content), sep=";")
    assert Columns.of(own) == Columns.of(frame)
    assert_array_equal(Columns.of(own).encode(own), Columns.of(frame).encode(frame))


@pytest.mark.parametrize(
    ("trained", "later", "same"),
    [
        (["3.5", "4.25"] * 6, "36,59", 36.59),
        (["3,5", "4,25"] * 6, "36.59", 36.59),
        (["2020-12-31", "2021-01-01"] * 6, "17/05/2020", 18399.0),
        (["2020-12-31", "2021-01-01"] * 6, "17.05.2020", 18399.0),
        (["31/12/2020", "01/01/2021"] * 6, "2020-05-17", 18399.0),
        (["12/31/2020", "01/01/2021"] * 6, "05/06/2020", 18388.0),
    ],
)
def test_what_can_be_read_in_one_way_is_read_in_every_form(trained: list[str], later: str, same: float) -> None:
    numbers = all(text.replace(".", "").isdigit() for text in trained)
    columns = Columns.of(pd.DataFrame({"a": np.array(trained, float) if numbers else trained}))
    assert columns.encode(pd.DataFrame({"a": [later]}))[0, 0] == same


@pytest.mark.parametrize(("trained", "later"), [(["2020-12-31"] * 6, "05/06/2020"), (["3.5"] * 6, "1,234")])
def test_what_can_be_read_in_two_ways_is_refused(trained: list[str], later: str) -> None:
    numbers = trained[0] == "3.5"
    columns = Columns.of(pd.DataFrame({"a": np.array(trained, float) if numbers else trained}))
    with pytest.raises(UsageError, match=f"holds '{later}' in row 0"):
        columns.encode(pd.DataFrame({"a": [later]}))


@pytest.mark.parametrize("none", ["NA", "", "nan", "null"])
def test_a_word_for_a_missing_value_is_one_in_every_kind_of_column(none: str) -> None:
    table = {"n": [1.5, None, 2.5], "t": [True, None, False], "c": ["a", None, "b"], "d": ["2020-01-01", None, None]}
    columns = Columns.of(pd.DataFrame(table))
    empty, words = (pd.DataFrame({name: [value] for name in table}, dtype=object) for value in (None, none))
    assert_array_equal(columns.encode(words), columns.encode(empty))


@pytest.mark.parametrize("type_", ["int64", "float64", "Int64", "boolean", "bool"])
def test_truth_values_are_scaled_alike_in_every_type(type_: str) -> None:
    frame = pd.DataFrame({"f": np.arange(40) % 8 == 3, "x": np.linspace(0.0, 1.0, 40)})
    expected, found = Columns.of(frame), Columns.of(frame.astype({"f": type_}))
    assert_array_equal(found.encode(frame), expected.encode(frame.astype({"f": type_})))
    given = [Points({"X": expected.encode(frame)}, found), Points({"X": frame.astype(float).to_numpy()})]
    table, array = (load(Data(), points=points) for points in given)
    assert_array_equal(table.X, array.X)
    assert array.scaling_x.scale[0] == 1.0 != array.scaling_x.scale[1]


def test_columns_of_0_and_1_keep_their_unit_until_a_piece_of_a_stream_has_another_number() -> None:
    X = np.c_[np.arange(40) % 8 == 3, np.linspace(0.0, 1.0, 40)].astype(float)
    table = pd.DataFrame(X, columns=["f", "x"])
    keys: dict[str, Any] = {"hidden": [3], "seed": 0}
    one, other = (macmpi.fit(batches=[(A, X[:, 1]) for A in pieces], **keys) for pieces in ([X, X], [table, table]))
    sparse = macmpi.fit(csr_array(np.tile(X, 30)), X[:, 1], config={"run.max_iterations": 0}, **keys)
    assert_array_equal(one.scaling_x.scale, other.scaling_x.scale)
    assert one.scaling_x.scale[0] == sparse.scaling_x.scale[0] == 1.0
    assert macmpi.fit(2.0 * X, X[:, 1], start=one, seed=0).scaling_x.scale[0] != 1.0


# --- slips ------------------------------------------------------------------------------------------------------------


def counted(texts: list[str]) -> dict[str, int]:
    return {text: texts.count(text) for text in texts}


@often
@given(st.lists(st.floats(-1e6, 1e6).map(lambda x: f"{x:.2f}"), min_size=12, max_size=40, unique=True), st.data())
def test_a_slip_among_numbers_is_refused_and_numbers_are_no_categories(numbers: list[str], data: Any) -> None:
    slip = data.draw(st.sampled_from(["?", "-", "n.a.", "12 kg", "unknown", "1.2.3"]))
    with pytest.raises(Unclear, match="holds numbers, and"):
        kind_of_texts(counted([*numbers, slip]))
    frame = pd.DataFrame({"a": [*numbers, slip]})
    assert Columns.of(frame, Data(empty=[slip])).each[0].kind == "number"
    assert Columns.of(frame, Data(categories=["a"])).each[0].kind == "category"
    comma = [number.replace(".", ",") for number in numbers]
    columns = Columns.of(pd.DataFrame({"a": comma}))
    assert_array_equal(columns.encode(pd.DataFrame({"a": comma}))[:, 0], np.array(numbers, float))
    assert columns.notes == ("column a is read as numbers, decimal comma",)


@often
@given(st.lists(st.integers(0, 999), min_size=12, max_size=40, unique=True))
def test_numbers_that_begin_with_0_are_codes_and_a_letter_among_them_is_no_slip(numbers: list[int]) -> None:
    assert kind_of_texts(counted(["007", "136A", *(f"{number:03}" for number in numbers)])) == ("category", "")
    with pytest.raises(Unclear, match="holds numbers, and"):
        kind_of_texts(counted(["7", "136A", *(f"{number}" for number in numbers)]))


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["1,234", "12,345"] * 8, "may be decimal commas or thousands"),
        (["1,234.5", "12,345.25"] * 8, "numbers with thousands"),
        ([f"{i} %" for i in range(20)], "numbers with signs"),
        ([f"{i}.5 km/h" for i in range(20)], "numbers with signs or units"),
        ([f"{i}kg" for i in range(20)], "numbers with signs or units"),
        ([f"${i}" for i in range(20)], "numbers with signs"),
        (["03/04/2020", "05/06/2021"], "day and month cannot be told apart"),
        (["13/04/2020", "05/16/2021"], "several orders"),
    ],
)
def test_text_that_can_be_read_in_several_ways_is_refused(texts: list[str], says: str) -> None:
    with pytest.raises(Unclear, match=says):
        kind_of_texts(counted(texts))


@often
@given(st.lists(DAYS, min_size=1, max_size=9), st.sampled_from("/-."))
def test_dates_in_every_order_are_the_same_days(days: list[Any], sign: str) -> None:
    days = [*days, datetime.date(2020, 12, 31)]
    iso = Columns.of(pd.DataFrame({"d": [str(day) for day in days], "x": np.arange(len(days))}))
    for order in ("%d{0}%m{0}%Y", "%m{0}%d{0}%Y"):
        frame = pd.DataFrame({"d": [day.strftime(order.format(sign)) for day in days], "x": np.arange(len(days))})
        expected = iso.encode(pd.DataFrame({"d": [str(day) for day in days], "x": np.arange(len(days))}))
        assert_array_equal(Columns.of(frame).encode(frame), expected)


FORMS = ["%d.%m.%y", "%m/%d/%y", "%d-%b-%Y", "%d %B %Y", "%b %d, %Y", "%Y-%m", "%m/%d/%Y 10:30 AM", "%Y/%m/%d %I:%M %p"]


@pytest.mark.parametrize("form", [*FORMS, "10:%M", "%I:%M:%S PM"])
@often
@given(st.lists(DAYS.filter(lambda day: 1950 < day.year < 2100), min_size=2, max_size=9, unique=True))
def test_dates_and_times_in_forms_that_are_not_read_are_no_categories(form: str, days: list[Any]) -> None:
    with pytest.raises(Unclear, match=r"write 2024-12-31|name the column in data\.categories"):
        kind_of_texts(counted([day.strftime(form) for day in days]))
    frame = pd.DataFrame({"d": [day.strftime(form) for day in days]})
    assert Columns.of(frame, Data(categories=["d"])).each[0].kind == "category"


@pytest.mark.parametrize("texts", [["1.2.3", "10.20.30"], ["2000-2005"], ["20-25", "25-30"], ["5 years"]])
def test_codes_and_ranges_are_no_dates(texts: list[str]) -> None:
    assert kind_of_texts(counted(texts)) == ("category", "")


@often
@given(st.lists(st.sampled_from(["", "NA", "None", "null", "u", "v"]), min_size=6, max_size=20))
def test_a_category_is_read_from_a_csv_file_whatever_word_it_is(values: list[str]) -> None:
    """The columns of the model say which words stand for a missing value, not the reader of files."""
    frame = pd.DataFrame({"s": values, "x": np.arange(len(values), dtype=float)})
    with TemporaryDirectory() as folder:
        frame.to_csv(Path(folder) / "t.csv", index=False)
        columns = Columns.of(frame, Data(categories=["s"]))
        assert_array_equal(columns.encode(read_table(Path(folder) / "t.csv", typed=False)), columns.encode(frame))


@often
@given(st.lists(st.text("ab\n ,;'", min_size=1, max_size=4).filter(str.strip), min_size=2, max_size=4, unique=True))
def test_a_name_may_hold_whatever_quotes_hold(names: list[str]) -> None:
    frame = pd.DataFrame(np.arange(2.0 * len(names)).reshape(2, -1), columns=names)
    with TemporaryDirectory() as folder:
        (Path(folder) / "t.csv").write_text(frame.to_csv(index=False, quoting=csv.QUOTE_ALL), newline="")
        assert_array_equal(
            Columns.of(frame).encode(read_table(Path(folder) / "t.csv")), Columns.of(frame).encode(frame)
        )


# --- labels -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("none", [None, float("nan"), np.nan, pd.NA, pd.NaT], ids=str)
@pytest.mark.parametrize("kind", [list, lambda y: np.array(y, object), pd.Series], ids=["list", "array", "series"])
def test_a_label_that_is_missing_is_no_class(none: Any, kind: Any, random: np.random.Generator) -> None:
    with pytest.raises(UsageError, match="missing"):
        macmpi.fit(random.normal(size=(30, 2)), kind(["a", none, "b"] * 10))
    sklearn = pytest.importorskip("macmpi.sklearn")
    with pytest.raises(ValueError, match="missing"):
        sklearn.MACClassifier().fit(random.normal(size=(30, 2)), kind(["a", none, "b"] * 10))


@pytest.mark.parametrize("type_", [np.float64, np.float32, np.int16, np.uint8, np.int64])
def test_predicted_labels_have_the_type_of_those_given(type_: type, random: np.random.Generator) -> None:
    X, y = random.normal(size=(60, 2)), np.array([0, 1, 2] * 20, type_)
    model = macmpi.fit(X, y, loss="cross_entropy", config={"run.max_iterations": 1})
    assert model.predict(X).dtype == type_


@pytest.mark.parametrize("labels", [[0, 1, 2], [1.5, 2.5, 3.5], [True, False, True], ["a", "b", "c"]], ids=str)
def test_declared_classes_keep_their_type(labels: list[Any], random: np.random.Generator) -> None:
    frame = pd.DataFrame(random.normal(size=(60, 2)), columns=["a", "b"])
    short = {"run.max_iterations": 1}
    by_type = macmpi.fit(frame.assign(y=pd.Categorical(labels * 20)), "y", config=short)
    given, keys = frame.assign(y=labels * 20), {**short, "data.categories": ["y"]}
    held = (None, given, (given, np.array(labels * 20)))
    by_key, by_table, by_arrays = (macmpi.fit(given, "y", validation=v, config=keys) for v in held)
    for model in (by_type, by_key, by_table, by_arrays):
        assert model.classes is not None
        assert model.classes.tolist() == sorted(set(labels))
        assert type(model.predict(frame)[0].item()) is type(labels[0])


class Verdict(str, enum.Enum):  # noqa: UP042 - its str() is its name
    GUILTY, FREE = "guilty of something", "free"


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ([b"b", b"a"], ["a", "b"]),
        ([Verdict.GUILTY, Verdict.FREE], ["free", "guilty of something"]),
        ([np.str_("b"), "a"], ["a", "b"]),
        ([True, 2], [1, 2]),
        (np.array([3, 5], object), [3, 5]),
        ([True, 0.5 * 4], [1.0, 2.0]),
        (pd.Categorical(["lo", "hi"], categories=["lo", "mid", "hi"], ordered=True), ["hi", "lo"]),
        (np.array([0, 1], np.longdouble), [0.0, 1.0]),
    ],
    ids=str,
)
def test_labels_mean_the_same_by_every_way_in(labels: Any, classes: list[Any], random: np.random.Generator) -> None:
    """Arrays, a column of a table, an estimator; and what is predicted are the labels."""
    sklearn = pytest.importorskip("macmpi.sklearn")
    X, y = random.normal(size=(40, 2)), pd.Series(labels).loc[[0, 1] * 20].array
    y = (
        labels[[0, 1] * 20]
        if isinstance(labels, np.ndarray)
        else y
        if isinstance(labels, pd.Categorical)
        else [*labels] * 20
    )
    short = {"run.max_iterations": 1}
    found = [macmpi.fit(X, y, loss="cross_entropy", config=short), sklearn.MACClassifier([3], max_iter=1).fit(X, y)]
    if not isinstance(labels[0], bytes):
        frame = pd.DataFrame(X, columns=["a", "b"]).assign(y=y)
        found.append(macmpi.fit(frame, "y", loss="cross_entropy", config=short))
    for model in found:
        own: Any = model.classes if isinstance(model, macmpi.Model) else model.classes_
        assert own.tolist() == classes
        assert own.dtype.kind == np.array(classes).dtype.kind
        assert set(model.predict(X).tolist()) <= set(classes)


def test_classes_without_weight_are_no_second_class(random: np.random.Generator) -> None:
    X, y = random.normal(size=(60, 2)), np.array(["a", "b"] * 30)
    with pytest.raises(UsageError, match="Y holds 1 class in rows of a weight above 0"):
        macmpi.fit(X, y, weights=(y == "a").astype(float))


@pytest.mark.parametrize("Y", [["y", "y"], ("y", "y")], ids=str)
def test_a_target_that_is_named_twice_is_refused(Y: Any, random: np.random.Generator) -> None:
    frame = pd.DataFrame(random.normal(size=(20, 3)), columns=["a", "b", "y"])
    with pytest.raises(UsageError, match="names 'y' twice"):
        macmpi.fit(frame, Y)
    assert macmpi.fit(frame, ("a", "y"), config={"run.max_iterations": 1}).chain.n_out == 2
    assert macmpi.fit(frame, [], config={"run.max_iterations": 1}).autoencoder


@often
@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(0, 9), st.floats(0.05, 0.6), st.integers(0, 30))
def test_the_draw_leaves_every_class_a_training_point(
    counts: list[int], seed: int, validation: float, points: int
) -> None:
    labels = np.repeat(np.arange(len(counts)), counts)
    n, keys = len(labels), Data("x", validation=validation, seed=seed)
    train, held = (rows[:] for rows in drawn(n, keys, labels))
    assert sorted([*train, *held]) == list(range(n)), "each row once"
    if n - len(counts) >= len(held):
        assert set(labels[train]) == set(labels)
        share = len(held) / max(n - len(counts), 1)
        for label, count in enumerate(counts):
            assert abs((labels[held] == label).sum() - share * (count - 1)) < 2.0, (
                "in proportion, to within a row or so"
            )
    few = replace(keys, points=points)
    if len(counts) <= points <= len(train) and n - len(counts) >= len(held):
        assert set(labels[drawn(n, few, labels)[0][:]]) == set(labels)


@pytest.mark.parametrize("Y", [np.r_[np.zeros(38), 1.5, 2.5], np.c_[np.r_[np.full(39, np.nan), 1.0], np.arange(40.0)]])
def test_a_draw_that_leaves_nothing_to_learn_is_named(Y: Any, random: np.random.Generator) -> None:
    """The seeds are some of those that leave both of the last two rows out of training."""
    for seed in (2, 19):
        with pytest.raises(UsageError, match="where these are drawn, another seed draws others") as refused:
            macmpi.fit(random.normal(size=(40, 2)), Y, seed=seed, hidden=[2], config={"loss.missing": True})
        assert re.match("the arguments of fit: |Y: ", str(refused.value))


# --- what files say ---------------------------------------------------------------------------------------------------


def test_declared_fills_scales_and_offsets_of_hdf5_are_heeded(tmp_path: Path) -> None:
    raw = np.arange(40, dtype=np.int16).reshape(20, 2)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["X"] = raw
        file["X"].attrs.update(scale_factor=0.5, add_offset=3.0)
        file.create_dataset("Y", data=np.where(raw[:, 0] == 6, -999, raw[:, 0]), fillvalue=-999)
    with pytest.raises(UsageError, match=r"dataset Y is nan at \[3, 0\]"):
        data_of(tmp_path / "x.h5", scale="none")
    found = load(
        Data(str(tmp_path / "x.h5"), scale="none"), rules=TargetRules(replace(LOSSES["squared"], missing=True))
    )
    X = np.concatenate([found.X, found.X_val])
    assert sorted(X[:, 0]) == sorted(0.5 * raw[:, 0] + 3.0)


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ({"missing_value": np.array([-9999.0, -8888.0])}, r"dataset Y is nan at \[3, 0\]"),
        ({"_FillValue": np.float64(-9999.0)}, r"dataset Y is nan at \[3, 0\]"),
        ({"_FillValue": "-9999"}, r"dataset Y is nan at \[3, 0\]"),
        ({"missing_value": "none"}, "its attribute missing_value is 'none'; a number is needed"),
        ({"scale_factor": 0.0}, r"its attribute scale_factor is \[0.0\]; one number is needed"),
    ],
    ids=str,
)
def test_what_a_file_declares_is_heeded_or_refused(attributes: dict[str, Any], says: str, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["X"] = np.arange(40.0).reshape(20, 2)
        Y = np.arange(20, dtype=np.float32)
        Y[3] = -9999.0
        file["Y"] = Y
        file["Y"].attrs.update(attributes)
    with pytest.raises(UsageError, match=says):
        data_of(tmp_path / "x.h5", "squared")


@pytest.mark.parametrize(
    ("type_", "fill", "is_missing"),
    [
        (np.int16, 5.0, True),
        *((np.int16, fill, False) for fill in (1e20, np.nan, 5.5)),  # which that type does not hold
        (np.int64, np.int64(-(2**63) + 2), True),  # netCDF's own, which float64 does not hold
        (np.float32, -999.9, True),
    ],
)
def test_a_fill_value_is_one_in_the_type_of_the_numbers(
    type_: Any, fill: Any, is_missing: bool, tmp_path: Path
) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["X"] = np.array([[0], [5], [fill if is_missing else 7]], type_)
        file["X"].attrs["_FillValue"] = fill
    with warnings.catch_warnings(action="error"):
        found = read_file(tmp_path / "x.h5", ("X",))["X"]
    assert np.isnan(found).any() == is_missing and found[0] == 0


def test_arrays_that_are_not_read_are_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", X=np.arange(20.0).reshape(10, 2), labels=np.zeros(10), more=np.zeros(3))
    said = "not read: labels, more of x.npz; points are X, Y, X_val, Y_val, weights, weights_val"
    source = Source(Config(data=Data(str(tmp_path / "x.npz"))))
    source.sizes()
    assert source.notes(0.0) == []
    with pytest.warns(MacmpiWarning, match=said):
        source.warn()
    with pytest.warns(MacmpiWarning, match=said):
        macmpi.fit(config={"data.source": str(tmp_path / "x.npz"), "run.max_iterations": 1})


@pytest.mark.parametrize("name", ["y", "x_val", "WEIGHTS"])
def test_a_name_in_another_case_is_asked_for(name: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", X=np.arange(20.0).reshape(10, 2), **{name: np.zeros(10)})
    with pytest.raises(UsageError, match=rf"holds {name}, and a dataset of that kind is called"):
        data_of(tmp_path / "x.npz")


@pytest.mark.parametrize("index", [range(30), np.random.default_rng(0).permutation(30)], ids=["sorted", "shuffled"])
def test_an_index_that_was_saved_is_left_out(index: Any) -> None:
    frame = pd.DataFrame({"x": np.linspace(0.0, 1.0, 30)}, index=index)
    for name in (None, "Unnamed: 0"):
        frame.index.name = name
        columns = Columns.of(pd.read_csv(io.StringIO(frame.to_csv())))
        assert columns.names == ["x"]
        assert "only numbers the rows" in columns.notes[0]
    frame.index.name = "time"
    assert Columns.of(pd.read_csv(io.StringIO(frame.to_csv()))).names == ["time", "x"]


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_table_that_was_saved_several_times_has_no_index_left(times: int, random: np.random.Generator) -> None:
    frame = pd.DataFrame({"x": random.normal(size=30), "y": np.arange(30)})
    for _ in range(times):
        frame = pd.read_csv(io.StringIO(frame.to_csv()))
    assert Columns.of(frame).names == ["x", "y"]
    assert Columns.of(frame[[*frame.columns[::-1]]]).names == ["y", "x"]


def test_a_folder_does_not_shadow_a_named_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    assert load(Data("digits")).shape == (8, 8)
    with pytest.raises(UsageError, match="holds no images"):
        load(Data("./digits"))


# --- text of many values ----------------------------------------------------------------------------------------------


def test_text_of_many_values_has_columns_for_the_frequent_and_shares_them_for_the_rest(
    random: np.random.Generator,
) -> None:
    texts = [f"t{i}" for i in range(288)]
    frame = pd.DataFrame({"t": [*texts, *random.choice(texts[:60], 2000)], "x": 1.0})
    columns = Columns.of(frame)
    column = columns.each[0]
    assert column.hashed == 16
    assert set(column.categories) == set(texts[:60])  # all that are in ten rows, more than the 50 most frequent
    assert "288 different texts" in columns.notes[0]
    found = columns.encode(frame)
    assert_array_equal(found[:, :76].sum(axis=1), 1.0)
    assert columns_of(columns.as_array(), len(columns.names)) == columns
    assert columns.encode(frame[::-1]).tobytes() == found[::-1].tobytes()


@pytest.mark.parametrize(("texts", "rows", "own"), [(130, 26, 130), (130, 10, 130), (130, 9, 50), (400, 12, 300)])
def test_text_in_enough_rows_has_a_column_of_its_own(texts: int, rows: int, own: int) -> None:
    """A table of panels, a country in as many rows as there are years, learns of each country."""
    frame = pd.DataFrame({"t": [f"t{i}" for i in range(texts)] * rows, "x": 1.0})
    column = Columns.of(frame).each[0]
    assert len(column.categories) == own
    assert column.hashed == (16 if own < texts else 0)


def test_text_that_names_the_rows_is_left_out() -> None:
    columns = Columns.of(pd.DataFrame({"name": [f"person {i}" for i in range(50)], "x": np.arange(50.0)}))
    assert columns.names == ["x"]
    assert columns.notes == ("column name names the rows (50 different texts), and is left out",)


@pytest.mark.parametrize("values", [[None] * 9, [float("nan")] * 9, [pd.NA] * 9, [pd.NaT] * 9, [""] * 9], ids=str)
def test_a_column_without_values_is_left_out(values: list[Any]) -> None:
    columns = Columns.of(pd.DataFrame({"none": values, "x": np.arange(9.0)}), Data(empty=[""]))
    assert columns.names == ["x"]
    assert columns.notes == ("column none has no values, and is left out",)


def test_sequences_are_scaled_feature_by_feature(tmp_path: Path, random: np.random.Generator) -> None:
    X = np.stack([random.normal(size=(40, 5)), 1e5 * random.normal(size=(40, 5))], axis=2)
    np.savez(tmp_path / "x.npz", X=X, Y=X[:, -1].sum(axis=1))
    found = load(Data(str(tmp_path / "x.npz")), rules=TargetRules(sequences=5))
    scale = found.scaling_x.scale.reshape(5, 2)
    assert_array_equal(scale, np.tile(scale[0], (5, 1)))
    assert scale[0, 1] > 1e4 * scale[0, 0]
    assert found.shape is None
    keys = {
        "model": config.Model([config.Recurrent(4, 5)], "tanh", loss="squared"),
        "data": Data(str(tmp_path / "x.npz")),
    }
    source = Source(Config(**keys))  # type: ignore[arg-type]
    source.sizes()
    assert source.notes(0.0) == ["inputs are 5 steps of 2 features, each scaled alike in all steps"]
    for shape in ((40, 5, 2, 1), (40, 5, 1, 2)):
        assert_array_equal(load(Data(), TargetRules(sequences=5), Points({"X": X.reshape(shape)})).X, found.X)
    assert load(Data(str(tmp_path / "x.npz"))).shape == (5, 2)


@pytest.mark.parametrize("steps", [2, 3, 10])
def test_sequences_of_other_steps_than_the_first_layer_reads_are_refused(
    steps: int, random: np.random.Generator
) -> None:
    X, y = random.normal(size=(30, 5, 2)), random.normal(size=30)
    net = {"hidden": [{"recurrent": 3, "steps": steps}], "config": {"run.max_iterations": 1}}
    with pytest.raises(UsageError, match=f"X holds 5 steps a point, and the first layer has steps = {steps}"):
        macmpi.fit(X, y, **net)  # type: ignore[arg-type]


@often
@given(days=st.lists(DAYS, min_size=1, max_size=8, unique=True), rows=st.randoms(use_true_random=False))
def test_days_that_are_categories_are_the_same_ones_in_every_type(days: list[datetime.date], rows: Any) -> None:
    """As dates, as moments, as text of a CSV file, as NumPy's: inputs have one code, and classes one name."""
    drawn_days = [*days, *(rows.choice(days) for _ in range(5))]
    moments = [datetime.datetime.combine(day, datetime.time()) for day in drawn_days]
    held = [
        pl.DataFrame({"d": drawn_days}),
        pl.DataFrame({"d": moments}),
        pl.DataFrame({"d": [day.isoformat() for day in drawn_days]}),
        pd.DataFrame({"d": np.array(drawn_days, dtype="datetime64[s]")}),
        pd.DataFrame({"d": pd.Series(moments, dtype=object)}),
    ]
    columns = Columns.of(held[0], Data(categories=["d"]))
    for frame in held:
        assert_array_equal(columns.encode(frame, "x"), columns.encode(held[0], "x"))
        assert Columns.of(frame, Data(categories=["d"])).each[0].categories == columns.each[0].categories


@pytest.mark.parametrize("of", [lambda day: day, pd.Timestamp, np.datetime64, datetime.date.isoformat])
def test_days_can_be_classes(of: Any, tmp_path: Path) -> None:
    """A model keeps their names, also in its file."""
    days = [datetime.date(2024, month, 1) for month in (1, 2, 3)] * 20
    frame = pd.DataFrame({"x": np.arange(60.0), "d": [of(day) for day in days]})
    model = macmpi.fit(frame, "d", config={"data.categories": ["d"], "run.max_iterations": 1})
    macmpi.save(model, tmp_path / "m.h5")
    assert macmpi.load(tmp_path / "m.h5").classes.tolist() == ["2024-01-01", "2024-02-01", "2024-03-01"]


SPELT: dict[str, list[Any]] = {
    "truth": [(str, lambda one: f"{one}".upper(), lambda one: f"{one}".lower()), (True, False)],
    "number": [(repr, lambda x: f"{x:.2f}", lambda x: f"+{x:e}", lambda x: f" {x:g}"), (0.25, 1.0, 7.0, 1000.0)],
    "digits": [(str, lambda i: f"00{i}", lambda i: f"{i}.0"), (0, 1, 7, 10**6)],
    "day": [
        (str, lambda day: day.strftime("%d.%m.%Y"), lambda day: f"{day:%Y/%m/%d}", lambda day: f"{day} 00:00:00"),
        (datetime.date(2020, 12, 31), datetime.date(1999, 5, 6)),
    ],
    "text": [(str,), ("Oslo", "Rome", "136A")],
}
"""Kinds of values: how each may be spelt, and some of them."""


@pytest.mark.parametrize("kinds", [*SPELT, "all"])
@pytest.mark.timeout(300)  # some seconds on a free core
def test_one_value_is_one_category_however_it_is_spelt_and_by_every_way_in(kinds: str, tmp_path: Path) -> None:
    """A CSV file that macmpi, pandas, polars or pyarrow reads, its text, a Parquet file, and each row alone."""
    from pyarrow import csv as arrow_csv

    path = tmp_path / "t.csv"
    of = SPELT if kinds == "all" else {kinds: SPELT[kinds]}
    cell = st.sampled_from(sorted(of)).flatmap(
        lambda kind: st.tuples(*(st.sampled_from(own) for own in of[kind][::-1]))
    )
    declared = Data(categories=["c"])

    @settings(often, max_examples=20)
    @given(st.lists(cell, min_size=2, max_size=12))
    def law(cells: list[Any]) -> None:
        path.write_text("\n".join(["c", *(spell(value) for value, spell in cells)]) + "\n")
        text = pd.read_csv(path, dtype=str)
        text.to_parquet(tmp_path / "t.parquet")
        tables = [read_table(path), pd.read_csv(path), pl.read_csv(path, infer_schema_length=None), text]
        tables += [arrow_csv.read_csv(path), pl.from_pandas(text), read_table(tmp_path / "t.parquet")]
        columns = Columns.of(tables[0], declared)
        assert len(columns.names) == len({(isinstance(value, bool), value) for value, _ in cells})
        whole = columns.encode(tables[0])
        for table in tables[1:]:
            assert Columns.of(table, declared) == columns
            assert_array_equal(columns.encode(table), whole)
        for row in range(len(cells)):
            assert_array_equal(columns.encode(text[row : row + 1]), whole[row : row + 1])

    law()


@pytest.mark.parametrize(
    "words", [["True", "false"], ["TRUE", "False"], [True, False], ["true", True, "FALSE"]], ids=str
)
def test_declared_classes_that_say_truth_are_truth_values_by_every_way_in(words: list[Any], tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": np.arange(12.0 * len(words)), "y": words * 12})
    frame.to_csv(tmp_path / "t.csv", index=False)
    keys = {"data.categories": ["y"], "run.max_iterations": 1}
    for table in (frame, read_table(tmp_path / "t.csv"), pl.read_csv(tmp_path / "t.csv")):
        assert macmpi.fit(table, "y", config=keys).classes.tolist() == [False, True]  # type: ignore[union-attr]
