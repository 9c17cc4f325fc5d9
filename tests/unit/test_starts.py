"""Where a run starts: principal components, layers trained one by one, another run's weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from macmpi.config import Config, Model, Penalty, Start
from macmpi.data import Dataset, Scaling
from macmpi.layers import Array
from macmpi.mac import Mac
from macmpi.plan import make_plan
from macmpi.record import Clock
from macmpi.starts import Origin, mirrored, start
from macmpi.state import State
from macmpi.team import Solo

RANK = 3


def near_a_plane(n: int, columns: int = 12, noise: float = 1e-3) -> Array:
    """Points near a plane of RANK dimensions, of deviation about 1."""
    plane = np.random.default_rng(5).standard_normal((RANK, columns)) / np.sqrt(RANK)
    random = np.random.default_rng(n)
    return random.standard_normal((n, RANK)) @ plane + noise * random.standard_normal((n, columns))


def dataset(X: Array, X_val: Array, targets: int = 0) -> Dataset:
    """targets = 0: an autoencoder."""
    scaling = Scaling(np.zeros(X.shape[1]), np.ones(X.shape[1]))
    Y, Y_val = (X, X_val) if not targets else (np.sin(A[:, :targets]) for A in (X, X_val))
    return Dataset(X, Y, X_val, Y_val, scaling, scaling, "")


DATA = dataset(near_a_plane(200), near_a_plane(40))
REGRESSION = dataset(near_a_plane(200), near_a_plane(40), 2)
MIRRORED = Model([8, RANK, 8])


def method(config: Config, data: Dataset = DATA) -> Mac:
    sizes = data.X.shape[1], data.Y.shape[1], len(data.X), len(data.X_val)
    return Mac(make_plan(config, *sizes, 1), data, Solo(), Clock())


def begun(net: Model, data: Dataset = DATA, origin: Array | None = None, **keys: Any) -> tuple[State, Mac]:
    config = Config(model=net, start=Start(**keys))
    mac = method(config, data)
    return start(mac, config, Origin(origin)), mac


def error(found: tuple[State, Mac]) -> float:
    state, mac = found
    return mac.evaluate(state, feasible=True).train


def mean_error(Y: Array) -> float:
    return 0.5 * float(np.sum((Y - Y.mean(axis=0)) ** 2)) / len(Y)


def pca_error(X: Array, components: int) -> float:
    values = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)
    return 0.5 * float(np.sum(values[components:] ** 2)) / len(X)


METHODS: list[dict[str, Any]] = [{"method": "uniform"}, {"method": "pca"}, {"method": "greedy", "iterations": 2}]


@pytest.mark.parametrize("keys", METHODS, ids=lambda keys: keys["method"])
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_a_start_is_feasible_finite_and_of_the_runs_precision(keys: dict[str, Any], precision: str) -> None:
    model = Model([8, RANK, 8], precision=precision)  # type: ignore[arg-type]
    config = Config(model=model, start=Start(**keys), penalty=Penalty(mu_max=1e4))
    narrow = dataset(DATA.X.astype(precision), DATA.X_val.astype(precision))
    mac = method(config, narrow)
    state = start(mac, config, Origin())
    assert state.weights.dtype == state.Z.dtype == precision
    assert np.isfinite(state.weights).all()
    expected = np.hstack(mac.plan.chain.coordinates(mac.weights(state), narrow.X))
    assert_allclose(state.Z, expected, rtol=1e-5 if precision == "float32" else 1e-13, atol=1e-6)
    assert (state.iteration, state.mu, state.next_half) == (0, 10.0, "z")


@pytest.mark.parametrize("keys", METHODS, ids=lambda keys: keys["method"])
def test_a_start_is_the_same_every_time(keys: dict[str, Any]) -> None:
    first, second = (begun(MIRRORED, **keys)[0] for _ in range(2))
    assert_array_equal(first.weights, second.weights)
    if keys["method"] != "pca":
        assert (begun(MIRRORED, **keys, seed=1)[0].weights != first.weights).any()


@pytest.mark.parametrize("keys", METHODS, ids=lambda keys: keys["method"])
@pytest.mark.parametrize(
    ("model", "data"),
    [
        (Model([5]), DATA),
        (Model([20, 4], ["relu", "softmax"]), REGRESSION),
        (Model([6, 5], "tanh", sites="none"), REGRESSION),
        (Model([7, 2, 7], "leaky_relu", output="sigmoid", sites=["none", "before", "after"]), DATA),
    ],
    ids=["one layer", "wider than the data", "no sites", "mixed sites"],
)
def test_every_start_suits_every_net(model: Model, data: Dataset, keys: dict[str, Any]) -> None:
    found = begun(model, data, **keys)
    assert np.isfinite(error(found))
    assert np.isfinite(found[0].weights).all()


# --- principal components ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["sigmoid", "tanh"])
def test_pca_begins_near_the_error_of_pca(activation: str) -> None:
    """In its linear range the net is PCA; what the plane leaves is small beside what there is to explain."""
    model = Model([8, RANK, 8], activation)  # type: ignore[arg-type]
    left, there = pca_error(DATA.X, RANK), mean_error(DATA.X)
    assert left < 1e-4 * there
    narrow = error(begun(model, method="pca", range=0.05, gradient_step=False))
    assert left <= narrow < 1e-3 * there
    assert error(begun(model, method="pca", gradient_step=False)) < 0.2 * there
    assert error(begun(model, method="uniform", gradient_step=False)) > 0.5 * there


def test_pca_of_a_linear_net_is_pca() -> None:
    model = Model([8, 2, 8], "linear")
    expected = pca_error(DATA.X, 2)
    assert error(begun(model, method="pca", gradient_step=False)) == pytest.approx(expected, rel=1e-3)


def test_pca_projects_on_the_leading_directions_with_half_the_range_as_deviation() -> None:
    state, mac = begun(Model([RANK], "linear"), method="pca", range=3.0, gradient_step=False)
    W = mac.weights(state)[0]
    directions = np.linalg.svd(DATA.X - DATA.X.mean(axis=0), full_matrices=False)[2][:RANK]
    cosines = np.abs(np.sum(W[:, :-1] * directions, axis=1)) / np.linalg.norm(W[:, :-1], axis=1)
    assert_allclose(cosines, 1.0, rtol=1e-9)
    assert_allclose(state.Z.mean(axis=0), 0.0, atol=1e-12)
    assert state.Z.std(axis=0)[0] == pytest.approx(1.5)
    assert (np.diff(state.Z.std(axis=0)) < 0.0).all()


def test_pca_fits_the_output_layer_to_the_targets() -> None:
    model = Model([8], "linear")
    assert error(begun(model, REGRESSION, method="pca", gradient_step=False)) < 0.5 * mean_error(REGRESSION.Y)


# --- layers one by one ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["sigmoid", "tanh"])
def test_greedy_layers_reconstruct_better_than_random_ones(activation: str) -> None:
    model = Model([8, RANK, 8], activation)  # type: ignore[arg-type]
    greedy = begun(model, method="greedy", gradient_step=False)
    uniform = begun(model, method="uniform", gradient_step=False)
    assert error(greedy) < 0.8 * error(uniform)
    assert error(begun(model, method="greedy")) < error(begun(model, method="uniform"))


def test_more_iterations_of_each_layer_give_other_weights() -> None:
    short, long = (begun(MIRRORED, method="greedy", iterations=n)[0].weights for n in (1, 4))
    assert (short != long).any()


@pytest.mark.parametrize("mu_max", [5.0, 1e3])
def test_greedy_layers_keep_to_the_largest_mu(mu_max: float) -> None:
    config = Config(model=MIRRORED, start=Start("greedy"), penalty=Penalty(mu0=1.0, mu_max=mu_max))
    assert np.isfinite(start(method(config), config, Origin()).weights).all()


@pytest.mark.parametrize(
    ("hidden", "data", "expected"),
    [
        *(([8, 3, 8], DATA, True), ([3], DATA, True), ([8, 3, 7], DATA, False), ([8, 8], DATA, False)),
        ([8, 3, 8], REGRESSION, False),
    ],
)
def test_mirrored(hidden: list[int], data: Dataset, expected: bool) -> None:
    assert mirrored(Config(model=Model(hidden)), data) is expected


# --- another run's weights --------------------------------------------------------------------------------------------


def test_a_model_starts_with_its_weights() -> None:
    given, _ = begun(MIRRORED, method="uniform", seed=4)
    keys = {"method": "model", "model": "model.h5"}
    found, mac = begun(MIRRORED, origin=given.weights, gradient_step=False, **keys)
    assert_array_equal(found.weights, given.weights)
    assert_array_equal(found.Z, given.Z)
    stepped = begun(MIRRORED, origin=given.weights, **keys)
    assert error(stepped) < error((found, mac))


def test_a_model_starts_a_run_with_other_sites_mu_and_points() -> None:
    given, _ = begun(MIRRORED, method="uniform", seed=4)
    config = Config(
        model=Model([8, RANK, 8], sites=["none", "before", "none"]),
        start=Start("model", model="model.h5", gradient_step=False),
        penalty=Penalty(mu0=3.0),
    )
    mac = method(config, dataset(near_a_plane(300), near_a_plane(40)))
    state = start(mac, config, Origin(given.weights))
    assert_array_equal(state.weights, given.weights)
    assert state.Z.shape == (300, RANK)
    assert state.mu == 3.0
