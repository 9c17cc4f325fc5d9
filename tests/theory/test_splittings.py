"""E_Q splits exactly by point and by unit, and is E1 where the coordinates are feasible."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from theory.checks import deviation
from theory.nets import (
    ACTIVATIONS,
    AUGMENTED,
    SITES,
    anywhere,
    constraint,
    e1,
    e_q,
    feasible,
    forms,
    layers,
    method,
    of_sites,
    ridge,
    started,
    work,
)
from theory.problems import w_problem, z_problem

from macmpi.mac import Mac
from macmpi.solvers.w_problem import UnitProblem, values
from macmpi.state import State
from macmpi.typing import Array

HIDDEN = [(5,), (7, 5), (6, 2, 6)]
EVERYTHING = slice(None)

CHOICES: dict[str, dict[str, Any]] = {
    "none": {"sites": "none"},
    "none below": {"sites": ["none", "after"]},
    "none above": {"sites": ["before", "none"]},
    "mixed": {"sites": ["before", "after"], "activation": ["tanh", "leaky_relu"]},
    "some units": {"sites": [{"after": 3}, "after"], "activation": ["tanh", "leaky_relu"]},
    "some units, before": {"sites": [{"before": 4}, "none"]},
    "labels": {"loss": "cross_entropy"},
    "labels, before": {"loss": "cross_entropy", "sites": "before", "activation": ["relu", "sigmoid"]},
    "labels, none": {"loss": "cross_entropy", "sites": "none"},
    "softmax": {"activation": ["softmax", "tanh"], "sites": ["after", "before"]},
    "output": {"output": "sigmoid"},
    "softmax output": {"output": "softmax", "sites": ["none", "after"]},
    "variance": {"metric": "variance"},
    "variance, none": {"metric": "variance", "sites": ["none", "after"]},
    "variance, softmax": {"metric": "variance", "activation": ["softmax", "tanh"]},
    "curvature": {"metric": "curvature", "sites": "before"},
    "curvature, labels": {
        "metric": "curvature",
        "sites": "before",
        "loss": "cross_entropy",
    },
}


def by_point(mac: Mac, state: State) -> float:
    problem = z_problem(mac, EVERYTHING, state)
    return float(problem.values(problem.Z).sum())


def by_unit(mac: Mac, state: State) -> float:
    """From the regressions that the W-step solves: each one's objective, times mu and in the metric of its site."""
    K, everywhere, total = len(mac.plan.chain.sites), mac.parts.over_points, 0.0
    residuals: dict[int, list[Array]] = {}
    for job in mac.plan.work.w_step.jobs:
        problem, k = w_problem(mac, job, state), job.segment
        if isinstance(problem, UnitProblem):
            act = ACTIVATIONS[problem.activation]
            residuals.setdefault(k, []).append(
                problem.targets - act(problem.inputs @ problem.start[:, :-1].T + problem.start[:, -1])
            )
        else:
            mu = 1.0 if k == K else state.mu
            total += mu * float((values(problem, problem.start, everywhere) - problem.ridge_part(problem.start)[0])[0])
    for k, parts in residuals.items():
        R = np.hstack(parts)
        total += 0.5 * float(np.sum(R * R if k == K else (R @ forms(mac, state)[k]) * R))
    return total


