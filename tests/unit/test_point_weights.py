"""Weights of points: where they are read, what is refused of them, and what a fit makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import macmpi
from macmpi import UsageError
from macmpi.config import Config, Data
from macmpi.data.dataset import NUMBERS
from macmpi.data.loading import Source, load, load_rows, survey
from macmpi.parallel.points import SAMPLE_POINTS, Points, partition_points
from macmpi.parallel.team import Team

RANDOM = np.random.default_rng(0)
N = 60
X, Y = RANDOM.normal(size=(N, 4)), RANDOM.normal(size=(N, 2))
W = RANDOM.uniform(0.0, 3.0, size=N)
X_VAL, Y_VAL, W_VAL = X[:9] + 1.0, Y[:9], W[:9]
SHORT = {"run.max_iterations": 3, "method.name": "mac", "run.refit": False}


def saved(folder: Path, suffix: str, **arrays: Any) -> str:
    path = folder / f"points{len(list(folder.iterdir()))}{suffix}"
    if suffix == ".npz":
        np.savez(path, **arrays)
    else:
        with h5py.File(path, "w") as file:
            for name, array in arrays.items():
                file[name] = array
    return str(path)


@pytest.mark.parametrize("suffix", [".npz", ".h5"])
def test_files_hold_them_beside_the_points(suffix: str, tmp_path: Path) -> None:
    given = {"X": X, "Y": Y, "X_val": X_VAL, "Y_val": Y_VAL}
    plain = load(Data(saved(tmp_path, suffix, **given)))
    found = load(Data(saved(tmp_path, suffix, **given, weights=W, weights_val=W_VAL)))
    assert_array_equal(found.weights, W)
    assert_array_equal(found.weights_val, W_VAL)
    assert found.sha256 != plain.sha256 and (found.sizes.weights, plain.sizes.weights) == (1, 0)
    half = load(Data(saved(tmp_path, suffix, **given, weights=W[:, None])))
    assert_array_equal(half.weights, W)
    assert half.weights_val is None


def test_columns_of_tables_and_arrays_hold_them(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pandas.DataFrame({"a": X[:, 0], "w": W, "b": X[:, 1], "y": Y[:, 0]}).to_csv(tmp_path / "t.csv", index=False)
    np.save(tmp_path / "a.npy", np.column_stack([X[:, 0], W, X[:, 1], Y[:, 0]]))
    expected = load(Data(saved(tmp_path, ".npz", X=X[:, :2], Y=Y[:, 0], weights=W)))
    for data in (
        Data(str(tmp_path / "t.csv"), target="y", weights="w"),
        Data(str(tmp_path / "a.npy"), target="-1", weights="1"),
    ):
        found = load(data)
        assert_array_equal(found.X, expected.X)
        assert_array_equal(found.Y, expected.Y)
        assert_array_equal(found.weights, expected.weights)


def test_weights_that_are_all_1_are_none_and_give_the_same_bits(tmp_path: Path) -> None:
    ones = {"weights": np.ones(N, dtype=int)}
    plain, weighted = (load(Data(saved(tmp_path, ".npz", X=X, Y=Y, **more))) for more in ({}, ones))
    assert weighted.weights is None and weighted.weights_val is None
    assert weighted.sha256 == plain.sha256
    models = [macmpi.fit(X, Y, hidden=[5], loss="squared", config=SHORT, weights=w) for w in (None, np.ones(N))]
    assert_array_equal(models[0].predict(X), models[1].predict(X))


def test_a_fit_takes_an_array_or_the_name_of_a_column() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": X[:, 0], "b": X[:, 1], "w": W, "y": Y[:, 0]})
    held = frame.iloc[:20].assign(w=1.0 + np.arange(20))
    one = macmpi.fit(frame, "y", hidden=[5], loss="squared", config=SHORT, weights="w", validation=held)
    two = macmpi.fit(
        *(X[:, :2], Y[:, 0]),
        hidden=[5],
        loss="squared",
        config=SHORT,
        weights=W,
        validation=(X[:20, :2], Y[:20, 0], 1.0 + np.arange(20)),
    )
    assert_array_equal(one.predict(X[:, :2]), two.predict(X[:, :2]))
    assert [r["E1_val"] for r in one.history] == [r["E1_val"] for r in two.history]
    three = macmpi.fit(
        frame.drop(columns="w"), "y", hidden=[5], loss="squared", config=SHORT, weights=W, validation=held
    )
    assert [r["E1_train"] for r in three.history] == [r["E1_train"] for r in one.history]
    assert [r["E1_val"] for r in three.history] != [r["E1_val"] for r in one.history]


def test_validation_points_of_a_fit_have_the_weights_of_a_file(tmp_path: Path) -> None:
    """With targets and without: an autoencoder's validation is (X_val, None, weights_val)."""
    for target, held in ((Y, Y_VAL), (None, None)):
        named = {"X": X, "X_val": X_VAL, "weights": W, "weights_val": W_VAL}
        if target is not None:
            named |= {"Y": target, "Y_val": held}
        source = {**SHORT, "data.source": saved(tmp_path, ".npz", **named)}
        of_file = macmpi.fit(hidden=[5], loss="squared", config=source)
        ours = macmpi.fit(
            X, target, hidden=[5], loss="squared", config=SHORT, weights=W, validation=(X_VAL, held, W_VAL)
        )
        assert [r["E1_val"] for r in ours.history] == [r["E1_val"] for r in of_file.history]


