"""Theorem B.4 and its remarks: what stationary points of E_Q at a fixed mu say about E1, and what they do not.

In its proof the printed dE_Q/dz has one sign wrong: it is -J^T (y - f_2) + mu (z - f_1).  And the assumption z = f_1
asks that J^T r = 0 for every point, not that E1 = 0.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from contracts.examples import point_gradients
from numpy.testing import assert_allclose
from scipy import linalg, optimize
from theory.nets import (
    SITES,
    SMOOTH,
    anywhere,
    constraint,
    e1,
    e_q,
    feasible,
    gradient,
    last_features,
    loss_pull,
    method,
    multipliers,
    of_sites,
    outputs,
)
from theory.problems import z_problem
from theory.test_appendix import backpropagated

from macmpi.data.dataset import Dataset
from macmpi.data.scaling import Scaling
from macmpi.mac import Mac
from macmpi.state import State
from macmpi.typing import Array

MUS = [0.1, 10.0, 1e4]
EXACT = {"iterations": 30, "direction": "direct", "relaxation": 1.0, "halvings": 15}


def with_residual(mac: Mac, state: State, residual: Array, **net: Any) -> Mac:
    """The same net without ridge, and targets that have this residual at the state's weights."""
    old, Y = mac.data, outputs(mac, state) + residual
    unit = Scaling(np.zeros(Y.shape[1]), np.ones(Y.shape[1]))
    data = Dataset(old.X, Y, old.X_val, old.Y_val, old.scaling_x, unit, "")
    new = method(mac.plan.chain.layer_sizes[1:-1], data=data, ridge=0.0, **net)
    new.begin(state)
    return new


def without(columns: Array, R: Array) -> Array:
    """R less its projection on the span of some columns."""
    Q = linalg.orth(columns)
    return R - Q @ (Q.T @ R)


def unseen(mac: Mac, state: State) -> Array:
    """Residuals that neither the last layer's inputs nor its weights see: J^T r = 0 for every n."""
    R = np.random.default_rng(1).normal(size=mac.data.Y.shape)
    V = mac.parts.weights(state)[-1][:, :-1]
    return without(last_features(mac, state), without(V, R.T).T)


def stationary(sites: str, mu: float) -> tuple[Mac, State]:
    """A stationary point of E1 whose J^T r are not 0, though their sums over the points are."""
    net = {"sites": sites}
    mac = method((3,), n=30, d=2, targets=2, **net)
    state = anywhere(mac, mu=mu, off=0.0)
    hidden, D = last_features(mac, state), np.column_stack([mac.data.X, np.ones(30)])
    slopes = hidden[:, :3] * (1.0 - hidden[:, :3])
    seen = np.hstack([hidden, *(slopes[:, h : h + 1] * D for h in range(3))])
    R = without(seen, np.random.default_rng(1).normal(size=(30, 2)))
    return with_residual(mac, state, R, **net), state


# --- the theorem ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mu", MUS)
@pytest.mark.parametrize("sites", SITES)
@pytest.mark.parametrize("activation", SMOOTH)
def test_a_feasible_stationary_point_of_e_q_is_one_of_e1(activation: str, sites: str, mu: float) -> None:
    net = {"sites": sites, "activation": activation}
    mac = method((4, 3), n=12, targets=7, **net)
    state = anywhere(mac, mu=mu, off=0.0)
    mac = with_residual(mac, state, unseen(mac, state), **net)
    assert e1(mac, state) > 0.1
    for variables in (state.weights, state.Z):
        assert_allclose(gradient(lambda: e_q(mac, state), variables), 0.0, atol=1e-6 * max(1.0, mu))
    assert_allclose(backpropagated(mac, state), 0.0, atol=1e-11)
    # And the method stays there.
    weights, Z = state.weights.copy(), state.Z.copy()
    mac.sweep(state)
    assert_allclose(state.Z, Z, rtol=0.0, atol=1e-9)
    assert_allclose(state.weights, weights, rtol=0.0, atol=1e-7)


