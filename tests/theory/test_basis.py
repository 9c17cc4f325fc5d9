"""MAC for nets of radial basis functions (section 4.3): exact W-steps, Z-steps that descend, what the record says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from covering import each
from numpy.testing import assert_allclose, assert_array_equal
from theory.basis_nets import (
    autoencoder,
    begun,
    config,
    e_q,
    fitted,
    gaussians,
    halves,
    loss,
    own_ridges,
    planned,
    regression,
)
from theory.checks import deviation

from macmpi.config import Config
from macmpi.data.dataset import Dataset
from macmpi.data.scaling import Scaling
from macmpi.half_steps.w_step import solve
from macmpi.mac import Mac
from macmpi.parallel.team import Team
from macmpi.state import State
from macmpi.typing import Array

SETTINGS: dict[str, dict[str, Any]] = {
    "as in the paper": {"penalty": {"ridge": 2e-3, "ridge_scale": "objective"}},
    "ridge of the units": {"penalty": {"ridge": 0.1}},
    "k-means": {"model": {"centres": "kmeans"}, "penalty": {"ridge": 0.01}},
    "all points": {"model": {"hidden": [37, 2, 37], "centres": "points"}, "penalty": {"ridge": 0.01}},
    "points and k-means": {"model": {"hidden": [37, 2, 9], "centres": ["points", "kmeans"]}},
    "multipliers": {"penalty": {"method": "augmented_lagrangian", "ridge": 0.01}},
}
DATA = {"autoencoder": autoencoder, "regression": regression}


def digits() -> Dataset:
    """37 real images of 8 x 8 pixels."""
    load = pytest.importorskip("sklearn.datasets").load_digits
    X, unit = load().data[:48] / 16.0, Scaling(np.zeros(64), np.ones(64))
    return Dataset(X[:37], X[:37], X[37:], X[37:], unit, unit, "")


def made(setting: str, data: Dataset, mu: float = 3.0) -> tuple[Mac, State, Config]:
    keys = config(**SETTINGS[setting])
    mac = Mac(planned(keys, data), data, Team())
    state = begun(mac)
    state.mu = mu
    return mac, state, keys


def targets(mac: Mac, state: State) -> Array:
    """Of f_1."""
    mu = state.mu
    return state.Z - state.own.multipliers / mu if state.own.multipliers.size else state.Z


def by_point(mac: Mac, state: State, keys: Config) -> Array:
    """Eq. (4): (N,)."""
    f1, f2 = halves(mac, state, keys)
    C, R = state.Z - f1(mac.data.X), mac.data.Y - f2(state.Z)
    values = 0.5 * state.mu * np.sum(C**2, axis=1) + 0.5 * np.sum(R**2, axis=1)
    return values - (np.sum(state.own.multipliers * C, axis=1) if state.own.multipliers.size else 0.0)


setting = each(SETTINGS)


# --- the half steps ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mu", [0.5, 5.0, 100.0])
@pytest.mark.parametrize("kind", DATA)
def test_the_w_step_is_the_ridge_regression_on_the_present_centres(kind: str, mu: float, setting: str) -> None:
    """Of both halves, for any coordinates."""
    mac, state, keys = made(setting, DATA[kind](), mu)
    mac.begin(state)
    for _ in range(2):
        mac.z_step(state)
        mac.w_step(state)
        f1, f2 = halves(mac, state, keys)
        for f, A, T, ridge in zip(
            (f1, f2), (mac.data.X, state.Z), (targets(mac, state), mac.data.Y), own_ridges(mac, state), strict=True
        ):
            Phi = gaussians(A, f.C, f.width)
            expected, least = fitted(Phi, T, ridge)
            found = 0.5 * float(np.sum((T - Phi @ f.W.T) ** 2)) + 0.5 * ridge * f.square
            deviation("W-step of basis nets", found, least)
            assert_allclose(f.W, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def test_centres_are_the_trainers_for_the_present_coordinates(setting: str) -> None:
    """The encoder's are those of the data, once; the decoder's move with the coordinates."""
    mac, state, _ = made(setting, autoencoder())
    mac.begin(state)
    first = mac.parts.weights(state)[0].copy()
    assert_array_equal(first, mac.plan.centres(0, mac.data.X, None))
    for _ in range(2):
        mac.z_step(state)
        before = mac.parts.weights(state)[2].copy()
        mac.w_step(state)
        C1, _, C3, _ = mac.parts.weights(state)
        assert_array_equal(C1, first)
        assert_array_equal(C3, mac.plan.centres(2, state.Z, before))
        assert (before != C3).any()


@pytest.mark.parametrize("direction", ["auto", "dual", "direct"])
def test_no_z_step_raises_any_point(direction: str, setting: str) -> None:
    keys = config(**SETTINGS[setting])
    data = autoencoder()
    for mu in (0.1, 5.0, 1e3):
        plan = planned(keys, data)
        solver = replace(plan.resolved.z_solver, direction=direction)
        plan = replace(plan, resolved=replace(plan.resolved, z_solver=solver))
        mac = Mac(plan, data, Team())
        state = begun(mac)
        state.mu = mu
        first = after = by_point(mac, state, keys)
        for _ in range(3):
            mac.z_step(state)
            before, after = after, by_point(mac, state, keys)
            assert (after <= before + 1e-11 * np.abs(before).max()).all()
        assert after.sum() < first.sum()


def test_the_sum_over_points_and_the_ridge_are_e_q(setting: str) -> None:
    mac, state, keys = made(setting, autoencoder())
    ridge1, ridge2 = own_ridges(mac, state)
    f1, f2 = halves(mac, state, keys)
    mu = state.mu
    expected = by_point(mac, state, keys).sum() + 0.5 * mu * ridge1 * f1.square + 0.5 * ridge2 * f2.square
    assert_allclose(e_q(mac, state, keys), expected, rtol=1e-12)


@pytest.mark.parametrize("make", [autoencoder, digits])
def test_with_the_centres_where_they_are_no_half_step_raises_e_q(make: Any, setting: str) -> None:
    """The only thing that may is that the decoder's centres follow the coordinates."""
    mac, state, keys = made(setting, make())
    mac.begin(state)
    value = e_q(mac, state, keys)
    for half_step in (mac.z_step, mac.w_step) * 3:
        if half_step == mac.w_step:
            solve(mac.parts, mac.plan.work.leading_layers, state)
            value = e_q(mac, state, keys)
        half_step(state)
        before, value = value, e_q(mac, state, keys)
        assert value <= before + 1e-10 * abs(before)


