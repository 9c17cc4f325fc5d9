"""What is given to functions, estimators and commands: refused by the name under which it was given, or read.

Whatever a value is, no error of a library and none of Python's own comes out.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import importlib
import inspect
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from launch.here import run_here
from launch.launching import run_program
from numpy.testing import assert_allclose, assert_array_equal
from sampled import examples

import macmpi
from macmpi import MacmpiWarning, UsageError, init, report, shown
from macmpi.config import Data
from macmpi.config.whole import GONE
from macmpi.data.checks import as_array
from macmpi.data.reading import read_file

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pytest.importorskip("sklearn")
from macmpi import sklearn  # noqa: E402
from macmpi.sklearn import MACAutoencoder, MACClassifier, MACRegressor  # noqa: E402

often = examples(200)

RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(30, 3))
Y = X[:, 0] + 1.0
LABELS = np.where(Y > 1.0, "high", "low")
ONE: dict[str, Any] = {"run.max_iterations": 1, "run.refit": False, "model.hidden": [3]}
TABLE = pd.DataFrame(X, columns=list("abc"))

SINGLE = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([-1, 0, 2**63, 10**400]),
    st.floats(),
    st.sampled_from(["", "x", "\0", "no such thing"]),
    st.binary(max_size=2),
    st.sampled_from(
        [1j, decimal.Decimal(3), datetime.date(2020, 1, 1), object(), len, int, Path(), pd.NA, pd.NaT, {1}, {}, b""]
    ),
    st.builds(iter, st.just([1])),
    st.sampled_from([np.float32(2.5), np.float64(-1.0), np.int64(2), np.str_("x"), np.bool_(True)]),
)
WRONG = st.one_of(
    SINGLE,
    st.lists(SINGLE, max_size=3),
    st.dictionaries(st.one_of(st.text(max_size=2), st.integers(0, 3)), SINGLE, max_size=2),
    st.sampled_from([np.zeros(2), np.zeros((2, 0)), np.array(3), np.zeros(30, "M8[D]"), np.zeros(30, complex)]),
    st.lists(SINGLE, min_size=30, max_size=30),
    st.sampled_from([[one] * 30 for one in (None, {}, {"a": 1.0}, [1], b"x", decimal.Decimal(1), pd.NA, 10**30)]),
    st.just(5000).map(lambda digits: 10**digits),
)


def refused(function: Any, name: str, *errors: type[Exception]) -> None:
    """Whatever is done, it is done, or refused with the name of the argument."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            function()
        except errors as error:
            assert re.search(rf"\b{name}\b", str(error)), error
        except macmpi.MacmpiError as error:
            assert not isinstance(error, UsageError), error


# --- wrong values -----------------------------------------------------------------------------------------------------


FIT = ("hidden", "layers", "loss", "validation", "weights", "config", "start", "seed", "max_time", "ranks", "comm")
FIT += ("output", "overwrite", "callback", "verbose")


@often
@given(name=st.sampled_from(FIT), value=WRONG)
def test_fit_names_the_argument_that_it_refuses(name: str, value: Any) -> None:
    if (callable(value) and name == "callback") or (name == "output" and isinstance(value, str | Path)):
        return  # what a function raises is its own; and folders are not to be made
    own = {"config": ONE, "hidden": "auto"} | {name: value}
    if name == "hidden":
        own["config"] = {key: one for key, one in ONE.items() if key != "model.hidden"}
    refused(lambda: macmpi.fit(X, Y, **own), name, UsageError)


@often
@given(name=st.sampled_from(["X", "Y"]), table=st.booleans(), value=WRONG)
def test_fit_names_the_points_that_it_refuses(name: str, table: bool, value: Any) -> None:
    own = {"X": TABLE if table else X, "Y": Y} | {name: value}
    refused(lambda: macmpi.fit(own["X"], own["Y"], config=ONE), "[XY]|points", UsageError)


