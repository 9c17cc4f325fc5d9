"""CSV and Parquet files as data sets: the same numbers as from arrays, targets of every kind, and what is refused."""

from __future__ import annotations

import csv
import gzip
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launch.here import run_here
from numpy.testing import assert_array_equal

import macmpi
from macmpi import UsageError, config
from macmpi.config import Config, Data
from macmpi.data.dataset import target_rules_of
from macmpi.data.frames import Columns
from macmpi.data.gathered import with_loss
from macmpi.data.loading import Source, load
from macmpi.data.scaling import FARTHEST
from macmpi.data.tables import MISSING, read_table, table_bytes, targets_within

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
parquet = pytest.importorskip("pyarrow.parquet")

N = 60


def people() -> Any:
    """A number with gaps, a heavy tail, a category with gaps, a truth value, a name; amounts, grades and classes."""
    random = np.random.default_rng(3)
    age = random.integers(18, 80, N).astype(float)
    city = random.choice(["Paris", "Rome", "Übersee, west"], N).astype(object)
    frame = pd.DataFrame(
        {
            "id": [f"person {i}" for i in range(N)],
            "age": np.where(random.random(N) < 0.2, np.nan, age),
            "income": np.exp(random.normal(8.0, 3.0, N)),
            "city": np.where(random.random(N) < 0.2, None, city),
            "member": random.random(N) < 0.5,
        }
    )
    frame["amount"] = 0.1 * age + (city == "Rome") + random.normal(0.0, 0.1, N)
    frame["grade"] = random.integers(1, 4, N)
    frame["verdict"] = np.where(frame["amount"] > 5.0, "high", "low")
    frame["passed"] = frame["amount"] > 5.0
    return frame