@pytest.mark.parametrize("method", ["mac", "stochastic", "adam", "lbfgs"])
@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
def test_every_method_heeds_them(method: str, loss: str) -> None:
    """Two targets for each input: what weighs four times as much is what a net learns to predict."""
    A, halves = np.repeat(RANDOM.normal(size=(100, 2)), 2, axis=0), np.tile([0.0, 1.0], 100)
    keys = {"method.name": method, "run.max_iterations": 30, "baseline.rate": 0.01, "baseline.batch": 20}
    for heavy in (0.0, 1.0):
        w = np.where(halves == heavy, 4.0, 1.0)
        target = halves.astype(int) if loss == "cross_entropy" else halves + A[:, 0]
        model = macmpi.fit(A, target, hidden=[6], loss=loss, config=keys, weights=w, seed=1)
        found = model.probabilities(A)[:, 1] if loss == "cross_entropy" else model.predict(A) - A[:, 0]
        assert abs(found.mean() - (0.8 if heavy else 0.2)) < 0.1


@pytest.mark.parametrize("method", ["mac", "stochastic", "adam", "sgd"])
def test_a_minibatch_may_weigh_nothing(method: str) -> None:
    """Nine of ten points have the weight 0."""
    keys = {"method.name": method, "stochastic.batch": 3, "baseline.batch": 3, "z_step.minibatches": 9}
    w = np.where(np.arange(N) % 10, 0.0, 1.0)
    model = macmpi.fit(X, X[:, 0], hidden=[4], config={**keys, "run.max_iterations": 9}, weights=w, seed=0)
    assert model.history[-1]["E1_train"] < 0.25


@pytest.mark.parametrize("n", [12, 90, 5000])
def test_the_sample_is_that_of_copies(n: int) -> None:
    counts = np.random.default_rng(n).integers(0, 5, size=n)
    counts[0] += n  # at least as many copies as points
    partition, of_copies = partition_points(n, 1), partition_points(int(counts.sum()), 1)
    found = Points(partition, partition, Team(), weights=counts.astype(float))
    copies = Points(of_copies, of_copies, Team()).sample
    assert_array_equal(found.sample, np.repeat(np.arange(n), counts)[copies])
    assert len(found.sample) <= SAMPLE_POINTS and found.total_weight == counts.sum()


# --- refusals ---------------------------------------------------------------------------------------------------------

