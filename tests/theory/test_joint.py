"""Weights and coordinates moved together: the arrow system against a dense one, and theorem B.3 along mu."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from theory.nets import (
    AUGMENTED,
    anywhere,
    constraint,
    e_q,
    forms,
    layers,
    method,
    multipliers,
    of_sites,
    ridge,
    slopes,
    started,
    work,
)
from theory.problems import z_problem
from theory.test_appendix_path import nested_gradient
from theory.test_gradients import run
from theory.test_point_weights import COUNTS, assert_near, both

from macmpi.half_steps.errors import gradients_of
from macmpi.mac import Mac
from macmpi.methods.joint import Joint, System
from macmpi.parallel.streams import stream
from macmpi.solvers.arrow import arrow_of
from macmpi.state import State, block_views
from macmpi.typing import Array

NETS: dict[str, dict[str, Any]] = {
    "fewer units than outputs": {"hidden": (3, 2)},
    "fewer outputs than units": {"hidden": (2, 4)},
    "before": {"hidden": (3, 2), "sites": "before", "ridge_scale": "objective"},
    "mixed": {"hidden": (2, 2, 2), "sites": ["before", "none", "after"], "activation": ["tanh", "sigmoid", "tanh"]},
    "one site": {"hidden": (4,)},
    "both": {"hidden": (3, 2), "sites": ["both", "after"]},
    "some units": {"hidden": (4, 2), "sites": [{"after": 2}, "after"]},
    "softmax": {"hidden": (3, 2), "activation": ["softmax", "sigmoid"], "metric": "variance"},
    "a metric": {"hidden": (3, 2), "sites": "before", "metric": "curvature", "targets": 1},
    "augmented": {"hidden": (3, 2), **AUGMENTED},
}


def joint_of(mac: Mac) -> Joint:
    return Joint(mac.plan, mac.data, mac.team)


def system_of(name: str) -> tuple[Joint, State[Any], System]:
    """A net of 6 points off its constraints, and its system."""
    joint = joint_of(method(**{"n": 6, "ridge": 0.3, "activation": "tanh"} | NETS[name]))
    state = anywhere(joint, mu=3.0)
    return joint, state, System(joint, state)


def residuals(mac: Mac, state: State) -> Array:
    """Those whose half sum of squares is E_Q with the multipliers' shift, less a constant."""
    sites, found = of_sites(mac, constraint(mac, state)), []
    shifts = of_sites(mac, state.own.multipliers) if state.own.multipliers.size else [0.0] * len(sites)
    for C, M, pull in zip(sites, forms(mac, state), shifts, strict=True):
        found.append((C - pull @ np.linalg.inv(M) if np.size(pull) > 1 else C) @ np.linalg.cholesky(M))
    found.append(mac.data.Y - layers(mac, state)[-1](of_sites(mac, state.Z)[-1]))
    return np.concatenate([part.ravel() for part in found])


def jacobian(mac: Mac, state: State, name: str) -> Array:
    """d residuals by `name`, by complex steps: (residuals, size)."""
    kept = getattr(state, name)
    moved, out = kept.astype(complex), []
    setattr(state, name, moved)
    for i in range(kept.size):
        moved.flat[i] += 1e-30j
        out.append(residuals(mac, state).imag / 1e-30)
        moved.flat[i] = kept.flat[i]
    setattr(state, name, kept)
    return np.array(out).T


def rows_of(joint: Joint, system: System, columns: Array, share: float) -> Array:
    """The system's products with some columns, (P, n)."""
    return np.stack([system._product(column, share) for column in columns.T], axis=1)


def ridge_matrix(joint: Joint, state: State) -> Array:
    """d^2 ridge / dW^2, from the gradient of a quadratic."""
    at, kept, out = state.weights, np.zeros(len(state.weights)), []
    for i in range(len(at)):
        state.weights = kept.copy()
        state.weights[i] = 1.0
        out.append(slopes(lambda: ridge(joint, state), state, "weights"))
    state.weights = at
    return np.array(out)


