"""A stream: training goes on from piece to piece as if it had never been interrupted, in memory, by files, by ranks."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csc_array
from sklearn.datasets import load_digits, make_friedman1

import macmpi
import macmpi.state
from macmpi import UsageError
from macmpi.data.scaling import ColumnStatistics, Scaling, ScalingRule
from macmpi.methods.stochastic.curvature import RunningCurvature
from macmpi.results.model import Model
from macmpi.sklearn import MACAutoencoder, MACClassifier, MACRegressor
from macmpi.typing import Array

pd = pytest.importorskip("pandas")

RANDOM = np.random.default_rng(5)
SHORT: dict[str, Any] = {"hidden": [6], "seed": 0}


def same(one: Model, two: Model) -> bool:
    """They predict alike, and go on alike."""
    assert one.stream.keys() == two.stream.keys() and one.stream
    return one == two and all(np.array_equal(one.stream[name], two.stream[name]) for name in one.stream)


def table(n: int, cities: list[str], shift: float = 0.0) -> Any:
    """Numbers, numbers with long tails, categories."""
    columns = {"a": RANDOM.normal(shift, 4.0, n), "city": pd.Categorical(RANDOM.choice(cities, n))}
    return pd.DataFrame(columns | {"b": RANDOM.lognormal(2.0, 2.0, n), "y": RANDOM.normal(size=n)})


FIRST, SECOND = table(120, ["Oslo", "Rome"]), table(90, ["Rome", "Bern"], 3.0)[["y", "b", "city", "a"]]
BOTH = macmpi.fit(batches=[FIRST, SECOND], Y="y", **SHORT)
BEGUN = macmpi.fit(batches=[FIRST], Y="y", **SHORT)


def test_a_model_goes_on_wherever_it_was_kept(tmp_path: Path) -> None:
    """Columns are found by their names, and are those of the first piece; keys are those that the stream began with."""
    macmpi.save(BEGUN, tmp_path / "model.h5")
    kept = (BEGUN, tmp_path / "model.h5", pickle.loads(pickle.dumps(BEGUN)))
    for start in kept:
        assert same(macmpi.fit(batches=[SECOND], Y="y", start=start, seed=0), BOTH)
    assert same(macmpi.fit(SECOND.astype({"city": object}), "y", start=BEGUN, seed=0), BOTH)
    assert BOTH.columns == BEGUN.columns and BOTH.points == 210 and BEGUN.points == 120


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_stream_of_arrays_reads_a_table_as_an_array(library: str, tmp_path: Path) -> None:
    """Of whole numbers, truth values and categories, too; whether it comes as an argument or as a file."""
    X = np.stack([RANDOM.normal(size=60), RANDOM.integers(0, 9, 60), RANDOM.integers(0, 2, 60)], axis=1)
    y, w = X[:, 0] + X[:, 1], RANDOM.uniform(0.5, 2.0, 60)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1].astype(int), "c": X[:, 2] > 0.0, "y": y, "w": w})
    begun = macmpi.fit(batches=[(X[:30], y[:30], w[:30])], **SHORT)
    rest = frame[30:] if library == "pandas" else pytest.importorskip("polars").from_pandas(frame[30:])
    expected = macmpi.fit(X[30:], y[30:], weights=w[30:], start=begun, seed=0)
    assert same(macmpi.fit(rest, "y", weights="w", start=begun, seed=0), expected)
    frame[30:].to_csv(tmp_path / "rest.csv", index=False)
    named = {"data.source": str(tmp_path / "rest.csv"), "data.target": "y", "data.weights": "w"}
    found = macmpi.fit(start=begun, seed=0, config=named)
    assert found.columns is None and np.allclose(found.predict(X), expected.predict(X))
    pairs = (rest[["a", "b", "c", "y"]], "y"), (X[30:], y[30:])
    held = [macmpi.fit(X, y, start=begun, validation=pair) for pair in pairs]
    assert same(*held) and held[0].history[-1]["E1_val"] == held[1].history[-1]["E1_val"]
    with pytest.raises(UsageError, match="a net of 3 inputs, and these data have 4"):
        macmpi.fit(rest, "y", start=begun)
    frame["c"] = "x"
    with pytest.raises(UsageError, match="column c holds 'x' in row 0; numbers are needed"):
        macmpi.fit(frame, "y", weights="w", start=begun)


def test_what_is_kept_does_not_depend_on_earlier_pieces_in_size(tmp_path: Path) -> None:
    sizes = [{name: A.nbytes for name, A in model.stream.items()} for model in (BEGUN, BOTH)]
    assert sizes[0] == sizes[1]
    assert len(pickle.dumps(BOTH)) < 1.05 * len(pickle.dumps(BEGUN))


def test_the_scaling_of_all_pieces_is_that_of_all_points() -> None:
    """But for numbers beyond the limit so far."""
    X = RANDOM.normal(3.0, 2.0, (700, 4)) * [1.0, 10.0, 1e-3, 1.0]
    X[:, 3] = RANDOM.integers(0, 2, 700)

    def scaled(A: Any, kind: str, like: Scaling | None) -> Scaling:
        def mean(function: Any) -> Any:
            return (A if function is None else function(A)).mean(axis=0)

        mass, none = np.full(4, float(len(A))), np.zeros(4, bool)
        columns = ColumnStatistics(A.min(axis=0), A.max(axis=0), np.full(4, len(A)), A, mean, mass, none)
        return columns.scaling(ScalingRule(kind, like=like, running=True))

    for kind in ("robust", "standard", "range"):
        running = None
        for piece in (X[:300], X[300:310], X[310:]):
            running = scaled(piece, kind, running)
        assert running is not None and running.seen is not None
        whole = scaled(X, kind, None)
        for ours, theirs in zip(running.arrays.values(), whole.arrays.values(), strict=True):
            assert_allclose(ours, theirs, rtol=1e-12)
        if kind == "robust":
            wild = X[:50].copy()
            wild[0, 0] = 1e9
            moved = scaled(wild, kind, running)
            assert abs(moved.shift[0] - running.shift[0]) < 0.1 * running.scale[0]
            assert moved.scale[0] <= 2.0 * running.scale[0]  # as far as the limit, and no farther
        assert Scaling.of(running.arrays).arrays.keys() == running.arrays.keys()


def test_another_scaling_changes_no_prediction() -> None:
    """The weights, their average, the last step and the Gram of the inputs are those of it; inverses are made again."""
    X = RANDOM.normal(5.0, 3.0, (100, 3))
    model = macmpi.fit(batches=[(X, X @ [1.0, 2.0, 3.0])], **SHORT)

    class Other:
        """A data set of another scaling."""

        scaling_x = Scaling(np.array([1.0, 2.0, 3.0]), np.array([2.0, 1.0, 5.0]), model.scaling_x.tails)
        scaling_y = Scaling(np.array([7.0]), np.array([0.5]))
        classes = columns = span = None

    last = model.last_for(model.chain, Other)  # type: ignore[arg-type]
    assert model.stream["inverses"].any() and not last["inverses"].any()
    old, new = model.scaling_x.apply(X), Other.scaling_x.apply(X)
    for name, flat in model.stream.items():
        if name in ("weights", "average"):
            blocks = [macmpi.state.block_views(A, model.chain.block_shapes) for A in (flat, last[name])]
            before, after = (model.chain.forward(W, A) for W, A in zip(blocks, (old, new), strict=True))
            assert_allclose(Other.scaling_y.undo(after), model.scaling_y.undo(before), rtol=1e-9, atol=1e-9)
    shifted = model.stream["weights"] + model.stream["step"]
    moved = model._at(shifted, model.chain, Other)  # type: ignore[arg-type]
    assert_allclose(last["weights"] + last["step"], moved, rtol=1e-12)
    ones = np.ones((100, 1))
    grams = [np.hstack([A, ones]).T @ np.hstack([A, ones]) / 100 for A in (old, new)]
    assert_allclose(model.stream["grams"][:16].reshape(4, 4), grams[0], atol=1e-12)
    assert_allclose(last["grams"][:16].reshape(4, 4), grams[1], atol=1e-9)


def test_a_second_piece_renews_the_gram_of_all_points() -> None:
    X = RANDOM.normal(size=(150, 3))
    model = macmpi.fit(batches=[(A, A @ [1.0, 2.0, 3.0]) for A in (X[:100], X[100:])], **SHORT)
    A = np.hstack([model.scaling_x.apply(X), np.ones((150, 1))])
    assert_allclose(model.stream["grams"][:16].reshape(4, 4), A.T @ A / 150, atol=1e-9)
    assert model.stream["numbers"][-1] > 0


def test_short_pieces_make_inverses_as_often_as_one_long_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve minibatches, in one piece or each in its own: made again for every step, inverses fit its points alone."""
    refresh, due = RunningCurvature.refresh, list[int]()

    def counted(self: RunningCurvature, tapes: Any, probed: float, damping: float, state: Any, *args: Any) -> None:
        due.append(state.own.steps)
        refresh(self, tapes, probed, damping, state, *args)

    monkeypatch.setattr(RunningCurvature, "refresh", counted)
    images = RANDOM.uniform(size=(12 * 32, 3, 3))
    for batches in ([images], np.split(images, 12)):
        due.clear()
        macmpi.fit(batches=batches, **SHORT)
        assert due == [0, 1, 2, 10]


