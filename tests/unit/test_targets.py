"""Targets: what each loss takes, in which units, and what becomes of those that are missing."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from launch.here import run_here
from numpy.testing import assert_allclose, assert_array_equal
from unit.crew import crew

import macmpi
from macmpi import UsageError, config
from macmpi.data import loading
from macmpi.data.dataset import Dataset, target_rules_of
from macmpi.data.scaling import Scaling
from macmpi.nets.losses import LINKS, LOSSES
from macmpi.parallel.placement import PLACEMENTS
from macmpi.parallel.points import partition_points
from macmpi.results.scores import numbers_of, numbers_sums
from macmpi.typing import Array

SHARDED = PLACEMENTS["sharded"]

TRUTH = np.random.default_rng(0).integers(2, size=(60, 3)).astype(float)
COUNTS = np.random.default_rng(1).poisson(3.0, (60, 3)).astype(float)
X = np.random.default_rng(2).normal(size=(60, 4))
FEW: dict[str, Any] = {"model.hidden": [3], "run.max_iterations": 2, "run.refit": False}


def changes_nothing(scaling: Scaling) -> bool:
    """It is the identity."""
    return (
        scaling.tails is None
        and np.isinf(scaling.limit)
        and not scaling.shift.any()
        and bool((scaling.scale == 1).all())
    )


def written(folder: Path, name: str = "points.h5", **arrays: Array) -> config.Config:
    """A file with these arrays, as the data of a config."""
    with h5py.File(folder / name, "w") as file:
        for key, array in arrays.items():
            file[key] = array
    return config.validate({"data": {"source": str(folder / name)}}, "this test")


def with_loss(given: config.Config, loss: str, **keys: Any) -> config.Config:
    table = {"data": {"source": given.data.source}, "model": {"loss": loss}, "loss": keys}
    return config.validate(table, "this test")


def loaded(given: config.Config, **keys: Any) -> Dataset:
    return loading.load(given.data, replace(target_rules_of(given), **keys))


def on_ranks(given: config.Config, ranks: int) -> list[Any]:
    """What each rank reads of sharded data, or the error that it raises."""

    def work(team: Any) -> Dataset:
        sizes = team.from_root(lambda: loading.survey(given.data))
        n, n_val = (partition_points(size, ranks, placement=SHARDED) for size in sizes.counts[2:])
        return loading.load_rows(given.data, target_rules_of(given), None, (n, n_val), team)

    return crew(ranks, work)


@pytest.mark.parametrize(("output", "least", "most"), [("sigmoid", 0.2, 0.6), ("tanh", 0.2, 0.6), ("relu", 0.0, 1.0)])
def test_targets_can_be_met_under_an_activation_of_the_output_layer(
    tmp_path: Path, output: str, least: float, most: float
) -> None:
    """By "auto" the scaled targets lie where the activation does: as they are, or from 0 to 1 as an autoencoder's."""
    Y = np.linspace(0.2, 0.6, 60)
    given = written(tmp_path, X=X[:40], Y=Y[[0, 59, *range(38)]], X_val=X[40:], Y_val=Y[40:])
    alone = written(tmp_path, "alone.h5", X=X, X_val=X[:9])
    given, alone = (replace(one, model=replace(one.model, output=output)) for one in (given, alone))
    for data in (loaded(given), *on_ranks(given, 2)[:1]):
        assert_allclose([data.scaling_y.apply(Y[:1]), data.scaling_y.apply(Y[-1:])], [[least], [most]])
    of_shares = with_loss(replace(alone, model=config.Model()), "logistic")
    for data in (loaded(alone), loaded(of_shares)):
        assert (data.X.min(), data.X.max()) == (0.0, 1.0)


def gaps(Y: Array, seed: int = 0) -> Array:
    return np.where(np.random.default_rng(seed).uniform(size=Y.shape) < 0.3, np.nan, Y)