@pytest.mark.parametrize("name", NETS)
def test_the_arrow_system_is_the_schur_complement_of_the_dense_one(name: str) -> None:
    """Gauss-Newton over W and Z together, by complex steps in the paper's formulas, Z eliminated densely."""
    joint, state, system = system_of(name)
    r, J_W, J_Z = residuals(joint, state), jacobian(joint, state, "weights"), jacobian(joint, state, "Z")
    A, C, g_Z = J_Z.T @ J_Z, J_Z.T @ J_W, J_Z.T @ r
    random, P = np.random.default_rng(1), len(state.weights)
    steps = random.normal(size=(P, 3))
    of_ridge = ridge_matrix(joint, state)
    expected = (J_W.T @ J_W - C.T @ np.linalg.solve(A, C) + of_ridge) @ steps
    assert_allclose(rows_of(joint, system, steps, 0.0), expected, rtol=1e-8, atol=1e-9 * np.abs(expected).max())
    slope = J_W.T @ r - C.T @ np.linalg.solve(A, g_Z) + of_ridge @ state.weights
    assert_allclose(-system.slope, slope, rtol=1e-8, atol=1e-9 * np.abs(slope).max())
    assert_allclose(system.falls, 0.5 * g_Z @ np.linalg.solve(A, g_Z), rtol=1e-8)
    assert_allclose(
        system.error, system.joint.shaping(state) + z_problem(joint, slice(None), state).values(state.Z).sum()
    )
    changes = block_views(steps[:, 0], joint.plan.chain.block_shapes)
    dz = np.concatenate([arrow.coordinates(changes) for arrow in system.arrows.values()])
    assert_allclose(dz.ravel(), -np.linalg.solve(A, g_Z + C @ steps[:, 0]), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", ["fewer units than outputs", "mixed", "augmented"])
def test_with_the_maps_curvature_the_product_is_the_hessian_along_the_models_coordinates(name: str) -> None:
    """T^T H T, H the Hessian of E_Q by (W, Z), T the moves of W with the coordinates of the Gauss-Newton model."""
    joint, state, system = system_of(name)
    J_W, J_Z = jacobian(joint, state, "weights"), jacobian(joint, state, "Z")
    T = np.vstack([np.eye(J_W.shape[1]), -np.linalg.solve(J_Z.T @ J_Z, J_Z.T @ J_W)])
    step = np.random.default_rng(2).normal(size=J_W.shape[1])

    def gradient(share: float) -> Array:
        weights, Z, (dW, dZ) = state.weights, state.Z, np.split(share * T @ step, [len(state.weights)])
        state.weights, state.Z = weights + dW, Z + dZ.reshape(Z.shape)
        found = [slopes(lambda: e_q(joint, state) - work(joint, state), state, key) for key in ("weights", "Z")]
        state.weights, state.Z = weights, Z
        return np.concatenate(found)

    h = 1e-4
    expected = T.T @ (gradient(h) - gradient(-h)) / (2.0 * h) + ridge_matrix(joint, state) @ step
    plain, found = (system._product(step, share) for share in (0.0, 1e-8))
    assert_allclose(found, expected, rtol=0.0, atol=1e-6 * np.abs(expected).max())
    assert np.abs(found - plain).max() > 1e-2 * np.abs(expected).max()


def test_draws_have_the_metric_as_their_covariance() -> None:
    joint, state, _ = system_of("fewer units than outputs")
    problem = z_problem(joint, np.zeros(20_000, int), state)
    arrow = arrow_of(problem)
    *_, (_, U) = arrow.draws(stream(0, "test"))
    first = arrow_of(z_problem(joint, slice(0, 1), state))
    S = np.stack([first.solved(row[None])[0] for row in np.eye(U.shape[1])])
    assert_allclose(U.T @ U / len(U), S, rtol=0.0, atol=6.0 / np.sqrt(len(U)))
    assert np.abs(S - np.eye(len(S))).max() > 0.1


def test_coordinates_follow_a_step_by_the_model_at_the_weights_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's tapes are views of these weights, which stay until the step is taken."""
    joint, state, _ = system_of("fewer units than outputs")
    begun, followed = state.weights.copy(), joint._followed

    def watched(system: System, moved: State[Any], step: Array) -> tuple[dict[int, Array], float]:
        assert_allclose(system.given.weights[0].ravel(), begun[: system.given.weights[0].size], rtol=0.0)
        assert_allclose(moved.weights, begun + step)
        return followed(system, moved, step)

    monkeypatch.setattr(joint, "_followed", watched)
    joint.sweep(state)
    assert (state.weights != begun).all()


def test_a_point_of_weight_k_is_k_copies() -> None:
    ours, theirs = (joint_of(mac) for mac in both({"activation": "tanh"}))
    one, two = anywhere(ours), anywhere(theirs)
    two.weights[:], two.Z[:] = one.weights, np.repeat(one.Z, COUNTS, axis=0)
    a, b = System(ours, one), System(theirs, two)
    step = np.random.default_rng(0).normal(size=len(one.weights))
    for own, other in ((a.slope, b.slope), (a.error, b.error), (a.falls, b.falls)):
        assert_near(own, other)
    for share in (0.0, 1e-5):
        assert_near(a._product(step, share) / len(step), b._product(step, share) / len(step))
    assert_near(gradients_of(ours.parts, one), gradients_of(theirs.parts, two))


# --- theorem B.3 ------------------------------------------------------------------------------------------------------

PATHS: dict[str, dict[str, Any]] = {
    "after": {"hidden": (3,)},
    "before": {"hidden": (3,), "sites": "before"},
    "two layers": {"hidden": (3, 2)},
    "labels": {"hidden": (3,), "loss": "cross_entropy"},
}


@pytest.mark.parametrize("path", PATHS)
def test_the_gradient_of_e1_and_what_multipliers_lack_fall_as_one_over_mu(path: str) -> None:
    """To mu = 1e6, tau_k as 1 / mu; and no step lets E_Q + ridge rise."""
    keys = {"activation": "tanh", "n": 20, "d": 2, "targets": 2, "ridge": 0.3, "ridge_scale": "objective"}
    joint = joint_of(method(**keys, ridge_until_mu=1e9, **PATHS[path]))
    state: State[Any] = started(joint, wide=1.0)
    size, rows, steps = gradients_of(joint.parts, state).multipliers, {}, 0
    for mu in (1.0, 1e2, 1e4, 1e6):
        state.mu = mu
        for _ in range(60):
            before = joint.evaluate(state).E_Q + joint.shaping(state) / 20
            joint.sweep(state)
            steps += 1
            assert joint.evaluate(state).E_Q + joint.shaping(state) / 20 <= before * (1.0 + 1e-12)
            rows[mu] = gradients_of(joint.parts, state)
            if rows[mu].penalised <= 1e-3 * size / mu:
                break
        assert rows[mu].penalised <= 1e-3 * size / mu
    for mu in (1e2, 1e4):
        for norm in ("nested", "lacking"):
            assert 0.7 < mu * getattr(rows[mu], norm) / (1e6 * getattr(rows[1e6], norm)) < 1.5
    assert rows[1e6].nested < 1e-5 * rows[1.0].nested
    assert rows[1e6].lacking < 1e-3
    assert steps < 80


@pytest.mark.parametrize("path", PATHS)
def test_with_multipliers_a_mu_that_stays_reaches_what_the_penalty_reaches_as_it_grows(path: str) -> None:
    """grad E1, by backpropagation, is 0 to nine digits, and the multipliers are those of the net by its Jacobians."""
    keys = {"activation": "tanh", "n": 20, "d": 2, "targets": 2, "ridge": 0.3, "ridge_scale": "objective"}
    follow = {"stop": "gradient", "mu0": 1.0, "factor": 10.0, "decay": 0.1, "mu_max": 1e8, "max_iterations": 300}
    mac = joint_of(method(**keys, **follow, **AUGMENTED, **PATHS[path]))
    state: State[Any] = started(mac, wide=1.0)
    state.mu, begun = 1.0, np.linalg.norm(np.hstack(multipliers(mac, state)))
    run(mac, state, 300)
    assert state.mu <= 1e4
    assert np.linalg.norm(nested_gradient(mac, state)) < 1e-8 * begun
    mac.parts.feasible(state)
    expected = np.hstack(multipliers(mac, state))
    assert np.linalg.norm(state.own.multipliers - expected) < 1e-6 * np.linalg.norm(expected)