ESTIMATORS = {MACRegressor: Y, MACClassifier: LABELS, MACAutoencoder: None}
ARGUMENTS = ("hidden", "layers", "max_iter", "early_stopping", "validation_fraction", "max_time", "warm_start")
ARGUMENTS += ("config", "random_state", "ranks", "verbose", "class_weight", "sample_weight")


@often
@given(kind=st.sampled_from(list(ESTIMATORS)), name=st.sampled_from(ARGUMENTS), value=WRONG)
def test_estimators_name_the_argument_that_they_refuse(kind: Any, name: str, value: Any) -> None:
    if name == "class_weight" and kind is not MACClassifier:
        return
    own, weights = {"hidden": [3], "max_iter": 1, name: value}, None
    if name == "sample_weight":
        weights = own.pop(name)
    refused(lambda: kind(**own).fit(X, ESTIMATORS[kind], sample_weight=weights), name, ValueError)


@pytest.fixture(scope="module")
def model() -> macmpi.Model:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return macmpi.fit(X, config=ONE)


@often
@given(value=WRONG, what=st.sampled_from(["predict", "encode", "decode", "reconstruct", "weights", "load", "save"]))
def test_models_and_their_files_name_what_they_refuse(model: macmpi.Model, what: str, value: Any) -> None:
    if what == "weights":
        refused(lambda: model.with_weights(value), "weights", UsageError)
    elif what == "load":
        refused(lambda: macmpi.load(value), "path|model", UsageError)
    elif what == "save":
        refused(lambda: macmpi.save(value, "none.h5"), "model", UsageError)
        if not isinstance(value, str | Path):
            refused(lambda: macmpi.save(model, value), "path", UsageError)
    else:
        refused(lambda: getattr(model, what)(value), "codes" if what == "decode" else "X", UsageError)


@often
@given(value=WRONG)
def test_a_value_is_shown_in_one_short_line(value: Any) -> None:
    assert len(shown(value)) <= 80
    assert "\n" not in shown(value)


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"seed": 1.0}, "1 mistake in config and the arguments of fit:\n  seed: "),
        ({"config": {"data.seed": 1.5}}, "data.seed: "),
        ({"config": {"data.target": -1}}, "data.target: "),
        ({"config": {"model": {"hidden": [-1]}}}, "model.hidden.0: "),
        ({"hidden": [-1]}, "hidden.0: "),
        ({"layers": {}}, 'layers: should be a list, as in layers = ["relu", "tanh"]'),
        ({"weights": 3}, "weights is a single number"),
    ],
)
def test_a_message_has_the_name_that_the_user_has_written(arguments: dict[str, Any], says: str) -> None:
    """The argument, or the key where config has that."""
    own = {"config": {"run.max_iterations": 1}} | arguments
    with pytest.raises(UsageError) as caught:
        macmpi.fit(X, Y, **own)
    assert f"  {says}".strip() in str(caught.value)
    assert says in str(caught.value).replace("  ", "", 1) or says in str(caught.value)


def test_a_number_of_layers_that_does_not_fit_a_net_that_is_chosen_is_refused() -> None:
    with pytest.raises(UsageError, match="layers is a list, one for each layer: give hidden too"):
        macmpi.fit(X, Y, layers=[])


@pytest.mark.parametrize("key", [key for key, (_, why) in GONE.items() if "the constant" in why])
def test_a_key_that_has_gone_names_the_constant_in_its_place(key: str) -> None:
    value, why = GONE[key]
    found = re.search(r"the constant (\w+) of ([\w.]+)", why)
    assert found
    assert getattr(importlib.import_module(found[2]), found[1]) == value
    with pytest.raises(UsageError, match=re.escape(why)):
        macmpi.fit(X, Y, config={key: 3 * value})


def test_arguments_of_the_classifier_are_those_of_the_others_and_one_more() -> None:
    own, base = (inspect.signature(kind).parameters for kind in (MACClassifier, MACRegressor))
    assert [*own] == [*base, "class_weight"]
    assert MACClassifier([4], "tanh", max_iter=3, class_weight="balanced").get_params() == (
        MACRegressor([4], "tanh", max_iter=3).get_params() | {"class_weight": "balanced"}
    )


