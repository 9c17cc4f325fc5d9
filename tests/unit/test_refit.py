"""A refit is the run that would have been without validation points; who asks for a model gets its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from launch.here import run_here
from launch.launching import run_program
from numpy.testing import assert_array_equal

import macmpi
from macmpi.config import Config, Method, Parallel, Penalty, Run, Selection, Start
from macmpi.config.auto import Sizes
from macmpi.plan.resolve import FEW, can_refit, resolve
from macmpi.plan.resolved import Resolved
from macmpi.results.reading import read
from macmpi.state import Errors
from macmpi.training import loop
from macmpi.training.end import GAP, Best, iterations_of

N, VALIDATION = 90, 30
STOCHASTIC, SLOWLY = {"method.name": "stochastic"}, {"method.name": "mac", "penalty.mu_every": 3}
WAYS = [STOCHASTIC, {"method.name": "adam"}, SLOWLY, SLOWLY | {"method.acceleration": "momentum"}]


def table(folder: Path, name: str = "points.npz") -> Path:
    """X, Y and validation points of them."""
    random = np.random.default_rng(3)
    X = random.normal(size=(N + VALIDATION, 4))
    Y = np.sin(2.0 * X[:, :2]) + 0.1 * random.normal(size=(N + VALIDATION, 2))
    np.savez(folder / name, X=X[:N], Y=Y[:N], X_val=X[N:], Y_val=Y[N:])
    return folder / name


def words(keys: dict[str, Any]) -> list[str]:
    return [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]


COMMON = {"data.scale": "none", "model.hidden": [6], "model.activation": "tanh", "run.max_iterations": 12}


def trained(folder: Path, output: str, keys: dict[str, Any], code: int = 0) -> Path:
    config = folder / f"{output}.toml"
    source, loss = keys.pop("data.source", "points.npz"), keys.pop("model.loss", "squared")
    config.write_text(f'data.source = "{source}"\nmodel.loss = "{loss}"\n')
    run_here(config.name, "--output", output, *words(COMMON | keys), cwd=folder, code=code)
    return folder / output / "model.h5"


def weights(path: Path, name: str) -> np.ndarray:
    with h5py.File(path) as file:
        return np.asarray(file[f"weights/{name}"])


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_it_is_the_run_on_all_points_for_as_many_iterations_as_validation_chose(
    way: dict[str, Any], tmp_path: Path
) -> None:
    with np.load(table(tmp_path)) as held:
        X, Y = (np.concatenate([held[name], held[f"{name}_val"]]) for name in "XY")
        np.savez(tmp_path / "all.npz", X=X, Y=Y, X_val=held["X_val"], Y_val=held["Y_val"])
    path = trained(tmp_path, "run", way | {"run.refit": "true"})
    with h5py.File(path) as file:
        n, error = int(file.attrs["refit_iterations"]), float(file.attrs["refit_E1"])
        assert 0 < n <= COMMON["run.max_iterations"]
    whole = way | {"data.source": "all.npz", "run.max_iterations": n, "run.refit": "false"}
    other = trained(tmp_path, "whole", whole)
    curve = (tmp_path / "whole" / "curve.jsonl").read_text().splitlines()
    assert f'"iteration": {n}, ' in curve[-2]
    if way["method.name"] != "mac":  # whose last weights have been postprocessed
        assert_array_equal(weights(path, "refit"), weights(other, "last"))
    assert error == pytest.approx(float(curve[-2].split('"E1_train": ')[1].split(",")[0]), rel=1e-12)


def test_a_model_predicts_with_it_and_a_report_judges_the_weights_before(tmp_path: Path) -> None:
    table(tmp_path)
    source = str(tmp_path / "points.npz")
    path = trained(tmp_path, "run", STOCHASTIC | {"run.refit": "true", "data.source": source})
    X = np.random.default_rng(0).normal(size=(7, 4))
    preferred, named, best = (macmpi.load(path, weights=name).predict(X) for name in (None, "refit", "best"))
    assert_array_equal(preferred, named)
    assert (preferred != best).any()
    end = read(path.parent, "run").end
    assert end is not None
    assert_array_equal(end.model.predict(X), best)


def test_it_has_the_same_bits_on_any_number_of_ranks(tmp_path: Path) -> None:
    table(tmp_path)
    keys = STOCHASTIC | {"run.refit": "true"}
    alone = trained(tmp_path, "run", keys)
    options = ("--output", "together", *words(COMMON | keys))
    run_program("run.toml", *options, ranks=2, cwd=tmp_path, code=0)
    together = tmp_path / "together" / "model.h5"
    for name in ("last", "best", "refit"):
        assert_array_equal(weights(alone, name), weights(together, name))


@pytest.mark.parametrize("way", [STOCHASTIC | {"stochastic.parts": 2}, SLOWLY], ids=str)
def test_of_points_that_ranks_hold_apart_it_is_that_of_all_of_them(way: dict[str, Any], tmp_path: Path) -> None:
    """Training and validation points are assigned to ranks again; one that was stopped begins again."""
    with np.load(table(tmp_path)) as held, h5py.File(tmp_path / "points.h5", "w") as file:
        for name, array in held.items():
            file[name] = array
    keys = way | {"run.refit": "true", "data.source": "points.h5"}
    alone = trained(tmp_path, "run", dict(keys))
    options = ("--output", "apart", *words(COMMON | keys | {"parallel.data": "sharded"}))
    run_program("run.toml", *options, ranks=3, cwd=tmp_path, code=0)
    found, expected = (weights(path, "refit") for path in (tmp_path / "apart" / "model.h5", alone))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_a_run_that_is_stopped_in_it_begins_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table(tmp_path)
    keys = STOCHASTIC | {"run.refit": "true"}
    straight = trained(tmp_path, "straight", dict(keys))
    with monkeypatch.context() as patch:
        patch.setattr(loop.Training, "_refit", lambda *_: None)
        path = trained(tmp_path, "run", dict(keys), code=75)
    assert not path.exists()
    outcome = run_here("run.toml", "--output", "run", "--resume", "auto", *words(COMMON | keys), cwd=tmp_path, code=0)
    assert "refit on all 120 points" in outcome.out
    for name in ("last", "best", "refit"):
        assert_array_equal(weights(straight, name), weights(path, name))


def test_its_length_is_that_of_the_run_without_its_curve_too(tmp_path: Path) -> None:
    """A run goes on from its checkpoint alone: the curve is for people, who may have moved it away."""
    table(tmp_path)
    keys = STOCHASTIC | {"run.refit": "true"}
    straight = trained(tmp_path, "straight", dict(keys))
    path = trained(tmp_path, "run", keys | {"run.max_iterations": 5, "run.refit": "false"})
    (tmp_path / "run" / "curve.jsonl").unlink()
    run_here("run.toml", "--output", "run", "--resume", "auto", *words(COMMON | keys), cwd=tmp_path, code=0)
    assert_array_equal(weights(straight, "refit"), weights(path, "refit"))


def best_of(validation: float, train: float = 1.0, **keys: Any) -> Best:
    return Best(np.zeros(1), keys.pop("iteration", 5), Errors(train, validation, train, 0.0), **keys)


FALLING = np.array([9.0, 7.0, 5.0, 4.0, 3.0, 4.0, 5.0])
"""The least validation error is that of iteration 4."""


def resolved(config: Config, n: int = 50, **of: bool) -> Resolved:
    """For n points with targets, some of them drawn for validation, unless otherwise said."""
    return resolve(config, Sizes(4, 1, n - n // 5, n // 5, **{"autoencoder": False, "drawn": True, **of}))


@pytest.mark.parametrize(
    ("validation", "of", "method", "wanted"),
    [
        (GAP, {}, "stochastic", True),
        (0.99 * GAP, {}, "stochastic", False),
        (GAP, {"autoencoder": True}, "stochastic", False),
        (GAP, {"drawn": False}, "stochastic", False),
        (GAP, {}, "adam", False),
    ],
)
def test_by_itself_it_happens_where_points_are_what_is_lacking(
    validation: float, of: dict[str, bool], method: Any, wanted: bool
) -> None:
    found = resolved(Config(method=Method(method)), FEW + 1, **of)
    assert iterations_of(found, best_of(validation), FALLING) == (4 if wanted else 0)


@pytest.mark.parametrize(
    ("n", "tables", "of", "wanted"),
    [
        (FEW, {}, {}, True),
        (FEW + 1, {}, {}, "auto"),
        (FEW, {"run": Run(refit=False)}, {}, False),
        (FEW, {"method": Method("adam")}, {}, "auto"),
        (FEW, {"start": Start("model", model="m.h5")}, {}, "auto"),
        (FEW, {"parallel": Parallel("sharded")}, {}, True),
        (FEW, {}, {"drawn": False}, "auto"),
        (FEW, {}, {"autoencoder": True}, "auto"),
    ],
    ids=str,
)
def test_few_points_decide_it_before_the_run(n: int, tables: dict[str, Any], of: dict[str, Any], wanted: Any) -> None:
    """Its reason is said where it was decided, and a config that pins it is left as it is."""
    config = Config(**{"method": Method("stochastic"), **tables})
    found = resolved(config, n, **of)
    assert found.run.refit == found.settings["run.refit"] == wanted
    said = [one for one in found.decisions if one.key == "run.refit"]
    assert [one.value for one in said] == ([True] if found.run.refit != config.run.refit else [])
    assert all(f"{n:,} points" in one.why for one in said)


def test_it_happens_where_it_is_asked_for_and_never_where_nothing_was_learnt() -> None:
    configs = (Config(method=Method("stochastic"), run=Run(refit=word)) for word in (True, False))
    always, never = (resolved(config, drawn=False) for config in configs)
    assert iterations_of(always, best_of(0.5), FALLING)
    assert not iterations_of(never, best_of(9.0), FALLING)
    assert not iterations_of(always, best_of(9.0, constant=True), FALLING)
    assert not iterations_of(always, best_of(9.0, iteration=0), FALLING)


@pytest.mark.parametrize(
    "table",
    [
        {"selection": Selection("aic")},
        {"start": Start("model", model="m.h5")},
        {"method": Method("mac")},
        {"method": Method("mac"), "penalty": Penalty("augmented_lagrangian", mu_every=3)},
        {"method": Method("alternating")},
    ],
    ids=str,
)
def test_what_cannot_be_repeated_on_other_points(table: dict[str, Any]) -> None:
    assert not can_refit(Config(**{"method": Method("stochastic"), **table}))


@pytest.mark.parametrize(
    ("errors", "length"),
    [
        ((9.0, 5.0, 3.0, 6.0, 5.0, 4.0, 4.0, 4.0, 5.0), 6),  # 3.0 was a matter of chance
        ((9.0, 8.0, 7.0, 6.0, 5.0), 4),  # the last one has no follower
        ((3.0, 3.0, 9.0, 9.0, 9.0), 1),  # the start is no training
        ((3.0, 2.0), 1),
    ],
    ids=str,
)
def test_its_length_is_that_of_the_least_mean_of_neighbouring_errors(errors: tuple[float, ...], length: int) -> None:
    config = Config(method=Method("stochastic"), run=Run(refit=True))
    assert iterations_of(resolved(config), best_of(0.5), np.array(errors)) == length