# --- who makes the features -------------------------------------------------------------------------------------------


class Witness(Team):
    """Notes the shapes of what is made by all ranks together."""

    def __init__(self) -> None:
        self.gathered: list[tuple[int, ...]] = []

    def gather_rows(self, array: Any, counts: Any) -> None:
        self.gathered.append(array.shape)


def test_the_first_features_are_made_by_all_ranks_on_resume_too() -> None:
    """Its State has the factor already: nothing else would ask for them before the Z-step, where each rank is alone."""
    keys, data = config(), autoencoder()
    mac = Mac(planned(keys, data), data, Team())
    state = begun(mac)
    mac.begin(state)
    team = Witness()
    resumed = Mac(mac.plan, data, team)
    resumed.begin(state)
    features = (mac.plan.n_train, mac.plan.chain.maps[0].n_out)
    assert team.gathered == [features]
    resumed.z_step(state)
    assert team.gathered.count(features) == 1


# --- the record -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", DATA)
def test_the_training_error_holds_the_ridge_and_the_validation_error_does_not(kind: str, setting: str) -> None:
    """Eq. (6): E1 + lambda ||W||^2; with ridge_scale = "objective" the ridge is 2 lambda, else E1 has none."""
    mac, state, keys = made(setting, DATA[kind]())
    mac.begin(state)
    mac.sweep(state)
    errors, n = mac.evaluate(state), mac.plan.n_train
    f1, f2 = halves(mac, state, keys)
    nested = loss(mac, f2(f1(mac.data.X)))
    paper = 1e-3 * (f1.square + f2.square) if setting == "as in the paper" else 0.0
    deviation("E1 of basis nets", errors.train * n, nested + paper)
    assert_allclose(errors.ridge * n, paper, rtol=1e-12)
    alone = 0.5 * np.sum((mac.data.Y_val - f2(f1(mac.data.X_val))) ** 2)
    assert_allclose(errors.validation, alone / len(mac.data.X_val), rtol=1e-12)


def test_one_net_has_one_training_error_at_every_mu(setting: str) -> None:
    """The record compares it across mu, and the end of a run those of the best weights and the last ones: neither a
    ridge that grows with mu nor one that is dropped may move it."""
    mac, state, keys = made(setting, autoencoder())
    mac.begin(state)
    until = keys.penalty.ridge_until_mu
    found = []
    for mu in (1.0, 10.0, until, 2.0 * until):
        state.mu = mu
        found.append(mac.evaluate(state).train)
    assert_allclose(found, found[0], rtol=1e-13)


def test_e_q_of_the_record_has_no_ridge(setting: str) -> None:
    mac, state, keys = made(setting, autoencoder())
    mac.begin(state)
    mac.sweep(state)
    errors, n = mac.evaluate(state), mac.plan.n_train
    f1, f2 = halves(mac, state, keys)
    C, mu = state.Z - f1(mac.data.X), state.mu
    assert_allclose(errors.E_Q * n, loss(mac, f2(state.Z)) + 0.5 * mu * np.sum(C**2), rtol=1e-11)
    assert_allclose(errors.constraint, np.mean(C**2), rtol=1e-11)
