"""Weights of points: where they are read, what is refused of them, and what a fit makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import macmpi
from macmpi import UsageError
from macmpi.config import Config, Data
from macmpi.data.loading import load
from macmpi.data.source import Whole
from macmpi.parallel.partition import partition_points
from macmpi.parallel.points import SAMPLE_POINTS, Points
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
    assert found.sha256 != plain.sha256 and found.sizes.weighted and not plain.sizes.weighted
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


@pytest.mark.parametrize("n", [12, 90, 5000])
def test_the_sample_is_that_of_copies(n: int) -> None:
    counts = np.random.default_rng(n).integers(0, 5, size=n)
    counts[0] += n  # at least as many copies as points
    partition, of_copies = partition_points(n, 1), partition_points(int(counts.sum()), 1)
    found = Points(partition, partition, Team(), weights=counts.astype(float))
    copies = Points(of_copies, of_copies, Team()).sample
    assert_array_equal(found.sample, np.repeat(np.arange(n), counts)[copies])
    assert len(found.sample) <= SAMPLE_POINTS and found.weight == counts.sum()


# --- refusals ---------------------------------------------------------------------------------------------------------

NEGATIVE = np.r_[-1.0, W[1:]]
MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "negative": ({"weights": NEGATIVE}, "a weight is -1, and weights are at least 0"),
    "no number": ({"weights": np.r_[np.nan, W[1:]]}, r"dataset weights is nan at \[0, 0\]"),
    "infinite": ({"weights": np.r_[np.inf, W[1:]]}, "dataset weights is inf"),
    "text": ({"weights": np.full(N, "a")}, "real numbers are needed"),
    "too few": ({"weights": W[1:]}, "X has 60 rows but weights has 59"),
    "several columns": ({"weights": Y}, r"one weight a point is needed: \(N,\)"),
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
        Whole(Config(Data(saved(tmp_path, suffix, X=X, Y=Y, **arrays)))).sizes()


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
