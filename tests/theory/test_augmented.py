"""The augmented Lagrangian: targets z - M^-1 lambda, lambda <- lambda - M (z - f), and the constraint at finite mu."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from theory.checks import deviation
from theory.nets import (
    AUGMENTED,
    anywhere,
    constraint,
    forms,
    layers,
    method,
    multipliers,
    of_sites,
    started,
)
from theory.problems import w_problem, z_problem

from macmpi.mac import Mac
from macmpi.nets.losses import dense
from macmpi.plan.resolved import Progress
from macmpi.state import State

CHOICES: dict[str, dict[str, Any]] = {
    "after": {},
    "before": {"sites": "before"},
    "mixed": {"sites": ["before", "after"]},
    "none below": {"sites": ["none", "after"], "activation": ["relu", "tanh"]},
    "labels": {"loss": "cross_entropy", "sites": ["after", "none"]},
    "softmax": {"activation": ["softmax", "sigmoid"], "metric": "variance"},
    "variance": {"metric": "variance"},
    "curvature": {"metric": "curvature", "sites": "before"},
}
EXACT = {"iterations": 30, "direction": "direct", "relaxation": 1.0, "halvings": 15}


def run(mac: Mac, state: State, iterations: int) -> list[dict[str, float]]:
    """Iterations and decisions as a training run makes them; a row of numbers for each."""
    rows = []
    for _ in range(iterations):
        mac.sweep(state)
        before, errors = state.history.e1_val, mac.evaluate(state)
        progress = Progress(state.iteration, state.mu, before, errors.validation, errors.move, state.history.reference)
        decision = mac.plan.resolved.schedule.decide(progress)
        state.note_validation(errors.validation)
        if decision.multipliers:
            mac.move_multipliers(state)
            state.history.reference = progress.move
        rows.append({"mu": state.mu, **errors._asdict(), "move": progress.move * decision.multipliers})
        state.mu = decision.mu
    return rows


@pytest.mark.parametrize("choice", CHOICES)
def test_without_multipliers_it_is_the_quadratic_penalty_bit_for_bit(choice: str) -> None:
    augmented, quadratic = method(**CHOICES[choice] | AUGMENTED), method(**CHOICES[choice])
    one, two = started(augmented), started(quadratic)
    assert_array_equal(one.own.multipliers, np.zeros_like(one.Z))
    assert two.own.multipliers.size == 0
    for mu in (10.0, 10.0, 100.0):
        one.mu = two.mu = mu
        for half_step in ("z_step", "w_step"):
            getattr(augmented, half_step)(one)
            getattr(quadratic, half_step)(two)
            assert_array_equal(one.Z, two.Z)
            assert_array_equal(one.weights, two.weights)
    ours, theirs = augmented.evaluate(one), quadratic.evaluate(two)
    assert ours[:4] == theirs[:4]
    assert ours.lagrangian == ours.E_Q
    assert ours.multiplier == 0.0


@pytest.mark.parametrize("mu", [0.5, 100.0])
@pytest.mark.parametrize("choice", CHOICES)
def test_multipliers_move_by_minus_the_metric_times_the_constraint(choice: str, mu: float) -> None:
    mac = method(**CHOICES[choice] | AUGMENTED | {"multiplier_max": 1e6})
    state = anywhere(mac, mu=mu)
    before, weights, Z = state.own.multipliers.copy(), state.weights.copy(), state.Z.copy()
    C = of_sites(mac, constraint(mac, state))
    expected = before - np.hstack([c @ M for c, M in zip(C, forms(mac, state), strict=True)])
    mac.move_multipliers(state)
    deviation("multipliers move", state.own.multipliers, expected)
    assert np.abs(state.own.multipliers - before).max() > 0.1
    assert_array_equal(state.weights, weights)
    assert_array_equal(state.Z, Z)


@pytest.mark.parametrize("choice", CHOICES)
def test_the_safeguard_measures_the_move_itself(choice: str) -> None:
    """Also where constraints are measured in a metric: mean squared change of the multipliers, mu and M included."""
    mac = method(**CHOICES[choice] | AUGMENTED | {"multiplier_max": 1e6})
    state = anywhere(mac, mu=20.0)
    before, move = state.own.multipliers.copy(), mac.evaluate(state).move
    mac.move_multipliers(state)
    assert_allclose(move, np.mean((state.own.multipliers - before) ** 2), rtol=1e-9)


def test_multipliers_stay_within_their_bound() -> None:
    mac, free = (method(**AUGMENTED, multiplier_max=bound) for bound in (0.7, 1e6))
    state = anywhere(mac)
    unbounded = deepcopy(state)
    mac.move_multipliers(state)
    free.move_multipliers(unbounded)
    assert np.abs(unbounded.own.multipliers).max() > 0.7
    assert_array_equal(state.own.multipliers, np.clip(unbounded.own.multipliers, -0.7, 0.7))


@pytest.mark.parametrize("mu", [0.5, 100.0])
@pytest.mark.parametrize("choice", CHOICES)
def test_the_target_of_a_unit_is_its_coordinate_less_the_multiplier_in_the_metric(choice: str, mu: float) -> None:
    """The same shift for points: their f_k is raised by what units' targets are lowered."""
    mac = method(**CHOICES[choice] | AUGMENTED)
    state = anywhere(mac, mu=mu)
    sites = list(zip(of_sites(mac, state.Z), of_sites(mac, state.own.multipliers), forms(mac, state), strict=True))
    shifts = [np.linalg.solve(M, u.T).T for _, u, M in sites]
    expected = [*(z - u for (z, *_), u in zip(sites, shifts, strict=True)), mac.data.Y]
    for job in mac.plan.work.w_step.jobs:
        problem, units = w_problem(mac, job, state), slice(None) if job.units is None else job.units.rows
        assert_allclose(problem.targets, expected[job.segment][:, units], rtol=1e-10, atol=1e-12)
    problem = z_problem(mac, slice(None), state)
    F = [f(a) for f, a in zip(layers(mac, state), [mac.data.X, *of_sites(mac, state.Z)], strict=True)]
    for found, f, u in zip(problem.outputs(state.Z), F, [*shifts, 0.0], strict=True):
        assert_allclose(found, f + u, rtol=1e-10, atol=1e-12)
    for form, (*_, M) in zip(problem.metrics, sites, strict=True):
        assert_allclose(dense(form.M, len(M)), M, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mu", [1.0, 30.0])
@pytest.mark.parametrize("choice", ["after", "before", "mixed", "variance", "curvature"])
def test_after_an_exact_z_step_multipliers_move_to_those_of_the_outputs(choice: str, mu: float) -> None:
    """lambda_K = -J^T r and so on down: stationarity in Z of the augmented Lagrangian is that of the Lagrangian."""
    mac = method((4, 3), n=9, z_step=EXACT, **CHOICES[choice] | AUGMENTED | {"multiplier_max": 1e6})
    state = anywhere(mac, mu=mu)
    mac.z_step(state)
    assert np.abs(constraint(mac, state)).max() > 1e-3
    mac.move_multipliers(state)
    expected = multipliers(mac, state)
    assert_allclose(state.own.multipliers, np.hstack(expected), rtol=0.0, atol=1e-6)