NEGATIVE = np.r_[-1.0, W[1:]]
MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "negative": ({"weights": NEGATIVE}, "a weight is -1, and weights are at least 0"),
    "no number": ({"weights": np.r_[np.nan, W[1:]]}, r"dataset weights is nan at \[0, 0\]"),
    "infinite": ({"weights": np.r_[np.inf, W[1:]]}, "dataset weights is inf"),
    "text": ({"weights": np.full(N, "a")}, "real numbers are needed"),
    "too few": ({"weights": W[1:]}, "X has 60 rows but weights has 59"),
    "several columns": ({"weights": np.abs(Y[:, [0, 0, 1]])}, r"one weight a point is needed, \(N,\)"),
    "all 0": ({"weights": np.zeros(N)}, "all training points have the weight 0; give some of them more"),
    "validation alone": ({"weights_val": W_VAL}, "weights_val goes with X_val"),
    "validation, negative": ({"X_val": X_VAL, "Y_val": Y_VAL, "weights_val": -W_VAL}, "weights_val: a weight is -"),
    "validation, all 0": (
        {"X_val": X_VAL, "Y_val": Y_VAL, "weights_val": 0.0 * W_VAL},
        "all validation points have the weight 0",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.parametrize("suffix", [".npz", ".h5"])
def test_wrong_weights_are_refused(name: str, suffix: str, tmp_path: Path) -> None:
    arrays, message = MISTAKES[name]
    if name == "text" and suffix == ".h5":
        arrays = {"weights": np.full(N, b"a")}
    with pytest.raises(UsageError, match=message):
        Source(Config(Data(saved(tmp_path, suffix, X=X, Y=Y, **arrays)))).sizes()


def test_columns_that_are_no_weights_are_refused(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": X[:, 0], "t": ["a", "b"] * 30, "w": np.r_[np.nan, W[1:]], "y": Y[:, 0]})
    for weights, message in (
        ("v", "has no column 'v'; did you mean|it has"),
        ("t", "numbers from 0 on are needed"),
        ("w", "is missing in row 0; take it out, or give it the weight 0"),
        ("y", "stands in data.target; take it out of one of them"),
    ):
        with pytest.raises(UsageError, match=message.replace("data.target", "(data.target|Y)")):
            macmpi.fit(frame, "y", weights=weights)
    with pytest.raises(UsageError, match="weights = 'w' names a column, and X is no table"):
        macmpi.fit(X, Y, weights="w")
    with pytest.raises(UsageError, match="weights is given without X"):
        macmpi.fit(weights=W)
    with pytest.raises(UsageError, match="does not read it; leave it out"):
        load(Data(saved(tmp_path, ".npz", X=X), weights="w"))


def test_drawn_points_keep_their_weights(tmp_path: Path) -> None:
    numbers = np.arange(1.0, N + 1.0)
    data = load(Data(saved(tmp_path, ".npz", X=numbers[:, None], weights=numbers), scale="none", points=20))
    assert_array_equal(data.weights, data.X[:, 0])
    assert_array_equal(data.weights_val, data.X_val[:, 0])


# --- weights of points and outputs ------------------------------------------------------------------------------------

EACH = RANDOM.uniform(0.0, 3.0, size=Y.shape) * (RANDOM.uniform(size=Y.shape) > 0.2)


@pytest.mark.parametrize("sharded", [False, True])
def test_weights_of_outputs_stand_behind_the_targets(sharded: bool, tmp_path: Path) -> None:
    """Y is [Y, V]: a point weighs as the mean of its outputs, V are their shares of it, and 0 is no target."""
    given = {"X": X, "Y": Y, "X_val": X_VAL, "Y_val": Y_VAL}
    source = saved(tmp_path, ".h5", **given, weights=EACH)
    plain, data = load(Data(saved(tmp_path, ".h5", **given))), Data(source)
    if sharded:
        points = partition_points(N, 1), partition_points(len(X_VAL), 1)
        found, sizes = load_rows(data, NUMBERS, None, points, Team()), survey(data)
    else:
        found = load(data)
        sizes = found.sizes
    assert sizes.weights == sizes.n_out == found.outputs == 2
    means = EACH.mean(axis=1)
    assert_allclose(found.weights, means)
    assert_allclose(found.Y[:, 2:] * means[:, None], EACH)
    assert_array_equal(np.isnan(found.Y[:, :2]), EACH == 0.0)
    assert_array_equal(found.Y_val[:, 2:], 1.0)
    assert found.sha256 != plain.sha256 and found.weights_val is None


def test_a_target_of_weight_0_decides_nothing(tmp_path: Path) -> None:
    """Neither the scaling nor what is trained on, whatever number stands there."""
    other = np.where(EACH > 0.0, Y, 1e9)
    one, two = (load(Data(saved(tmp_path, ".npz", X=X, Y=T, weights=EACH))) for T in (Y, other))
    assert_array_equal(one.Y, two.Y)
    assert_array_equal(one.scaling_y.scale, two.scaling_y.scale)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"weights": np.ones((N, 3))}, "one for each of the 2 targets"),
        ({"weights": EACH, "X_val": X_VAL, "Y_val": Y_VAL, "weights_val": W_VAL}, "both weights and weights_val"),
        ({"weights": np.ones((N, 2)), "Y": Y[:, 0]}, "one weight a point is needed"),
        ({"weights": -EACH - 1.0}, "weights are at least 0"),
    ],
)
def test_weights_that_fit_no_targets_are_refused(arrays: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        load(Data(saved(tmp_path, ".npz", **({"X": X, "Y": Y} | arrays))))
    with pytest.raises(UsageError, match="need targets of their own"):
        load(Data(saved(tmp_path, ".npz", X=X, weights=np.ones_like(X))))


@pytest.mark.parametrize("method", ["mac", "stochastic", "adam", "lbfgs"])
@pytest.mark.parametrize("loss", ["squared", "huber", "logistic"])
def test_every_method_heeds_weights_of_outputs(method: str, loss: str) -> None:
    """Two targets for each input and output: of each output the one that weighs more is what a net learns."""
    A, halves = np.repeat(RANDOM.normal(size=(100, 2)), 2, axis=0), np.tile([0.0, 1.0], 100)
    keys = {"method.name": method, "run.max_iterations": 40, "baseline.rate": 0.01, "baseline.batch": 20}
    w = np.where(np.column_stack([halves, 1.0 - halves]) > 0.0, 4.0, 1.0)
    model = macmpi.fit(A, np.column_stack([halves, halves]), hidden=[6], loss=loss, config=keys, weights=w, seed=1)
    assert_allclose(model.predict(A).mean(axis=0), [0.8, 0.2], atol=0.1)
    scores = macmpi.fit(A, np.column_stack([halves, halves]), hidden=[6], loss=loss, config=keys, seed=1)
    assert_allclose(scores.predict(A).mean(axis=0), [0.5, 0.5], atol=0.1)


def test_all_codes_of_bits_are_compared_by_weights_of_outputs() -> None:
    keys = {"model.activation": "binary", "run.max_iterations": 3}
    one, two = (macmpi.fit(X, Y, hidden=[3], config=keys, weights=w, seed=0) for w in (W, np.column_stack([W, W])))
    assert_allclose(one.predict(X), two.predict(X), rtol=1e-3)


@pytest.mark.parametrize("method", ["stochastic", "adam"])
def test_weights_alike_in_all_outputs_are_those_of_points(method: str) -> None:
    keys = {"method.name": method, "run.max_iterations": 5}
    one, two = (
        macmpi.fit(X, Y, hidden=[5], loss="huber", config=keys, weights=w) for w in (W, np.column_stack([W, W]))
    )
    assert_allclose(one.predict(X), two.predict(X), rtol=1e-9, atol=1e-9)
    assert_allclose([r["E1_val"] for r in one.history], [r["E1_val"] for r in two.history], rtol=1e-9)


def test_scores_count_an_output_as_it_weighs() -> None:
    held = X_VAL, Y_VAL, EACH[:9]
    model = macmpi.fit(X, Y, hidden=[5], loss="squared", config=SHORT, weights=EACH, validation=held)
    off = np.square(model.predict(X_VAL) - Y_VAL)
    expected = np.sqrt(np.average(off, axis=0, weights=EACH[:9]))
    assert_allclose(model.card.scores["rmse"], expected, rtol=1e-9)