def test_points_of_another_kind_are_no_step_that_failed() -> None:
    """Whatever changes from piece to piece, the net learns it, and its damping does not grow piece by piece."""
    V = np.array([[1.0, 2.0, 3.0], [-3.0, 1.0, 0.5]])

    def after(count: int, targets: Any, **keys: Any) -> Array:
        model, error = None, np.zeros(0)
        for i in range(count):
            A = RANDOM.normal(size=(200, 3))
            Y = A @ V.T
            model = macmpi.fit(batches=[(A, targets(i, Y.copy()))], start=model, seed=0, **({} if model else keys))
            error = np.square(model.predict(A) - targets(count, Y)).mean(axis=0) / targets(count, Y).var(axis=0)
            assert model.stream["numbers"][0] <= 10.0
        return error

    line: dict[str, Any] = {"hidden": [4], "layers": "linear"}
    assert after(3, lambda i, Y: Y[:, min(i, 1)], **line) < 0.05
    assert after(4, lambda i, Y: Y[:, 0] if i else np.full(len(Y), 5.0), **line) < 0.2
    assert after(5, lambda i, Y: Y[:, 0] * (1000.0 if i else 1.0), hidden=[20]) < 0.2
    for lacking in (0, 2):
        gaps = lambda i, Y: np.where([False, i == lacking], np.nan, Y)  # noqa: B023, E731
        assert (after(5, gaps, config={"loss.missing": True}, **line) < 0.2).all()