ANSWERS = ["amount", "grade", "verdict", "passed"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With people.csv and people.parquet."""
    people().to_csv(tmp_path / "people.csv", index=False)
    parquet.write_table(read_table(tmp_path / "people.csv"), tmp_path / "people.parquet")
    return tmp_path


def keys(path: Path, target: Any, **others: Any) -> Data:
    names = [target] if isinstance(target, str) else target
    return Data(
        source=str(path), target=target, ignore=["id", *(name for name in ANSWERS if name not in names)], **others
    )


def decided(data: Data, loss: str = "auto") -> Config:
    found, _ = with_loss(replace(Config(data=data), model=config.Model(loss=loss)))  # type: ignore[arg-type]
    return found


def refusal(data: Data, loss: str = "auto") -> str:
    with pytest.raises(UsageError) as caught:
        Source(decided(data, loss)).sizes()
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- the same data, however they are kept -----------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["amount", "verdict", ["amount", "grade"], []], ids=str)
def test_csv_parquet_and_arrays_of_the_encoded_columns_are_one_data_set(folder: Path, target: Any) -> None:
    """Scaled points, digest and all: what reads a table adds nothing but the encoding."""
    of_csv, of_parquet = (keys(folder / f"people.{kind}", target, scale="standard") for kind in ("csv", "parquet"))
    wanted = target_rules_of(decided(of_csv))
    first, second = load(of_csv, wanted), load(of_parquet, wanted)
    frame = pd.read_csv(folder / "people.csv")
    names = [target] if isinstance(target, str) else target
    columns = Columns.of(frame, without=["id", *ANSWERS])
    assert first.columns == second.columns == columns
    arrays = {"X": columns.encode(frame)}
    if names:
        arrays["Y"] = frame[names].to_numpy()[:, 0] if len(names) == 1 else frame[names].to_numpy(float)
    np.savez(folder / "arrays.npz", **{k: a.astype(str) if a.dtype == object else a for k, a in arrays.items()})
    third = load(Data(source=str(folder / "arrays.npz"), scale="standard"), wanted)
    assert first.sha256 == second.sha256 == third.sha256
    for name in ("X", "Y", "X_val", "Y_val"):
        assert_array_equal(getattr(first, name), getattr(third, name))
    assert third.columns is None


def test_a_run_on_a_table_is_the_run_on_its_arrays(folder: Path) -> None:
    """Bit for bit; and its model takes the table."""
    data = keys(folder / "people.csv", "amount", scale="standard")
    (folder / "table.toml").write_text(config.dump(Config(data=data)))
    run_here("table.toml", "--output", "table", "--iterations", 3, cwd=folder, code=0)
    frame = pd.read_csv(folder / "people.csv")
    columns = Columns.of(frame, without=["id", *ANSWERS])
    X = columns.encode(frame)
    np.savez(folder / "arrays.npz", X=X, Y=frame["amount"].to_numpy())
    (folder / "arrays.toml").write_text('[data]\nsource = "arrays.npz"\nscale = "standard"\n')
    run_here("arrays.toml", "--output", "arrays", "--iterations", 3, cwd=folder, code=0)
    ours, theirs = (macmpi.load(str(folder / name / "model.h5")) for name in ("table", "arrays"))
    for a, b in zip(ours.weights, theirs.weights, strict=True):
        assert a.tobytes() == b.tobytes()
    assert ours.columns == columns
    shuffled = frame[frame.columns[::-1]].drop(columns=ANSWERS)
    assert_array_equal(ours.predict(shuffled), theirs.predict(X))
    assert_array_equal(ours.encode(shuffled), theirs.encode(X))
    assert_array_equal(ours.predict(X), theirs.predict(X))
    plain = pd.DataFrame(X)
    assert_array_equal(theirs.predict(plain), theirs.predict(X))
    with pytest.raises(UsageError, match="X: column city holds"):
        theirs.predict(frame[["city"]])


# --- targets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "loss", "shape"),
    [
        ("amount", "squared", (1, True)),
        ("verdict", "cross_entropy", (2, False)),
        ("passed", "cross_entropy", (2, False)),
        (["amount", "grade"], "squared", (2, False)),
        ([], "squared", (8, False)),
        ("", "squared", (13, False)),
    ],
    ids=str,
)
def test_the_type_of_the_target_says_what_is_learnt(
    folder: Path, target: Any, loss: str, shape: tuple[int, bool]
) -> None:
    data = (
        Data(source=str(folder / "people.csv"), ignore=["id"]) if target == "" else keys(folder / "people.csv", target)
    )
    asked = decided(data)
    found = Source(asked).outline()
    assert asked.model.loss == loss
    assert (found.Y.shape[1], found.one_dimensional) == shape
    assert found.autoencoder is (not target)
    if target == "verdict":
        assert found.classes is not None and found.classes.tolist() == ["high", "low"]
    if target == "passed":
        assert found.classes is not None and found.classes.tolist() == [False, True]


def test_a_few_whole_numbers_are_asked_about(folder: Path) -> None:
    data = keys(folder / "people.csv", "grade")
    text = refusal(data)
    assert "people.csv (target grade): Y holds whole numbers, 3 different ones from 1 to 3" in text
    assert Source(decided(data, "squared")).sizes().n_out == 1
    assert Source(decided(data, "cross_entropy")).sizes().n_out == 3


def changed(folder: Path, **columns: Any) -> Path:
    frame = people()
    for name, values in columns.items():
        frame[name] = values
    frame.to_csv(folder / "changed.csv", index=False)
    return folder / "changed.csv"


@pytest.mark.parametrize(
    ("target", "values", "says"),
    [
        ("amount", [1.5] * 57 + [None] * 3, "column amount, a target, is missing in 3 rows, the first of them row 57"),
        ("verdict", [None] + ["a", "b"] * 29 + ["a"], "column verdict, a target, is missing in row 0; take it out"),
        ("passed", [True, None] * 30, "column passed, a target, is missing in 30 rows, the first of them row 1"),
        ("amount", [None] * 60, "column amount, a target, is missing in 60 rows"),
        ("amount", ["2020-01-02"] * 60, "column amount, a target, holds dates; numbers, truth values or text"),
        ("amount", [np.inf] + [1.0] * 59, "column amount, a target, holds inf in row 0; remove or fill it"),
        (["amount", "verdict"], None, "column verdict holds text; several targets are numbers"),
    ],
    ids=str,
)
def test_targets_that_are_none(folder: Path, target: Any, values: Any, says: str) -> None:
    path = folder / "people.csv" if values is None else changed(folder, **{target: values})
    assert says in refusal(keys(path, target))


def test_text_is_no_amount_and_amounts_are_no_labels(folder: Path) -> None:
    assert 'classes that are text need model.loss = "cross_entropy"' in refusal(
        keys(folder / "people.csv", "verdict"), "squared"
    )
    assert "class labels are whole numbers" in refusal(keys(folder / "people.csv", "amount"), "cross_entropy")
    assert "of a table a column that data.target names" in refusal(keys(folder / "people.csv", []), "cross_entropy")


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_names_that_the_table_does_not_have(folder: Path) -> None:
    path = folder / "people.csv"
    assert f"data.target: {path} has no column 'amuont'; did you mean 'amount'?" in refusal(keys(path, "amuont"))
    assert f"data.target: {path} has no column 'AMOUNT'; did you mean 'amount'?" in refusal(keys(path, "AMOUNT"))
    assert "data.ignore: " in refusal(Data(source=str(path), ignore=["ids"]))
    assert "it has id, age, income" in refusal(Data(source=str(path), ignore=["zzzzzz"]))
    assert "column 'age' stands in data.target; take it out of one" in refusal(
        Data(source=str(path), target="age", ignore=["age"])
    )


@pytest.mark.parametrize("other", ["ignore", "weights"])
def test_categories_of_a_column_that_is_no_input_are_refused(folder: Path, other: str) -> None:
    """The key would say nothing: the column is left out, or read as numbers."""
    place = {"ignore": ["age"], "weights": "age"}[other]
    text = refusal(Data(source=str(folder / "people.csv"), target="amount", categories=["age"], **{other: place}))
    assert f"data.categories: column 'age' stands in data.{other}; take it out of one of them" in text


def test_missing_values_can_be_refused(folder: Path) -> None:
    frame = people()
    text = refusal(keys(folder / "people.csv", "amount", missing="refuse"))
    for name in ("age", "city"):
        assert f"column {name} has {frame[name].isna().sum()} missing values" in text
    full = changed(folder, age=3.5, city="Rome")
    assert Source(decided(keys(full, "amount", missing="refuse"))).sizes().n_in == 4


def test_ranks_cannot_read_their_rows_of_text(folder: Path) -> None:
    data = keys(folder / "people.csv", "amount")
    for loss in ("auto", "squared"):
        asked = replace(Config(data=data), parallel=config.Parallel("sharded"), model=config.Model(loss=loss))  # type: ignore[arg-type]
        with pytest.raises(
            UsageError, match=r'is read whole; use parallel\.data = "node".*or write the points to an HDF5'
        ):
            Source(with_loss(asked)[0]).sizes()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("a,b\n1,x\n2\n", "a line has 1 cells, where the first has 2: 2"),
        ("# made by hand\na,b\n1,2\n", "a line has 2 cells, where the first has 1: a,b"),
        ('"a,b\n' + "1,2\n" * 40_000, "a quote in its first line is not closed"),
        ("a,b", "it has no rows"),
        ("a,b\n1,2\n".encode("utf-16-le"), "it holds zero bytes"),
        ("a,b\n1,2\n".encode("utf-32"), "it holds zero bytes"),
        ("1,2\n3,4\n", "its first line holds numbers (1,2); it should hold the names of the columns"),
        ("", "its first line is empty"),
        ("\n1,2\n", "its first line is empty"),
        ("a,a\n1,2\n", 'several columns have the name "a"'),
        ("a,b\n1,caf\xe9\n".encode("latin-1"), "line 2 is no UTF-8"),
        ("gr\xf6\xdfe,b\n1,2\n".encode("latin-1"), "line 1 is no UTF-8"),
        ("a,b\n1,2\n".encode("utf-16")[:-1], "is no UTF-16"),
        ("a,b\n1,2\n\x1b[31m1,2,3\n", r"a line has 3 cells, where the first has 2: \x1b[31m1,2,3"),
        (gzip.compress(b"a,b\n1,2\n", mtime=0), "it is compressed, or no text"),
        (b"PK\3\4" + bytes(99), "it is compressed, or no text"),
        (b"PAR1" + bytes(99), "it is compressed, or no text"),
    ],
)
def test_what_is_no_csv_file(tmp_path: Path, content: Any, says: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    text = refusal(Data(source=str(path)))
    assert text.startswith(str(path))
    assert says in text


@pytest.mark.parametrize("library", ["pyarrow", "narwhals"])
def test_a_missing_library_is_named(library: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    assert f"pip install {library}" in refusal(keys(folder / "people.csv", "amount"))


@pytest.mark.parametrize(
    ("source", "given"),
    [
        ("points.npz", {"target": "y"}),
        ("points.npz", {"ignore": ["y"]}),
        ("digits", {"missing": "refuse"}),
        ("people.csv", {"image_size": [3, 4]}),
        ("sklearn:iris", {"target": "y"}),
    ],
    ids=str,
)
def test_keys_that_a_source_does_not_read_are_refused(folder: Path, source: str, given: dict[str, Any]) -> None:
    np.savez(folder / "points.npz", X=np.arange(12.0).reshape(6, 2))
    path = str(folder / source) if "." in source else source
    (key, value), text = *given.items(), refusal(Data(source=path, **given))
    assert f'data.{key} = {json.dumps(value)}: data.source = "{path}" does not read it; leave it out' in text


# --- CSV files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_separator_is_found(tmp_path: Path, separator: str) -> None:
    (tmp_path / "a.csv").write_text(f"a{separator}b\n1{separator}x\n")
    assert read_table(tmp_path / "a.csv").to_pylist() == [{"a": 1, "b": "x"}]


@pytest.mark.parametrize("coding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("first", ["", "sep=;\n"])
def test_a_text_file_is_read_in_the_codings_that_say_what_they_are(
    first: str, ends: str, coding: str, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_bytes(f"{first}a,\u00e9;b;c\n1;x;2\n".replace("\n", ends).encode(coding))
    assert read_table(tmp_path / "a.csv").to_pylist() == [{"a,\u00e9": 1, "b": "x", "c": 2}]


@pytest.mark.parametrize("name", ["a.csv", "A.CSV", "a.csv.gz", "a.tsv", "a.tsv.gz", "a.parquet", "a.b.parquet"])
def test_what_is_written_is_read(tmp_path: Path, name: str) -> None:
    """Every number to its last bit; commas, quotes and lines inside of text."""
    columns = {
        "number": np.array([0.1, 1.0 / 3.0, -1e-300, 2.0**60]),
        "text": np.array(["a,b", 'say "no"', "two\nlines", "\ttab"]),
        "whole": np.array([1, -2, 3, 4]),
    }
    path = tmp_path / name
    path.write_bytes(table_bytes(path, columns, ["text"]))
    found = read_table(path)
    assert found.to_pydict() == {key: array.tolist() for key, array in columns.items()}
    assert targets_within(found) == (["text"] if name.endswith("parquet") else [])


def test_what_stands_for_missing_is_what_it_is_for_pandas(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["a", "b"], *([word, "x"] for word in MISSING), ["?", "y"]])
    assert read_table(path)["a"].to_pylist() == [None] * len(MISSING) + ["?"]
    assert pd.read_csv(path)["a"].isna().tolist() == [True] * len(MISSING) + [False]


def test_a_file_that_lies_about_its_targets_has_none(tmp_path: Path) -> None:
    for text in ("{", "3", "[1]", "[" * 10**5):
        table = pa.table({"a": [1]}).replace_schema_metadata({"macmpi.targets": text})
        assert targets_within(table) == []


# --- the run, and its model -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with people.csv and the runs "amount", "verdict" and "code"."""
    folder = tmp_path_factory.mktemp("trained")
    people().to_csv(folder / "people.csv", index=False)
    for target in ("amount", "verdict", []):
        name = target or "code"
        (folder / f"{name}.toml").write_text(config.dump(Config(data=keys(Path("people.csv"), target))))
        outcome = run_here(f"{name}.toml", "--output", name, "--iterations", 2, cwd=folder, code=0)
        frame = people()
        filled = f"missing values filled: age {frame['age'].isna().sum()}, city {frame['city'].isna().sum()}; "
        assert filled in outcome.out
    return folder


def test_check_says_what_was_filled_and_how_long_the_reading_took(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from macmpi.data import loading

    monkeypatch.setattr(loading, "SLOW", 0.0)
    lines = run_here("amount.toml", "--check", cwd=trained, code=0).out.splitlines()
    assert lines[0].startswith("read people.csv in ")
    assert lines[1].startswith("missing values filled: age ")
    monkeypatch.setattr(loading, "SLOW", 1e9)
    assert "read people.csv" not in run_here("amount.toml", "--check", cwd=trained, code=0).out


def test_a_run_goes_on_from_a_copy_of_its_table_and_not_with_other_columns(trained: Path, tmp_path: Path) -> None:
    again = ("--output", "again", "--resume", "auto", "--iterations")
    run_here("amount.toml", *again, 1, cwd=trained, code=0)
    pd.read_csv(trained / "people.csv").to_csv(tmp_path / "copy.csv", index=False)
    run_here("amount.toml", *again, 2, "--set", f"data.source={tmp_path / 'copy.csv'}", cwd=trained, code=0)
    ours, theirs = (macmpi.load(str(trained / run / "model.h5"), "last") for run in ("again", "amount"))
    assert [W.tobytes() for W in ours.weights] == [W.tobytes() for W in theirs.weights]
    text = run_here("amount.toml", *again, 3, "--set", "data.missing=refuse", cwd=trained, code=2).err
    assert "missing values" in text


def test_a_start_from_a_model_of_other_columns_is_refused(trained: Path) -> None:
    frame = people().rename(columns={"income": "wealth"})
    frame.to_csv(trained / "other.csv", index=False)
    start = ("--set", "data.source=other.csv", "--set", "start.method=model", "--set", "start.model=amount/model.h5")
    text = run_here("amount.toml", "--output", "other", *start, cwd=trained, code=2).err
    assert "it was trained on other columns than those of these data" in text
    run_here("amount.toml", "--output", "same", "--iterations", 1, *start[2:], cwd=trained, code=0)


def predict(folder: Path, *words: str) -> tuple[int, str]:
    from unit.test_predict import predict as run_predict  # the command, in this process

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = run_predict(*words)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("run", "what", "names"),
    [
        ("amount", "predict", ["prediction"]),
        ("verdict", "predict", ["prediction"]),
        ("verdict", "probabilities", ["high", "low"]),
        ("amount", "encode", [f"code_{i}" for i in range(1, 101)]),
        ("code", "encode", [f"code_{i}" for i in range(1, 5)]),
        ("code", "reconstruct", ["age", "missingindicator_age", "income"]),
    ],
)
def test_predictions_of_a_table_have_names(trained: Path, run: str, what: str, names: list[str]) -> None:
    model = macmpi.load(str(trained / run / "model.h5"))
    new = people().drop(columns=["id", *ANSWERS]).iloc[::-1]
    new.to_parquet(trained / "new.parquet")
    new.to_csv(trained / "new.csv", index=False)
    for source, output in (("new.csv", "out.csv"), ("new.parquet", "out.parquet"), ("people.csv", "out.npy")):
        code, said = predict(trained, f"{run}/model.h5", source, "--output", output, "--overwrite", "--what", what)
        assert (code, said) == (0, "")
        expected = getattr(model, what)(people() if source == "people.csv" else new)
        if output == "out.npy":
            assert_array_equal(np.load(trained / output), expected)
            continue
        table = read_table(trained / output)
        assert table.column_names[: len(names)] == names
        assert_array_equal(np.column_stack(list(table.to_pydict().values())), expected.reshape(len(new), -1))


def test_a_table_without_rows_has_predictions_without_rows(trained: Path) -> None:
    people()[:0].to_csv(trained / "none.csv", index=False)
    pd.read_csv(trained / "people.csv")[:0].to_parquet(trained / "none.parquet")
    for source, run in (("none.csv", "amount"), ("none.parquet", "verdict")):
        assert predict(trained, f"{run}/model.h5", source, "--output", "none.csv.gz", "--overwrite") == (0, "")
        assert list(pd.read_csv(trained / "none.csv.gz").columns) == ["prediction"]
        assert len(macmpi.load(str(trained / run / "model.h5")).predict(people()[:0])) == 0


def test_columns_whose_names_would_clash_are_all_written(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": ["x", "y"] * 20, "a_x": np.arange(40.0), "b": ["x_y", "z"] * 20, "b_x": ["y", "w"] * 20})
    model = macmpi.fit(frame, config={"run.max_iterations": 1})
    macmpi.save(model, str(tmp_path / "m.h5"))
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert predict(tmp_path, "m.h5", "t.csv", "--output", "o.csv") == (0, "")
    found = pd.read_csv(tmp_path / "o.csv")
    assert list(found.columns) == ["a_x", "a_y", "a_x_2", "b_x_y", "b_z", "b_x_w", "b_x_y_2"]
    assert_array_equal(found.to_numpy(), model.predict(frame))


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"age": None}, "X has no column age; its columns are id, income, city"),
        ({"age": "old"}, "X: column age holds 'old'"),
    ],
)
def test_a_table_that_does_not_fit_the_model_is_named(trained: Path, columns: dict[str, Any], says: str) -> None:
    (name, value), *_ = columns.items()
    frame = people().drop(columns=name)
    if value is not None:
        frame[name] = value
    frame.to_csv(trained / "bad.csv", index=False)
    code, said = predict(trained, "amount/model.h5", "bad.csv", "--output", "bad-out.csv")
    assert (code, said.startswith("macmpi: bad.csv: "), said.count("\n")) == (2, True, 1)
    assert says in said
    assert not (trained / "bad-out.csv").exists()