@pytest.mark.parametrize("sites", SITES)
def test_it_is_stationary_for_all_mu(sites: str) -> None:
    net = {"sites": sites}
    mac = method((4, 3), n=12, targets=7, **net)
    state = anywhere(mac, off=0.0)
    mac = with_residual(mac, state, unseen(mac, state), **net)
    for mu in (1e-3, 1.0, 1e3):
        state.mu = mu
        _, G = point_gradients(z_problem(mac, slice(None), state), state.Z)
        assert_allclose(G, 0.0, atol=1e-11 * max(1.0, mu))


@pytest.mark.parametrize("mu", MUS)
@pytest.mark.parametrize("sites", SITES)
def test_the_sign_of_the_gradient_in_z(sites: str, mu: float) -> None:
    """The misprint: dE_Q/dz_n = -J^T (y - f_2) + mu (z - f_1), not + J^T (y - f_2)."""
    mac = method((3,), n=8, sites=sites)
    state = anywhere(mac, mu=mu)
    (pull,) = multipliers(mac, state)
    _, G = point_gradients(z_problem(mac, slice(None), state), state.Z)
    assert_allclose(G, pull + mu * constraint(mac, state), rtol=1e-9, atol=1e-9)
    assert np.abs(G - (mu * constraint(mac, state) - pull)).max() > 0.1
    expected = gradient(lambda: e_q(mac, state), state.Z).reshape(G.shape)
    assert_allclose(G, expected, rtol=1e-6, atol=1e-6 * max(1.0, mu))


# --- the first remark -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mu", [1.0, 10.0, 1e4])
@pytest.mark.parametrize("sites", SITES)
@pytest.mark.parametrize("hidden", [(3,), (4, 3)], ids=str)
def test_a_point_meets_its_constraints_only_where_nothing_pulls_it(
    hidden: tuple[int, ...], sites: str, mu: float
) -> None:
    """Where E_Q is stationary in Z, mu (z - f) = J^T r point by point: feasible if and only if J^T r = 0.

    Half of the points have residuals with J^T r = 0 and E1 > 0, half have others.
    """
    net = {"sites": sites}
    mac = method(hidden, n=10, targets=6, **net)
    state = anywhere(mac, mu=mu, off=0.0)
    V = mac.parts.weights(state)[-1][:, :-1]
    R = np.random.default_rng(2).normal(size=mac.data.Y.shape)
    R[:5] = without(V, R[:5].T).T
    mac = with_residual(mac, state, R, z_step=EXACT, **net)
    mac.z_step(state)
    C = constraint(mac, state)
    assert_allclose(mu * C, -np.hstack(multipliers(mac, state)), rtol=1e-5, atol=1e-5)
    residual = loss_pull(mac, outputs(mac, state))
    assert (np.abs(residual).max(axis=1) > 0.1).all()
    assert np.abs(C[:5]).max() < 1e-9
    assert (np.abs(mu * C[5:]).max(axis=1) > 1e-3).all()


@pytest.mark.parametrize("sites", SITES)
def test_perfect_weights_are_a_fixed_point(sites: str) -> None:
    """As the remark has it: where E1 = 0 the constraints are met, and nothing moves at any mu."""
    mac = method((4, 3), n=15, sites=sites)
    state = anywhere(mac, off=0.0)
    mac = with_residual(mac, state, np.zeros_like(mac.data.Y), sites=sites)
    weights, Z = state.weights.copy(), state.Z.copy()
    for mu in (0.1, 10.0, 1e6):
        state.mu = mu
        mac.sweep(state)
        assert_allclose(state.weights, weights, rtol=0.0, atol=1e-8)
        assert_allclose(state.Z, Z, rtol=0.0, atol=1e-10)
        assert e1(mac, state) < 1e-20


