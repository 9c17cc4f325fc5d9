"""Momentum: the safeguard holds whatever the net, the step is the model's minimum, the shown layer the best one."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from theory.nets import feasible, method

from macmpi.mac import Mac
from macmpi.methods.accelerated import Accelerated, spacing
from macmpi.parallel.team import Team
from macmpi.solvers.descent import PLANE_DAMPING
from macmpi.state import State, block_views
from macmpi.training import checkpoint
from macmpi.training.checkpoint import contents
from macmpi.typing import Array

NETS: dict[str, dict[str, Any]] = {
    "sigmoid": {},
    "pre-activation": {"sites": "before", "ridge": 1e-3},
    "relu": {"activation": "relu"},
    "tanh, some sites": {"activation": "tanh", "sites": ["after", "none"]},
    "mixed, deep": {"hidden": (7, 6, 2, 5), "activation": "tanh", "sites": ["none", "before", "after", "before"]},
    "classes": {"loss": "cross_entropy", "mu0": 0.1},
    "sigmoid outputs": {"output": "sigmoid"},
    "metric": {"metric": "variance"},
    "ridge of the objective": {"ridge_scale": "objective", "ridge": 3e-3},
    "first order": {"w_step": {"solver": "sgd", "batch": 8}},
    "single precision": {"precision": "float32", "mu_max": 1e4},
}
ITERATIONS = 6


def accelerated(momentum: bool = True, **keys: Any) -> tuple[Accelerated, State]:
    mac = method(**keys)
    own = Accelerated(mac.plan, mac.data, Team())
    own.momentum = momentum
    state = own.start(2.0, True, 1)
    own.begin(state)
    return own, state


def alternation(own: Accelerated) -> Mac:
    return Mac(own.plan, own.data, Team())


def error(mac: Mac, flat: Array) -> float:
    return mac.parts.nested(block_views(flat, mac.plan.chain.block_shapes)).error


def grown(state: State) -> None:
    """The next iteration, at another mu now and then."""
    state.mu *= 10.0 if state.iteration % 2 == 0 else 1.0


@pytest.mark.parametrize("keys", NETS.values(), ids=NETS)
def test_the_iterate_never_has_a_larger_error_than_the_alternations_own(keys: dict[str, Any]) -> None:
    own, state = accelerated(**keys)
    plain, moved = alternation(own), 0
    for _ in range(ITERATIONS):
        other = copy.deepcopy(state)
        plain.sweep(other)
        own.sweep(state)
        before, after = error(plain, other.weights), error(plain, state.weights)
        assert after < before or np.array_equal(state.weights, other.weights)
        moved += after < before
        np.testing.assert_allclose(state.Z, feasible(own, state), rtol=1e-4, atol=1e-6)
        errors = own.evaluate(state)
        assert after == pytest.approx(errors.E_Q, rel=1e-6)
        validation = own.parts.nested(own.parts.weights(state), validation=True).error
        assert errors.watched == pytest.approx(validation, rel=1e-6)
        grown(state)
    assert moved > 0


@pytest.mark.parametrize("momentum", [False, True])
@pytest.mark.parametrize("keys", NETS.values(), ids=NETS)
def test_the_shown_weights_are_the_iterate_with_the_best_output_layer(momentum: bool, keys: dict[str, Any]) -> None:
    own, state = accelerated(momentum, **keys)
    start, moved = own.plan.offsets.weights[own.plan.chain.segments[-1].parameter_blocks[0]], 0
    for _ in range(ITERATIONS):
        own.sweep(state)
        np.testing.assert_array_equal(state.own.shown[:start], state.weights[:start])
        assert error(own, state.own.shown) <= error(own, state.weights)
        shown = own.evaluate(state)
        assert shown.train == pytest.approx(error(own, state.own.shown), rel=1e-6)
        weights = own.parts.weights(replace(state, weights=state.result))
        nested = own.parts.nested(weights, validation=True)
        assert shown.validation == pytest.approx(nested.error, rel=1e-6)
        assert shown.wrong_validation == (nested.wrong if own.plan.resolved.loss.labels else None)
        moved += error(own, state.own.shown) < error(own, state.weights)
        grown(state)
    assert moved > 0


@pytest.mark.parametrize("keys", NETS.values(), ids=NETS)
def test_without_momentum_the_iterate_is_the_alternations_own(keys: dict[str, Any]) -> None:
    own, state = accelerated(momentum=False, **keys)
    plain = alternation(own)
    for _ in range(3):
        other = copy.deepcopy(state)
        plain.sweep(other)
        own.sweep(state)
        np.testing.assert_array_equal(state.weights, other.weights)
        np.testing.assert_allclose(state.Z, feasible(own, state), rtol=1e-4, atol=1e-6)
        grown(state)


@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
def test_the_step_ends_in_the_minimum_of_its_model(loss: str) -> None:
    own, state = accelerated(loss=loss)
    random = np.random.default_rng(4)
    ways = [random.normal(size=state.weights.shape) for _ in range(2)]
    apart = spacing(own.plan.n_train)
    X, Y, weights = own.data.X[::apart], own.data.Y[::apart], own.parts.weights(state)
    tape, h = own.plan.chain.whole.tape(weights, X), 1e-6

    def outputs(x: Array) -> Array:
        flat = state.weights + x[0] * ways[0] + x[1] * ways[1]
        return own.plan.chain.forward(block_views(flat, own.plan.chain.block_shapes), X)

    J = [(outputs(h * e) - outputs(-h * e)) / (2.0 * h) for e in np.eye(2)]
    scale = [float(np.vdot(a, own.plan.resolved.loss.root(Y, tape.F).normal(a))) for a in J]

    def model(x: Array) -> float:
        dF = x[0] * J[0] + x[1] * J[1]
        curved = own.plan.resolved.loss.root(Y, tape.F).normal(dF)
        damping = PLANE_DAMPING * float(np.dot(scale, np.square(x)))
        return float(
            -np.vdot(own.plan.resolved.loss.residual(Y, tape.F), dF) + 0.5 * np.vdot(dF, curved) + 0.5 * damping
        )

    lengths = own.lengths(ways, state)
    least, size = model(lengths), float(np.abs(lengths).max())
    assert least < 0.0
    for moved in random.normal(size=(20, 2)):
        assert model(lengths + 0.1 * size * moved) > least


@pytest.mark.parametrize("lengths", [1e6, -1e6, np.nan])
def test_a_step_that_raises_the_error_is_not_taken(lengths: float, monkeypatch: pytest.MonkeyPatch) -> None:
    own, state = accelerated()
    other = copy.deepcopy(state)
    alternation(own).sweep(other)
    monkeypatch.setattr(own, "lengths", lambda ways, state: np.full(len(ways), lengths))
    before = state.weights.copy()
    own.sweep(state)
    np.testing.assert_array_equal(state.weights, other.weights)
    np.testing.assert_array_equal(state.own.move, other.weights - before)
    np.testing.assert_allclose(state.Z, feasible(own, state), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("momentum", [False, True])
@pytest.mark.parametrize("keys", NETS.values(), ids=NETS)
def test_a_checkpoint_holds_all_that_the_next_iteration_needs(
    momentum: bool, keys: dict[str, Any], tmp_path: Path
) -> None:
    own, state = accelerated(momentum, **keys)
    for _ in range(2):
        own.sweep(state)
    read, _ = checkpoint.read(checkpoint.save(tmp_path, state, {}, 1))
    other = Accelerated(own.plan, own.data, Team())
    other.momentum = momentum
    other.begin(read)
    for _ in range(2):
        own.sweep(state)
        other.sweep(read)
    ours, theirs = contents(state), contents(read)
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    assert own.evaluate(state) == other.evaluate(read)


@pytest.mark.parametrize("momentum", [False, True])
@pytest.mark.parametrize("keys", NETS.values(), ids=NETS)
def test_postprocessing_gives_what_was_shown_or_better(momentum: bool, keys: dict[str, Any]) -> None:
    own, state = accelerated(momentum, **keys)
    for _ in range(3):
        own.sweep(state)
    last, after = [len(own.plan.chain.sites)], own.finish(state)

    def value(flat: Array) -> float:
        return (
            error(own, flat)
            + own.parts.shaping_of(replace(state, weights=flat), last, ridge_alone=True) / own.plan.n_train
        )

    assert value(after.result) <= value(state.own.shown) * (1.0 + 1e-5)
    np.testing.assert_array_equal(after.result, after.weights)


def test_the_schedule_watches_the_iterate_and_the_best_are_the_shown() -> None:
    own, state = accelerated()
    own.sweep(state)
    errors = own.evaluate(state)
    state.note_validation(errors.validation, errors.watched)
    assert errors.watched not in (None, errors.validation)
    assert (state.history.e1_val, state.history.best_e1_val) == (errors.watched, errors.validation)
    np.testing.assert_array_equal(state.history.best_weights, state.own.shown)