# --- two ways in ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"config": {"run.max_iterations": 3}}, "run.max_iterations is the argument max_iter of MACRegressor"),
        ({"config": {"run": {"max_iterations": 3}}}, "run.max_iterations is the argument max_iter of MACRegressor"),
        ({"config": {"stochastic.patience": 3}, "early_stopping": False}, "stochastic.patience is not read with early"),
    ],
)
def test_an_estimator_refuses_keys_that_its_arguments_give(keys: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        MACRegressor(**keys).fit(X, Y)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"validation": (X, Y)}, "validation is given without X"),
        ({"X": X, "Y": Y, "ranks": 1, "comm": 3}, "ranks starts processes, and comm names those that there are"),
        ({"X": X, "Y": Y, "overwrite": True}, "overwrite = True .* give output"),
        ({"X": TABLE, "Y": Y, "weights": np.ones(30), "config": {"data.weights": "a"}}, 'data.weights = "a" in config'),
        ({"X": X, "Y": Y, "seed": 3, "config": {"data.seed": 4}}, "data.seed = 4 in config, and 3 by an argument"),
        ({"X": X, "Y": Y, "validation": (X, Y), "config": {"data.validation": 0.4}}, "data.validation = 0.4 in config"),
        ({"X": TABLE, "Y": "a", "config": {"data.target": "b"}}, r"data.target = \['b'\] in config, and Y is given"),
    ],
)
def test_arguments_that_would_not_be_read_are_refused(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        macmpi.fit(**arguments)


KEYS_OF_DATA: dict[str, tuple[Any, str]] = {
    "data.source": ("digits", ""),
    "data.target": ("y", "table"),
    "data.weights": ("w", "table"),
    "data.ignore": (["c"], "table"),
    "data.categories": (["k"], "table"),
    "data.empty": (["u"], "table"),
    "data.missing": ("refuse", "table"),
    "data.image_size": ([4, 4], ""),
    "data.classes": (["u", "v"], ""),
    "data.validation": (0.5, "table array"),
    "data.points": (9, "table array estimator"),
    "data.seed": (3, "table array"),
    "data.scale": ("range", "table array estimator"),
}
"""A value of each key of [data], and the ways in that read it; the others refuse it."""

POINTS = TABLE.assign(y=Y, w=1.0 + np.arange(30) % 2, t=["u", "v", "v"] * 10, k=np.arange(30) % 3)


SINGLE_KEYS = ("data.target", "data.missing")
"""Keys that do not go with the others."""


def test_every_key_of_data_is_here() -> None:
    assert {*KEYS_OF_DATA} == {f"data.{key.name}" for key in dataclasses.fields(Data)}


@pytest.mark.parametrize("key", KEYS_OF_DATA)
@pytest.mark.parametrize("way", ["table", "table alone", "array", "estimator"])
def test_a_key_of_data_is_read_or_refused_by_its_name(way: str, key: str) -> None:
    """What it is read for changes the model, or which points there are."""
    value, read = KEYS_OF_DATA[key]

    def fitted(**keys: Any) -> macmpi.Model:
        if way == "estimator":
            return MACRegressor([3], max_iter=1, random_state=0, config={"run.refit": False, **keys}).fit(X, Y).model_
        points = (POINTS, "y") if way == "table" else (POINTS,) if way == "table alone" else (X, Y)
        return macmpi.fit(*points, config={**ONE, **keys})

    if way.split()[0] in read.split():
        if (way, key) == ("table", "data.target"):
            assert fitted(**{key: value}) == fitted()
        elif key == "data.missing":
            with pytest.raises(UsageError, match="missing"):
                macmpi.fit(POINTS.assign(a=np.where(X[:, 0] > 1.0, np.nan, 1.0)), "y", config={**ONE, key: value})
        else:
            assert fitted(**{key: value}) != fitted()
    else:
        with pytest.raises((UsageError, ValueError), match=rf"{key}\b"):
            fitted(**{key: value})


def test_ranks_know_what_was_declared_to_be_classes() -> None:
    keys = {**ONE, "data.categories": ["k"]}
    assert macmpi.fit(POINTS, "k", ranks=1, config=keys) == macmpi.fit(POINTS, "k", config=keys)


@pytest.mark.parametrize("ranks", [None, 1])
def test_the_keys_of_a_table_are_read_by_ranks_too(ranks: int | None) -> None:
    keys = {key: value for key, (value, read) in KEYS_OF_DATA.items() if "table" in read and key not in SINGLE_KEYS}
    assert macmpi.fit(POINTS, "y", ranks=ranks, config={**ONE, **keys}) == macmpi.fit(
        POINTS, "y", config={**ONE, **keys}
    )


@pytest.mark.parametrize("key", sklearn.OWN)
def test_keys_that_are_arguments_of_an_estimator_are_refused_with_the_argument(key: str) -> None:
    for kind, targets in ESTIMATORS.items():
        with pytest.raises(ValueError, match=f"config: {key} is the argument {sklearn.OWN[key]} of {kind.__name__}"):
            kind(config={key: 4}).fit(X, targets)


@pytest.mark.parametrize("loss", ["squared", "cross_entropy", "poisson"])
@pytest.mark.parametrize(("method", "layers"), [("auto", "tanh"), ("adam", "tanh"), ("mac", "tanh"), ("mac", "rbf")])
def test_a_start_is_the_model_itself_by_every_way_in(method: str, layers: str, loss: str, tmp_path: Path) -> None:
    """Its last weights, by which no validation point was seen, as they are; its net, where none is asked for."""
    targets = {"squared": Y, "cross_entropy": LABELS, "poisson": np.round(np.exp(X[:, 0]))}[loss]
    keys = {"method.name": method, "run.max_iterations": 6}
    first = macmpi.fit(X, targets, hidden=[4], layers=layers, loss=loss, output=tmp_path / "r", config=keys)
    path = tmp_path / "r" / "model.h5"
    macmpi.save(first, str(tmp_path / "saved.h5"))
    again: dict[str, Any] = {"method.name": method, "run.max_iterations": 0, "start.seed": 1}
    begun = []
    for start in (
        first,
        path,
        str(path),
        macmpi.load(str(path)),
        macmpi.load(str(path), "best"),
        tmp_path / "saved.h5",
    ):
        model = macmpi.fit(X, targets, loss=loss, start=start, config=again)
        assert model.chain == first.chain
        begun.append(model.history[0]["E1_val"])
    assert_allclose(begun, first.card.errors["last"].validation, rtol=1e-9)


def test_a_short_key_of_a_file_is_one_of_a_mapping(tmp_path: Path) -> None:
    np.savez(tmp_path / "points.npz", X=X, Y=Y)
    short, long = (macmpi.fit(config={key: str(tmp_path / "points.npz"), **ONE}) for key in ("data", "data.source"))
    assert short == long


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_a_target_that_is_a_column_of_the_inputs_is_refused(kind: Any) -> None:
    table = kind({"a": X[:, 0], "y": Y})
    with pytest.raises(UsageError, match=r'Y is the column .y. of X, which would be an input too: .* Y = "y"'):
        macmpi.fit(table, table["y"], config=ONE)
    assert len(macmpi.fit(table, "y", config=ONE).columns.names) == 1  # type: ignore[union-attr]
    macmpi.fit(table, type(table["y"])(Y + X[:, 1]), config=ONE)


def test_validation_points_of_an_autoencoder_are_no_pair() -> None:
    with pytest.raises(UsageError, match="validation: without Y it is X_val alone"):
        macmpi.fit(X, validation=(X, X), config=ONE)


def test_an_index_of_pandas_names_columns_or_holds_labels() -> None:
    assert macmpi.fit(TABLE, TABLE.columns[-1:], config=ONE).chain.n_in == 2
    assert macmpi.fit(X, pd.Index(LABELS), config=ONE).classes.tolist() == ["high", "low"]  # type: ignore[union-attr]


@often
@given(labels=st.lists(st.sampled_from("abcd"), min_size=2, max_size=6), kind=st.sampled_from(["text", "number"]))
def test_given_validation_labels_are_classes_of_the_training_points(labels: list[str], kind: str) -> None:
    """A class that these lack is refused, one that only they have is said."""
    codes = np.array([ord(one) for one in labels])
    own = np.array([97, 98, 99] * 10)
    as_kind = (lambda A: np.array([chr(one) for one in A])) if kind == "text" else (lambda A: A)
    pair = X[: len(codes)], as_kind(codes)

    def fitted() -> macmpi.Model:
        return macmpi.fit(X, as_kind(own), loss="cross_entropy", validation=pair, config=ONE)

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        if "d" in labels:
            with pytest.raises(UsageError, match=r"Y_val holds classes that no training point has \((d|100)\)"):
                fitted()
            return
        assert len(fitted().classes) == 3  # type: ignore[arg-type]
    told = [str(one.message) for one in said if "no validation point is of the classes" in str(one.message)]
    lost = [one for one in "abc" if one not in labels]
    assert len(told) == bool(lost)
    assert all(text.startswith("the arguments of fit: no validation point") for text in told)
    for one in lost:
        assert re.search(rf"classes .*\b({one}|{ord(one)})\b", told[0])


def test_text_that_names_the_rows_is_no_class() -> None:
    with pytest.raises(UsageError, match=r"Y holds 30 different labels in 30 rows.* are they classes"):
        macmpi.fit(X, [f"row {i}" for i in range(30)], config=ONE)


def test_a_model_to_start_from_says_what_does_not_fit() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first, named = (macmpi.fit(A, Y, config=ONE) for A in (X, TABLE))
    for own, says in (
        ((X[:, :2], Y), "start: it is a net of 3 inputs, and these data have 2"),
        ((X, np.c_[Y, Y]), "start: it is a net of 1 output, and these data have 2"),
    ):
        with pytest.raises(UsageError, match=says):
            macmpi.fit(*own, start=first, config=ONE)
    with pytest.raises(UsageError, match="which lack a and have z"):
        macmpi.fit(TABLE.rename(columns={"a": "z"}), Y, start=named, config=ONE)


# --- values -----------------------------------------------------------------------------------------------------------


@often
@given(st.lists(st.one_of(st.none(), st.integers(-9, 9), st.floats(-9, 9), st.decimals(-9, 9)), min_size=1))
def test_objects_that_are_numbers_are_read_as_numbers(held: list[Any]) -> None:
    """What is missing is NaN; of values that are all missing nothing is known."""
    if all(value is None or value != value for value in held):
        return
    found = as_array(np.array(held, dtype=object), "X")
    assert_array_equal(found.astype(float), [np.nan if value is None else float(value) for value in held])


class Exported:
    """An array that has DLPack alone to be read by."""

    def __init__(self, A: Any) -> None:
        self.A = A

    def __dlpack__(self, **keys: Any) -> Any:
        return self.A.__dlpack__(**keys)

    def __dlpack_device__(self) -> Any:
        return self.A.__dlpack_device__()


class Elsewhere(Exported):
    """One that its library does not hand to NumPy, and says so in its own way."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.\nUse another")


def made_by(library: str) -> Any:
    """Makes an array of a library of one of NumPy's."""
    if library == "exported":
        return Exported
    module = pytest.importorskip(library)
    return (lambda A: A.astype(module.bfloat16)) if library == "ml_dtypes" else module.asarray


@pytest.mark.every_case
@pytest.mark.parametrize(
    "library",
    ["exported", "ml_dtypes", *(pytest.param(name, marks=pytest.mark.examples) for name in ("torch", "jax.numpy"))],
)
@pytest.mark.filterwarnings("ignore::macmpi.MacmpiWarning")
def test_arrays_of_other_libraries_are_those_of_numpy(library: str) -> None:
    made, A = made_by(library), np.round(8.0 * X) / 8.0  # which eight bits hold
    y = A[:, 0] + 1.0
    model = macmpi.fit(A, y, config=ONE)
    assert macmpi.fit(made(A), made(y), weights=made(np.ones(30)), config=ONE) == model
    assert_array_equal(model.predict(made(A)), model.predict(A))
    for kind, target in ((MACRegressor, y), (MACClassifier, np.sign(y)), (MACAutoencoder, y)):
        one, other = (kind([3], max_iter=1, random_state=0).fit(of(A), of(target)) for of in (made, np.array))
        assert one.model_ == other.model_
        assert one.score(made(A), np.array(target)) == other.score(A, target)


@pytest.mark.parametrize("function", [lambda A: macmpi.fit(A, Y), lambda A: MACRegressor().fit(A, Y)])
def test_an_array_that_numpy_cannot_read_is_refused_in_one_line(function: Any) -> None:
    with pytest.raises(
        (UsageError, ValueError), match=r"X is no array: Can't .* grad\.; float32 or float64 in main.*read$"
    ):
        function(Elsewhere(X))


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT, np.float32("nan")])
@pytest.mark.parametrize("known", [True, "a"])
def test_a_label_that_is_missing_is_named(missing: Any, known: Any) -> None:
    with pytest.raises(UsageError, match=r"Y is missing at \[1\] \(10 such\)"):
        macmpi.fit(X, np.array([known, missing, known] * 10, dtype=object), config=ONE)


