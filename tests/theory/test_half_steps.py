"""The order of the half steps, the start, and the state between any two of them."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from theory.nets import AUGMENTED, SITES, feasible, method, started
from theory.problems import w_problem

from macmpi.mac import Mac
from macmpi.state import W_STEP, Z_STEP, MacState, State, block_views
from macmpi.training import checkpoint
from macmpi.training.checkpoint import contents

RUNS: dict[str, dict[str, Any]] = {
    "after": {},
    "before": {"sites": "before"},
    "none": {"sites": "none", "loss": "cross_entropy"},
    "augmented": AUGMENTED,
    "augmented, mixed": {"sites": ["none", "after"], **AUGMENTED},
    "variance": {"metric": "variance"},
    "curvature": {"metric": "curvature", "sites": "before", **AUGMENTED},
    "several steps of CG": {"w_step": {"cg_iterations": 3}},
    "stochastic": {"w_step": {"solver": "sgd", "batch": 8}, "z_step": {"solver": "alternating"}},
    "bits": {"activation": ["binary", "tanh"], "sites": ["after", "none"], **AUGMENTED},
    "codewords": {"activation": ["quantise", "tanh"], "metric": "variance"},
    "single": {"precision": "float32", "mu_max": 1e4, **AUGMENTED},
}


def go_on(mac: Mac, state: State, raise_mu: bool = False) -> None:
    """The rest of an iteration, and what a run decides after it."""
    mac.sweep(state)
    errors = mac.evaluate(state)
    state.note_validation(errors.validation)
    if state.own.multipliers.size:
        mac.move_multipliers(state)
        state.history.reference = state.mu**2 * errors.constraint
    if raise_mu:
        state.mu *= 3.0


def assert_same_bits(one: State, two: State) -> None:
    ours, theirs = contents(one), contents(two)
    for name in ours.keys() - {"seconds"}:
        assert_array_equal(ours[name], theirs[name], strict=True)


def test_a_sweep_is_a_z_step_and_then_a_w_step() -> None:
    mac = method()
    together = started(mac)
    apart = deepcopy(together)
    mac.sweep(together)
    Z, weights = apart.Z.copy(), apart.weights.copy()
    mac.z_step(apart)
    assert_array_equal(apart.weights, weights)
    assert apart.position == W_STEP
    moved = apart.Z.copy()
    assert (moved != Z).any()
    mac.w_step(apart)
    assert_array_equal(apart.Z, moved)
    assert apart.position == Z_STEP
    assert_array_equal(together.weights, apart.weights)
    assert_array_equal(together.Z, apart.Z)
    assert (together.iteration, apart.iteration) == (1, 0)


@pytest.mark.parametrize("sites", SITES)
def test_a_w_step_on_feasible_coordinates_refits_the_output_layer_alone(sites: str) -> None:
    """Why the method starts with the Z-step: the hidden units already fit their targets."""
    mac = method(ridge=0.0, sites=sites)
    state = started(mac)
    before = block_views(state.weights.copy(), mac.plan.chain.block_shapes)
    mac.w_step(state)
    after = mac.parts.weights(state)
    for W, old in zip(after[:-1], before[:-1], strict=True):
        assert_allclose(W, old, rtol=0.0, atol=1e-12)
    assert np.abs(after[-1] - before[-1]).max() > 1e-3


def test_the_first_half_step_is_the_z_step() -> None:
    mac = method()
    state = started(mac)
    assert (state.position, state.iteration) == (Z_STEP, 0)
    calls: list[str] = []

    class Watched(Mac):
        def z_step(self, state: State) -> None:
            calls.append("z")
            super().z_step(state)

        def w_step(self, state: State) -> None:
            calls.append("w")
            super().w_step(state)

    watched = Watched(mac.plan, mac.data, mac.team)
    watched.begin(state)
    watched.sweep(state)
    watched.sweep(state)
    assert calls == ["z", "w", "z", "w"]
    half = deepcopy(state)
    half.position = W_STEP
    watched.sweep(half)
    assert calls[4:] == ["w"]


def test_the_start_is_feasible_in_range_and_keyed_by_its_seed() -> None:
    mac = method((7, 5), d=9)
    state = mac.start(3.0, False, 5)
    assert_allclose(state.Z, feasible(mac, state), rtol=1e-13, atol=1e-15)
    assert state.mu == mac.plan.resolved.schedule.mu0
    for W in mac.parts.weights(state):
        bound = 3.0 / np.sqrt(W.shape[1] - 1)
        assert np.abs(W).max() <= bound
        assert np.abs(W).max() > 0.8 * bound
        assert W.min() < 0.0 < W.max()
    assert_array_equal(mac.start(3.0, False, 5).weights, state.weights)
    assert (mac.start(3.0, False, 6).weights != state.weights).all()
    assert_allclose(mac.start(6.0, False, 5).weights, 2.0 * state.weights, rtol=1e-15)


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("half", [Z_STEP, W_STEP])
def test_a_state_written_and_read_between_half_steps_goes_on_with_the_same_bits(
    half: int, run: str, tmp_path: Path
) -> None:
    """Whether mu has just grown or not: metric and multipliers are those of the state."""
    mac = method(**RUNS[run])
    state = started(mac)
    go_on(mac, state, raise_mu=True)
    if half == W_STEP:
        mac.z_step(state)
    saved, _ = checkpoint.read(checkpoint.save(tmp_path, state, {}, 1))
    assert_same_bits(saved, state)
    other = method(**RUNS[run])
    other.begin(saved)
    assert saved.position == half
    for raise_mu in (False, True, False):
        go_on(mac, state, raise_mu)
        go_on(other, saved, raise_mu)
    assert_same_bits(saved, state)


def test_best_weights_are_those_of_the_lowest_validation_error() -> None:
    state = State(np.zeros(2), np.zeros((1, 1)), 1.0, MacState())
    for iteration, error in enumerate([3.0, 1.0, 2.0, 1.0]):
        state.iteration = iteration
        state.weights[:] = iteration
        state.note_validation(error)
    assert (state.history.best_iteration, state.history.best_e1_val, state.history.e1_val) == (1, 1.0, 1.0)
    assert_array_equal(state.history.best_weights, [1.0, 1.0])


SYMMETRIC = ["after", "before", "augmented", "variance", "curvature"]


@pytest.mark.parametrize("run", SYMMETRIC)
def test_swapping_two_hidden_units_swaps_them_in_the_answer(run: str) -> None:
    """A symmetry of the net: the two nets are the same function, and MAC treats them alike, up to rounding."""
    mac = method((5, 4), **RUNS[run])
    one = mac.start(2.0, True, 0)
    two = deepcopy(one)
    order = [3, 1, 2, 0, 4]
    W1, W2, _ = mac.parts.weights(two)
    W1[:] = W1[order]
    W2[:, :-1] = W2[:, :-1][:, order]
    two.Z[:, :5] = two.Z[:, :5][:, order]
    for state in (one, two):
        mac.begin(state)
        go_on(mac, state)
        go_on(mac, state)
    (A1, A2, A3), (B1, B2, B3) = mac.parts.weights(one), mac.parts.weights(two)
    assert_allclose(B1, A1[order], rtol=0.0, atol=1e-8)
    assert_allclose(B2[:, :-1], A2[:, :-1][:, order], rtol=0.0, atol=1e-8)
    assert_allclose(B3, A3, rtol=0.0, atol=1e-8)


@pytest.mark.parametrize("run", SYMMETRIC)
def test_the_order_of_the_points_does_not_matter(run: str) -> None:
    """Up to rounding, with few enough points that all are in the preconditioner's sample."""
    mac, other = method(**RUNS[run]), method(**RUNS[run])
    state = started(mac)
    order = np.random.default_rng(4).permutation(mac.plan.n_train)
    other.data.X[:], other.data.Y[:] = mac.data.X[order], mac.data.Y[order]
    shuffled = deepcopy(state)
    shuffled.Z[:] = state.Z[order]
    other.begin(shuffled)
    for _ in range(2):
        go_on(mac, state)
        go_on(other, shuffled)
    assert_allclose(shuffled.weights, state.weights, rtol=0.0, atol=1e-8)
    assert_allclose(shuffled.Z, state.Z[order], rtol=0.0, atol=1e-8)


