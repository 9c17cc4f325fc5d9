"""Estimators in scikit-learn's manner: its own checks, its tools, and what they promise beyond."""

from __future__ import annotations

import decimal
import pickle
import subprocess
import sys
import tomllib
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sampled import examples
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import load_digits, load_iris
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.estimator_checks import parametrize_with_checks

import macmpi
from macmpi import MacmpiWarning
from macmpi.sklearn import MACAutoencoder, MACClassifier, MACRegressor

pd = pytest.importorskip("pandas")

EXPECTED_FAILURES = {
    f"check_sample_weight_equivalence_on_{kind}_data": "a fit draws validation points and minibatches by the numbers "
    "of rows, which differ between repeated rows and weighted ones"
    for kind in ("dense", "sparse")
}
"""All of them, each with its reason."""

RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(120, 4))
NUMBERS = X[:, 0] * X[:, 1] + 0.1 * RANDOM.normal(size=120)
CLASSES = np.where(X[:, 0] > 0.3, "large", "small")
SHORT: dict[str, Any] = {"hidden": [6], "max_iter": 4, "random_state": 0}


@pytest.mark.long
@parametrize_with_checks(
    [MACRegressor(max_iter=20), MACClassifier(max_iter=20), MACAutoencoder(max_iter=20)],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_own_checks(estimator: BaseEstimator, check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # without it one of them is skipped
    check(estimator)


def test_an_estimator_is_the_fit_of_its_points() -> None:
    for estimator, Y, loss in ((MACRegressor, NUMBERS, "squared"), (MACClassifier, CLASSES, "cross_entropy")):
        found = estimator(**SHORT).fit(X, Y)
        model = macmpi.fit(X, Y, hidden=[6], loss=loss, config={"run.max_iterations": 4}, validation=0.2, seed=0)
        assert_array_equal(found.predict(X), model.predict(X))
        assert found.n_iter_ == len(found.loss_curve_) == len(found.validation_curve_) == 4
        assert found.loss_curve_ == [r["E1_train"] for r in model.history if r["phase"] == "iteration"]
    assert_allclose(found.predict_proba(X), model.probabilities(X), rtol=1e-12)
    assert_array_equal(found.classes_, ["large", "small"])


def test_iterations_that_select_units_are_iterations_too() -> None:
    selection = {"criterion": "aic", "epsilon2": [0.1], "sizes": [[2, 4, 6]], "every": 2}
    config = {"method.name": "mac", "selection": selection}
    found = MACRegressor(hidden=[6], layers="tanh", max_iter=5, config=config, random_state=0).fit(X, NUMBERS)
    assert "selection" in {record["phase"] for record in found.model_.history}
    assert found.n_iter_ == len(found.loss_curve_) == len(found.validation_curve_) == 5


def test_probabilities_are_in_the_order_of_the_classes() -> None:
    """Of more than ten numbers, whose order as text is another."""
    labels = np.arange(240) % 12
    found = MACClassifier(hidden=[12], max_iter=10, random_state=0).fit(np.eye(12)[labels], labels)
    assert_array_equal(found.classes_, np.arange(12))
    assert_array_equal(found.predict_proba(np.eye(12)).argmax(axis=1), np.arange(12))


def test_codes_and_their_reconstructions() -> None:
    found = MACAutoencoder(hidden=[2], max_iter=20, random_state=0).fit(X)
    codes = found.transform(X)
    assert codes.shape == (120, 2)
    assert_allclose(found.inverse_transform(codes), found.model_.predict(X), rtol=1e-12)
    residual = np.square(found.inverse_transform(codes) - X).sum() / np.square(X - X.mean(axis=0)).sum()
    assert_allclose(found.score(X), 1.0 - residual, rtol=1e-9)
    twice = np.arange(len(X)) % 2 + 1
    assert_allclose(found.score(X, sample_weight=twice), found.score(np.repeat(X, twice, axis=0)), rtol=1e-9)


def test_tools_of_scikit_learn_take_it() -> None:
    iris, labels = load_iris(return_X_y=True)
    names = load_iris().target_names[labels]
    pipeline = make_pipeline(StandardScaler(), MACClassifier(max_iter=15, random_state=0))
    assert cross_val_score(pipeline, iris, names, cv=3).min() > 0.8
    grid = GridSearchCV(
        pipeline, {"macclassifier__hidden": [[4], [30]], "macclassifier__layers": ["tanh", "relu"]}, cv=2
    )
    grid.fit(iris, names)
    assert set(grid.best_params_) == {"macclassifier__hidden", "macclassifier__layers"}
    assert grid.best_estimator_.score(iris, names) > 0.9
    again = clone(grid.best_estimator_).fit(iris, names)
    copy = pickle.loads(pickle.dumps(again))
    assert_array_equal(copy.predict(iris), grid.best_estimator_.predict(iris))


def test_names_of_columns_go_in_and_out() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcd"))
    found = MACAutoencoder(hidden=[2], max_iter=2, random_state=0).fit(frame).set_output(transform="pandas")
    assert list(found.feature_names_in_) == list("abcd")
    codes = found.transform(frame)
    assert list(codes.columns) == ["macautoencoder0", "macautoencoder1"]
    with pytest.raises(ValueError, match="feature names"):
        found.transform(frame[["b", "a", "c", "d"]])


def test_a_warm_start_goes_on_and_a_cold_one_begins_again() -> None:
    keys = SHORT | {"config": {"run.refit": False}}
    cold, warm = MACRegressor(**keys), MACRegressor(warm_start=True, **keys)
    firsts = [[e.fit(X, NUMBERS).model_.history[0]["E1_val"] for _ in range(2)] for e in (cold, warm)]
    assert firsts[0][0] == firsts[0][1] == firsts[1][0]
    assert firsts[1][1] < firsts[1][0]


@pytest.mark.parametrize("kind", [MACRegressor, MACClassifier, MACAutoencoder])
def test_each_warm_fit_begins_where_the_last_one_ended(kind: Any) -> None:
    """Where that was refitted on all points, with the weights of before, which have not seen the validation points."""
    given = {MACRegressor: (X, NUMBERS), MACClassifier: (X, CLASSES), MACAutoencoder: (X,)}[kind]
    model = kind([2 if kind is MACAutoencoder else 6], max_iter=8, random_state=0, warm_start=True)
    for fits in range(4):
        before = model.model_.card.errors["last"].validation if fits else 0.0
        refitted = fits and "refit" in model.model_.kept
        model.fit(*given)
        if fits:
            assert_allclose(model.model_.history[0]["E1_val"], before, rtol=1e-9)
        elif kind is not MACAutoencoder:
            assert refitted == 0 and "refit" in model.model_.kept


@pytest.mark.parametrize("state", [None, 0])
def test_a_warm_fit_takes_a_new_batch_and_another_draw(state: int | None) -> None:
    """Of inputs with long tails, too, which the net knows in the scaling of its first fit."""
    tailed = np.column_stack([X, np.exp(4.0 * X[:, 0])])
    model = MACRegressor([6], max_iter=4, random_state=state, warm_start=True)
    for rows in (slice(None), slice(None), slice(0, 70), slice(40, None)):
        model.fit(tailed[rows], NUMBERS[rows], np.ones(len(NUMBERS[rows])))
    assert np.isfinite(model.predict(tailed)).all()


def test_a_net_keeps_its_classes_and_an_estimator_those_of_its_net() -> None:
    """A warm fit of other classes is refused, and a fit that fails leaves what there was."""
    model = MACClassifier(**SHORT, warm_start=True).fit(X, CLASSES)
    before = model.predict(X)
    for labels in (np.where(CLASSES == "large", "small", "tiny"), np.arange(120) % 3, CLASSES == "large"):
        with pytest.raises(ValueError, match="warm_start: the net knows the classes"):
            model.fit(X, labels)
    with pytest.raises(ValueError, match=r"hidden\.0"):
        model.set_params(hidden=[0], warm_start=False).fit(X, np.arange(120) % 3)
    assert_array_equal(model.classes_, ["large", "small"])
    assert_array_equal(model.predict(X), before)


def test_a_class_without_weight_stays_a_class() -> None:
    labels = np.arange(120) % 3
    model = MACClassifier(**SHORT).fit(X, labels, (labels != 1).astype(float))
    assert_array_equal(model.classes_, [0, 1, 2])
    found = model.predict_proba(X)
    assert_array_equal(found[:, 1], 0.0)
    assert_allclose(found.sum(axis=1), 1.0)
    assert set(model.predict(X).tolist()) <= {0, 2}


@pytest.mark.parametrize("changed", [{"hidden": [7]}, {"layers": "tanh"}, {"hidden": [6, 6]}])
def test_a_net_that_does_not_fit_is_refused_in_the_words_of_the_estimator(changed: dict[str, Any]) -> None:
    model = MACRegressor(**SHORT, layers="relu", warm_start=True).fit(X, NUMBERS)
    with pytest.raises(ValueError, match=r"^warm_start: it is another net .* hidden and layers must agree$"):
        model.set_params(**changed).fit(X, NUMBERS)


def test_random_states_repeat_a_fit() -> None:
    first, again, other = (MACRegressor(**SHORT | {"random_state": s}).fit(X, NUMBERS).predict(X) for s in (1, 1, 2))
    assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    np.random.seed(0)
    drawn = [MACRegressor(**SHORT | {"random_state": None}).fit(X, NUMBERS).predict(X) for _ in range(2)]
    assert not np.array_equal(*drawn)


# --- weights of samples -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("w", [np.zeros(120), np.r_[np.ones(2), np.zeros(118)], -np.ones(120), np.full(120, np.nan)])
def test_weights_that_leave_nothing_are_refused(w: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"weight|3 are needed"):
        MACRegressor(**SHORT).fit(X, NUMBERS, w)


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"layers": "rel"}, "did you mean 'relu'"),
        ({"hidden": [0]}, r"hidden\.0: should be greater"),
        ({"validation_fraction": 1.5}, "validation_fraction: should be less than 1"),
        ({"config": "file.toml"}, "config: a mapping is needed"),
        ({"config": {"penalty.mu": 1}}, r"did you mean penalty\.mu0"),
        ({"max_iter": -1}, "max_iter: should be greater"),
        ({"ranks": 0}, "ranks = 0"),
        ({"max_time": 0.0}, "max_time"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MACClassifier(**SHORT | keys).fit(X, CLASSES)


@pytest.mark.parametrize("missing", [np.nan, None])
def test_labels_that_are_missing_are_refused(missing: Any) -> None:
    labels = CLASSES.astype(object)
    labels[5] = missing
    with pytest.raises(ValueError, match=r"y is missing at \[5\] \(1 such\)"):
        MACClassifier(**SHORT).fit(X, labels)
    if missing is not None:
        with pytest.raises(ValueError, match="NaN"):
            MACRegressor(**SHORT).fit(X, np.where(np.arange(120) == 5, missing, NUMBERS))


LABELS = {"text": ["a", "b", "c"], "digits": ["0", "1", "2"], "whole": [0, 1, 2], "numbers": [-1.0, 0.0, 2.0]}
WEIGHT = st.integers(0, 3).map(float)


@pytest.mark.parametrize("kind", [*LABELS, "truth"])
@examples(40)
@given(
    given=st.dictionaries(st.integers(0, 2), WEIGHT), rows=st.lists(WEIGHT, min_size=9, max_size=9), by=st.booleans()
)
def test_weights_of_classes_are_those_of_scikit_learn(
    kind: str, given: dict[int, float], rows: list[float], by: bool
) -> None:
    """Of a dict those of compute_sample_weight times the rows' own; balanced, all classes with weights weigh alike.

    A dict holds values that are equal to the labels, of any type.
    """
    labels = LABELS.get(kind, [False, True])
    numbers = np.arange(9) % len(labels)
    y, given = np.array(labels)[numbers], {n: w for n, w in given.items() if n < len(labels)}
    seen: list[Any] = []
    model = MACClassifier(class_weight={np.array(labels)[n]: w for n, w in given.items()} if by else "balanced")
    model._train = lambda X, Y, w, labels: seen.extend([w, labels])  # type: ignore[method-assign]
    w = np.array(rows)
    expected = compute_sample_weight(given, numbers) * w
    if not by:
        totals = np.bincount(numbers, w)
        expected = w / np.where(totals > 0.0, totals, 1.0)[numbers]
    if not rows or not w.any() or len(set(numbers[expected > 0.0])) < 2:
        with pytest.raises(ValueError, match=r"sample_weight|class_weight"):
            model.fit(X[:9], y, w)
        return
    model.fit(X[:9], y, w)
    assert len(seen[1]) == len(labels)
    found = np.ones(9) if seen[0] is None else seen[0]
    assert_allclose(found / found.sum(), expected / expected.sum())


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"large": 1.0, "smal": 2.0}, r"The classes, \['small'\], are not in class_weight, which has \['smal'\]"),
        ({"large": -1.0}, "class_weight: Negative values"),
        ({"large": np.nan}, "class_weight: .* NaN"),
        ({"large": "x"}, "class_weight holds 1.0 and 'x'"),
        ({"large": 0.0}, "class_weight: all points with a weight above 0 are of one class"),
        ("auto", "'class_weight' parameter of MACClassifier must be .* Got 'auto' instead"),
        ([1.0, 2.0], "'class_weight' parameter of MACClassifier must be"),
    ],
)
def test_weights_of_classes_that_make_no_sense_are_refused_by_their_name(given: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        MACClassifier(**SHORT, class_weight=given).fit(X, CLASSES)


@pytest.mark.parametrize("method", ["auto", "mac", "stochastic", "sgd", "adam", "cg", "lbfgs"])
def test_without_early_stopping_each_method_is_given_a_patience_that_it_reads(method: str) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = MACRegressor(**SHORT | {"max_iter": 30}, early_stopping=False, config={"method.name": method})
        model.fit(X, NUMBERS)
    assert not [one for one in said if "not read" in str(one.message)]
    config = tomllib.loads(model.model_.card.config)
    tables = {"mac": "penalty", "stochastic": "stochastic"}
    assert config[tables.get(config["method"]["name"], "baseline")]["patience"] == 30


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        (pd.array([True, False] * 60, dtype="boolean"), [False, True]),
        (pd.array([3, 5] * 60, dtype="Int64"), [3, 5]),
        ([decimal.Decimal(1), decimal.Decimal(2)] * 60, [1.0, 2.0]),
        (pd.Index(["b", "a"] * 60), ["a", "b"]),
    ],
)
def test_labels_are_those_that_were_given(values: Any, classes: list[Any]) -> None:
    model = MACClassifier(**SHORT).fit(X, values)
    assert model.classes_.tolist() == classes
    assert [type(one) for one in model.classes_.tolist()] == [type(one) for one in classes]