def test_text_of_numpys_own_type_is_text() -> None:
    assert_array_equal(as_array(np.array(["a", "bc"], dtype=np.dtypes.StringDType()), "Y"), np.array(["a", "bc"]))


@pytest.mark.parametrize("kind", [pl.Int128] if hasattr(pl, "Int128") else [])
def test_whole_numbers_of_128_bits_are_whole_numbers(kind: Any) -> None:
    frames = [pl.DataFrame({"a": pl.Series(range(30), dtype=of), "b": X[:, 1], "y": Y}) for of in (kind, pl.Int64)]
    models = [macmpi.fit(frame, "y", config=ONE) for frame in frames]
    assert models[0] == models[1]
    assert_array_equal(models[0].predict(frames[0]), models[0].predict(frames[1]))
    with pytest.raises(UsageError, match="column a holds whole numbers that 64 bits do not hold"):
        macmpi.fit(frames[0].with_columns(a=pl.lit(2**100, dtype=kind)), "y", config=ONE)


def compressed(path: Path, code: int) -> None:
    """An HDF5 file whose dataset X says that a filter has compressed it."""
    made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    made.set_chunk((20, 2))
    made.set_filter(code, h5py.h5z.FLAG_OPTIONAL, (3,))
    with h5py.File(path, "w") as file:
        of = h5py.h5t.IEEE_F64LE, h5py.h5s.create_simple((20, 2)), made
        h5py.h5d.create(file.id, b"X", *of).write_direct_chunk((0, 0), np.zeros((20, 2)).tobytes(), 0)