def test_the_first_piece_decides_how_columns_are_scaled() -> None:
    images = RANDOM.uniform(size=(60, 3, 3))
    rows = images.reshape(60, 9)
    assert same(macmpi.fit(batches=[images, rows], **SHORT), macmpi.fit(batches=[images, images], **SHORT))
    assert same(macmpi.fit(batches=[rows, images], **SHORT), macmpi.fit(batches=[rows, rows], **SHORT))


@pytest.mark.parametrize("where", ["weights", "targets"])
def test_rows_that_count_measure_a_piece_wherever_they_stand(where: str) -> None:
    X, w, y = RANDOM.normal(size=(30, 3)), np.ones(30), RANDOM.normal(size=30)
    (w if where == "weights" else y)[::5] = 0.0 if where == "weights" else np.nan
    config = {"loss.missing": where == "targets"}
    model = macmpi.fit(batches=[(X, y, w)], config=config, **SHORT)
    assert model.history[0]["E1_val"] > 0.0


@pytest.mark.parametrize("of", [int, bool, float])
def test_labels_of_a_piece_are_the_classes_however_they_are_kept(of: Any) -> None:
    """A file of which all cells say numbers or truth values has no text; validation tables have not either."""
    named = {int: ["01", "2", "x"], bool: ["False", "True", "maybe"], float: [1.0, 2.0, 5.0]}[of]
    X, at = RANDOM.normal(size=(60, 2)), np.arange(60) % 2
    text = np.array(named)[at]
    other = {int: [1, 2], bool: [False, True], float: ["01", "2"]}[of]
    begun = macmpi.fit(batches=[(X, text)], classes=named, loss="cross_entropy", **SHORT)
    found = [macmpi.fit(X, A, start=begun, seed=0) for A in (text, np.array(other)[at])]
    assert same(*found) and found[1].classes.tolist() == named
    keys = {"loss": "cross_entropy", "config": {"run.max_iterations": 1, "run.refit": False}, **SHORT}
    for A in (text, np.array(other)[at]):
        found.append(macmpi.fit(X, text, validation=(X[:20], A[:20]), **keys))
    assert found[2] == found[3]