# --- what a loss takes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("loss", "bad"), [("logistic", 1.5), ("logistic", -0.1), ("poisson", -1.0), ("poisson", 1e13)])
def test_a_target_that_the_loss_does_not_take_is_named(loss: str, bad: float, tmp_path: Path) -> None:
    Y = TRUTH.copy()
    Y[:, 1] = bad
    given = with_loss(written(tmp_path, X=X, Y=Y), loss)
    says = rf'model.loss = "{loss}" takes .*, and a target of column 1 is {re.escape(f"{bad:g}")}; use model.loss = "sq'
    with pytest.raises(UsageError, match=says):
        loaded(given)
    for error in on_ranks(given, 2):
        assert isinstance(error, UsageError)
        assert re.search(says, str(error))
    loaded(with_loss(given, "squared"))


@pytest.mark.parametrize(("loss", "Y"), [("logistic", TRUTH), ("logistic", TRUTH * 0.5 + 0.2), ("poisson", COUNTS)])
def test_targets_that_are_no_amounts_keep_their_units(loss: str, Y: Array, tmp_path: Path) -> None:
    given = with_loss(written(tmp_path, X=X, Y=Y, X_val=X, Y_val=Y), loss)
    data = loaded(given)
    assert_array_equal(data.Y, Y)
    assert changes_nothing(data.scaling_y)
    assert not changes_nothing(data.scaling_x)
    assert_array_equal(np.concatenate([part.Y for part in on_ranks(given, 3)]), Y)
    assert not changes_nothing(loaded(with_loss(given, "huber")).scaling_y)


def test_before_anything_is_created(tmp_path: Path) -> None:
    written(tmp_path, X=X, Y=-COUNTS)
    (tmp_path / "t.toml").write_text('data = "points.h5"\nmodel.loss = "poisson"\n')
    for also in ((), ("--set", "parallel.data=sharded")):
        outcome = run_here("t.toml", *also, "--output", "run", cwd=tmp_path, code=2)
        assert 'model.loss = "poisson" takes counts' in outcome.err
        assert not (tmp_path / "run").exists()


# --- missing targets --------------------------------------------------------------------------------------------------


def test_missing_targets_are_left_out_of_their_scaling(tmp_path: Path) -> None:
    Y = gaps(COUNTS * [1.0, 10.0, 100.0])
    given = with_loss(written(tmp_path, X=X, Y=Y, X_val=X, Y_val=Y), "squared", missing=True)
    data = loaded(given)
    assert_array_equal(np.isnan(data.Y), np.isnan(Y))
    assert_allclose(np.nanmean(data.Y, axis=0), 0.0, atol=1e-14)
    assert_allclose(np.nanstd(data.Y, axis=0), 1.0, rtol=1e-13)
    assert_allclose(data.scaling_y.undo(data.Y), Y, rtol=1e-13)
    for ranks in (1, 2, 5):
        parts = on_ranks(given, ranks)
        assert_allclose(np.concatenate([part.Y for part in parts]), data.Y, rtol=1e-12, atol=1e-13)
        assert_allclose(parts[0].scaling_y.scale, data.scaling_y.scale, rtol=1e-13)
    assert loaded(given, precision="float32").Y.dtype == np.float32


def test_they_are_refused_unless_asked_for_with_the_key_that_allows_them(tmp_path: Path) -> None:
    given = written(tmp_path, X=X, Y=gaps(TRUTH))
    remedy = r"is nan at .*; remove or fill them, or let outputs be missing, loss.missing = true$"
    with pytest.raises(UsageError, match=remedy):
        loaded(with_loss(given, "squared"))
    with pytest.raises(UsageError, match=r"dataset X is nan at .*; remove or fill it$"):
        loaded(
            with_loss(written(tmp_path, "x.h5", X=np.where(X[3, 2] == X, np.nan, X), Y=TRUTH), "huber", missing=True)
        )
    with pytest.raises(UsageError, match=r"dataset Y is inf"):
        loaded(with_loss(written(tmp_path, "y.h5", X=X, Y=np.where(TRUTH > 0, np.inf, 0.0)), "huber", missing=True))


