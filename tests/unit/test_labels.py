"""Class labels: read from a file or with a named set, one-hot for training, and given back as they were."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sampled import examples
from targets import CLASSES, rules_of

from macmpi import UsageError
from macmpi.config import Data
from macmpi.data.dataset import Dataset
from macmpi.data.loading import load, survey
from macmpi.typing import Array

often = examples(40)


def written(folder: Path, suffix: str = ".npz", **arrays: Any) -> Data:
    path = folder / f"points{suffix}"
    if suffix == ".npz":
        np.savez(path, **arrays)
    else:
        with h5py.File(path, "w") as file:
            for name, array in arrays.items():
                file[name] = array
    return Data(source=str(path), scale="none")


def points(n: int) -> Array:
    """Point i holds i, so that points are told apart after the split."""
    return np.column_stack([np.arange(n, dtype=float), np.sin(np.arange(n))])


def labels_of(Y: Array, data: Dataset) -> Array:
    assert data.classes is not None
    assert_array_equal(np.sort(np.unique(Y)), [0.0, 1.0])
    assert_array_equal(Y.sum(axis=1), 1.0)
    return data.classes[Y.argmax(axis=1)]


def refusal(config: Data) -> str:
    with pytest.raises(UsageError) as caught:
        load(config, rules=CLASSES)
    return str(caught.value)


@often
@given(
    classes=st.lists(st.integers(-(10**6), 10**6), min_size=2, max_size=6, unique=True),
    kind=st.sampled_from(["i8", "i4", "f8"]),
    column=st.booleans(),
)
def test_labels_are_one_hot_and_come_back(
    tmp_path_factory: pytest.TempPathFactory, classes: list[int], kind: str, column: bool
) -> None:
    """Whatever whole numbers they are: negative, with gaps, stored as reals, in a column or flat."""
    given_ = np.array([classes[i % len(classes)] for i in range(30)]).astype(kind)
    folder = tmp_path_factory.mktemp("labels")
    data = load(written(folder, X=points(30), Y=given_[:, None] if column else given_), rules=CLASSES)
    assert_array_equal(data.classes, sorted(classes))
    for X, Y in ((data.X, data.Y), (data.X_val, data.Y_val)):
        assert Y.shape == (len(X), len(classes))
        assert_array_equal(labels_of(Y, data), given_[X[:, 0].astype(int)])
    assert not data.autoencoder


def test_classes_of_points_that_are_left_out_leave_the_others_their_names(tmp_path: Path) -> None:
    Y = np.array(["a", "c"] * 20 + ["b"] * 20)
    config = replace(written(tmp_path, X=points(60), Y=Y, X_val=points(10), Y_val=Y[:10]), points=40)
    data = load(config, rules=CLASSES)
    assert_array_equal(data.classes, ["a", "c"])
    assert_array_equal(labels_of(data.Y, data), Y[data.X[:, 0].astype(int)])
    assert_array_equal(labels_of(data.Y_val, data), Y[:10])


def test_labels_are_never_scaled(tmp_path: Path) -> None:
    config = Data(source=written(tmp_path, X=points(20), Y=np.arange(20) % 4).source, scale="standard")
    data = load(config, rules=CLASSES)
    assert set(np.unique(data.Y)) == {0.0, 1.0}
    assert_array_equal(data.scaling_y.scale, 1.0)
    assert_array_equal(data.scaling_y.shift, 0.0)
    assert abs(data.X.mean()) < 1e-12


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_points_and_targets_have_the_precision_of_the_run(precision: str, tmp_path: Path) -> None:
    """The checksum is of the data, whatever the precision."""
    config = written(tmp_path, X=points(20), Y=np.arange(20) % 4)
    data = load(config, rules_of(True, precision=precision))
    assert {A.dtype for A in (data.X, data.Y, data.X_val, data.Y_val)} == {np.dtype(precision)}
    assert data.sha256 == load(config, rules=CLASSES).sha256
    both = load(written(tmp_path, X=points(20)), rules_of(False, precision=precision))
    assert both.autoencoder
    assert both.X.dtype == precision


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"Y": np.array([0.0, 1.0, 0.5, 2.5] * 5)}, "dataset Y is 0.5 at [2]; class labels are whole numbers"),
        ({"Y": np.zeros((20, 2))}, "dataset Y has 2 columns; class labels are one whole number a row"),
        ({"Y": np.full(20, 3)}, "Y holds 1 class;"),
        ({}, "needs class labels: a dataset Y of shape (N,)"),
        (
            {"Y": np.arange(20) % 3, "X_val": points(4), "Y_val": np.array([1.0, 2.0, 0.25, 1.0])},
            "dataset Y_val is 0.25 at [2]",
        ),
        (
            {"Y": np.arange(20) % 3, "X_val": points(4), "Y_val": np.array([7, 8, 9, 7])},
            "Y_val holds classes that no training point has (7, 8, 9)",
        ),
        ({"Y": np.array([1.0, np.nan] * 10)}, "dataset Y is nan at [1, 0]"),
        ({"Y": np.array([1j, 2j] * 10)}, "real numbers are needed"),
        ({"Y": np.array([["a", "b"]] * 20)}, "dataset Y has 2 columns"),
        ({"Y": np.array(["a"] * 20)}, "Y holds 1 class;"),
        ({"Y": np.array(["a", "b"] * 9 + ["a", " "])}, 'dataset Y is " " at [19] (1 such), a label that is missing'),
        ({"Y": np.array(["a", "b", np.nan, "b"] * 5)}, 'dataset Y is "nan" at [2] (5 such), a label that is missing'),
        (
            {"Y": np.array([0, 1] * 9 + [2, 2]), "weights": np.array([1.0] * 18 + [0.0] * 2)}
            | {"X_val": points(4), "Y_val": np.array([0, 1, 2, 2])},
            "Y_val holds classes that no training point has (2)",
        ),
    ],
)
def test_what_cannot_be_labels(arrays: dict[str, Array], says: str, tmp_path: Path) -> None:
    config = written(tmp_path, X=points(20), **arrays)
    text = refusal(config)
    assert says in text
    assert config.source in text
    assert "\n" not in text


WORDS = np.array(["cat", "Übung", "a b", "cat"] * 5)


def as_text(words: Array, suffix: str) -> Any:
    """Words as a file of this suffix may have them."""
    return words if suffix == ".npz" else np.array([word.encode() for word in words.tolist()], dtype=object)


@pytest.mark.parametrize("suffix", [".npz", ".h5"])
@pytest.mark.parametrize("column", [False, True])
def test_labels_that_are_text_are_one_hot_and_come_back(suffix: str, column: bool, tmp_path: Path) -> None:
    words = as_text(WORDS, suffix)
    data = load(written(tmp_path, suffix, X=points(20), Y=words[:, None] if column else words), rules=CLASSES)
    assert data.classes is not None
    assert data.classes.tolist() == ["a b", "cat", "Übung"]
    assert_array_equal(labels_of(data.Y, data), WORDS[data.X[:, 0].astype(int)])
    assert_array_equal(labels_of(data.Y_val, data), WORDS[data.X_val[:, 0].astype(int)])


def test_labels_that_are_text_are_numbered_over_training_and_validation_points(tmp_path: Path) -> None:
    own = {"X": points(4), "X_val": points(3)}
    config = written(tmp_path, **own, Y=np.array(["b", "c", "b", "a"]), Y_val=np.array(["c", "a", "b"]))
    data = load(config, rules=CLASSES)
    assert data.classes is not None
    assert data.classes.tolist() == ["a", "b", "c"]
    assert_array_equal(data.Y_val.argmax(axis=1), [2, 0, 1])
    renamed = written(tmp_path, **own, Y=np.array(["b", "d", "b", "a"]), Y_val=np.array(["d", "a", "b"]))
    assert load(renamed, rules=CLASSES).sha256 != data.sha256
    strange = written(tmp_path, **own, Y=np.array(["b", "c", "b", "c"]), Y_val=np.array(["x", "y", "x"]))
    assert "Y_val holds classes that no training point has (x, y)" in refusal(strange)


@pytest.mark.parametrize("suffix", [".npz", ".h5"])
def test_truth_values_come_back_as_truth_values(suffix: str, tmp_path: Path) -> None:
    flags = np.arange(20) % 3 == 0
    data = load(written(tmp_path, suffix, X=points(20), Y=flags), rules=CLASSES)
    assert data.classes is not None
    assert data.classes.dtype == bool
    assert_array_equal(labels_of(data.Y, data), flags[data.X[:, 0].astype(int)])


@pytest.mark.parametrize("suffix", [".npz", ".h5"])
def test_sharded_labels_that_are_text_are_refused(suffix: str, tmp_path: Path) -> None:
    config = written(tmp_path, suffix, X=points(20), Y=as_text(WORDS, suffix))
    with pytest.raises(UsageError, match=r'parallel\.data = "replicated" or "node"'):
        survey(config, rules=CLASSES)


@pytest.mark.parametrize("suffix", [".npz", ".h5"])
@pytest.mark.parametrize("name", ["Y", "Y_val"])
def test_labels_of_which_some_are_text_or_are_sharded_are_refused_with_the_remedy(
    name: str, suffix: str, tmp_path: Path
) -> None:
    given = {"X": points(4), "Y": np.array([0, 1, 0, 1]), "X_val": points(4), "Y_val": np.array([0, 1, 0, 1])}
    words = np.array([b"a", b"b", b"a", b"b"])
    config = written(tmp_path, suffix, **given | {name: words})
    for read in (load, survey) if suffix == ".h5" else (load,):
        with pytest.raises(UsageError, match=rf"dataset {name} holds .*np.unique\(Y, return_inverse=True\)\[1\]"):
            read(config, rules=CLASSES)  # type: ignore[operator]
    with pytest.raises(UsageError) as refused:
        load(written(tmp_path, suffix, **given | {"X": words}), rules=CLASSES)
    assert "np.unique" not in str(refused.value)


def test_real_targets_and_many_classes_are_pointed_to_the_squared_loss(tmp_path: Path) -> None:
    for Y in (np.linspace(0.0, 1.0, 20), np.full(20, 3)):
        assert 'model.loss = "squared"' in refusal(written(tmp_path, X=points(20), Y=Y))
    config = written(tmp_path, X=points(10_001), Y=np.arange(10_001))
    text = refusal(config)
    assert "10,001 classes; 2 to 10,000 are possible" in text
    assert 'model.loss = "squared"' in text


@pytest.mark.every_case
@pytest.mark.parametrize(
    "odd",
    [9.97e36, 2.0**53, -(2.0**63), 2**53, -(2**53), -(2**63), np.uint64(2**64 - 1), np.float32(2.0**60)],
    ids=lambda odd: f"{type(odd).__name__} {odd:g}",
)
@pytest.mark.parametrize("suffix", [".npz", ".h5"])
def test_labels_that_floating_point_would_merge_are_refused(suffix: str, odd: Any, tmp_path: Path) -> None:
    """Whether they are stored as whole numbers or as reals, read by one process or surveyed for shards."""
    Y = np.array([0, 1, odd, 0] * 5, dtype=np.asarray(odd).dtype)
    config = written(tmp_path, suffix, X=points(20), Y=Y)
    for look in (load, survey):
        with pytest.raises(UsageError, match=r"Y is .* at \[2\]: labels at or beyond 2\^53") as caught:
            look(config, CLASSES)
        assert config.source in str(caught.value)
        assert "\n" not in str(caught.value)
