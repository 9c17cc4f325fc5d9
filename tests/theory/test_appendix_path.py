"""Theorem B.3 along mu -> infinity, and what a fixed mu leaves: a bias that the augmented Lagrangian does not have.

The printed proof does not show that the limit exists: tested are limit points, with tolerances tau_k -> 0.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from contracts.examples import point_gradients
from numpy.testing import assert_allclose
from scipy import optimize
from theory.checks import deviation
from theory.nets import (
    SITES,
    anywhere,
    constraint,
    e1,
    e_q,
    feasible,
    method,
    multipliers,
    ridge,
    started,
)
from theory.problems import w_problem, z_problem
from theory.test_appendix import backpropagated

from macmpi.half_steps.errors import gradients_of
from macmpi.mac import Mac
from macmpi.solvers.w_problem import gradients
from macmpi.state import State
from macmpi.typing import Array

Minimise = Callable[[Mac, State, float], None]
CLOSE: dict[str, Any] = {
    "z_step": {"iterations": 3, "direction": "direct", "relaxation": 1.0},
    "w_step": {"iterations": 3, "cg_iterations": 3, "tolerance": 0.0},
    "ridge_scale": "objective",
    "ridge_until_mu": 1e9,
}
"""Half steps near their minima, and a ridge of E_Q's own scale: a term of E1 as well, whatever mu is."""


def joint_gradient(mac: Mac, state: State) -> Array:
    """Of E_Q + ridge with respect to (W, Z), from the package's subproblems."""
    problem = z_problem(mac, slice(None), state)
    by_w, K = np.zeros_like(state.weights), len(mac.plan.chain.sites)
    for job in mac.plan.work.w_step.jobs:
        regression = w_problem(mac, job, state)
        _, slope = gradients(regression, regression.start, mac.parts.over_points)
        by_w[job.place] = slope.ravel() * (1.0 if job.segment == K else state.mu)
    return np.concatenate([by_w, point_gradients(problem, state.Z)[1].ravel()])


def nested_gradient(mac: Mac, state: State) -> Array:
    """Of E1 + ridge with respect to W, the ridge of E_Q's scale."""
    shrunk = np.concatenate([np.column_stack([W[:, :-1], 0.0 * W[:, -1]]).ravel() for W in mac.parts.weights(state)])
    return backpropagated(mac, state) + mac.plan.resolved.shaping.ridges[0] * shrunk


# --- limit points -----------------------------------------------------------------------------------------------------


def sweep_until(mac: Mac, state: State, tau: float) -> None:
    """The method alone, until the gradient of E_Q is at most tau."""
    for _ in range(1000):
        mac.sweep(state)
        if np.linalg.norm(joint_gradient(mac, state)) <= tau:
            break


def sweep_and_polish(mac: Mac, state: State, tau: float) -> None:
    """A few sweeps, then BFGS over W and Z together from the package's gradients: the theorem asks for no method."""
    for _ in range(5):
        mac.sweep(state)
    n_w = state.weights.size

    def objective(v: Array) -> tuple[float, Array]:
        state.weights[:], state.Z[:] = v[:n_w], v[n_w:].reshape(state.Z.shape)
        return e_q(mac, state) + ridge(mac, state), joint_gradient(mac, state)

    start = np.concatenate([state.weights, state.Z.ravel()])
    options = {"gtol": tau, "norm": 2, "maxiter": 2000}
    objective(optimize.minimize(objective, start, jac=True, method="BFGS", options=options).x)


def at_the_minimiser(mac: Mac, state: State, mu: float) -> None:
    """(W*(mu), Z*(mu)) as a root of the gradient, to rounding, from the minimiser of another mu."""
    exact, n_w = feasible(mac, state), state.weights.size
    state.Z[:] = exact + (state.mu / mu) * (state.Z - exact)
    state.mu = mu

    def slope(v: Array) -> Array:
        state.weights[:], state.Z[:] = v[:n_w], v[n_w:].reshape(state.Z.shape)
        return joint_gradient(mac, state)

    slope(optimize.root(slope, np.concatenate([state.weights, state.Z.ravel()]), options={"xtol": 1e-14}).x)


def follow(
    mac: Mac, state: State, mus: list[float], taus: list[float], minimise: Minimise = sweep_until
) -> list[dict[str, float]]:
    """(W, Z) with ||dE_Q|| <= tau_k at each mu_k in turn; what holds there."""
    rows = []
    for mu, tau in zip(mus, taus, strict=True):
        state.mu = mu
        minimise(mac, state, tau)
        C = constraint(mac, state)
        rows.append(
            {
                "gradient": float(np.linalg.norm(joint_gradient(mac, state))),
                "nested": float(np.linalg.norm(nested_gradient(mac, state))),
                "constraint": float(np.linalg.norm(C)),
                "multipliers": float(np.abs(-mu * C - np.hstack(multipliers(mac, state))).max()),
            }
        )
    return rows


PATHS: dict[str, dict[str, Any]] = {
    "after": {"hidden": (2,), "ridge": 0.3},
    "before": {"hidden": (2,), "sites": "before", "ridge": 0.3},
    "two layers": {"hidden": (1, 1), "targets": 2, "ridge": 0.3},
    "mixed": {"hidden": (1, 1), "sites": ["before", "after"], "targets": 2, "ridge": 0.3},
    "some units": {"hidden": (2,), "sites": [{"after": 1}], "ridge": 0.3},
}


