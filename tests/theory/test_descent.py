"""What never rises: E_Q + ridge over each half step at fixed mu, E1 + ridge over the ends of a run."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from covering import covering
from numpy.testing import assert_allclose, assert_array_equal
from theory.nets import ACTIVATIONS, SITES, anywhere, e1, e_q, feasible, method, ridge, started
from theory.problems import w_problem

from macmpi.mac import Mac
from macmpi.methods.accelerated import Accelerated
from macmpi.reductions import OverPoints
from macmpi.solvers.closed_form import ClosedForm
from macmpi.solvers.w_problem import UnitProblem
from macmpi.state import State, block_views
from macmpi.typing import Array

ROUNDING = 1.0 + 1e-11


@pytest.mark.parametrize(
    ("activation", "sites", "mu", "scale"),
    covering(ACTIVATIONS, SITES, [0.01, 1.0, 10.0, 1e3, 1e6], ["unit", "objective"]),
)
def test_no_half_step_raises_e_q_and_the_ridge_as_configured(
    activation: str, sites: str, mu: float, scale: str
) -> None:
    """From feasible coordinates and from others, with over-relaxation, light and heavy ridges."""
    for seed, value in enumerate((0.0, 0.01, 3.0)):
        penalty = {"ridge": value, "ridge_scale": scale}
        z_step = {"relaxation": 1.5, "minibatches": seed + 1}
        mac = method((7, 5), activation, seed=seed, sites=sites, z_step=z_step, **penalty)
        state = (started if (seed + len(scale)) % 2 else anywhere)(mac, seed)
        state.mu = mu
        values = [e_q(mac, state) + ridge(mac, state)]
        for half_step in (mac.z_step, mac.w_step) * 3:
            half_step(state)
            values.append(e_q(mac, state) + ridge(mac, state))
        assert all(after <= before * ROUNDING for before, after in itertools.pairwise(values))
        assert values[-1] < values[0]


@pytest.mark.parametrize("sites", SITES)
def test_minibatches_have_their_z_steps_in_turn_and_keep_the_coordinates_of_the_others(sites: str) -> None:
    """Together, with no W-step between them, they are the Z-step of all points."""
    mac, whole = (method(n=250, sites=sites, z_step={"minibatches": count}) for count in (3, 1))
    state, other = started(mac), started(whole)
    for batch in range(3):
        before = state.Z.copy()
        mac.z_step(state)
        moved = np.flatnonzero((before != state.Z).any(axis=1))
        assert np.array_equal(moved, np.arange(batch, 250, 3))
        state.position = 2 * (batch + 1)
    whole.z_step(other)
    assert_allclose(state.Z, other.Z, rtol=0.0, atol=1e-10)


@pytest.mark.parametrize("minibatches", [1, 3, 200])
@pytest.mark.parametrize("keys", [{"ridge": 0.0}, {"ridge": 0.5}, {"ridge": 0.01, "ridge_scale": "objective"}])
def test_running_sums_over_minibatches_are_the_sums_over_all_points(minibatches: int, keys: dict[str, Any]) -> None:
    """To rounding, whatever a minibatch has; with a ridge the same bits where it has all points."""
    z_step: dict[str, Any] = {"minibatches": minibatches}
    running, whole = (
        method((7, 5), n=250, sites="before", z_step=z_step, w_step={"sums": sums}, **keys)
        for sums in ("running", "whole")
    )
    state, other = started(running), started(whole)
    for _ in range(2 * min(minibatches, 4) + 1):
        for mac, own in ((running, state), (whole, other)):
            mac.z_step(own)
            mac.w_step(own)
        assert_allclose(state.weights, other.weights, rtol=1e-9, atol=1e-9)
        if minibatches == 1 and keys["ridge"]:
            assert_array_equal(state.weights, other.weights)


RESTRAINTS: dict[str, dict[str, Any]] = {
    "l1": {"l1": 0.3},
    "groups": {"group_lasso": 0.5},
    "bounds": {"weights_min": -0.3, "weights_max": 0.4},
    "non-negative": {"weights_min": 0.0, "l1": 0.1},
    "by layer": {"l1": [0.0, 0.3, 0.0], "group_lasso": [0.5, 0.0, 0.0], "weights_max": [1e12, 0.5, 0.2]},
}


def shrunk(mac: Mac, state: State, keys: dict[str, Any], scale: str) -> float:
    """l1 and groups as configured, in E_Q's scale: with "unit" a hidden layer's count mu times."""
    total, blocks = 0.0, block_views(state.weights, mac.plan.chain.block_shapes)
    for b, W in enumerate(blocks):
        l1, group = (np.broadcast_to(keys.get(key, 0.0), 3)[b] for key in ("l1", "group_lasso"))
        share = state.mu if scale == "unit" and b < 2 and mac.plan.chain.sites else 1.0
        V = W[:, :-1]
        total += share * (l1 * float(np.abs(V).sum()) + group * float(np.linalg.norm(V, axis=0).sum()))
    return total


@pytest.mark.parametrize(
    ("kind", "activation", "sites", "mu", "scale"),
    covering(RESTRAINTS, ACTIVATIONS, [*SITES, "none"], [0.1, 10.0, 1e3], ["unit", "objective"]),
)
def test_no_half_step_raises_e_q_and_what_shapes_the_weights(
    kind: str, activation: str, sites: str, mu: float, scale: str
) -> None:
    """From weights within their bounds, which they do not leave."""
    for seed, value in enumerate((0.0, 0.1)):
        keys = RESTRAINTS[kind]
        mac = method((7, 5), activation, seed=seed, sites=sites, ridge=value, ridge_scale=scale, mu0=mu, **keys)
        state = (started if seed else anywhere)(mac, seed)
        state.mu, state.weights[:] = mu, mac.parts.confined(state.weights)
        values = [e_q(mac, state) + ridge(mac, state) + shrunk(mac, state, keys, scale)]
        for half_step in (mac.z_step, mac.w_step) * 3:
            half_step(state)
            values.append(e_q(mac, state) + ridge(mac, state) + shrunk(mac, state, keys, scale))
            blocks = block_views(state.weights, mac.plan.chain.block_shapes)
            for b, W in enumerate(blocks):
                for key, side in (("weights_min", 1.0), ("weights_max", -1.0)):
                    bound = np.broadcast_to(keys.get(key, -side * 1e12), 3)[b]
                    assert (side * (W[:, :-1] - bound) >= 0.0).all()
        assert all(after <= before * ROUNDING for before, after in itertools.pairwise(values))
        assert values[-1] < values[0]
        configured = mac.parts.shaping_of(state, range(len(mac.plan.chain.segments)))
        assert_allclose(configured, ridge(mac, state) + shrunk(mac, state, keys, scale), rtol=1e-12)


@pytest.mark.parametrize("l1", list(itertools.product([0.0, 0.1], repeat=2)))
@pytest.mark.parametrize("group", list(itertools.product([0.0, 0.1], repeat=2)))
def test_zeros_are_shares_of_what_is_under_l1_or_group_lasso(
    l1: tuple[float, float], group: tuple[float, float]
) -> None:
    """Not of biases, nor of layers that are bounded alone, whose bound may be 0."""
    mac = method(l1=[0.0, *l1], group_lasso=[0.0, *group], weights_min=[0.0, -1e12, 0.0])
    state = started(mac)
    state.weights[::3] = 0.0
    sizes = zip((0.0, *l1), (0.0, *group), strict=True)
    asked = [W[:, :-1] for W, own in zip(mac.parts.weights(state), sizes, strict=True) if any(own)]
    share = np.mean(np.concatenate([np.ravel(V) for V in asked]) == 0.0) if asked else None
    assert mac.evaluate(state).zeros == share


def test_zeros_stay_where_the_ridge_ends() -> None:
    """Beyond ridge_until_mu nothing shrinks weights: E_Q alone falls, on the weights that are left."""
    mac = method(l1=1.0, ridge_until_mu=100.0, mu0=1.0, ridge_scale="objective")
    state = started(mac)
    for _ in range(3):
        mac.z_step(state)
        mac.w_step(state)
    zero = state.weights == 0.0
    share = mac.evaluate(state).zeros
    assert share is not None
    assert share == zero.sum() / sum(W[:, :-1].size for W in mac.parts.weights(state)) > 0.1
    state.mu = 101.0
    for _ in range(3):
        before = e_q(mac, state)
        mac.z_step(state)
        mac.w_step(state)
        assert e_q(mac, state) < before
    assert_array_equal(state.weights == 0.0, zero)


def test_the_first_gradient_step_keeps_zeros() -> None:
    """A run that goes on from sparse weights loses none of their zeros before its first half step."""
    mac = method(l1=1.0, ridge_until_mu=100.0, mu0=1e3, ridge_scale="objective")
    sparse = mac.start(2.0, False, 0).weights
    marks = np.concatenate([np.ravel(m.own.penalised) for m in mac.plan.chain.blocks])
    sparse[np.flatnonzero(marks)[::3]] = 0.0
    found = mac.start_at(sparse.copy(), True).weights
    assert (found != sparse).any()
    assert_array_equal(found[(sparse == 0.0)], 0.0)


def test_momentum_keeps_zeros_and_bounds() -> None:
    mac = method(l1=0.5, mu0=10.0, weights_max=0.4, ridge_scale="objective")
    accelerated = Accelerated(mac.plan, mac.data, mac.team)
    accelerated.momentum = True
    state = accelerated.start(2.0, True, 0)
    accelerated.begin(state)
    moved = 0
    for _ in range(6):
        accelerated.sweep(state)
        weights = mac.parts.weights(state)
        assert all((W[:, :-1] <= 0.4).all() for W in weights)
        moved += sum(int((W == 0.0).sum()) for W in weights)
    assert moved > 0
    assert_array_equal(mac.parts.confined(state.own.shown), state.own.shown)


def test_the_ridge_is_dropped_beyond_its_mu() -> None:
    mac = method(ridge=3.0, ridge_until_mu=100.0)
    for mu, counts in ((100.0, True), (101.0, False)):
        state = anywhere(mac, mu=mu)
        assert (ridge(mac, state) > 0.0) is counts
        before = e_q(mac, state) + ridge(mac, state)
        mac.w_step(state)
        assert e_q(mac, state) + ridge(mac, state) < before
        shares = [w_problem(mac, job, state).ridge for job in mac.plan.work.w_step.jobs]
        assert all((share > 0.0) is counts for share in shares)


def test_a_refit_that_is_worse_is_not_kept() -> None:
    """Whatever the solver gives back: the old last layer stays."""

    class Careless(ClosedForm):
        def solve(self, problem: UnitProblem, over_points: OverPoints) -> Array:
            return problem.start + 10.0

    mac = method()
    state = started(mac)
    regressions = mac.plan.resolved.regressions
    last = max(regressions)
    careless = replace(regressions[last], plain=Careless())
    choices = replace(mac.plan.resolved, regressions={**regressions, last: careless})
    worse = Mac(replace(mac.plan, resolved=choices), mac.data, mac.team)
    assert_array_equal(worse.finish(state).weights, state.weights)


def test_postprocessing_is_feasible_and_touches_the_last_layer_alone() -> None:
    mac = method()
    state = started(mac)
    mac.sweep(state)
    weights, Z = state.weights.copy(), state.Z.copy()
    after = mac.finish(state)
    assert (after.iteration, after.mu) == (state.iteration, state.mu) == (1, 10.0)
    assert_array_equal(state.weights, weights)
    assert_array_equal(state.Z, Z)
    assert_allclose(after.Z, feasible(mac, after), rtol=1e-13, atol=1e-15)
    shapes = mac.plan.chain.block_shapes
    for W, before in zip(block_views(after.weights, shapes)[:-1], block_views(weights, shapes)[:-1], strict=True):
        assert_array_equal(W, before)
    errors = mac.evaluate(after, feasible=True)
    assert errors.train == errors.E_Q
    assert errors.constraint == 0.0
    assert_allclose(errors.train, e1(mac, after) / mac.plan.n_train, rtol=1e-12)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("wide", [0.5, 2.0, 8.0])
def test_the_gradient_step_of_the_start_lowers_e1(wide: float, activation: str) -> None:
    for seed in range(3):
        mac = method((7, 5), activation, seed=seed)
        without, stepped = mac.start(wide, False, seed), mac.start(wide, True, seed)
        assert e1(mac, stepped) < e1(mac, without)