@pytest.mark.parametrize("mu", [0.01, 1.0, 1e5])
@pytest.mark.parametrize("sites", SITES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("hidden", HIDDEN, ids=str)
def test_both_splittings_sum_to_e_q(hidden: tuple[int, ...], activation: str, sites: str, mu: float) -> None:
    mac = method(hidden, activation, sites=sites)
    state = anywhere(mac, mu=mu)
    deviation("E_Q by point", by_point(mac, state), e_q(mac, state))
    deviation("E_Q by unit", by_unit(mac, state), e_q(mac, state))


@pytest.mark.parametrize("mu", [0.1, 1.0, 1e3])
@pytest.mark.parametrize("choice", [name for name, choice in CHOICES.items() if choice.get("sites") != "none"])
def test_both_splittings_sum_to_the_augmented_lagrangian(choice: str, mu: float) -> None:
    """Up to 1/2 lambda^T M^-1 lambda, which neither W nor Z changes."""
    mac = method(**CHOICES[choice] | AUGMENTED)
    state = anywhere(mac, mu=mu)
    pairs = zip(of_sites(mac, state.own.multipliers), forms(mac, state), strict=True)
    square = sum(0.5 * float(np.sum(np.linalg.solve(M, u.T) * u.T)) for u, M in pairs)
    expected = e_q(mac, state) - work(mac, state) + square
    assert abs(work(mac, state)) > 1e-3
    assert_allclose(by_point(mac, state), expected, rtol=1e-10)
    assert_allclose(by_unit(mac, state), expected, rtol=1e-10)


@pytest.mark.parametrize("choice", CHOICES)
def test_at_feasible_coordinates_e_q_is_e1_whatever_the_choices(choice: str) -> None:
    mac = method(**CHOICES[choice])
    state = anywhere(mac, mu=1e4, off=0.0)
    assert_allclose(state.Z, feasible(mac, state), rtol=1e-13, atol=1e-15)
    assert_allclose(by_point(mac, state), e1(mac, state), rtol=1e-12)
    assert_allclose(by_unit(mac, state), e1(mac, state), rtol=1e-12)
    assert_allclose(mac.evaluate(state).E_Q, e1(mac, state) / mac.plan.n_train, rtol=1e-12)


@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
@pytest.mark.parametrize("mu", [0.1, 1e6])
def test_without_sites_e_q_is_e1_always(mu: float, loss: str) -> None:
    """The other end of the spectrum: full nesting, the whole net one regression."""
    mac = method((7, 5), sites="none", loss=loss)
    state = anywhere(mac, mu=mu)
    assert state.Z.shape == (37, 0)
    for _ in range(3):
        errors = mac.evaluate(state)
        assert errors.train == errors.E_Q
        assert errors.constraint == 0.0
        assert_allclose(by_unit(mac, state), e1(mac, state), rtol=1e-12)
        mac.sweep(state)
        assert mac.evaluate(state).train < errors.train


@pytest.mark.parametrize("sites", SITES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_record_of_an_iteration_is_e_q_there(activation: str, sites: str) -> None:
    mac = method((7, 5), activation, sites=sites)
    state = started(mac)
    for _ in range(3):
        mac.sweep(state)
        errors, n = mac.evaluate(state), mac.plan.n_train
        assert_allclose(errors.E_Q, e_q(mac, state) / n, rtol=1e-9)
        assert_allclose(errors.train, e1(mac, state) / n, rtol=1e-12)
        assert_allclose(errors.constraint, np.mean(constraint(mac, state) ** 2), rtol=1e-9)


@pytest.mark.parametrize("choice", [name for name, choice in CHOICES.items() if choice.get("sites") != "none"])
def test_the_record_holds_the_augmented_lagrangian_and_its_multipliers(choice: str) -> None:
    mac = method(**CHOICES[choice] | AUGMENTED)
    state = anywhere(mac)
    for _ in range(2):
        mac.sweep(state)
        errors, n = mac.evaluate(state), mac.plan.n_train
        assert errors.lagrangian is not None
        assert_allclose(errors.E_Q, e_q(mac, state) / n, rtol=1e-11)
        assert_allclose(errors.lagrangian, (e_q(mac, state) - work(mac, state)) / n, rtol=1e-10)
        assert_allclose(errors.constraint, np.mean(constraint(mac, state) ** 2), rtol=1e-11)
        assert errors.multiplier == np.abs(state.own.multipliers).max()
        mac.move_multipliers(state)


def test_a_ridge_by_unit_is_that_of_the_regressions() -> None:
    """The ridges of the W-step's own regressions, each times its site's mu m_h, sum to the ridge as written out."""
    for choice in ({"metric": "variance"}, {"ridge_until_mu": 1.0}):
        mac = method(ridge=0.7, activation="tanh", **choice)
        state = anywhere(mac)
        total = 0.0
        for job in mac.plan.work.w_step.jobs:
            problem, k = w_problem(mac, job, state), job.segment
            assert job.units is not None
            share = np.ones(len(job.units)) if k == 2 else np.diag(forms(mac, state)[k])[job.units.rows]
            total += float(share @ problem.ridge_part(problem.start)[0])
        assert_allclose(total, ridge(mac, state), rtol=1e-12)


@pytest.mark.parametrize("word", SITES)
def test_some_units_are_all_none_or_a_part_of_the_same_net(word: str) -> None:
    """Of all units or of none the run is that of the word; else weights, flat, and a list of ridges are the net's."""
    plain, some, none = (method(sites=[site, "after"]).plan for site in (word, {word: 7}, "none"))
    assert some.resolved == plain.resolved
    assert method(sites=[{word: 0}, "after"]).plan.resolved == none.resolved
    two, one = (method(sites=[site, "after"], ridge=[0.1, 0.2, 0.3]) for site in ({word: 3}, word))
    state, other = (mac.start(2.0, False, 5) for mac in (two, one))
    assert_array_equal(state.weights, other.weights)
    assert two.plan.net == replace(one.plan.chain, sites=one.plan.chain.sites[1:])
    assert_allclose(two.evaluate(state).E_Q, one.evaluate(other).E_Q, rtol=1e-13)
    assert tuple(two.plan.resolved.shaping.ridges.values()) == (0.1, 0.1, 0.2, 0.3)


@pytest.mark.parametrize("seed", range(6))
def test_coordinates_on_both_sides_of_a_linear_activation_are_two_springs_in_a_row(seed: int) -> None:
    """Of 2 mu each: the Z-step gives the coordinates behind it that one of mu gives, and halfway those before it."""
    exact = {"iterations": 4, "direction": "direct", "relaxation": 1.0}
    one, two = (method((3, 2), "linear", seed=seed, sites=sites, z_step=exact) for sites in ("after", "both"))
    spring, row = started(one), started(two)
    spring.mu, row.mu = 0.7 * (seed + 1), 1.4 * (seed + 1)
    assert_array_equal(spring.weights, row.weights)
    one.z_step(spring)
    two.z_step(row)
    sites = of_sites(two, row.Z)
    assert_allclose(np.hstack(sites[1::2]), spring.Z, rtol=0.0, atol=1e-9)
    given = [f(z) for f, z in zip(layers(one, spring), [one.data.X, *of_sites(one, spring.Z)], strict=False)]
    for halfway, start, end in zip(sites[::2], given, sites[1::2], strict=False):
        assert_allclose(halfway, 0.5 * (start + end), rtol=0.0, atol=1e-9)
    two.w_step(row)
    assert np.isfinite(row.weights).all()
