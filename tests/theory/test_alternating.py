"""Alternating optimisation, the paper's baseline (section 4.3): what each half minimises, and what never rises."""

from __future__ import annotations

import itertools
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from theory.basis_nets import autoencoder, begun, config, e1, fitted, gaussians, halves, own_ridges, planned, regression
from theory.checks import deviation
from theory.nets import points, richardson

from macmpi.config import Config
from macmpi.data.dataset import Dataset
from macmpi.mac import Mac
from macmpi.methods.alternating import Alternating, replayed
from macmpi.parallel.team import Team
from macmpi.state import Z_STEP, State
from macmpi.typing import Array

SETTINGS: dict[str, dict[str, Any]] = {
    "objective": {"penalty": {"ridge": 2e-3, "ridge_scale": "objective"}},
    "unit": {"penalty": {"ridge": 0.1, "mu0": 0.5}},
    "no ridge": {"penalty": {"ridge": 0.0}},
    "over-relaxed": {"penalty": {"ridge": 0.01}, "w_step": {"relaxation": 1.9}},
    "kmeans": {"model": {"centres": "kmeans"}, "penalty": {"ridge": 0.01}},
    "points": {"model": {"centres": "points", "hidden": [37, 2, 37]}, "penalty": {"ridge": 0.01}},
}
OTHERS: dict[str, dict[str, Any]] = {
    "linear encoder": {"activation": ["linear", "rbf"], "sites": ["after", "none"], "hidden": [2, 10], "width": 1.5},
    "sigmoid decoder": {"activation": ["rbf", "linear", "sigmoid"], "hidden": [12, 2, 6], "width": 2.5},
}
"""Encoder, decoder or both are other nets than those of the paper."""

ROUNDING = 1.0 + 1e-11


def alternating(
    data: Dataset | None = None, steps: int = 10, off: float = 0.0, **tables: Any
) -> tuple[Alternating, State, Config]:
    """Random weights `off` those of the start."""
    data, keys = data or autoencoder(), config(**tables)
    method = Alternating(planned(keys, data), data, Team())
    method.cg_iterations = steps
    state = begun(method)
    trained = [p for b, p in enumerate(places(method)) if b not in method.plan.resolved.trainers]
    random = np.random.default_rng(2)
    for place in trained:
        state.weights[place] += off * random.normal(size=place.stop - place.start)
    method.begin(state)
    method.parts.begin_first(state)
    return method, state, keys


def places(method: Mac) -> list[slice]:
    bounds = method.plan.offsets.weights
    return [slice(a, b) for a, b in itertools.pairwise(bounds)]


def nested(method: Alternating, state: State) -> float:
    """E1 of any net with the ridge that its regressions have."""
    errors = method.evaluate(state)
    return (errors.train - errors.ridge) * method.plan.n_train + method.parts.shaping_of(
        state, [0, 1], ridge_alone=True
    )


def encoder_function(method: Alternating, state: State) -> tuple[Array, Any]:
    """The encoder's linear weights, flat, and E1 + ridge as the method has it."""
    (block,) = method.plan.chain.segments[0].regressed
    flat = method.parts.weights(state)[block].ravel().astype(float)
    return flat, lambda: method._encoder_error(state, block, flat)


def moved(flat: Array, i: int, function: Any, t: float) -> float:
    """The error where weight i is moved by t."""
    kept = flat[i]
    flat[i] = kept + t
    value, _ = function()
    flat[i] = kept
    return float(value)


# --- the encoder ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("data", [autoencoder(), regression()], ids=["autoencoder", "regression"])
def test_the_encoders_error_and_its_gradient_are_those_of_the_nested_net(data: Dataset, setting: str) -> None:
    method, state, keys = alternating(data, off=0.3, **SETTINGS[setting])
    flat, function = encoder_function(method, state)
    _, ridge = own_ridges(method, state)
    value, slope = function()
    decoder = 0.5 * ridge * halves(method, state, keys)[1].square
    assert_allclose(value + decoder, e1(method, state, keys), rtol=1e-10)
    deviation(
        "gradient of the encoder", slope, [richardson(partial(moved, flat, i, function)) for i in range(len(flat))]
    )


@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
@pytest.mark.parametrize("other", OTHERS)
def test_the_gradient_goes_through_any_decoder_and_leaves_biases_out_of_the_ridge(other: str, loss: str) -> None:
    data = points(0, 37, 4, 3, loss=loss)
    method, state, _ = alternating(data, off=0.3, model={**OTHERS[other], "loss": loss}, penalty={"ridge": 0.5})
    flat, function = encoder_function(method, state)
    value, slope = function()
    assert_allclose(value + method.parts.shaping_of(state, [1], ridge_alone=True), nested(method, state), rtol=1e-10)
    deviation(
        "gradient of the encoder", slope, [richardson(partial(moved, flat, i, function)) for i in range(len(flat))]
    )


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_encoders_half_moves_its_linear_weights_alone_and_never_raises_the_error(setting: str) -> None:
    method, state, keys = alternating(off=0.3, **SETTINGS[setting])
    before, error = [W.copy() for W in method.parts.weights(state)], e1(method, state, keys)
    method._fit_encoder(state)
    after = method.parts.weights(state)
    for b in (0, 2, 3):
        assert_array_equal(after[b], before[b])
    assert (after[1] != before[1]).any()
    assert e1(method, state, keys) < error


