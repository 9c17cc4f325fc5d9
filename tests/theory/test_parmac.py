"""The W-step round the ring: E_Q never rises, one block is plain descent, many rounds come near the exact answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from plans import plan_of
from theory.problems import given, w_problem
from theory.test_sharded import data_of

from macmpi.config import Config, Convolution, Method, Model, Parallel, Penalty, Recurrent, Sparse, WStep
from macmpi.mac import Mac
from macmpi.methods.choose import choose
from macmpi.methods.starts import Origin, start
from macmpi.parallel.team import Team
from macmpi.state import State

RING, SHARDED = WStep(schedule="ring"), Parallel("sharded")
VIEWS = {
    "convolutions": Model([Convolution(2, kernel=2), 4], "tanh", image=[2, 3]),  # type: ignore[list-item]
    "recurrent": Model([Recurrent(4, 3), 3], "tanh", sites="before"),  # type: ignore[list-item]
    "tied": Model([4, 2, 4], "sigmoid", tied=True),
    "sparse": Model([Sparse(6, "random", share=0.5), 4, Sparse(5, "banded", width=2)], "tanh"),  # type: ignore[list-item]
    "skips": Model([6, 6, 6], "tanh", skips=[[1, 3]]),
    "appended": Model([6, 5, 4], "sigmoid", skips=[[0, 2], [1, 3]], joining="append"),
}
CONFIGS = {
    "after": Config(model=Model([5, 3, 5], "tanh"), w_step=RING, method=Method("mac")),
    "all travel": Config(
        model=Model([5, 3, 5], "relu"), w_step=replace(RING, linear_solver="same"), method=Method("mac")
    ),
    "before": Config(
        model=Model([5, 3, 5], sites="before", activation="sigmoid"),
        w_step=replace(RING, linear_solver="same", rate=1.0),
        method=Method("mac"),
    ),
    "too fast": Config(
        model=Model([5, 3, 5], activation="sigmoid"), w_step=replace(RING, rate=1e3, batch=1), method=Method("mac")
    ),
    "multipliers": Config(
        model=Model([5, 3, 5], activation="sigmoid"),
        w_step=RING,
        penalty=Penalty("augmented_lagrangian"),
        method=Method("mac"),
    ),
    "variance": Config(
        model=Model([5, 3, 5], "tanh"), w_step=RING, penalty=Penalty(metric="variance"), method=Method("mac")
    ),
    "of the objective": Config(
        model=Model([5, 3], activation="sigmoid"),
        w_step=RING,
        penalty=Penalty(ridge=3.0, ridge_scale="objective"),
        method=Method("mac"),
    ),
    "classes": Config(
        model=Model([5, 3], ["relu", "softmax"], loss="cross_entropy"), w_step=RING, method=Method("mac")
    ),
    "none": Config(
        model=Model([5, 3, 5], sites="none", activation="sigmoid"),
        w_step=replace(RING, rate=1e-3),
        method=Method("mac"),
    ),
    "segments": Config(
        model=Model([5, 3, 5], sites=["none", "before", "after"], activation="sigmoid"),
        w_step=RING,
        method=Method("mac"),
    ),
    "tied segments": Config(
        model=Model([4, 2, 4], "sigmoid", sites="before", tied=True),
        w_step=replace(RING, linear_solver="same", rate=1e-3),
        method=Method("mac"),
    ),
    **{
        name: Config(model=model, w_step=replace(RING, linear_solver="same"), method=Method("mac"))
        for name, model in VIEWS.items()
    },
}


def begun(config: Config, n: int = 151) -> tuple[Mac, State]:
    """A state with coordinates that are not feasible, before a W-step."""
    config = replace(config, parallel=SHARDED)
    data = data_of(config, n)
    mac: Any = choose(plan_of(config, *data.sizes.counts, 1), data, Team())
    state = start(mac, Origin())
    mac.begin(state)
    mac.z_step(state)
    return mac, state


def objective(mac: Mac, state: State) -> float:
    """What a W-step minimises: E_Q, with multipliers the Lagrangian, and the ridge as configured; sums."""
    errors = mac.evaluate(state)
    value = errors.E_Q if errors.lagrangian is None else errors.lagrangian
    return value * mac.plan.n_train + mac.parts.shaping_of(state, range(len(mac.plan.chain.segments)), ridge_alone=True)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_objective_never_rises(name: str) -> None:
    mac, state = begun(CONFIGS[name])
    for i in range(4):
        before, weights = objective(mac, state), state.weights.copy()
        mac.w_step(state)
        after = objective(mac, state)
        assert after <= before * (1.0 + 1e-12)
        assert after < before or i or name == "too fast"
        assert i or not np.array_equal(weights, state.weights)
        if mac.plan.resolved.schedule.multipliers:
            mac.move_multipliers(state)
        mac.z_step(state)
        state.iteration += 1


@pytest.mark.parametrize(("activation", "rounds"), [("sigmoid", 1), ("tanh", 3)])
def test_one_block_and_one_minibatch_are_plain_descent(activation: Any, rounds: int) -> None:
    """Then the order of points matters to rounding alone, and the ring's steps are those of the solver sgd."""
    keys = WStep("sgd", schedule="ring", iterations=rounds, batch=16, rate=0.01)
    mac, state = begun(
        Config(model=Model([3, 2], activation), w_step=keys, penalty=Penalty(ridge=0.5), method=Method("mac")), n=16
    )
    assert len(mac.plan.work.train.blocks) == 1
    solver, expected = mac.plan.resolved.regressions[0].solver, []
    for k in (0, 1):
        (job,) = mac.plan.work.jobs(k)
        share = mac.plan.work.grams(k)[0].place
        features = given(mac, state).inputs[k].design
        state.own.grams[share] = solver.system.sum(features, mac.parts.points.over).ravel()
        expected.append(solver.solve(w_problem(mac, job, state), mac.parts.points.over))
    before = state.weights.copy()
    mac.w_step(state)
    for k in (0, 1):
        place = mac.plan.work.jobs(k)[0].place
        assert not np.allclose(state.weights[place], before[place], rtol=1e-3)
        assert_allclose(state.weights[place], expected[k].ravel(), rtol=1e-7)


def test_exact_layers_stay_exact() -> None:
    mac, state = begun(CONFIGS["after"])
    exact, same = begun(replace(CONFIGS["after"], w_step=WStep()))
    mac.w_step(state)
    exact.w_step(same)
    last = slice(mac.plan.offsets.weights[-2], None)
    assert_array_equal(state.weights[last], same.weights[last])