def path_of(name: str) -> tuple[Mac, State]:
    mac = method(**{"activation": "tanh", "n": 10, "d": 1, "targets": 1} | CLOSE | PATHS[name])
    return mac, started(mac, wide=1.0)


@pytest.mark.parametrize("path", PATHS)
def test_limit_points_are_kkt_points_as_mu_grows_and_tolerances_fall(path: str) -> None:
    """Where ||dE_Q|| <= tau_k, E1's gradient is at most a constant times tau_k + 1/mu_k, the constraint falls like
    1/mu_k, and -mu_k (z - f) approaches -Phi^T r; with tau_k -> 0 all of them vanish."""
    mac, state = path_of(path)
    mus = [10.0**k for k in range(5)]
    taus = [0.1 / mu for mu in mus]
    rows = follow(mac, state, mus, taus, sweep_and_polish)
    for row, mu, tau in zip(rows, mus, taus, strict=True):
        assert row["gradient"] <= tau
        assert row["nested"] <= 10.0 / mu
        assert row["constraint"] <= 3.0 / mu
        assert row["multipliers"] <= 10.0 / mu
    assert rows[0]["nested"] > 0.03
    assert np.abs(np.hstack(multipliers(mac, state))).max() > 1e-2
    assert_allclose(state.Z, feasible(mac, state), rtol=0.0, atol=1e-3)
    assert_allclose(e_q(mac, state), e1(mac, state), rtol=1e-3)


@pytest.mark.parametrize("path", PATHS)
def test_the_paths_multipliers_approach_those_of_the_net_like_one_over_mu(path: str) -> None:
    """-mu (z - f) at (W*(mu), Z*(mu)) against what backpropagation gives at feasible coordinates, relatively."""
    mac, state = path_of(path)
    state.mu, lacking = 1.0, {}
    sweep_and_polish(mac, state, 1e-3)
    for mu in (1.0, 1e2, 1e3, 1e5):
        at_the_minimiser(mac, state, mu)
        found = gradients_of(mac.parts, state)
        assert found.penalised < 1e-8
        lacking[mu] = found.lacking
    assert lacking[1.0] > 0.3
    deviation("multipliers of the path", 1.0 + lacking[1e5], 1.0)
    for mu in (1e2, 1e3):
        assert 0.5 < mu * lacking[mu] / (1e5 * lacking[1e5]) < 2.0


@pytest.mark.parametrize("mu", [1.0, 1e4])
@pytest.mark.parametrize("sites", SITES)
def test_without_ridge_e_q_need_not_have_a_minimiser(sites: str, mu: float) -> None:
    """Why B.3's "the limit exists because E_Q is bounded below" needs more: coordinates that code the targets in ever
    smaller numbers, under ever larger output weights, take E_Q to 0 at any mu, while E1 stays where it is."""
    mac = method((2,), "tanh", n=10, d=1, targets=2, sites=sites, ridge=0.0)
    state = anywhere(mac, mu=mu)
    W1, W2 = mac.parts.weights(state)
    values = []
    for size in (1e-2, 1e-4, 1e-6):
        W1[:], W2[:] = 0.0, np.column_stack([np.eye(2) / size, np.zeros(2)])
        state.Z[:] = size * mac.data.Y if sites == "after" else np.arctanh(size * mac.data.Y)
        errors = mac.evaluate(state)
        values.append(errors.E_Q)
        assert_allclose(errors.train, 0.5 * float(np.sum(mac.data.Y**2)) / 10)
    assert all(b < 1e-3 * a for a, b in itertools.pairwise(values))


@pytest.mark.long
@pytest.mark.parametrize("path", ["after", "before", "mixed"])
def test_the_method_alone_gets_there(path: str) -> None:
    mac, state = path_of(path)
    mus, taus = [1.0, 4.0, 16.0, 64.0], [0.05, 0.03, 0.02, 0.015]
    rows = follow(mac, state, mus, taus)
    for row, mu, tau in zip(rows, mus, taus, strict=True):
        assert row["gradient"] <= tau
        assert row["nested"] <= 3.0 * (tau + 1.0 / mu)
        assert row["constraint"] <= 3.0 / mu
        assert row["multipliers"] <= 3.0 * (tau + 1.0 / mu)
    assert rows[-1]["nested"] < 0.2 * rows[0]["nested"]


# --- a fixed mu -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sites", SITES)
def test_the_augmented_lagrangian_reaches_the_constraint_at_a_mu_where_the_quadratic_penalty_does_not(
    sites: str,
) -> None:
    """mu = 3 throughout, the same half steps; the multipliers move after every fifth."""
    found = {}
    for by in ("quadratic", "augmented_lagrangian"):
        mac = method((2,), "tanh", n=20, sites=sites, ridge=0.3, mu0=3.0, method=by, **CLOSE)
        state = started(mac, wide=1.0)
        for _ in range(25):
            for _ in range(5):
                mac.sweep(state)
            if by == "augmented_lagrangian":
                mac.move_multipliers(state)
        assert state.mu == 3.0
        found[by] = state, mac.evaluate(state).constraint, float(np.linalg.norm(nested_gradient(mac, state)))
    _, left, biased = found["quadratic"]
    state, reached, slope = found["augmented_lagrangian"]
    assert left > 1e-4
    assert reached < 1e-3 * left
    assert slope < 0.3 * biased
    expected = np.hstack(multipliers(mac, state))
    assert np.abs(expected).max() > 0.1
    assert_allclose(state.own.multipliers, expected, rtol=0.0, atol=0.02)