@pytest.mark.parametrize(("code", "name"), [(32015, "zstd"), (32001, "blosc"), (300, "filter 300")])
def test_a_filter_of_hdf5_that_is_not_there_is_named(
    code: int, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "hdf5plugin", None)
    if h5py.h5z.filter_avail(code):
        pytest.skip(f"{name} can be read here")
    compressed(tmp_path / "x.h5", code)
    with pytest.raises(UsageError, match=f"dataset X is compressed by {name}, .* pip install hdf5plugin"):
        read_file(tmp_path / "x.h5", ("X",))


@pytest.mark.examples
def test_filters_of_hdf5plugin_are_read_where_it_is_installed(tmp_path: Path) -> None:
    plugin = pytest.importorskip("hdf5plugin")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("X", data=X, chunks=X.shape, **plugin.Zstd())
    assert_array_equal(read_file(tmp_path / "x.h5", ("X",))["X"], X)


# --- warnings ---------------------------------------------------------------------------------------------------------


def lines_of(function: Any) -> list[tuple[str, int]]:
    """Files and lines that MacmpiWarnings point at."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        function()
    return [(one.filename, one.lineno) for one in said if one.category is MacmpiWarning]


@pytest.mark.parametrize(
    "function",
    [
        lambda: macmpi.fit(X, Y, config=ONE),
        lambda: macmpi.fit(TABLE.assign(name=[f"n{i}" for i in range(30)]), Y, config=ONE),
        lambda: macmpi.fit(np.full((30, 1), 2**60) + np.arange(30)[:, None] * 2**50, Y, config=ONE),
        lambda: MACRegressor([3], max_iter=1).fit(X, Y),
        lambda: MACClassifier([3], max_iter=1).fit(X, LABELS),
    ],
)
def test_a_warning_points_at_the_line_outside_of_macmpi(function: Any) -> None:
    found = lines_of(function)
    assert found
    assert set(found) == {(__file__, function.__code__.co_firstlineno)}


def test_a_program_says_a_warning_as_it_says_everything(tmp_path: Path) -> None:
    np.savez(tmp_path / "big.npz", X=2**60 + 2**50 * np.arange(40).reshape(20, 2), Y=np.arange(20.0))
    (tmp_path / "run.toml").write_text('data = "big.npz"\nmodel.loss = "squared"\nmodel.hidden = [2]\n')
    done = run_program("run.toml", "--iterations", 1, cwd=tmp_path, code=0)
    assert "macmpi: big.npz: dataset X holds whole numbers beyond 2^53" in done.err
    assert "MacmpiWarning" not in done.err


# --- commands ---------------------------------------------------------------------------------------------------------


def said(command: Any, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Any) -> tuple[int, str]:
    """The exit code of a command, and what it says on standard error."""
    monkeypatch.setattr("sys.argv", ["macmpi", *arguments])
    with pytest.raises(SystemExit) as ended:
        command.main()
    return int(ended.value.code or 0), capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "arguments", "code", "says"),
    [
        (report, ["run/curve.jsonl"], 2, "run/curve.jsonl is not a run: it is a file; name run"),
        (report, ["other"], 2, "other is not a run: it is a file; name the folder of a run"),
        (report, ["none"], 2, "none is not a run: there is no such folder"),
        (report, ["run", "--output", "other"], 2, "--output other is a file; name a folder"),
        (init, ["--config", "defaults", "--output", "x.toml"], 2, "--config defaults > FILE keeps that"),
        (init, ["--batch", "slurm", "--overwrite"], 2, "--overwrite is for the config that is written for DATA"),
        (init, [""], 2, "DATA: the name of a file or of a data set is needed"),
        (init, ["none"], 2, "macmpi: none is neither"),
    ],
)
def test_commands_say_what_was_given_and_what_helps(
    command: Any,
    arguments: list[str],
    code: int,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    for name in ("run/curve.jsonl", "other"):
        (tmp_path / name).write_text("")
    found, text = said(command, arguments, monkeypatch, capsys)
    assert found == code
    assert says in text
    assert "Errno" not in text


def test_a_config_that_is_not_there_is_looked_for_among_those_brought_along(tmp_path: Path) -> None:
    for name, hint in (
        ("nope", "; macmpi init --list"),
        ("digits_mc", "; did you mean digits_mac?  macmpi init --list"),
    ):
        assert hint in run_here(name, cwd=tmp_path, code=2).err


@pytest.mark.parametrize(("shape", "how"), [((4, 5), "4 x 5 pixels"), ((4, 5, 3), "4 x 5 pixels and 3 channels")])
def test_the_head_says_how_images_are_taken(shape: tuple[int, ...], how: str, capsys: Any) -> None:
    for scale, ends in (("auto", f"inputs are images of {how}, all scaled alike\n"), ("none", f"images of {how}\n")):
        macmpi.fit(RANDOM.normal(size=(30, *shape)), Y, config=ONE | {"data.scale": scale}, verbose=True)
        assert ends in capsys.readouterr().out