@pytest.mark.parametrize("ranks", [0, 2])
def test_a_column_that_no_training_point_has_is_refused(ranks: int, tmp_path: Path) -> None:
    Y = COUNTS.copy()
    Y[:, 1] = np.nan
    given = with_loss(written(tmp_path, X=X, Y=Y, X_val=X, Y_val=COUNTS), "poisson", missing=True)
    found = on_ranks(given, ranks) if ranks else []
    if not ranks:
        with pytest.raises(UsageError) as caught:
            loaded(given)
        found = [caught.value]
    for error in found:
        assert "column 1 is missing, or weighs 0, in the training points (where" in str(error)


@pytest.mark.parametrize("method", ["mac", "stochastic", "adam", "lbfgs"])
@pytest.mark.parametrize("loss", [name for name, loss in LOSSES.items() if loss.by_output])
def test_what_is_missing_does_not_matter(loss: str, method: str) -> None:
    """The same weights, whatever number would have been there: none of it is read."""
    Y = gaps({"logistic": TRUTH}.get(loss, COUNTS))
    keys = {**FEW, "loss.missing": True, "method.name": method, "data.scale": "none"}
    first = macmpi.fit(X, Y, loss=loss, config=keys, seed=1)
    assert np.isfinite(first.predict(X)).all()
    assert 0.0 < first.history[-1]["E1_train"] < first.history[0]["E1_train"] * 1.5
    assert first.card is not None and np.isfinite(first.card.scores["r2"])
    whole_point = np.where(np.isnan(Y).all(axis=1, keepdims=True), np.nan, Y)
    assert_array_equal(macmpi.fit(X, whole_point, loss=loss, config=keys, seed=1).predict(X), first.predict(X))


def test_scores_are_those_of_the_targets_that_are_there() -> None:
    random = np.random.default_rng(4)
    Y, F = gaps(random.normal(size=(40, 2))), random.normal(size=(40, 2))
    found = numbers_of(numbers_sums(Y, F), np.array([2.0, 3.0]))
    assert_allclose(found.rmse, [2.0, 3.0] * np.sqrt(np.nanmean((F - Y) ** 2, axis=0)), rtol=1e-12)
    assert_allclose(found.mae, [2.0, 3.0] * np.nanmean(np.abs(F - Y), axis=0), rtol=1e-12)
    expected = 1.0 - np.nansum((F - Y) ** 2, axis=0) / np.nansum((Y - np.nanmean(Y, axis=0)) ** 2, axis=0)
    assert_allclose(found.r2, expected, rtol=1e-12)


# --- predictions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("loss", "Y"), [("logistic", TRUTH), ("poisson", COUNTS), ("absolute", COUNTS)])
def test_predictions_are_means_through_the_link_and_saved_models_have_it(loss: str, Y: Array, tmp_path: Path) -> None:
    model = macmpi.fit(X, Y, loss=loss, config=FEW)
    scaled = model.chain.forward(model.weights, model.scaling_x.apply(X))
    assert_array_equal(model.predict(X), model.scaling_y.undo(LINKS[LOSSES[loss].link](scaled)))
    if loss == "logistic":
        assert_array_equal(model.probabilities(X), model.predict(X))
        assert ((model.predict(X) > 0.0) & (model.predict(X) < 1.0)).all()
    else:
        with pytest.raises(UsageError, match="no classifier"):
            model.probabilities(X)
    macmpi.save(model, str(tmp_path / "m.h5"))
    assert_array_equal(macmpi.load(str(tmp_path / "m.h5")).predict(X), model.predict(X))
    with h5py.File(tmp_path / "m.h5", "r+") as file:
        file.attrs["link"] = "cosine"
    with pytest.raises(UsageError, match="how outputs become predictions"):
        macmpi.load(str(tmp_path / "m.h5"))
