"""Where a run starts: principal components, layers one by one, another run's weights, the coordinates of a code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from plans import plan_of
from tolerance import assert_within, gamma

from macmpi import UsageError
from macmpi.config import Config, Method, Model, Penalty, Start, Stochastic, WStep
from macmpi.data.dataset import Dataset
from macmpi.data.loading import read_codes
from macmpi.data.scaling import Scaling
from macmpi.half_steps.w_step import fit
from macmpi.mac import Mac
from macmpi.methods.choose import choose
from macmpi.methods.embedding import elastic_embedding, principal_codes, rotation_to_signs
from macmpi.methods.starts import EMBEDDING, REPULSION, Origin, coordinates_first, start
from macmpi.parallel.team import Team
from macmpi.state import Z_STEP, State
from macmpi.typing import Array

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
MIRRORED = Model([8, RANK, 8], activation="sigmoid")


def method(config: Config, data: Dataset = DATA) -> Mac:
    sizes = data.X.shape[1], data.Y.shape[1], len(data.X), len(data.X_val)
    return Mac(plan_of(config, *sizes, 1), data, Team())


def begun(net: Model, data: Dataset = DATA, origin: Array | None = None, **keys: Any) -> tuple[State, Mac]:
    config = Config(model=net, start=Start(**keys), method=Method("mac"))
    mac = method(config, data)
    return start(mac, Origin(origin)), mac


def error(found: tuple[State, Mac]) -> float:
    state, mac = found
    return mac.evaluate(state, feasible=True).train


def mean_error(Y: Array) -> float:
    return 0.5 * float(np.sum((Y - Y.mean(axis=0)) ** 2)) / len(Y)


METHODS: list[dict[str, Any]] = [
    {"method": "uniform"},
    {"method": "stochastic"},
    {"method": "pca"},
    {"method": "greedy"},
    {"method": "staged"},
]


@pytest.mark.parametrize("keys", METHODS, ids=lambda keys: keys["method"])
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_a_start_is_feasible_finite_and_of_the_runs_precision(keys: dict[str, Any], precision: str) -> None:
    model = Model([8, RANK, 8], precision=precision, activation="sigmoid")  # type: ignore[arg-type]
    config = Config(model=model, start=Start(**keys), penalty=Penalty(mu_max=1e4), method=Method("mac"))
    narrow = dataset(DATA.X.astype(precision), DATA.X_val.astype(precision))
    mac = method(config, narrow)
    state = start(mac, Origin())
    assert state.weights.dtype == state.Z.dtype == precision
    assert np.isfinite(state.weights).all()
    expected = np.hstack(mac.plan.chain.coordinates(mac.parts.weights(state), narrow.X))
    assert_allclose(state.Z, expected, rtol=1e-5 if precision == "float32" else 1e-13, atol=1e-6)
    assert (state.iteration, state.mu, state.position) == (0, mac.plan.resolved.schedule.mu0, Z_STEP)


@pytest.mark.parametrize("keys", METHODS, ids=lambda keys: keys["method"])
@pytest.mark.parametrize(
    ("model", "data"),
    [
        (Model([5], activation="sigmoid"), DATA),
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


@pytest.mark.parametrize("name", ["mac", "ring", "adam", "lbfgs", "stochastic"])
@pytest.mark.parametrize("data", [DATA, REGRESSION], ids=["autoencoder", "targets"])
def test_every_method_can_begin_with_the_weights_of_stochastic_mac(name: Any, data: Dataset) -> None:
    """Those of its steps on all points, whatever the penalty and half steps are; uniform weights have more error."""
    keys: dict[str, Any] = {"penalty": Penalty(mu_every=3, l1=1e-3 if name == "mac" else 0.0)}
    if name == "ring":
        keys["w_step"], name = WStep(schedule="ring"), "mac"

    def begun_by(name: Any, word: Any, **keys: Any) -> State[Any]:
        stochastic = Stochastic(batch="all")
        config = Config(model=MIRRORED, start=Start(word, seed=3), method=Method(name), stochastic=stochastic, **keys)
        plan = plan_of(config, data.X.shape[1], data.Y.shape[1], len(data.X), len(data.X_val), 1)
        return start(choose(plan, data, Team()), Origin())

    state = begun_by(name, "stochastic", **keys)
    assert_array_equal(state.weights, begun_by("stochastic", "auto").weights)
    assert state.seconds > 0.0
    if name == "mac":
        assert error((state, method(Config(model=MIRRORED, method=Method("mac")), data))) < 0.8 * error(
            begun(MIRRORED, data, method="uniform", gradient_step=False)
        )


# --- principal components ---------------------------------------------------------------------------------------------


def test_pca_projects_on_the_leading_directions_with_half_the_range_as_deviation() -> None:
    state, mac = begun(Model([RANK], "linear"), method="pca", range=3.0, gradient_step=False)
    W = mac.parts.weights(state)[0]
    directions = np.linalg.svd(DATA.X - DATA.X.mean(axis=0), full_matrices=False)[2][:RANK]
    cosines = np.abs(np.sum(W[:, :-1] * directions, axis=1)) / np.linalg.norm(W[:, :-1], axis=1)
    assert_allclose(cosines, 1.0, rtol=1e-9)
    assert_allclose(state.Z.mean(axis=0), 0.0, atol=1e-12)
    assert state.Z.std(axis=0)[0] == pytest.approx(1.5)
    assert (np.diff(state.Z.std(axis=0)) < 0.0).all()


# --- bits of principal components -------------------------------------------------------------------------------------

BITS = Model([6], "binary")
CLOUD = dataset(
    *(np.random.default_rng(s).standard_normal((200, 9)) @ np.diag(np.arange(9.0, 0.0, -1.0)) for s in (0, 1))
)


def missed(V: Array) -> float:
    """||V - c sign(V)||^2 at the best c."""
    return float(np.sum(V * V) - np.abs(V).sum() ** 2 / V.size)


def test_itq_rotates_the_principal_components_towards_their_signs() -> None:
    """It keeps their span and their scale: W^T W is that of "pca", and the bits reconstruct better."""
    (pca, mac), (itq, _) = (begun(BITS, CLOUD, method=word, gradient_step=False) for word in ("pca", "itq"))
    P, W = (mac.parts.weights(state)[0] for state in (pca, itq))
    assert_allclose(W.T @ W, P.T @ P, atol=1e-13 * np.sum(P * P))
    V, U = (CLOUD.X @ A[:, :-1].T + A[:, -1] for A in (P, W))
    assert missed(U) < 0.9 * missed(V)
    assert_array_equal(itq.Z, U > 0.0)
    assert error((itq, mac)) < error((pca, mac))


def test_the_rotation_is_that_of_scores_nearest_to_their_signs() -> None:
    """At its end R = Q of the polar decomposition V^T sign(V R) = S R, S symmetric; whole weights count copies."""
    random = np.random.default_rng(2)
    V, start = random.standard_normal((60, 4)) * [4.0, 3.0, 2.0, 1.0], random.standard_normal((4, 4))
    R = rotation_to_signs(V, start)
    S = V.T @ np.sign(V @ R) @ R.T
    assert_allclose(R @ R.T, np.eye(4), atol=1e-14)
    assert_allclose(S, S.T, atol=1e-12 * np.abs(S).max())
    assert np.linalg.eigvalsh(S)[0] >= 0.0
    counts = random.integers(0, 4, len(V))
    copies = rotation_to_signs(np.repeat(V, counts, axis=0), start)
    assert_allclose(rotation_to_signs(V, start, counts.astype(float)), copies, atol=1e-10)
    assert np.abs(copies - R).max() > 0.01


def test_bits_by_neighbours_agree_among_near_points() -> None:
    """More than those of "itq", for points that the start has not seen; units have one deviation, that of "itq"."""
    random = np.random.default_rng(3)
    centres = random.standard_normal((30, 9)) * np.arange(9.0, 0.0, -1.0)
    X, asked = (centres[random.integers(0, 30, n)] + 2.0 * random.standard_normal((n, 9)) for n in (600, 200))
    true = np.argsort(np.square(asked[:, None] - X).sum(axis=2), axis=1)[:, :20]
    precision, deviations = {}, {}
    for word in ("itq", "neighbours"):
        state, mac = begun(BITS, dataset(X, asked), method=word, neighbours=20)
        weights = mac.parts.weights(state)
        codes, theirs = (mac.plan.chain.coordinates(weights, A)[-1] for A in (X, asked))
        found = np.argsort((codes != theirs[:, None]).sum(axis=2), axis=1, kind="stable")[:, :20]
        precision[word] = np.mean([np.isin(a, b) for a, b in zip(found, true, strict=True)])
        deviations[word] = (X @ weights[0][:, :-1].T + weights[0][:, -1]).std(axis=0)
    assert precision["neighbours"] > 1.05 * precision["itq"]
    assert_allclose(deviations["neighbours"], np.sqrt(np.mean(np.square(deviations["itq"]))), rtol=0.1)


def test_codes_of_a_net_of_radial_basis_functions_are_rotated_too() -> None:
    net = Model([30, 6], ["rbf", "binary"], sites=["none", "after"], centres="subset")
    bits = [begun(net, CLOUD, method=word)[0].Z for word in ("pca", "itq")]
    assert np.isin(bits, (0.0, 1.0)).all()
    assert np.mean(bits[0] != bits[1]) > 0.02


# --- layers one by one ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["sigmoid", "tanh"])
def test_greedy_layers_reconstruct_better_than_random_ones(activation: str) -> None:
    model = Model([8, RANK, 8], activation)  # type: ignore[arg-type]
    greedy = begun(model, method="greedy", gradient_step=False)
    uniform = begun(model, method="uniform", gradient_step=False)
    assert error(greedy) < 0.8 * error(uniform)
    assert error(begun(model, method="greedy")) < error(begun(model, method="uniform"))


@pytest.mark.parametrize("mu_max", [5.0, 200.0, 1e8])
def test_greedy_layers_keep_to_the_largest_mu(mu_max: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """And go up to it, or to 10,000."""
    penalty, seen, sweep = Penalty(mu0=1.0, mu_max=mu_max), list[float](), Mac.sweep

    def swept(mac: Mac, state: State, *words: Any) -> bool:
        seen.append(state.mu)
        return sweep(mac, state, *words)

    monkeypatch.setattr(Mac, "sweep", swept)
    monkeypatch.setattr("macmpi.methods.starts.GREEDY", 30)
    config = Config(model=MIRRORED, start=Start("greedy"), penalty=penalty, method=Method("mac"))
    start(method(config), Origin())
    assert len(seen) == 30 * 2
    assert (min(seen), max(seen)) == (min(10.0, mu_max), min(1e4, mu_max))


# --- another run's weights --------------------------------------------------------------------------------------------


def test_a_model_starts_with_its_weights() -> None:
    given, _ = begun(MIRRORED, method="uniform", seed=4)
    keys = {"method": "model", "model": "model.h5"}
    found, _ = begun(MIRRORED, origin=given.weights, gradient_step=False, **keys)
    assert_array_equal(found.weights, given.weights)
    assert_array_equal(found.Z, given.Z)
    assert_array_equal(begun(MIRRORED, origin=given.weights, **keys)[0].weights, given.weights)


# --- the coordinates of a code ----------------------------------------------------------------------------------------

BASIS = Model([20, 2, 30], ["rbf", "linear", "rbf"], sites=["none", "after", "none"], width=[3.0, 0.8])
CODES: list[dict[str, Any]] = [
    {"method": "elastic_embedding", "width": 2.0},
    {"method": "pca", "range": 3.0},
    {"method": "file", "coordinates": "z.h5"},
]
GIVEN = DATA.X[:, :2] + 0.1 * DATA.X[:, 2:4]


def coded(keys: dict[str, Any], model: Model = BASIS, penalty: Penalty | None = None) -> tuple[State, Mac]:
    config = Config(model=model, start=Start(**keys), penalty=penalty or Penalty(mu0=3.0), method=Method("mac"))
    X, X_val = (A.astype(model.precision) for A in (DATA.X, DATA.X_val))
    mac = method(config, dataset(X, X_val))
    assert coordinates_first(mac.plan)
    codes = GIVEN[:, : mac.plan.chain.site_sizes[0]] if keys["method"] == "file" else None
    return start(mac, Origin(coordinates=codes)), mac


def expected_codes(keys: dict[str, Any]) -> Array:
    if keys["method"] == "elastic_embedding":
        return elastic_embedding(DATA.X, 2, 2.0, REPULSION, EMBEDDING, 0)
    return principal_codes(DATA.X, 2, 1.5) if keys["method"] == "pca" else GIVEN


@pytest.mark.parametrize("keys", CODES, ids=lambda keys: keys["method"])
def test_the_coordinates_are_those_of_the_embedding_or_the_file(keys: dict[str, Any]) -> None:
    state, _ = coded(keys)
    assert_array_equal(state.Z, expected_codes(keys))
    assert (state.iteration, state.mu, state.position) == (0, 3.0, Z_STEP)


@pytest.mark.parametrize("keys", CODES, ids=lambda keys: keys["method"])
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_the_weights_are_those_of_a_w_step(keys: dict[str, Any], precision: str) -> None:
    """Better than none at all, finite, the same every time; another W-step finds nothing new but other centres."""
    model = Model([20, 2, 30], BASIS.activation, sites=BASIS.sites, width=[3.0, 0.8], precision=precision)  # type: ignore[arg-type]
    (state, mac), (again, _) = (coded(keys, model, Penalty(mu0=3.0, mu_max=1e4)) for _ in range(2))
    assert state.weights.dtype == state.Z.dtype == precision
    assert np.isfinite(state.weights).all()
    assert_array_equal(again.weights, state.weights)
    assert_array_equal(again.own.grams, state.own.grams)
    assert mean_error(DATA.X) > mac.evaluate(state).E_Q
    kept = state.weights.copy()
    mac.begin(state)
    fit(mac.parts, [0], state)
    encoder = slice(0, mac.plan.offsets.weights[2])
    assert_allclose(state.weights[encoder], kept[encoder], rtol=0.0, atol=0.1 if precision == "float32" else 1e-8)


@pytest.mark.parametrize("keys", [{"method": "uniform"}, {"method": "pca"}], ids=lambda keys: keys["method"])
@pytest.mark.parametrize(
    "model",
    [
        Model([5], "binary"),
        Model([5, 4], ["binary", "tanh"], sites=["after", "none"]),
        Model([5], "quantise", words=6),
        Model([5, 4], ["quantise", "tanh"], words=6),
    ],
    ids=["bits", "bits, deep", "codewords", "codewords, deep"],
)
def test_layers_without_derivatives_start_feasible_and_trained(model: Model, keys: dict[str, Any]) -> None:
    """Bits and codewords are exact; sums behind them may be rounded otherwise for all points than for a tile."""
    state, mac = begun(model, **keys)
    first, *others = mac.plan.chain.coordinates(mac.parts.weights(state), DATA.X)
    size, weights = first.shape[1], mac.parts.weights(state)
    assert_array_equal(state.Z[:, :size], first)
    if others:
        terms = max(float(np.abs(W).sum(axis=1).max()) for W in weights) * max(1.0, float(np.abs(first).max()))
        assert_within(state.Z[:, size:], others[0], gamma(2 * (size + 1)) * terms + gamma(8))
    for block, map_ in enumerate(mac.plan.chain.blocks):
        assert weights[block].any(), map_
        if "centres" in map_.capabilities:
            assert len(np.unique(state.Z[:, : map_.n_out], axis=0)) <= len(weights[block])


# --- codes from files -------------------------------------------------------------------------------------------------


def written(path: Path, **arrays: Any) -> Path:
    if path.suffix == ".npz":
        np.savez(path, **arrays)
        return path
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return path


@pytest.mark.parametrize("name", ["Z", "codes"])
@pytest.mark.parametrize("suffix", [".h5", ".hdf5", ".npz"])
def test_codes_are_read_from_a_file(suffix: str, name: str, tmp_path: Path) -> None:
    codes = np.arange(12.0).reshape(6, 2)
    path = written(tmp_path / f"codes{suffix}", **{name: codes.astype(np.float32)})
    found = read_codes(path, 6, 2)
    assert found.dtype == np.float64
    assert_array_equal(found, codes)
    line = written(tmp_path / f"line{suffix}", **{name: np.arange(6)})
    assert_array_equal(read_codes(line, 6, 1), np.arange(6.0)[:, None])


NOT_CODES: dict[str, tuple[dict[str, Any], str]] = {
    "too few rows": ({"Z": np.zeros((5, 2))}, r"shape \(5, 2\); a code of 2 for each of 6 points"),
    "too many columns": ({"Z": np.zeros((6, 3))}, r"shape \(6, 3\); a code of 2 for each of 6 points"),
    "the transpose": ({"codes": np.zeros((2, 6))}, r"dataset codes has shape \(2, 6\)"),
    "NaN": ({"Z": np.where(np.arange(12).reshape(6, 2) == 5, np.nan, 1.0)}, r"dataset Z is nan at \[2, 1\]"),
    "infinite": ({"Z": np.full((6, 2), np.inf)}, r"dataset Z is inf at \[0, 0\]"),
    "no dataset": ({"codes_of_another_name": np.zeros((6, 2))}, "there is no dataset Z or codes in it"),
    "words": ({"Z": np.array([[b"a", b"b"]] * 6)}, "real numbers are needed"),
    "a number": ({"Z": np.float64(3.0)}, "a single number"),
}


@pytest.mark.parametrize("suffix", [".h5", ".npz"])
@pytest.mark.parametrize("case", NOT_CODES)
def test_what_are_no_codes_is_refused(case: str, suffix: str, tmp_path: Path) -> None:
    arrays, says = NOT_CODES[case]
    with pytest.raises(UsageError, match=says) as caught:
        read_codes(written(tmp_path / f"codes{suffix}", **arrays), 6, 2)
    assert f"codes{suffix}" in str(caught.value)
    assert "\n" not in str(caught.value)
