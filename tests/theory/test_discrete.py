"""Nets with bits or codewords: what never rises, what is exact, and that bits stay bits."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from theory.nets import (
    AUGMENTED,
    anywhere,
    constraint,
    e1,
    e_q,
    feasible,
    layers,
    loss_of,
    method,
    ridge,
    work,
)

from macmpi.half_steps.problems import renew_metric
from macmpi.mac import Mac
from macmpi.state import State
from macmpi.typing import Array

DEEP = {"hidden": (5, 4), "activation": ["binary", "tanh"], "sites": ["after", "none"]}
BITS: dict[str, dict[str, Any]] = {
    "autoencoder": {"hidden": (6,), "activation": "binary"},
    "deep": DEEP,
    "deep, labels": {**DEEP, "loss": "cross_entropy"},
    "alternating": {"hidden": (6,), "activation": "binary", "z_step": {"enumerated": 0}},
    "variance": {"hidden": (6,), "activation": "binary", "metric": "variance"},
    "multipliers": {**DEEP, **AUGMENTED},
    "other solver": {"hidden": (6,), "activation": "binary", "w_step": {"solver": "lbfgs"}},
}
CODEWORDS: dict[str, dict[str, Any]] = {
    "code": {"hidden": (4,), "activation": "quantise"},
    "deep": {"hidden": (4, 5), "activation": ["quantise", "sigmoid"]},
    "deep, one site": {"hidden": (4, 5), "activation": ["quantise", "sigmoid"], "sites": ["after", "none"]},
    "labels": {"hidden": (4, 5), "activation": ["quantise", "tanh"], "loss": "cross_entropy"},
    "multipliers": {"hidden": (4, 5), "activation": ["quantise", "sigmoid"], **AUGMENTED},
    "variance": {"hidden": (4,), "activation": "quantise", "metric": "variance"},
}
ONE_OF = {"hidden": (6,), "activation": "argmax", "words": 3}
WORDS: dict[str, dict[str, Any]] = {
    "words": ONE_OF,
    "words, swept": {**ONE_OF, "z_step": {"enumerated": 0}},
    "words, deep": {**ONE_OF, "hidden": (6, 4), "activation": ["argmax", "tanh"], "sites": ["after", "none"]},
    "words, variance": {**ONE_OF, "metric": "variance"},
    "words, multipliers": {**ONE_OF, **AUGMENTED},
}
QUANTISED = CODEWORDS | WORDS


def objective(mac: Mac, state: State) -> float:
    """E_Q - sum lambda^T (z - f) + ridge."""
    return e_q(mac, state) - work(mac, state) + ridge(mac, state)


def flipped(mac: Mac, seed: int = 0, mu: float = 1.0) -> State:
    """Random weights, a third of the bits not those of the encoder, multipliers that pull."""
    state = anywhere(mac, seed, mu, off=0.0)
    state.Z[:] = np.abs(state.Z - (np.random.default_rng(seed).random(state.Z.shape) < 1.0 / 3.0))
    state.own.metric_mu = 0.0
    renew_metric(mac.parts, state)
    return state


def displaced(net: str, mac: Mac, seed: int = 0, mu: float = 10.0) -> State:
    """Random weights, coordinates that are not those of the net; of words those of other points."""
    state = anywhere(mac, seed, mu, off=0.0 if net in WORDS else 0.3)
    if net in WORDS:
        state.Z[::3] = state.Z[::-3][: len(state.Z[::3])].copy()
        state.own.metric_mu = 0.0
        renew_metric(mac.parts, state)
    return state


# --- bits -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mu", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("net", BITS)
def test_no_half_step_raises_the_objective_and_bits_stay_bits(net: str, mu: float) -> None:
    for value, scale in ((0.0, "unit"), (0.3, "unit"), (0.3, "objective")):
        if BITS[net].get("metric") and scale == "objective":
            continue
        mac = method(ridge=value, ridge_scale=scale, **BITS[net])
        state = flipped(mac, mu=mu)
        values = [objective(mac, state)]
        for half_step in (mac.z_step, mac.w_step) * 3:
            half_step(state)
            values.append(objective(mac, state))
            assert np.isin(state.Z, (0.0, 1.0)).all()
        size = e_q(mac, state) + abs(work(mac, state)) + ridge(mac, state)
        assert all(after <= before + 1e-11 * size for before, after in itertools.pairwise(values))
        assert values[-1] < values[0]


# --- codewords --------------------------------------------------------------------------------------------------------


def above(mac: Mac, state: State) -> float:
    """E_Q - sum lambda^T (z - f), and the ridge of the segments without codewords."""
    other = replace(state, weights=state.weights.copy())
    mac.parts.weights(other)[0][:] = 0.0
    return e_q(mac, state) - work(mac, state) + ridge(mac, other)


@pytest.mark.parametrize("mu", [0.1, 10.0, 1e3])
@pytest.mark.parametrize("net", QUANTISED)
def test_no_half_step_raises_the_objective_with_codewords(net: str, mu: float) -> None:
    """A segment with a codebook keeps its weights where its own error would rise."""
    for value, seed in itertools.product((0.0, 0.3), range(2)):
        mac = method(ridge=value, **QUANTISED[net])
        state = displaced(net, mac, seed, mu)
        values = [above(mac, state)]
        for half_step in (mac.z_step, mac.w_step) * 3:
            half_step(state)
            values.append(above(mac, state))
            assert net not in WORDS or (state.Z.reshape(-1, 3).sum(axis=1) == 1.0).all()
        size = e_q(mac, state) + abs(work(mac, state)) + ridge(mac, state)
        assert all(after <= before + 1e-11 * size for before, after in itertools.pairwise(values))
        assert values[-1] < values[0]


@pytest.mark.parametrize("net", QUANTISED)
def test_the_record_of_a_net_with_codewords_is_e_q_there(net: str) -> None:
    mac = method(**QUANTISED[net])
    state = displaced(net, mac)
    mac.sweep(state)
    errors, n = mac.evaluate(state), mac.plan.n_train
    assert_allclose(errors.E_Q, e_q(mac, state) / n, rtol=1e-10)
    assert_allclose(errors.train, e1(mac, state) / n, rtol=1e-10)
    assert_allclose(errors.constraint, np.mean(constraint(mac, state) ** 2), rtol=1e-10)
    assert_allclose(errors.train, loss_of(mac, layers(mac, state)[-1](feasible_top(mac, state))) / n, rtol=1e-10)


def feasible_top(mac: Mac, state: State) -> Array:
    """What the last segment reads at feasible coordinates."""
    return feasible(mac, state)[:, -mac.plan.chain.site_sizes[-1] :]
