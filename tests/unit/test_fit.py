"""macmpi.fit gives what the program gives for the same points, quietly, and leaves nothing behind."""

from __future__ import annotations

import copy
import itertools
import json
import os
import pickle
import signal
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launch.here import run_here
from numpy.testing import assert_allclose, assert_array_equal
from threadpoolctl import threadpool_info

import macmpi
from macmpi import MacmpiWarning, UsageError
from macmpi.api.heard import drawing, picture
from macmpi.config import Config, Run
from macmpi.parallel.kernels import limited
from macmpi.results.card import record_in
from macmpi.training import process

RANDOM = np.random.default_rng(7)
X = RANDOM.normal(size=(60, 3))
NUMBERS = np.sin(X[:, :2]) + 0.1 * RANDOM.normal(size=(60, 2))
CLASSES = np.where(X[:, 0] + X[:, 1] > 0.0, "above", "below")
SHORT = {"run.max_iterations": 4}

METHODS: dict[str, dict[str, Any]] = {
    "stochastic": {},
    "mac": {"method.name": "mac"},
    "momentum": {"method.name": "mac", "method.acceleration": "momentum"},
    "feasible": {"method.name": "mac", "method.acceleration": "feasible"},
    "multipliers": {"penalty.method": "augmented_lagrangian"},
    "sgd": {"method.name": "sgd"},
    "adam": {"method.name": "adam"},
    "cg": {"method.name": "cg"},
    "lbfgs": {"method.name": "lbfgs"},
}


def weights(model: macmpi.Model) -> np.ndarray:
    return np.concatenate([W.ravel() for W in model.weights])


def short(*arrays: Any, **keys: Any) -> macmpi.Model:
    keys["config"] = SHORT | keys.pop("config", {})
    return macmpi.fit(*arrays, hidden=keys.pop("hidden", [5]), **keys)


# --- the same as the program ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("targets", ["numbers", "one number", "text", "truth values", "none"])
def test_a_fit_is_the_run_of_a_file_of_the_same_points(targets: str, tmp_path: Path) -> None:
    kinds = {
        "numbers": NUMBERS,
        "one number": NUMBERS[:, 0],
        "text": CLASSES,
        "truth values": CLASSES == "above",
        "none": None,
    }
    Y = kinds[targets]
    np.savez(tmp_path / "points.npz", X=X, **({} if Y is None else {"Y": Y}))
    (tmp_path / "run.toml").write_text('data = "points.npz"\nmodel.hidden = [5]\nrun.max_iterations = 4\n')
    run_here("run.toml", cwd=tmp_path, code=0)
    ours, theirs = short(X, Y), macmpi.load(str(tmp_path / "runs" / "run" / "model.h5"))
    assert_array_equal(weights(ours), weights(theirs))
    assert_array_equal(ours.predict(X), theirs.predict(X))
    assert ours.predict(X).shape == (X if Y is None else Y).shape


def test_its_history_is_the_curve_of_its_run_directory(tmp_path: Path) -> None:
    model = short(X, NUMBERS, output=tmp_path / "run")
    lines = (tmp_path / "run" / "curve.jsonl").read_text().splitlines()
    assert model.history[-1]["ended"] == model.card.training.ended == "max_iterations"
    assert json.loads(lines[0])["run"].startswith("macmpi-run-")
    assert model.history == [record_in(line) for line in lines]
    assert [record["phase"] for record in model.history] == ["start", *["iteration"] * 4, "postprocess"]
    assert_array_equal(weights(model), weights(macmpi.load(str(tmp_path / "run" / "model.h5"))))
    with pytest.raises(UsageError, match="overwrite=True"):
        short(X, NUMBERS, output=tmp_path / "run")
    short(X, NUMBERS, output=tmp_path / "run", overwrite=True)


