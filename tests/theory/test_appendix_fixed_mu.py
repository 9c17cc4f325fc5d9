"""Theorem B.4 and its remarks: what stationary points of E_Q at a fixed mu say about E1, and what they do not.

In its proof the printed dE_Q/dz has one sign wrong: it is -J^T (y - f_2) + mu (z - f_1).  And the assumption z = f_1
asks that J^T r = 0 for every point, not that E1 = 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from contracts.examples import point_gradients
from numpy.testing import assert_allclose
from scipy import linalg, optimize
from theory.checks import deviation
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
    method,
    multipliers,
    outputs,
    slopes,
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
    deviation("grad E_Q by Z", G, slopes(lambda: e_q(mac, state), state, "Z"))


# --- the other remarks ------------------------------------------------------------------------------------------------


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
