"""What a state's subproblems are made of: the metrics of the constraints and the targets of the W-step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from plans import plan_of
from theory.problems import given

from macmpi.config import Config, Method, Model, Penalty, Start
from macmpi.data.dataset import Dataset
from macmpi.data.scaling import Scaling
from macmpi.half_steps import w_step
from macmpi.half_steps.problems import layer_gram, metrics, targets
from macmpi.half_steps.w_step import solve
from macmpi.mac import Mac
from macmpi.methods.starts import Origin, start
from macmpi.nets.design import split_columns
from macmpi.parallel.team import Team
from macmpi.plan.plan import Plan
from macmpi.plan.work_lists import Job
from macmpi.reductions import ALONE
from macmpi.state import State
from macmpi.typing import Array


def dataset(precision: str = "float64") -> Dataset:
    random = np.random.default_rng(3)
    X, X_val = (random.standard_normal((n, 6)).astype(precision) for n in (60, 9))
    scaling = Scaling(np.zeros(6), np.ones(6))
    return Dataset(X, np.sin(X[:, :3]), X_val, np.sin(X_val[:, :3]), scaling, scaling, "")


def begun(penalty: dict[str, Any], range_: float = 2.0, method: str = "uniform", **model: Any) -> tuple[Mac, State]:
    config = Config(
        model=Model(**{"hidden": [5, 4, 3], "activation": "sigmoid"} | model),
        start=Start(method, range=range_, gradient_step=False),  # type: ignore[arg-type]
        penalty=Penalty(mu0=7.0, **penalty),
        method=Method("mac"),
    )
    mac = Mac(plan_of(config, 6, 3, 60, 9, 1), dataset(config.model.precision), Team())
    state = start(mac, Origin())
    mac.begin(state)
    return mac, state


@pytest.mark.parametrize("metric", ["variance", "curvature"])
def test_a_metric_stays_until_mu_changes(metric: str) -> None:
    mac, state = begun({"metric": metric}, sites="before")
    mac.sweep(state)
    first = state.own.metric.copy()
    mac.sweep(state)
    assert_array_equal(state.own.metric, first)
    state.mu *= 10.0
    mac.sweep(state)
    assert (state.own.metric != first).any()
    assert state.own.metric_mu == state.mu


def test_the_targets_are_the_coordinates_less_the_multipliers_share(random: np.random.Generator) -> None:
    penalty = {"method": "augmented_lagrangian", "metric": "variance"}
    mac, state = begun(penalty)
    mac.sweep(state)
    state.own.multipliers[:] = random.normal(size=state.Z.shape)
    parts = [split_columns(mac.plan.chain.site_sizes, A) for A in (state.Z, state.own.multipliers)]
    made = given(mac, state)
    for k, (z, multipliers, form) in enumerate(zip(*parts, metrics(mac.plan, state), strict=True)):
        assert_allclose(targets(made, k), z - multipliers / form.M, rtol=1e-12)
    assert np.shares_memory(targets(made, 3), mac.data.Y)


def test_multipliers_move_by_the_weighted_constraint_and_stay_within_their_bound() -> None:
    mac, state = begun({"method": "augmented_lagrangian", "metric": "variance"})
    mac.sweep(state)
    state.mu = 1e5
    segments, weights = mac.plan.chain.segments, mac.parts.weights(state)
    inputs = [mac.data.X, *split_columns(mac.plan.chain.site_sizes, state.Z)]
    expected = [
        -form.M * (z - segment.forward(weights, A))
        for form, z, segment, A in zip(metrics(mac.plan, state), inputs[1:], segments, inputs, strict=False)
    ]
    mac.move_multipliers(state)
    assert np.abs(np.hstack(expected)).max() > 100.0
    assert_allclose(state.own.multipliers, np.clip(np.hstack(expected), -100.0, 100.0), rtol=1e-12, atol=1e-9)
    assert np.abs(state.own.multipliers).max() == 100.0
    assert np.abs(state.own.multipliers).min() < 0.05


# --- what is made once ------------------------------------------------------------------------------------------------

BASIS = {"hidden": [9, 2, 7], "activation": ["rbf", "linear", "rbf"], "sites": ["none", "after", "none"]}
NETS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "before": ({"ridge_scale": "objective", "ridge": 0.3}, {"sites": "before"}),
    "after": ({"ridge": 0.3, "ridge_until_mu": 20.0}, {}),
    "basis": ({"ridge_scale": "objective", "ridge": 0.3}, {**BASIS, "method": "pca"}),
    "codewords": ({}, {"hidden": [4, 3], "activation": ["quantise", "tanh"], "words": 7}),
    "single": ({"mu_max": 1e4, "ridge_scale": "objective"}, {"sites": "before", "precision": "float32"}),
    "multipliers": ({"method": "augmented_lagrangian"}, {"sites": "before"}),
}


def moved(net: str) -> tuple[Mac, State]:
    """Three iterations, mu three times as large after each."""
    penalty, model = NETS[net]
    mac, state = begun(penalty, **model)
    for _ in range(3):
        mac.sweep(state)
        state.mu *= 3.0
        if state.own.multipliers.size:
            mac.move_multipliers(state)
    return mac, state


@pytest.mark.parametrize("net", NETS)
def test_a_factor_made_once_a_rank_is_that_of_the_moment(net: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether mu has grown, and with it a ridge, or the coordinates have moved: the same bits as made for each job."""
    _, once = moved(net)
    plain = w_step.w_problem

    def made_again(given: Any, job: Job, factor: Any) -> Any:
        system = given.parts.plan.resolved.regressions[job.segment].system
        return plain(given, job, system.factor(layer_gram(given, job.segment), ALONE) if system else None)

    monkeypatch.setattr(w_step, "w_problem", made_again)
    _, each = moved(net)
    assert_array_equal(once.weights, each.weights)
    assert_array_equal(once.Z, each.Z)