def test_validation_points_may_be_given_for_each_piece() -> None:
    X = RANDOM.normal(size=(60, 3))
    both = macmpi.fit(batches=[(X, X[:, 0])] * 2, validation=(X[:9], X[:9, 0]), **SHORT)
    assert macmpi.fit(X, X[:, 0], start=both, validation=0.5).points == 180


def test_estimators_go_on_as_fits_of_batches_do() -> None:
    X, y = make_friedman1(300, random_state=0)
    labels = np.where(y > 14.0, "large", "small")
    pieces = [slice(0, 120), slice(120, 300)]
    regressor, classifier, coder = (kind([6], random_state=0) for kind in (MACRegressor, MACClassifier, MACAutoencoder))
    for own in pieces:
        regressor.partial_fit(X[own], y[own])
        classifier = pickle.loads(pickle.dumps(classifier)).partial_fit(X[own], labels[own], ["large", "small", "none"])
        coder.partial_fit(X[own])
    assert same(regressor.model_, macmpi.fit(batches=[(X[own], y[own]) for own in pieces], loss="squared", **SHORT))
    numbers = [(X[own], 2 * (labels[own] == "small")) for own in pieces]
    given = macmpi.fit(batches=numbers, loss="cross_entropy", classes=[0, 1, 2], **SHORT)
    assert same(classifier.model_, given)
    assert same(coder.model_, macmpi.fit(batches=[X[own] for own in pieces], **SHORT))
    assert_array_equal(classifier.classes_, ["large", "none", "small"])
    assert regressor.n_iter_ == 1 and coder.transform(X).shape == (300, 6)
    twice, of_sparse = np.full(120, 2.0), MACRegressor([6], random_state=0)
    of_sparse.partial_fit(csc_array(X[:120]), y[:120], twice).partial_fit(X[120:], y[120:])
    given = macmpi.fit(batches=[(X[:120], y[:120], twice), (X[120:], y[120:])], loss="squared", **SHORT)
    assert same(of_sparse.model_, given) and not same(given, regressor.model_)
    assert not of_sparse.set_params(warm_start=True, max_iter=2).fit(X, y).model_.stream  # no piece


def test_classes_are_named_where_a_stream_begins() -> None:
    X, y = RANDOM.normal(size=(40, 2)), np.arange(40) % 2
    with pytest.raises(ValueError, match="classes must be passed on the first call to partial_fit"):
        MACClassifier([4]).partial_fit(X, y)
    found = MACClassifier([4], random_state=0).partial_fit(X, y, classes=[0, 1, 5])
    with pytest.raises(ValueError, match="is not the same as on last call to partial_fit"):
        found.partial_fit(X, y, classes=[0, 1])
    with pytest.raises(ValueError, match=r"previously unseen labels: \[3\]"):
        found.partial_fit(X, np.full(40, 3))
    before = found.predict_proba(X)
    with pytest.raises(ValueError, match="3 features"):
        found.partial_fit(np.ones((10, 3)), y[:10])
    assert_array_equal(found.predict_proba(X), before)
    found.partial_fit(X[:2], [5, 5], sample_weight=[1.0, 0.0])  # a piece of one class
    assert found.predict_proba(X).shape == (40, 3)
    with pytest.raises(ValueError, match="class_weight 'balanced' is not supported for partial_fit"):
        MACClassifier([4], class_weight="balanced").partial_fit(X, y, classes=[0, 1])