@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
def test_a_layer_without_coordinates_joins_the_next_one(loss: str) -> None:
    """Its weights join the next layer's, and the start is the same net with fewer coordinates."""
    together, apart = (method((5, 4, 3), "tanh", sites=["after", s, "after"], loss=loss) for s in ("none", "after"))
    assert [len(s.parameter_blocks) for s in together.plan.chain.segments] == [1, 2, 1]
    one, two = started(together), started(apart)
    assert_array_equal(one.weights, two.weights)
    assert_array_equal(one.Z, np.delete(two.Z, np.s_[5:9], axis=1))


@pytest.mark.parametrize("sites", SITES)
def test_regressions_see_the_coordinates_of_their_moment(sites: str) -> None:
    """A W-problem asked for after a Z-step holds the new coordinates, not what an earlier W-problem made of the old."""
    mac = method(sites=sites)
    state = started(mac)
    jobs = mac.plan.work.w_step.jobs

    def fresh() -> Mac:
        other = method(sites=sites)
        other.begin(state)
        return other

    for _ in range(2):
        for job in jobs:
            ours, theirs = (w_problem(m, job, state) for m in (mac, fresh()))
            assert_array_equal(ours.inputs, theirs.inputs)
            assert_array_equal(ours.targets, theirs.targets)
        mac.z_step(state)