def test_what_is_said_of_points_speaks_of_the_estimator() -> None:
    with pytest.warns(MacmpiWarning, match="arguments of MACRegressor: dataset Y holds whole numbers beyond"):
        MACRegressor(**SHORT).fit(X, np.arange(120) * 10**15)
    with pytest.raises(ValueError, match="classes that are text need MACClassifier"):
        MACRegressor(**SHORT).fit(X, CLASSES)
    with pytest.raises(ValueError, match="y holds 1 and 'a': make numbers or text of all of them"):
        MACClassifier(**SHORT).fit(X, [1, "a"] * 60)


def test_digits_are_learnt() -> None:
    """With nothing but defaults; 95 % is what nearest centroids miss by far (90 %)."""
    digits, labels = load_digits(return_X_y=True)
    found = MACClassifier(random_state=0, max_iter=40).fit(digits[:1200], labels[:1200])
    assert found.score(digits[1200:], labels[1200:]) > 0.9


def test_targets_may_be_missing_where_the_config_says_so() -> None:
    y = np.column_stack([NUMBERS, X[:, 1]])
    y[::3, 0] = np.nan
    found = MACRegressor(**SHORT, config={"loss": {"missing": True}}).fit(X, y)
    assert np.isfinite(found.predict(X)).all()
    known = ~np.isnan(y[:, 0])
    assert_allclose(
        found.score(X, y),
        np.mean([r2_score(y[seen, j], found.predict(X)[seen, j]) for j, seen in enumerate((known, ...))]),
    )
    few = y.copy()
    few[1:, 0] = np.nan
    with pytest.warns(MacmpiWarning, match=r"two targets that are known, which y lacks of output 1: left out"):
        assert found.score(X, few) == pytest.approx(r2_score(y[:, 1], found.predict(X)[:, 1]))
    with pytest.raises(ValueError, match="no output of y has two targets that are known"):
        found.score(X, np.full_like(y, np.nan))
    for config in ({}, {"loss.missing": False}):
        with pytest.raises(ValueError, match="NaN"):
            MACRegressor(**SHORT, config=config).fit(X, y)
    with pytest.raises(ValueError, match="inconsistent"):
        MACRegressor(**SHORT, config={"loss.missing": True}).fit(X, y[:-1])
    one = MACRegressor(**SHORT, config={"loss.missing": True}).fit(X, y[:, 0])
    assert one.predict(X).shape == (120,)