def test_a_piece_that_does_not_fit_is_refused_in_one_message() -> None:
    text = RANDOM.choice(["p", "q"], 60)
    X = RANDOM.normal(size=(60, 2))
    model = macmpi.fit(batches=[(X, text)], classes=["p", "q", "s"], **SHORT)
    assert model.classes is not None and model.classes.tolist() == ["p", "q", "s"]
    assert macmpi.fit(X[:9], np.array(["s"] * 9), start=model).classes.tolist() == ["p", "q", "s"]
    refused: list[tuple[str, dict[str, Any]]] = [
        ("no column b", {"X": SECOND.drop(columns="b"), "Y": "y", "start": BEGUN}),
        ("a net of 4 inputs, and these data have 2", {"X": X, "Y": X[:, 0], "start": BEGUN}),
        ("holds 'u', and the classes are 'p', 'q', 's'", {"X": X, "Y": np.array(["p", "u"] * 30), "start": model}),
        ("classes is read of labels of a stream alone", {"X": X, "Y": text, "classes": ["p", "q"]}),
        ("two labels or more", {"batches": [(X, text)], "classes": ["p"]}),
        ("two labels or more", {"batches": [(X, X[:, 0] > 0.0)], "classes": [0.0, 1.0, np.nan]}),
        ("batches: there is none", {"batches": []}),
        (r"batches: one is a list of arrays.* map\(tuple, batches\)", {"batches": [[np.ones((4, 3)), np.ones(4)]]}),
        ("an iterable", {"batches": 3}),
        ("an iterable", {"batches": X}),
        ("an iterable", {"batches": FIRST, "Y": "y"}),
        (
            "loss = 'huber': the model that goes on has 'squared'",
            {"X": SECOND, "Y": "y", "start": BEGUN, "loss": "huber"},
        ),
        (r"\['p', 'q', 's'\]; leave it out", {"X": X, "Y": text, "start": model, "classes": ["p", "q"]}),
        ("classes is read of labels of a stream", {"batches": [(X, X[:, 0])], "classes": [0, 1], "loss": "huber"}),
        ("name all in classes", {"batches": [(X, np.full(60, "p"))]}),
        ("another kind", {"X": SECOND, "Y": "y", "start": BEGUN, "config": {"data.scale": "range"}}),
        ("leave X and output out", {"batches": [X], "X": X}),
        ("in one place", {"batches": [(X, text)], "Y": "y"}),
        ('this run is by "mac"', {"batches": [X], "config": {"method.name": "mac"}}),
        ('by "mac", as "rbf" is a layer that only half steps train; leave it out', {"batches": [X], "layers": "rbf"}),
        ('batch = "all" has none', {"batches": [X], "config": {"stochastic.batch": "all"}}),
    ]
    for words, arguments in refused:
        with pytest.raises(UsageError, match=words):
            macmpi.fit(**arguments)


def test_pieces_that_repeat_end_as_all_points_do() -> None:
    """As many passes: the loss of other points is within 3 % (docs/python.md has other data)."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    pieces = [slice(i * 350, (i + 1) * 350) for i in range(4)]
    keys: dict[str, Any] = {"loss": "cross_entropy", "hidden": [30], "seed": 0}
    batches = ((X[own], y[own]) for _ in range(8) for own in pieces)
    stream = macmpi.fit(batches=batches, classes=np.arange(10), **keys)
    config = {"run.max_iterations": 8, "run.refit": False, "stochastic.patience": 99}
    whole = macmpi.fit(X[:1400], y[:1400], validation=(X[:100], y[:100]), config=config, **keys).with_weights("last")

    def loss(model: Model) -> float:
        return -float(np.log(model.probabilities(X[1400:])[np.arange(397), y[1400:]]).mean())

    assert loss(stream) < 1.03 * loss(whole)


def test_a_callback_ends_a_stream() -> None:
    X, seen = RANDOM.normal(size=(40, 3)), list[Any]()
    config = {"stochastic.records": 1}
    model = macmpi.fit(
        batches=[X] * 5, callback=lambda record: len(seen) > 2 or seen.append(record), config=config, **SHORT
    )
    assert model.points == 80 and [record["phase"] for record in seen[:2]] == ["start", "iteration"]