def test_a_config_can_be_a_mapping_a_file_or_a_config(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("[run]\nmax_iterations = 4\n[model]\nhidden = [5]\n")
    found = [
        macmpi.fit(X, NUMBERS, config=config)
        for config in (
            {"run.max_iterations": 4, "model.hidden": (5,)},
            {"run": {"max_iterations": np.int64(4)}, "model": {"hidden": np.array([5])}},
            tmp_path / "run.toml",
            str(tmp_path / "run.toml"),
        )
    ]
    found.append(macmpi.fit(X, NUMBERS, hidden=5, config=Config(run=Run(max_iterations=4))))
    for model in found:
        assert_array_equal(weights(model), weights(found[0]))


def test_data_that_a_config_names_are_trained_on(tmp_path: Path) -> None:
    np.savez(tmp_path / "points.npz", X=X, Y=NUMBERS)
    named = short(config={"data": {"source": str(tmp_path / "points.npz")}})
    assert_array_equal(weights(named), weights(short(X, NUMBERS)))


def test_validation_points_can_be_given() -> None:
    model = short(X[:40], NUMBERS[:40], validation=(X[40:], NUMBERS[40:]))
    F = model.predict(X[40:])
    scale = model.scaling_y.scale
    expected = 0.5 * np.mean(np.sum(np.square((F - NUMBERS[40:]) / scale), axis=1))
    best = min(record["E1_val"] for record in model.history)
    assert_allclose(expected, best, rtol=1e-9)
    assert short(X[:40], validation=X[40:]).autoencoder


# --- tables -----------------------------------------------------------------------------------------------------------


def table() -> Any:
    """Numbers, categories, a missing value, text to learn."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    frame["place"] = np.where(np.arange(60) % 3 == 0, "near", "far")
    frame["class"] = CLASSES
    frame.loc[7, "b"] = np.nan
    return frame


def test_a_table_and_its_column_are_the_table_and_the_targets() -> None:
    frame = table()
    inputs = frame.drop(columns="class")
    model = short(frame, "class")
    assert model.columns is not None
    assert model.columns.names == ["a", "b", "missingindicator_b", "c", "place_far", "place_near"]
    for other in (short(inputs, frame["class"]), short(inputs, CLASSES), short(inputs[:], frame[["class"]])):
        assert_array_equal(weights(other), weights(model))
    assert_array_equal(model.predict(frame), model.predict(inputs[reversed(inputs.columns)]))
    polars = pytest.importorskip("polars")
    assert_array_equal(weights(short(polars.from_pandas(frame), "class")), weights(model))


def test_a_fit_of_a_table_is_the_run_of_its_file(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    table().to_csv(tmp_path / "points.csv", index=False)
    (tmp_path / "run.toml").write_text('data.source = "points.csv"\ndata.target = "class"\nmodel.hidden = [5]\n')
    run_here("run.toml", "--iterations", "4", cwd=tmp_path, code=0)
    theirs = macmpi.load(str(tmp_path / "runs" / "run" / "model.h5"))
    assert_array_equal(weights(short(table(), "class")), weights(theirs))


def test_a_table_can_be_held_out() -> None:
    frame = table()
    model = short(frame[:40], "class", validation=frame[40:])
    for targets in ("class", ["class"], frame["class"][40:]):
        pair = short(frame[:40], "class", validation=(frame[40:], targets))
        assert_array_equal(weights(model), weights(pair))
    numbers = frame[["a", "c", "class"]]
    of_arrays = short(numbers[["a", "c"]].to_numpy()[:40], CLASSES[:40], validation=(numbers[40:], "class"))
    assert_array_equal(weights(of_arrays), weights(short(numbers[:40], "class", validation=numbers[40:])))
    with pytest.raises(UsageError, match="validation has no column 'class'"):
        short(frame[:40], "class", validation=frame[40:].drop(columns="class"))


def test_names_that_a_table_does_not_have_are_refused() -> None:
    with pytest.raises(UsageError, match="Y: X has no column 'clas'; did you mean 'class'"):
        short(table(), "clas")
    with pytest.raises(UsageError, match="names a column, and X is no table"):
        short(X, "class")


def test_a_list_of_labels_is_no_list_of_columns() -> None:
    """Even where the labels are names of columns."""
    labels = ["a", "b"] * 30
    found = [short(points, labels) for points in (X, table().drop(columns="class"), X.tolist())]
    for model in found:
        assert_array_equal(model.classes, ["a", "b"])
    assert found[1].columns is not None and "a" in found[1].columns.names
    assert_array_equal(weights(found[0]), weights(found[2]))


def test_tables_that_cannot_be_read_say_why() -> None:
    frame = table()
    frame.columns = ["a", "a", "c", "place", "class"]
    with pytest.raises(UsageError, match="two of its columns have one name"):
        short(frame, "class")
    with pytest.raises(UsageError, match="Y = 0: a column is given by its name"):
        short(table(), 0)
    polars = pytest.importorskip("polars")
    with pytest.raises(UsageError, match=r"give X\.collect\(\)"):
        short(polars.from_pandas(table()).lazy(), "class")


def test_targets_that_are_missing_are_refused() -> None:
    frame = table()
    frame.loc[3, "class"] = None
    with pytest.raises(UsageError, match="missing in row 3; take it out"):
        short(frame, "class")
    with pytest.raises(UsageError, match="missing in row 3; take it out"):
        short(frame.drop(columns="class"), frame["class"])


# --- start, stop ------------------------------------------------------------------------------------------------------


def test_a_fit_goes_on_from_a_model(tmp_path: Path) -> None:
    """Its first error is that of the model, whose net it takes over."""
    config = {"method.name": "adam", "run.refit": False, "start.gradient_step": False}
    held = X[40:], NUMBERS[40:]
    first = short(X[:40], NUMBERS[:40], layers="tanh", config=config | {"run.max_iterations": 60}, validation=held)
    macmpi.save(first, tmp_path / "first.h5")
    ways: tuple[dict[str, Any], ...] = (
        {"start": first},
        {"start": tmp_path / "first.h5", "hidden": 5, "layers": "tanh"},
    )
    for way in ways:
        model = macmpi.fit(X[:40], NUMBERS[:40], config=SHORT | config, validation=held, **way)
        assert model.chain == first.chain
        assert first.card is not None
        assert_allclose(model.history[0]["E1_val"], first.card.errors["last"].validation, rtol=1e-9)


@pytest.mark.parametrize(
    ("hidden", "keys"),
    [
        ([4, 2, 4], {"model.tied": True}),
        ([4, 4, 4], {"model.skips": [[1, 3]]}),
        ([4, 4], {"model.skips": [[0, 2]], "model.joining": "append"}),
        ([{"channels": 2}, {"channels": 2}, {"channels": 2}], {"model.skips": [[1, 3]], "model.image": [2, 3]}),
        ([{"recurrent": 4, "steps": 3}, 3], {}),
        ([4, 4], {"model.activation": ["softmax", "tanh"], "model.output": "sigmoid"}),
        ([4, 4], {"model.activation": ["binary", "tanh"], "method.name": "mac"}),
        ([9, 4], {"model.activation": ["rbf", "binary"], "model.sites": ["none", "after"], "method.name": "mac"}),
        ([4], {"model.activation": "quantise", "model.words": 5, "method.name": "mac"}),
    ],
)
def test_a_fit_goes_on_from_layers_that_sizes_do_not_tell(hidden: list[Any], keys: dict[str, Any]) -> None:
    """Shared weights, skips and layers without an elementwise activation are those of the model's card."""
    points = np.random.default_rng(0).normal(size=(50, 6))
    config = {"method.name": keys.get("method.name", "adam"), "start.gradient_step": False}
    given = {"model.activation": "tanh"} | config | keys
    first = short(points, hidden=hidden, config=given, validation=points[:9])
    assert first.card is not None
    model = macmpi.fit(points, config=SHORT | config, validation=points[:9], start=first)
    assert model.chain == first.chain
    assert_allclose(model.history[0]["E1_val"], first.card.errors["last"].validation, rtol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_a_callback_ends_every_method_with_a_model(method: str) -> None:
    seen: list[int] = []

    def callback(record: dict[str, Any]) -> bool:
        seen.append(record["iteration"])
        return record["iteration"] == 2

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MacmpiWarning)
        model = macmpi.fit(X, NUMBERS, hidden=[5], layers="tanh", config=METHODS[method], callback=callback)
    assert [record["iteration"] for record in model.history] == [0, 1, 2, 2] == seen
    assert np.isfinite(model.predict(X)).all()


def test_ctrl_c_gives_the_model_so_far_and_a_second_one_interrupts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one a while after the first."""
    moments = count(0.0, 10.0)
    monkeypatch.setattr(process, "now", lambda: next(moments))

    def once(record: dict[str, Any]) -> None:
        if record["iteration"] == 2 and record["phase"] == "iteration":
            signal.raise_signal(signal.SIGINT)

    def twice(record: dict[str, Any]) -> None:
        once(record)
        once(record)

    before = signal.getsignal(signal.SIGINT)
    assert macmpi.fit(X, NUMBERS, callback=once).history[-1]["iteration"] == 2
    with pytest.raises(KeyboardInterrupt):
        macmpi.fit(X, NUMBERS, callback=twice)
    assert signal.getsignal(signal.SIGINT) is before


WAYS_TO_END: dict[str, tuple[dict[str, Any], str]] = {
    "max_iterations": ({"config": {"run.max_iterations": 2}}, "its last iteration"),
    "max_iterations, none": ({"config": {"run.max_iterations": 0}}, ""),
    "max_time": ({"max_time": 1e-9}, "stopped by max_time"),
    "interrupted": ({"callback": lambda r: r["iteration"] == 1 and signal.raise_signal(signal.SIGINT)}, "interrupted"),
    "callback": ({"callback": lambda r: r["iteration"] == 1}, ""),
    "converged": ({"config": {"stochastic.patience": 1}}, ""),
}


@pytest.mark.parametrize("why", WAYS_TO_END)
def test_card_history_and_a_warning_say_why_a_fit_ended(why: str) -> None:
    """A warning is none where no iteration was asked for, the callback has wished so, or the error had settled."""
    keys, says = WAYS_TO_END[why]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model = macmpi.fit(X, NUMBERS, hidden=[5], **keys)
    assert model.card is not None
    assert model.card.training.ended == model.history[-1]["ended"] == why.partition(",")[0]
    found = [str(one.message) for one in told if issubclass(one.category, MacmpiWarning)]
    assert len(found) == bool(says) and all(says in one for one in found)


# --- manners ----------------------------------------------------------------------------------------------------------


@pytest.mark.every_case
@pytest.mark.parametrize("order", list(itertools.product((0, 1, 2), repeat=4)))
def test_fits_at_the_same_time_share_one_limit_of_threads(order: tuple[int, int, int, int]) -> None:
    """The last to end takes it back; other threads than those of a running fit are refused.

    order: the threads, this one and two more that live on, in which two fits begin, and in which they end.
    """

    def now() -> list[int]:
        return [info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"]

    before, first, second = now(), limited(3), limited(3)
    steps: list[Any] = [first.__enter__, second.__enter__, partial(first.__exit__, None, None, None)]
    steps.append(partial(second.__exit__, None, None, None))
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as two:
        for number, (step, thread) in enumerate(zip(steps, order, strict=True)):
            (step if thread == 0 else lambda: (one, two)[thread - 1].submit(step).result())()  # noqa: B023
            assert set(now()) == ({3} if number < 3 else set(before))
            if number < 3:
                with pytest.raises(UsageError, match="another fit of this process computes with 3 BLAS"), limited(1):
                    pass
    assert now() == before


def test_a_fit_has_the_same_bits_in_every_thread() -> None:
    here = short(X, NUMBERS)
    with ThreadPoolExecutor(1) as other:
        there = other.submit(short, X, NUMBERS).result()
    assert all(np.array_equal(*pair) for pair in zip(here.weights, there.weights, strict=True))


def test_a_fit_is_quiet_writes_nothing_and_leaves_the_process_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    environment, handlers = dict(os.environ), [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    np.random.seed(5)
    before = np.random.get_state()[1].copy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "the fit came to its last iteration", MacmpiWarning)
        short(X, NUMBERS)
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []
    assert dict(os.environ) == environment
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert_array_equal(np.random.get_state()[1], before)


def test_a_verbose_fit_prints_the_programs_table(capsys: pytest.CaptureFixture[str]) -> None:
    short(X, NUMBERS, verbose=True)
    out, err = capsys.readouterr()
    assert out.startswith("macmpi: 3-5-2 regression") and err == ""
    assert sum(line.split()[:1] == ["4"] for line in out.splitlines()) == 2  # the last iteration, the end
    assert "model:" not in out


@pytest.mark.parametrize("ranks", [None, 2])
def test_what_is_said_of_a_table_is_the_same_by_every_way_in(ranks: int | None, tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=list("abc")).assign(y=NUMBERS[:, 0], name=[f"row {i}" for i in range(60)])
    frame.to_csv(tmp_path / "t.csv", index=False)
    said = []
    for way in ({"X": frame, "Y": "y"}, {"config": {"data.source": str(tmp_path / "t.csv"), "data.target": "y"}}):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            short(**way, ranks=ranks)
        said.append([str(one.message) for one in found if issubclass(one.category, MacmpiWarning)])
    assert said[0] == said[1]
    assert "column name names the rows (60 different texts), and is left out" in said[0]


def test_what_is_said_of_a_table_is_said_where_a_run_begins(tmp_path: Path) -> None:
    """Not again where it goes on, nor where a command only explains the config."""
    lines = [f"{x},,{y}" for x, y in zip(X[:, 0], NUMBERS[:, 0], strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["a,none,y", *lines]))
    (tmp_path / "t.toml").write_text('[data]\nsource = "t.csv"\ntarget = "y"\n[model]\nhidden = [2]\n')
    on = "--resume", "auto"
    for words, times in ((["--check"], 1), (["--iterations", 1], 1), (["--explain"], 0), (["--iterations", 2, *on], 0)):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            run_here("t.toml", *words, cwd=tmp_path, code=0)
        assert [str(one.message) for one in found].count("column none has no values, and is left out") == times


def test_what_a_run_warns_of_is_a_warning() -> None:
    with pytest.warns(MacmpiWarning, match="z_step.iterations"):
        short(X, NUMBERS, config={"method.name": "adam", "z_step.iterations": 3})


def test_a_fit_works_in_a_thread() -> None:
    """Where there are no signals."""
    found: list[macmpi.Model] = []
    thread = threading.Thread(target=lambda: found.append(short(X, NUMBERS)))
    thread.start()
    thread.join()
    assert_array_equal(weights(found[0]), weights(short(X, NUMBERS)))


def test_a_model_goes_through_pickle_and_a_file(tmp_path: Path) -> None:
    model = short(X, CLASSES)
    macmpi.save(model, str(tmp_path / "own.h5"))
    for other in (pickle.loads(pickle.dumps(model)), macmpi.load(str(tmp_path / "own.h5"))):
        assert_array_equal(other.predict(X), model.predict(X))
        assert_array_equal(other.probabilities(X), model.probabilities(X))
        assert other.card == model.card


def test_models_are_values_and_their_files_keep_all_weights(tmp_path: Path) -> None:
    """Equal are those that predict the same, whichever way they went."""
    models = [short(X, CLASSES, config={"run.refit": True}, seed=seed) for seed in (0, 0, 1)]
    assert models[0] == models[1] != models[2]
    assert len(set(models)) == 2
    assert models[0] != 3 and models[0] is not None
    model = models[0]
    assert [*model.kept] == ["last", "best", "refit"] and model.in_use == "refit"
    macmpi.save(model, str(tmp_path / "own.h5"))
    macmpi.save(macmpi.load(str(tmp_path / "own.h5"), "best"), str(tmp_path / "again.h5"))
    for name in model.kept:
        for other in (
            macmpi.load(str(tmp_path / "own.h5"), name),
            macmpi.load(str(tmp_path / "again.h5")).with_weights(name),
            pickle.loads(pickle.dumps(model)).with_weights(name),
            copy.deepcopy(model).with_weights(name),
        ):
            assert other == model.with_weights(name)
            assert (other == model) is (name == "refit")


def test_the_package_offers_what_it_has() -> None:
    assert set(macmpi.__all__) <= set(dir(macmpi))
    assert all(getattr(macmpi, name) is not None for name in macmpi.__all__)
    with pytest.raises(AttributeError, match="no attribute 'fitt'"):
        _ = macmpi.fitt


# --- refusals ---------------------------------------------------------------------------------------------------------

FEW = np.arange(60) % 4

REFUSED: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "classes or amounts": ((X, FEW), {}, r'^the arguments of fit: Y holds .* loss = "cross_entropy" if classes'),
    "no units": ((X,), {"hidden": [0]}, "hidden.0: should be greater"),
    "another layer": ((X,), {"layers": "rel"}, "layers: unknown word; did you mean 'relu'"),
    "another loss": ((X, NUMBERS), {"loss": "hubr"}, "loss: unknown word; did you mean 'huber'"),
    "too large a share": ((X,), {"validation": 2.0}, "validation: should be less than 1"),
    "half of a pair": ((X, NUMBERS), {"validation": (X,)}, "validation: a share .* or a pair"),
    "targets of other points": ((X, NUMBERS[:5]), {}, "X has 60 rows but Y has 5"),
    "another key": ((X,), {"config": {"penalty.mu": 3}}, "penalty.mu: unknown key; did you mean penalty.mu0"),
    "no table": ((X,), {"config": {"penalty": 3}}, "penalty: should be a table"),
    "no config": ((X,), {"config": 3}, "config: a mapping, a path or a Config"),
    "no file": ((X,), {"config": "nowhere.toml"}, "cannot read the config nowhere.toml"),
    "no model": ((X,), {"start": "nowhere.h5"}, "nowhere.h5 is not a model"),
    "no time": ((X,), {"max_time": 0}, "max_time = 0"),
    "no ranks": ((X,), {"ranks": 0}, "ranks = 0"),
    "half a rank": ((X,), {"ranks": 1.5}, "ranks = 1.5"),
    "no communicator": ((X,), {"comm": 3}, "comm: a communicator"),
    "a seed below 0": ((X,), {"seed": -1}, "seed: should be greater"),
    "sharded arrays": ((X,), {"config": {"parallel.data": "sharded"}}, "name the file in config"),
    "no points": ((), {}, "there are no points"),
    "targets alone": ((None, NUMBERS), {}, "Y is given without X"),
    "text": ((CLASSES[:, None],), {}, "real numbers are needed"),
    "rows of several lengths": (([[1.0, 2.0], [3.0]],), {}, "X is no array"),
    "a gap": ((np.where(X > 1.5, np.nan, X),), {}, "X is nan at"),
    "masked values": ((np.ma.masked_greater(X, 1.0), NUMBERS), {}, r"X has \d+ masked value"),
    "masked targets": ((X, np.ma.masked_greater(NUMBERS, 1.0)), {}, r"Y has \d+ masked value"),
    "a file as points": (("points.csv",), {}, r"X is text, 'points.csv': .* a file is read by macmpi.fit\(config="),
    "a data file as config": ((X,), {"config": "points.csv"}, r"holds data, .*: macmpi init points\.csv"),
    "time in words": ((X,), {"max_time": "1m"}, "max_time = '1m'"),
    "no callback": ((X,), {"callback": 3}, "callback = 3: a function"),
    "radial layers with coordinates": (
        (X,),
        {"layers": "rbf", "hidden": [4], "config": {"model.sites": "before"}},
        r'config=\{"model.sites": "none"\}',
    ),
    "a constant": ((X, np.ones(60)), {}, "^the arguments of fit: every column of Y is constant"),
    "another model": ((X, NUMBERS), {"start": "classifier"}, "^start: it was trained for other classes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_trained_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arrays, keys, message = REFUSED[name]
    if keys.get("start") == "classifier":
        keys = {"start": short(X, CLASSES)}
    with pytest.raises(UsageError, match=message):
        macmpi.fit(*arrays, **keys)
    assert list(tmp_path.iterdir()) == []


def test_sparse_targets_and_single_rows_are_refused_with_the_remedy() -> None:
    from scipy import sparse

    for arrays, name in (((X, sparse.csr_array(X)), "Y"), ((sparse.coo_array(np.ones(3)),), "X")):
        with pytest.raises(UsageError, match=rf"{name}.toarray\(\)"):
            macmpi.fit(*arrays)


def test_a_fit_that_diverges_says_so() -> None:
    with pytest.warns(MacmpiWarning, match=r"baseline\.rate"):
        model = short(X, 1e3 * NUMBERS, config={"method.name": "sgd", "baseline.rate": 1e6, "data.scale": "none"})
    assert np.isfinite(model.predict(X)).all()


# --- the picture in a notebook ----------------------------------------------------------------------------------------


def test_the_picture_has_a_point_for_each_error_and_a_line_of_the_last_record() -> None:
    history = short(X, NUMBERS).history
    page = picture(history)
    assert page.count("<polyline") == 2
    assert [len(part.split('"')[0].split()) for part in page.split('points="')[1:]] == [len(history)] * 2
    assert "iteration 4," in page and "(finished)" in page
    assert "<svg" not in picture(history[:1])


def test_a_live_picture_is_made_once_and_then_updated(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("IPython")
    pages: list[Any] = []

    class Shown:
        def update(self, page: Any) -> None:
            pages.append(page)

    monkeypatch.setattr("macmpi.api.heard.EVERY", 0.0)
    told: list[int] = []
    short(X, NUMBERS, callback=drawing(lambda record: told.append(record["iteration"]), Shown()))
    assert len(pages) == len(told) == 6
