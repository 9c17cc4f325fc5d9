"""Data sets: what is read, how it is scaled and split, and what is refused with the place of the mistake."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sampled import examples
from scalings import fit_scaling
from targets import CLASSES

from macmpi import UsageError
from macmpi.config import Data
from macmpi.data.checks import as_rows
from macmpi.data.dataset import Dataset, Raw
from macmpi.data.loading import load, survey
from macmpi.data.parts import drawn, parts_of, raw_of
from macmpi.data.reading import read_file
from macmpi.data.scaling import FARTHEST, Scaling, spread_rows
from macmpi.parallel.tiles import Tile
from macmpi.predict import read_points
from macmpi.typing import Array

often = examples(60)

Write = Callable[..., Path]


@pytest.fixture(params=[".npz", ".h5", ".nc"])
def write(request: pytest.FixtureRequest, tmp_path: Path) -> Write:
    """Writes arrays to a file of each format."""

    def to_file(**arrays: Any) -> Path:
        path = tmp_path / f"points{request.param}"
        if path.suffix == ".npz":
            np.savez(path, **arrays)
        else:
            with h5py.File(path, "w") as file:
                for name, array in arrays.items():
                    file[name] = array
        return path

    return to_file


def of(path: Path, **keys: Any) -> Data:
    return Data(source=str(path), **keys)


def refusal(config: Data) -> str:
    with pytest.raises(UsageError) as caught:
        load(config)
    return str(caught.value)


def rows(random: np.random.Generator, n: int = 20, d: int = 3) -> Array:
    return random.normal(size=(n, d)) * 5.0 + 2.0


def as_set(X: Array) -> set[bytes]:
    return {row.tobytes() for row in X}


# --- the user's own file ----------------------------------------------------------------------------------------------


def test_x_alone_is_an_autoencoders(write: Write, random: np.random.Generator) -> None:
    X = rows(random)
    data = load(of(write(X=X), scale="none"))
    assert data.autoencoder
    assert data.Y is data.X
    assert data.Y_val is data.X_val
    assert (len(data.X), len(data.X_val)) == (16, 4)
    assert as_set(data.X) | as_set(data.X_val) == as_set(X)
    assert not as_set(data.X) & as_set(data.X_val)


def test_x_and_y_stay_together_through_the_split(write: Write, random: np.random.Generator) -> None:
    X = rows(random)
    Y = np.column_stack([X[:, 0] + X[:, 1], 2.0 * X[:, 2]])
    data = load(of(write(X=X, Y=Y), scale="none"))
    assert not data.autoencoder
    for x, y in ((data.X, data.Y), (data.X_val, data.Y_val)):
        assert_array_equal(y, np.column_stack([x[:, 0] + x[:, 1], 2.0 * x[:, 2]]))


def test_validation_points_of_the_file_are_used_as_they_are(write: Write, random: np.random.Generator) -> None:
    X, Y, X_val, Y_val = rows(random), rows(random, d=2), rows(random, n=5), rows(random, n=5, d=2)
    data = load(of(write(X=X, Y=Y, X_val=X_val, Y_val=Y_val), scale="none"))
    for read, written in ((data.X, X), (data.Y, Y), (data.X_val, X_val), (data.Y_val, Y_val)):
        assert_array_equal(read, written)
    without = load(of(write(X=X, X_val=X_val), scale="none"))
    assert without.autoencoder
    assert_array_equal(without.Y_val, X_val)


def test_all_formats_hold_the_same_data(random: np.random.Generator, tmp_path: Path) -> None:
    X = rows(random)
    np.savez(tmp_path / "a.npz", X=X)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["X"] = X
    first, second = (load(of(tmp_path / name)) for name in ("a.npz", "a.h5"))
    assert_array_equal(first.X, second.X)
    assert first.sha256 == second.sha256


def test_the_checksum_sees_every_change(write: Write, random: np.random.Generator) -> None:
    X = rows(random)
    checksum = load(of(write(X=X))).sha256
    assert load(of(write(X=X))).sha256 == checksum
    changed = X.copy()
    changed[7, 1] = np.nextafter(changed[7, 1], np.inf)
    others = [
        load(of(write(X=changed), scale="none")).sha256,
        load(of(write(X=X[::-1]), scale="none")).sha256,
        load(of(write(X=X), seed=1)).sha256,
        load(of(write(X=X / 256.0))).sha256,
        load(of(write(X=X), points=10)).sha256,
    ]
    assert len({checksum, *others}) == 6
    assert load(of(write(X=X), scale="none")).sha256 == checksum


# --- pictures: groups and shapes --------------------------------------------------------------------------------------


def test_groups_stay_with_their_points(write: Write, random: np.random.Generator) -> None:
    X = rows(random, n=40)
    numbers = np.arange(40, dtype=np.int8)[::-1]
    path = write(X=X, groups=numbers)
    data = load(of(path, scale="none", points=20))
    assert data.groups is not None
    assert [len(g) for g in data.groups] == [20, 8]
    for part, groups in zip((data.X, data.X_val), data.groups, strict=True):
        assert_array_equal(X[39 - groups], part)
        assert groups.dtype == np.int64
    assert data.shape is None
    assert data.sha256 == load(of(write(X=X), scale="none", points=20)).sha256


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"groups": np.arange(19)}, "X has 20 rows but groups has 19"),
        ({"groups": np.arange(20.0)}, "groups holds float64 of shape (20,); integers of shape (N,) are needed"),
        ({"groups": np.arange(20)[:, None]}, "groups holds int64 of shape (20, 1); integers"),
        ({"groups": np.array(3)}, "groups holds int64 of shape (); integers"),
        ({"groups": np.array([b"a"] * 20)}, "; integers of shape (N,) are needed"),
        ({"groups_val": np.arange(20)}, "groups_val goes with X_val and groups"),
        ({"groups": np.arange(20), "groups_val": np.arange(5)}, "groups_val goes with X_val and groups"),
        ({"X_val": np.ones((5, 3)), "groups": np.arange(20)}, "groups_val goes with X_val and groups"),
        ({"X_val": np.ones((5, 3)), "groups_val": np.arange(5)}, "groups_val goes with X_val and groups"),
        (
            {"X_val": np.ones((5, 3)), "groups": np.arange(20), "groups_val": np.arange(6)},
            "X_val has 5 rows but groups_val has 6",
        ),
    ],
)
def test_what_cannot_be_groups(arrays: dict[str, Array], says: str, write: Write, random: np.random.Generator) -> None:
    path = write(X=rows(random), **arrays)
    text = refusal(of(path))
    assert says in text
    assert str(path) in text


def test_images_have_a_height_and_a_width(write: Write, random: np.random.Generator) -> None:
    images = random.normal(size=(12, 4, 2))
    assert load(of(write(X=images))).shape == (4, 2)
    assert load(of(write(X=images, X_val=images.reshape(12, 8)))).shape == (4, 2)
    assert load(of(write(X=images.reshape(12, 8)))).shape is None
    assert load(of(write(X=images[..., None]))).shape == (4, 2, 1)
    assert load(of(write(X=np.repeat(images[..., None], 5, axis=3)))).shape is None


# --- scaling ----------------------------------------------------------------------------------------------------------


def test_real_numbers_are_scaled_to_mean_0_and_deviation_1(write: Write, random: np.random.Generator) -> None:
    X, Y = rows(random), rows(random, d=2) * [1e-3, 1e5]
    data = load(of(write(X=X, Y=Y)))
    for scaled in (data.X, data.Y):
        assert_allclose(scaled.mean(axis=0), 0.0, atol=1e-12)
        assert_allclose(scaled.std(axis=0), 1.0, rtol=1e-12)


def test_the_scaling_is_fitted_to_the_training_points_alone(write: Write, random: np.random.Generator) -> None:
    X, X_val = rows(random), 100.0 * rows(random, n=6)
    data, without = (load(of(write(X=X, X_val=v))) for v in (X_val, X))
    assert_array_equal(data.X, without.X)
    assert_allclose(data.X_val, np.clip((X_val - X.mean(axis=0)) / X.std(axis=0), -10.0, 10.0), rtol=1e-12)


@pytest.mark.parametrize("kind", ["none", "range", "standard", "robust", "auto"])
def test_a_slip_in_a_later_number_counts_as_twice_the_farthest_that_training_may_hold(
    kind: str, random: np.random.Generator
) -> None:
    """No training number is changed, and neither are those that lie somewhat beyond: trends go on."""
    X = long_tailed(random)
    scaling = fit_scaling(X, kind)
    plain = replace(scaling, limit=np.inf)
    assert_array_equal(scaling.apply(X), plain.apply(X))
    slips = np.concatenate([1e9 * X, 1.5 * X])
    limit = 10.0 if kind in ("robust", "auto") else np.inf
    assert_array_equal(scaling.apply(slips), np.clip(plain.apply(slips), -limit, limit))
    assert Scaling.of(scaling.arrays).limit == scaling.of_first(2).limit == scaling.repeated(3).limit == limit


@pytest.mark.parametrize("kind", ["none", "range", "standard", "robust"])
def test_undo_undoes(kind: str, random: np.random.Generator) -> None:
    X = rows(random, d=4) * [1e-6, 1.0, 1e6, 0.0]
    X[0, 0], X[1, 1] = 1.0, -1e6
    scaling = fit_scaling(X, kind)
    assert_allclose(scaling.undo(scaling.apply(X)), X, rtol=1e-12, atol=1e-9)
    assert (scaling.tails is not None) is (kind == "robust")
    if kind != "robust":
        assert_allclose(scaling.apply(X), (X - scaling.shift) / scaling.scale, rtol=1e-15)


def long_tailed(random: np.random.Generator) -> np.ndarray:
    """Columns: normal, normal with one outlier of 1e6, lognormal, mostly 0, two values, constant."""
    X = random.normal(size=(400, 6))
    X[7, 1] = 1e6
    X[:, 2] = np.exp(3.0 * X[:, 2])
    X[:, 3] = np.where(random.random(400) < 0.01, 1e3 * X[:, 3], 0.0)
    X[:, 4], X[:, 5] = X[:, 4] > 0.0, 4.0
    return X


def test_columns_with_long_tails_are_compressed_and_no_others(write: Write, random: np.random.Generator) -> None:
    """g(x) = asinh((x - median) / robust deviation), which keeps the order of the numbers; mean 0, deviation 1.

    Of a column of 0 and 1 the mean alone.
    """
    X = long_tailed(random)
    data = load(of(write(X=X, X_val=X[:9])))
    tails = data.scaling_x.tails
    assert tails is not None
    assert tails.long.tolist()[:3] == [False, True, True]
    assert not tails.long[4:].any()
    usual = ~tails.long
    usual[4] = False
    assert_allclose(data.X[:, 4], X[:, 4] - X[:, 4].mean(), rtol=1e-12)
    assert_allclose(data.X[:, usual], scaled_to(FARTHEST, X[:, usual]), rtol=1e-9, atol=1e-12)
    g = np.arcsinh((X[:, 1] - np.median(X[:, 1])) / ((np.quantile(X[:, 1], 0.75) - np.quantile(X[:, 1], 0.25)) / 1.349))
    assert_allclose(data.X[:, 1], scaled_to(FARTHEST, g), rtol=1e-9)
    assert_array_equal(np.argsort(data.X[:, 2], kind="stable"), np.argsort(X[:, 2], kind="stable"))
    assert np.abs(data.X).max() <= FARTHEST * (1.0 + 1e-12)


def scaled_to(farthest: float, g: np.ndarray) -> np.ndarray:
    """Mean 0 and deviation 1, or less where a number would lie farther from 0."""
    centred = g - g.mean(axis=0)
    scale = np.maximum(g.std(axis=0), np.abs(centred).max(axis=0) / farthest)
    return centred / np.where(scale > 0.0, scale, 1.0)


@pytest.mark.parametrize("few", [1, 3, 30])
def test_a_column_that_is_0_but_in_a_few_rows_weighs_no_more_than_others(few: int, random: np.random.Generator) -> None:
    X = random.normal(size=(3000, 2))
    X[:, 1] = 0.0
    X[:few, 1] = random.choice([-3.0, 40.0], few)
    scaled = fit_scaling(X, "robust").apply(X)
    assert np.abs(scaled[:, 1]).max() == pytest.approx(FARTHEST)
    assert_array_equal(scaled[:, 0], fit_scaling(X, "standard").apply(X)[:, 0])


def exponential(random: np.random.Generator, n: int = 3000) -> np.ndarray:
    """Columns: exp(t) of t with two degrees of freedom, twice; normal with one outlier of 1e13, of 1e90; normal."""
    X = random.normal(size=(n, 5))
    X[:, :2] = np.exp(random.standard_t(2, (n, 2)))
    X[7, 2], X[8, 3] = 1e13, -1e90
    return X


def test_tails_that_grow_exponentially_are_compressed_twice(random: np.random.Generator) -> None:
    """g(x) = asinh(asinh((x - median) / robust deviation)) keeps the order, and puts nothing far from the rest."""
    X = exponential(random)
    scaling = fit_scaling(X, "robust")
    tails = scaling.tails
    assert tails is not None and tails.again is not None
    assert tails.again.tolist() == [1.0, 1.0, 1.0, 1.0, 0.0]
    scaled = scaling.apply(X)
    for column in range(4):
        first, median, third = np.quantile(X[spread_rows(len(X)), column], [0.25, 0.5, 0.75])
        g = np.arcsinh(np.arcsinh((X[:, column] - median) / ((third - first) / 1.349)))
        assert_allclose(scaled[:, column], scaled_to(FARTHEST, g), rtol=1e-9, atol=1e-12)
        assert_array_equal(np.argsort(scaled[:, column], kind="stable"), np.argsort(X[:, column], kind="stable"))
    assert np.abs(scaled).max() <= FARTHEST * (1.0 + 1e-12)
    assert_array_equal(scaled[:, 4], fit_scaling(X, "standard").apply(X)[:, 4])
    undone = scaling.undo(scaled)
    bound = 1e-11  # a relative error u of g is one of up to 210 * 6 u of x = 1e90, whose asinh is 210
    assert_allclose(undone, X, rtol=bound, atol=bound)


def test_columns_in_the_largest_and_the_smallest_units_stay_finite(random: np.random.Generator) -> None:
    """From 1e99 to 1e-199 and less, with one number that lies as far away as data may hold."""
    for unit in (1e99, 1.0, 1e-99, 1e-190, 1e-250):
        X = random.normal(size=(50, 2)) * [unit, 1.0]
        X[3, 0] = 9e99
        scaling = fit_scaling(X, "robust")
        found = scaling.apply(np.vstack([X, [[-9e99, 0.0]]]))
        assert np.isfinite(found).all()
        assert np.abs(found[:50]).max() < np.sqrt(50)
        assert (scaling.tails is None) is (unit in (1e99, 1e-250))


def test_targets_keep_their_own_unit(write: Write, random: np.random.Generator) -> None:
    """An error of a regression is measured in the unit of its targets, long tails or not."""
    X = long_tailed(random)
    for scale in ("auto", "robust"):
        data = load(of(write(X=X[:, :2], Y=X[:, 1]), scale=scale))
        assert data.scaling_y.tails is None
        assert data.scaling_x.tails is not None


@pytest.mark.parametrize("type_", [np.uint8, np.float64])
def test_images_are_scaled_together_and_columns_each_by_itself(
    type_: type, write: Write, random: np.random.Generator
) -> None:
    X = random.integers(0, 256, (40, 3, 3)).astype(type_)
    data = load(of(write(X=X, Y=np.arange(40.0), X_val=X, Y_val=np.arange(40.0))))
    assert (data.X.min(), data.X.max()) == (0.0, 1.0)
    assert np.ptp(data.scaling_x.scale) == 0.0
    data = load(of(write(X=X.reshape(40, 9), Y=np.arange(40.0), X_val=X.reshape(40, 9), Y_val=np.arange(40.0))))
    assert_allclose(data.X.std(axis=0), 1.0, rtol=1e-12)


def test_a_constant_column_keeps_its_scale(write: Write, random: np.random.Generator) -> None:
    X = rows(random)
    X[:, 1] = 0.1 + 0.2
    data = load(of(write(X=X, X_val=X)))
    assert_array_equal(data.scaling_x.scale[1], 1.0)
    assert_allclose(data.X[:, 1], 0.0, atol=1e-12)
    assert np.isfinite(data.X).all()


# --- split and points -------------------------------------------------------------------------------------------------


@often
@given(n=st.integers(2, 300), fraction=st.floats(1e-6, 0.999), seed=st.integers(0, 2**63 - 1))
def test_a_split_takes_each_point_once(n: int, fraction: float, seed: int) -> None:
    X = np.arange(n, dtype=float)[:, None]
    config = Data(validation=fraction, seed=seed)
    rows = drawn(n, config)
    train, held = (found[:] for found in rows)
    assert len(train) >= 1
    assert abs(len(held) - fraction * n) <= 1.0
    assert len(held) >= 1
    assert sorted([*train, *held]) == list(range(n))
    if len(train) < 2:
        return
    parts = parts_of(Raw({"X": X, "Y": 10.0 * X}), config, rows)
    for side, where in (("", train), ("_val", held)):
        assert_array_equal(parts[f"X{side}"].read(Tile(0, len(where))), X[where])
        assert_array_equal(parts[f"Y{side}"].read(Tile(0, len(where))), 10.0 * X[where])


def test_points_keeps_some_of_the_training_points_in_their_order(write: Write, random: np.random.Generator) -> None:
    path = write(X=rows(random), Y=rows(random, d=1))
    whole, some = load(of(path, scale="none")), load(of(path, scale="none", points=7))
    at = [int(np.flatnonzero((x == whole.X).all(axis=1))[0]) for x in some.X]
    assert len(at) == 7
    assert at == sorted(set(at))
    assert_array_equal(some.Y, whole.Y[at])
    assert_array_equal(some.X_val, whole.X_val)
    assert load(of(path, points=16)).sha256 == load(of(path)).sha256
    assert "data.points = 17, but there are 16 training points" in refusal(of(path, points=17))


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, -1e200])
def test_a_number_that_cannot_be_trained_on_is_named_by_its_place(
    bad: float, write: Write, random: np.random.Generator
) -> None:
    otherwise = ", or let outputs be missing, loss.missing = true"
    for name in ("X", "Y", "X_val", "Y_val"):
        arrays = {n: rows(random) for n in ("X", "Y", "X_val", "Y_val")}
        arrays[name][13, 2] = arrays[name][17, 0] = bad
        text = refusal(of(write(**arrays)))
        assert f"dataset {name} is {bad} at [13, 2] (2 such values)" in text and text.removesuffix(otherwise).endswith(
            " them"
        )
        arrays[name][17, 0] = 0.0
        text = refusal(of(write(**arrays)))
        assert f"dataset {name} is {bad} at [13, 2] (1 such value)" in text and text.removesuffix(otherwise).endswith(
            " it"
        )
        assert text.endswith(otherwise) == (np.isnan(bad) and "Y" in name)


@pytest.mark.parametrize(
    ("X", "says"),
    [
        (np.array([[1.0 + 2.0j, 1.0]] * 4), "complex128"),
        (np.array([[b"a", b"b"]] * 4), "real numbers"),
        (np.array(3.0), "a single number"),
        (np.zeros((1, 3)), "at least 2 rows"),
        (np.zeros((0, 3)), "at least 2 rows"),
        (np.zeros((5, 0)), "at least 2 rows and 1 column"),
        (np.zeros((5, 2, 0)), "at least 2 rows and 1 column"),
    ],
    ids=lambda value: str(getattr(value, "dtype", "")) + str(getattr(value, "shape", "")),
)
def test_what_is_not_rows_of_real_numbers(X: Array, says: str, write: Write) -> None:
    path = write(X=X)
    text = refusal(of(path))
    assert f"{path}: dataset X" in text
    assert says in text


def test_one_training_point_is_named_for_what_it_is(write: Write) -> None:
    assert "only 1 training point" in refusal(of(write(X=np.array([[1.0], [2.0]]))))


def test_ragged_and_pickled_arrays(tmp_path: Path) -> None:
    """Nothing is ever unpickled."""
    ragged = np.array([np.zeros(2), np.zeros(3)], dtype=object)
    np.savez(tmp_path / "ragged.npz", X=ragged)
    assert "ragged.npz cannot be read" in refusal(of(tmp_path / "ragged.npz"))
    with h5py.File(tmp_path / "ragged.h5", "w") as file:
        file.create_dataset("X", data=ragged, dtype=h5py.vlen_dtype(np.float64))
        file.create_dataset("words", data=["a", "b"])
        file.create_dataset("records", data=np.zeros(3, dtype=[("a", float)]))
        file.create_group("group")
    assert "dataset X holds object" in refusal(of(tmp_path / "ragged.h5"))
    for name in ("words", "records"):
        array = read_file(tmp_path / "ragged.h5", (name,))[name]
        with pytest.raises(UsageError, match="real numbers are needed"):
            as_rows(array, name)
    with pytest.raises(UsageError, match="is a group, not a dataset"):
        read_file(tmp_path / "ragged.h5", ("group",))


@pytest.mark.parametrize(
    ("shapes", "says"),
    [
        ({"X": (6, 2), "Y": (5, 2)}, "X has 6 rows but Y has 5"),
        ({"X": (6, 2), "X_val": (6, 3)}, "X has 2 columns but X_val has 3"),
        ({"X": (6, 2), "Y": (6, 2), "X_val": (3, 2), "Y_val": (4, 2)}, "X_val has 3 rows but Y_val has 4"),
        ({"X": (6, 2), "Y": (6, 2), "X_val": (3, 2), "Y_val": (3, 1)}, "Y has 2 columns but Y_val has 1"),
        ({"X": (6, 2), "Y": (6, 2), "X_val": (3, 2)}, "Y_val goes with X_val and Y"),
        ({"X": (6, 2), "X_val": (3, 2), "Y_val": (3, 2)}, "Y_val goes with X_val and Y"),
        ({"X": (6, 2), "Y": (6, 2), "Y_val": (3, 2)}, "Y_val goes with X_val and Y"),
        ({"Y": (6, 2)}, "there is no dataset X"),
        ({"x": (6, 2)}, "a dataset of that kind is called X"),
    ],
)
def test_arrays_that_do_not_fit_together(
    shapes: dict[str, tuple[int, int]], says: str, write: Write, random: np.random.Generator
) -> None:
    path = write(**{name: random.normal(size=shape) for name, shape in shapes.items()})
    text = refusal(of(path))
    assert says in text
    assert str(path) in text


def test_files_that_are_not_there_or_not_data(tmp_path: Path) -> None:
    assert "does not exist" in refusal(of(tmp_path / "nowhere.npz"))
    assert str((tmp_path / "nowhere.h5").resolve()) in refusal(of(tmp_path / "nowhere.h5"))
    for name in ("points.txt", "digit", ""):
        text = refusal(Data(source=name))
        assert f'"{name}" is neither "digits", "usps", "usps-large", "coil" nor an .h5, .hdf5, .nc or .npz file' in text


def damaged_files(folder: Path, random: np.random.Generator) -> dict[str, bytes]:
    np.savez(folder / "good.npz", X=rows(random))
    np.savez_compressed(folder / "small.npz", X=rows(random))
    with h5py.File(folder / "good.h5", "w") as file:
        file.create_dataset("X", data=rows(random), fletcher32=True, chunks=True)
        offset = file["X"].id.get_chunk_info(0).byte_offset
    good, small, h5 = ((folder / name).read_bytes() for name in ("good.npz", "small.npz", "good.h5"))

    def flipped(content: bytes, at: int) -> bytes:
        return content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]

    return {
        "truncated.npz": good[: len(good) // 2],
        "empty.npz": b"",
        "text.npz": b"1,2,3\n",
        "flipped.npz": flipped(good, 250),
        "flipped-small.npz": flipped(small, 60),
        "truncated.h5": h5[: len(h5) // 2],
        "empty.h5": b"",
        "text.h5": b"1,2,3\n",
        "flipped.h5": flipped(h5, offset + 9),
    }


@pytest.mark.parametrize(
    "name",
    [
        *("truncated.npz", "empty.npz", "text.npz", "flipped.npz", "flipped-small.npz"),
        *("truncated.h5", "empty.h5", "text.h5", "flipped.h5"),
    ],
)
def test_a_damaged_file_is_refused_by_its_name(name: str, tmp_path: Path, random: np.random.Generator) -> None:
    path = tmp_path / name
    path.write_bytes(damaged_files(tmp_path, random)[name])
    assert f"{path} cannot be read" in refusal(of(path))


# --- named sets and other ranks ---------------------------------------------------------------------------------------


def test_digits() -> None:
    data = load(Data(source="digits"))
    assert data.autoencoder
    assert data.X.shape == (1438, 64)
    assert data.X_val.shape == (359, 64)
    assert data.X.min() == 0.0
    assert data.X.max() == 1.0
    assert_array_equal(data.scaling_x.scale, 1.0)
    assert data.shape == (8, 8)
    classes = load(Data(source="digits"), rules=CLASSES)
    groups = classes.groups
    assert groups is not None
    for Y, numbers in ((classes.Y, groups[0]), (classes.Y_val, groups[1])):
        assert_array_equal(Y.argmax(axis=1), numbers)


@pytest.mark.parametrize(("value", "says"), [(1.257e199, "the limit is 1e+100: rescale"), (np.nan, "remove or fill")])
def test_a_value_above_the_limit_is_refused_with_the_limit_and_the_remedy(
    value: float, says: str, write: Write
) -> None:
    X = np.arange(40.0).reshape(20, 2)
    X[3, 1] = value
    path = write(X=X)

    def opened_and_read() -> None:
        parts = parts_of(raw_of(of(path), by_rows=True), of(path), [range(16), range(16, 20)])
        parts["X"].read(Tile(0, 16))

    for read in (lambda: load(of(path)), opened_and_read):
        with pytest.raises(UsageError) as refused:
            read()
        assert f"dataset X is {value} at [3, 1]" in str(refused.value)
        assert says in str(refused.value)


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["features", "y\nz"], "it holds features, y\\nz"),
        ([f"a{i}" for i in range(9)], "it holds a0, a1, a2, a3, a4, a5, a6, a7, ..."),
        ([], "it holds nothing"),
    ],
)
def test_a_file_without_points_is_refused_with_what_it_holds(names: list[str], says: str, write: Write) -> None:
    path = write(**{name: np.zeros((4, 2)) for name in names})
    for read in (lambda: load(of(path)), lambda: survey(of(path)), lambda: read_points(path, "X", [])):
        with pytest.raises(UsageError) as refused:
            read()
        assert f"there is no dataset X; {says}" in str(refused.value)


@pytest.mark.parametrize(("source", "file"), [("usps", "usps.h5"), ("coil", "coil20.h5")])
def test_a_named_set_without_its_file(source: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MACMPI_DATA", str(tmp_path))
    text = refusal(Data(source=source))
    assert str(tmp_path / file) in text
    assert "MACMPI_DATA" in text
    assert f"python -m macmpi.fetch {source}" in text
    with h5py.File(tmp_path / file, "w") as written:
        written["images"] = np.zeros((3, 2, 2))
    assert f"{tmp_path / file}: there is no dataset " in refusal(Data(source=source))
    (tmp_path / file).write_bytes(b"text")
    assert f"{tmp_path / file} cannot be read" in refusal(Data(source=source))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"images": np.zeros((60, 9, 9))}, "dataset images is float64 of shape (60, 9, 9)"),
        ({"images": np.float64(0.0)}, "dataset images is float64 of shape ()"),
        ({"images": np.full((60, 32, 32), b"a")}, "dataset images is |S1"),
        ({"images": np.full((60, 32, 32), np.nan)}, "dataset images holds what is no number"),
        ({"pose": np.arange(59)}, "dataset pose is int64 of shape (59,)"),
        ({"object": np.ones(60)}, "dataset object is float64"),
        ({"object": np.full(60, 7)}, "there is no validation point"),
        ({"object": np.ones(60, int), "pose": np.ones(60, int)}, "only 0 training point is left"),
    ],
)
def test_a_named_set_whose_file_holds_something_else(
    wrong: dict[str, Array], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MACMPI_DATA", str(tmp_path))
    right = {"images": np.ones((60, 32, 32)), "object": np.arange(60) % 20 + 1, "pose": np.arange(60)}
    with h5py.File(tmp_path / "coil20.h5", "w") as file:
        for name, array in (right | wrong).items():
            file[name] = array
    text = refusal(Data(source="coil"))
    assert says in text
    assert "\n" not in text


@pytest.fixture(scope="module")
def usps() -> Dataset:
    return load(Data(source="usps"))


@pytest.mark.usps
def test_usps_is_5000_and_5000_images_in_0_to_1(usps: Dataset) -> None:
    assert usps.autoencoder
    assert usps.X.shape == usps.X_val.shape == (5000, 256)
    for X in (usps.X, usps.X_val):
        assert X.min() == 0.0
        assert X.max() == 1.0
        # 0 is the background: most of an image.
        assert 0.2 < X.mean() < 0.3


@pytest.mark.usps
def test_the_seed_draws_the_usps_images(usps: Dataset) -> None:
    assert load(Data(source="usps")).sha256 == usps.sha256
    other = load(Data(source="usps", seed=1))
    assert other.sha256 != usps.sha256
    assert as_set(other.X) != as_set(usps.X)
    few = load(Data(source="usps", points=100))
    assert_array_equal(few.X, usps.X[:100])
    assert_array_equal(few.X_val, usps.X_val)


# --- COIL-20 ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def coil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Array, Array]:
    """A made-up coil20.h5 in which an image tells what it shows; object and pose of each."""
    number, pose = (grid.ravel().astype(np.uint8) for grid in np.mgrid[1:21, 0:72])
    images = np.zeros((1440, 32, 32), np.float32)
    images[:, 0, 1], images[:, 1, 0] = number / np.float32(32), pose / np.float32(128)
    with h5py.File(tmp_path / "coil20.h5", "w") as file:
        file["images"], file["object"], file["pose"] = images, number, pose
    monkeypatch.setenv("MACMPI_DATA", str(tmp_path))
    return number, pose


def seen(X: Array) -> list[tuple[int, int]]:
    """Object and pose of rows."""
    return [(int(n), int(p)) for n, p in zip(X[:, 1] * 32, X[:, 32] * 128, strict=True)]


def test_coil_holds_out_every_other_pose_of_the_duck_and_the_cat(coil: tuple[Array, Array]) -> None:
    data = load(Data(source="coil"))
    assert data.autoencoder
    assert data.X.shape == (1368, 1024)
    assert data.X_val.shape == (72, 1024)
    assert seen(data.X_val) == [(n, p) for n in (1, 4) for p in range(1, 72, 2)]
    assert sorted(seen(data.X) + seen(data.X_val)) == [(n, p) for n in range(1, 21) for p in range(72)]
    assert data.shape == (32, 32)
    assert data.groups is not None
    for X, groups in ((data.X, data.groups[0]), (data.X_val, data.groups[1])):
        assert [n for n, _ in seen(X)] == list(groups)
    assert_array_equal(data.scaling_x.scale, 1.0)


def test_the_seed_draws_the_order_of_the_coil_images(coil: tuple[Array, Array]) -> None:
    first, again, other = (load(Data(source="coil", seed=seed)) for seed in (0, 0, 1))
    assert first.sha256 == again.sha256 != other.sha256
    assert as_set(first.X) == as_set(other.X)
    assert_array_equal(first.X_val, other.X_val)
    few = load(Data(source="coil", points=100))
    assert_array_equal(few.X, first.X[:100])
    assert few.groups is not None
    assert len(set(few.groups[0])) > 15
    assert len(few.groups[0]) == 100


def test_coil_brings_its_labels(coil: tuple[Array, Array]) -> None:
    data, plain = load(Data(source="coil"), rules=CLASSES), load(Data(source="coil"))
    assert_array_equal(data.classes, np.arange(1, 21))
    assert_array_equal(data.X, plain.X)
    assert data.classes is not None
    for X, Y in ((data.X, data.Y), (data.X_val, data.Y_val)):
        assert_array_equal(data.classes[Y.argmax(axis=1)], [n for n, _ in seen(X)])


def test_values_that_vanish_are_refused(write: Write, random: np.random.Generator) -> None:
    assert "choose other units" in refusal(of(write(X=1e-200 * random.normal(size=(9, 2)))))