def test_categories_keep_their_unit_and_numbers_are_scaled_as_those_of_an_array(tmp_path: Path) -> None:
    """However rare a category is; a column of the numbers has a long tail."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"a": random.normal(size=1500), "b": np.exp(random.normal(0.0, 4.0, 1500))})
    frame["c"], frame["d"] = np.where(np.arange(1500) % 500 == 7, "rare", "usual"), np.arange(1500) % 2 == 0
    frame.loc[5::50, "a"] = np.nan
    frame.to_csv(tmp_path / "a.csv", index=False)
    data = load(Data(source=str(tmp_path / "a.csv")))
    assert data.columns is not None
    assert data.columns.names == ["a", "missingindicator_a", "b", "c_rare", "c_usual", "d"]
    flags = np.array([False, True, False, True, True, True])
    assert data.scaling_x.tails is not None
    assert data.scaling_x.tails.long.tolist() == [False, False, True, False, False, False]
    assert_array_equal(np.ptp(np.concatenate([data.X, data.X_val])[:, flags], axis=0), 1.0)
    assert_array_equal(data.scaling_x.scale[flags], 1.0)
    X = np.concatenate([data.X, data.X_val])
    raw = data.scaling_x.undo(X)
    np.savez(tmp_path / "numbers.npz", X=raw[: len(data.X)][:, ~flags], X_val=raw[len(data.X) :][:, ~flags])
    numbers = load(Data(source=str(tmp_path / "numbers.npz")))
    bound = 1e-9  # undone and done again through sinh and asinh of numbers up to exp(16)
    assert np.abs(numbers.X - data.X[:, ~flags]).max() < bound
    asked = load(Data(source=str(tmp_path / "a.csv"), scale="standard"))
    assert np.abs(asked.X.std(axis=0) - 1.0).max() < 1e-9
    asked = load(Data(source=str(tmp_path / "a.csv"), scale="robust"))
    assert np.abs(asked.X).max() <= FARTHEST * (1.0 + 1e-12)