# --- the other remarks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sites", SITES)
@pytest.mark.parametrize("mu", MUS)
def test_the_converse_does_not_hold(mu: float, sites: str) -> None:
    """At a stationary point of E1, E_Q's gradient with respect to W vanishes, that with respect to Z does not, and a
    Z-step goes below E1."""
    mac, state = stationary(sites, mu)
    assert_allclose(backpropagated(mac, state), 0.0, atol=1e-11)
    assert_allclose(gradient(lambda: e_q(mac, state), state.weights), 0.0, atol=1e-6 * max(1.0, mu))
    by_z = gradient(lambda: e_q(mac, state), state.Z)
    assert_allclose(by_z, np.hstack(multipliers(mac, state)).ravel(), rtol=1e-5, atol=1e-5 * max(1.0, mu))
    assert np.abs(by_z).max() > 0.1
    nested = e1(mac, state)
    assert_allclose(e_q(mac, state), nested, rtol=1e-12)
    mac.z_step(state)
    assert e_q(mac, state) < nested


def minimiser(mac: Mac, state: State, ridge: float) -> None:
    """Moves the state's weights to a strict local minimiser of E1 + ridge/2 ||W||^2, its coordinates to g(W)."""

    def objective(w: Array) -> tuple[float, Array]:
        state.weights[:] = w
        return e1(mac, state) + 0.5 * ridge * float(w @ w), backpropagated(mac, state) + ridge * w

    found = optimize.minimize(objective, state.weights.copy(), jac=True, method="BFGS", options={"gtol": 1e-10})
    _, slope = objective(found.x)
    assert np.abs(slope).max() < 1e-6
    state.Z[:] = feasible(mac, state)


@pytest.mark.parametrize("sites", SITES)
@pytest.mark.parametrize("hidden", [(2,), (2, 2)], ids=str)
def test_e_q_is_not_an_exact_penalty(hidden: tuple[int, ...], sites: str) -> None:
    """At a strict minimiser of the constrained problem E_Q still falls, however large mu is: by about
    ||lambda||^2 / (2 mu), never by 0.  The ridge, the same in both, makes the minimiser strict."""
    mac = method(hidden, "tanh", n=14, d=2, targets=2, sites=sites, z_step=EXACT)
    state = anywhere(mac, off=0.0)
    minimiser(mac, state, 0.1)
    Z, nested = state.Z.copy(), e1(mac, state)
    lambdas = of_sites(mac, np.hstack(multipliers(mac, state)))
    square = sum(float(np.sum(u * u)) for u in lambdas)
    assert square > 1e-3
    falls = []
    for mu in (10.0, 1e3, 1e5):
        state.Z[:], state.mu = Z, mu
        assert_allclose(e_q(mac, state), nested, rtol=1e-10)
        mac.z_step(state)
        falls.append(nested - e_q(mac, state))
        assert falls[-1] > 0.0
    assert all(0.003 < b / a < 0.3 for a, b in itertools.pairwise(falls))
    assert_allclose(falls[-1], 0.5 * square / 1e5, rtol=1e-2)


@pytest.mark.parametrize("sites", SITES)
def test_the_lagrangian_with_its_multipliers_is_one(sites: str) -> None:
    """What the quadratic penalty lacks: with lambda = -J^T r and mu large enough, but finite, that minimiser is a
    fixed point of the augmented Lagrangian's Z-step, and its multipliers do not move."""
    mac = method((2,), "tanh", n=14, d=2, targets=2, sites=sites, z_step=EXACT, method="augmented_lagrangian")
    state = anywhere(mac, off=0.0)
    minimiser(mac, state, 0.1)
    state.mu = 30.0
    Z, lambdas = state.Z.copy(), np.hstack(multipliers(mac, state))
    state.own.multipliers[:] = lambdas
    assert np.abs(lambdas).max() > 0.05
    _, G = point_gradients(z_problem(mac, slice(None), state), state.Z)
    assert_allclose(G, 0.0, atol=1e-10)
    mac.z_step(state)
    mac.move_multipliers(state)
    assert_allclose(state.Z, Z, rtol=0.0, atol=1e-9)
    assert_allclose(state.own.multipliers, lambdas, rtol=0.0, atol=1e-7)