# --- the decoder ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_decoders_half_is_the_least_squares_fit_at_the_present_codes(setting: str) -> None:
    """Of E1 + ridge over its linear layer: at the codes f_1(x), with centres of those codes."""
    method, state, keys = alternating(off=0.3, **SETTINGS[setting])
    encoder = [W.copy() for W in method.parts.weights(state)[:2]]
    method._fit_encoder = lambda state: None  # type: ignore[method-assign]
    method.sweep(state)
    f1, f2 = halves(method, state, keys)
    assert_array_equal(f1.C, encoder[0])
    assert_array_equal(f1.W, encoder[1])
    codes = f1(method.data.X)
    assert_allclose(state.Z, codes, rtol=1e-12, atol=1e-13)
    assert f2.C is not None
    if keys.model.centres != "kmeans":
        assert all(np.isclose(codes, c, rtol=1e-12, atol=1e-13).all(axis=1).any() for c in f2.C)
    ridge = own_ridges(method, state)[1]
    _, least = fitted(gaussians(codes, f2.C, f2.width), method.data.Y, ridge)
    found = 0.5 * np.sum((method.data.Y - f2(codes)) ** 2) + 0.5 * ridge * f2.square
    assert_allclose(found, least, rtol=1e-6)


# --- an iteration -----------------------------------------------------------------------------------------------------


def recentred(method: Alternating, state: State) -> State:
    """The state with the decoder's centres of the next iteration, and its weights as they are."""
    moved = deepcopy(state)
    (block,) = (b for b in method.plan.chain.segments[1].parameter_blocks if b in method.plan.resolved.trainers)
    method.parts.feasible(moved)
    C = method.parts.weights(moved)[block]
    C[:] = method.plan.centres(block, moved.Z, C.copy())
    return moved


@pytest.mark.parametrize("setting", SETTINGS)
def test_an_iteration_never_raises_the_error_but_through_the_decoders_centres(setting: str) -> None:
    """E1 + ridge afterwards <= E1 + ridge with the new centres and the weights of before."""
    method, state, keys = alternating(off=0.3, **SETTINGS[setting])
    first = method.parts.weights(state)[0].copy()
    for _ in range(4):
        moved = recentred(method, state)
        bound = e1(method, moved, keys)
        method.sweep(state)
        assert_array_equal(method.parts.weights(state)[2], method.parts.weights(moved)[2])
        assert e1(method, state, keys) <= bound * ROUNDING
    assert_array_equal(method.parts.weights(state)[0], first)


@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
def test_a_decoder_without_centres_never_raises_it_at_all(loss: str) -> None:
    data = points(0, 37, 4, 3, loss=loss)
    method, state, _ = alternating(
        data, model={**OTHERS["sigmoid decoder"], "loss": loss}, penalty={"ridge": 0.01, "ridge_scale": "objective"}
    )
    errors = [nested(method, state)]
    for _ in range(6):
        method.sweep(state)
        errors.append(nested(method, state))
    assert all(after <= before * ROUNDING for before, after in itertools.pairwise(errors))
    assert errors[-1] < 0.9 * errors[0]


def test_an_iteration_ends_at_feasible_coordinates_and_counts() -> None:
    method, state, keys = alternating(off=0.3, **SETTINGS["objective"])
    method.sweep(state)
    assert_allclose(state.Z, halves(method, state, keys)[0](method.data.X), rtol=1e-12, atol=1e-13)
    assert (state.iteration, state.position, state.mu, state.mu_done) == (1, Z_STEP, 10.0, 10.0)
    errors = method.evaluate(state)
    assert errors.constraint == pytest.approx(0.0, abs=1e-20)
    assert_allclose(errors.train * method.plan.n_train, e1(method, state, keys), rtol=1e-10)
    f1, f2 = halves(method, state, keys)
    rest = method.data.Y - f2(f1(method.data.X))
    assert_allclose(errors.E_Q, 0.5 * np.sum(rest**2) / method.plan.n_train, rtol=1e-10)


def test_the_penalty_plays_no_part() -> None:
    """Where the ridge does not depend on mu."""
    one, state, _ = alternating(**SETTINGS["objective"])
    other, twin = one, deepcopy(state)
    twin.mu = 777.0
    for _ in range(2):
        one.sweep(state)
        other.sweep(twin)
    assert_array_equal(twin.weights, state.weights)


def test_steps_that_are_asked_for_one_by_one_are_those_of_the_library(random: np.random.Generator) -> None:
    A, start = random.normal(size=(6, 4)), random.normal(size=4)

    def error(x: Array) -> tuple[float, Array]:
        r = np.tanh(A @ x) - 0.5
        return 0.5 * float(r @ r), A.T @ (r * (1.0 - np.tanh(A @ x) ** 2))

    known = list[tuple[float, Array]]()
    while True:
        x, found = replayed(start, known, 5)
        if found:
            break
        known.append(error(x))
    straight = minimize(error, start, jac=True, method="CG", options={"maxiter": 5, "gtol": 0.0})
    assert_array_equal(x, straight.x)
    assert len(known) == straight.nfev