def test_jobs_of_a_layer_share_one_factor_and_the_first_layer_keeps_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    mac, state = begun({"ridge_scale": "objective"}, hidden=[120, 4], sites="before")
    plain, seen = w_step.w_problem, dict[int, list[Any]]()

    def noted(given: Any, job: Job, factor: Any) -> Any:
        seen.setdefault(job.segment, []).append(factor)
        return plain(given, job, factor)

    monkeypatch.setattr(w_step, "w_problem", noted)
    for mu in (7.0, 7.0, 70.0):
        state.mu = mu
        mac.w_step(state)
    first, second = seen[0], seen[1]
    assert len(first) == 6
    assert all(factor is first[0] for factor in first[:4])
    assert first[4] is first[5] is not first[0]
    assert second[1] is not second[0]


def test_a_trainer_reads_what_lies_before_its_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Array] = []

    def noted(self: Any, block: int, inputs: Array, present: Array) -> Array:
        seen.append(inputs)
        return present

    mac, state = begun({}, **BASIS, method="pca")
    words, coded = begun({}, hidden=[4, 3], activation=["quantise", "tanh"], words=7)
    monkeypatch.setattr(Plan, "centres", noted)
    solve(mac.parts, mac.plan.work.leading_layers, state)
    assert_array_equal(seen.pop(), state.Z)
    solve(words.parts, words.plan.work.trailing_layers, coded)
    W = words.parts.weights(coded)[0]
    assert_allclose(seen.pop(), words.data.X @ W[:, :-1].T + W[:, -1], rtol=1e-12)


def test_the_targets_under_codewords_keep_what_lies_inside_a_cell() -> None:
    """t + a - q(a): once q(a) = t the regression has nothing to correct."""
    mac, state = begun({}, hidden=[4, 3], activation=["quantise", "tanh"], words=7)
    W, C = mac.parts.weights(state)[:2]
    a = mac.data.X @ W[:, :-1].T + W[:, -1]
    q = C[np.square(a[:, None] - C).sum(axis=2).argmin(axis=1)]
    z = split_columns(mac.plan.chain.site_sizes, state.Z)[0]
    made = given(mac, state)
    assert_allclose(made.inputs[0].targets, z + a - q, rtol=1e-12, atol=1e-12)
    assert_allclose(z, q, rtol=1e-12)
    assert_array_equal(made.inputs[2].targets, mac.data.Y)