def test_the_loss_of_a_config_is_trained_with_or_refused() -> None:
    """Whichever way it is written."""
    counts = np.random.default_rng(0).poisson(2.0, 120)
    flat, nested = (
        MACRegressor(**SHORT, config=config).fit(X, counts)
        for config in ({"model.loss": "poisson"}, {"model": {"loss": "poisson"}})
    )
    assert_array_equal(flat.predict(X), nested.predict(X))
    assert flat.model_.link == "exp"
    MACClassifier(**SHORT, config={"model.loss": "auto"}).fit(X, CLASSES)
    for estimator, loss, Y in ((MACClassifier, "huber", CLASSES), (MACRegressor, "cross_entropy", counts)):
        with pytest.raises(ValueError, match=f'model.loss = "{loss}" is none of a {estimator.__name__}'):
            estimator(**SHORT, config={"model.loss": loss}).fit(X, Y)


INTERRUPTED = """
import os, signal, sys, threading, warnings
import numpy as np
from sklearn.model_selection import cross_val_score
from macmpi.api.fit import fit
import macmpi.sklearn as ours

warnings.simplefilter("ignore")

def interrupted(*args, **keys):
    return fit(*args, **keys, callback=lambda record: record["iteration"] == 1 and os.kill(os.getpid(), signal.SIGINT))

ours.fit = interrupted
X = np.random.default_rng(0).normal(size=(60, 3))
try:
    print("scores", cross_val_score(ours.MACRegressor([4], max_iter=50), X, X[:, 0], cv=3))
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_ends_a_cross_validation() -> None:
    """In a process of its own, which gets the signal in its first fit: there are no scores of fits that were cut."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "interrupted\n", done.stderr
