"""Sharded points give the bits of replicated ones, on any number of ranks: all sums go up the same trees."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from plans import plan_of
from scalings import fit_scaling
from unit.crew import crew
from unit.played import held_by

from macmpi.config import Config, Method, Model, Parallel, Penalty, Stochastic
from macmpi.data.dataset import Dataset
from macmpi.methods.choose import choose
from macmpi.methods.starts import Origin, start
from macmpi.parallel import tiles
from macmpi.parallel.clock import Clock
from macmpi.parallel.team import Team
from macmpi.typing import Array

LAGRANGIAN = Penalty("augmented_lagrangian")
CONFIGS = {
    "after": Config(model=Model([5, 3, 5], "tanh"), method=Method("mac")),
    "before": Config(model=Model([5, 3, 5], sites="before", activation="sigmoid"), method=Method("mac")),
    "none": Config(model=Model([5, 3, 5], sites="none", activation="sigmoid"), method=Method("mac")),
    "segments": Config(
        model=Model([5, 3, 5], sites=["none", "before", "after"], activation="sigmoid"), method=Method("mac")
    ),
    "multipliers": Config(
        model=Model([5, 3, 5], sites="before", activation="sigmoid"), penalty=LAGRANGIAN, method=Method("mac")
    ),
    "multipliers, units": Config(model=Model([5, 3, 5], "tanh"), penalty=LAGRANGIAN, method=Method("mac")),
    "curvature": Config(
        model=Model([5, 3, 5], sites="before", activation="sigmoid"),
        penalty=Penalty(metric="curvature"),
        method=Method("mac"),
    ),
    "variance": Config(model=Model([5, 3, 5], "tanh"), penalty=Penalty(metric="variance"), method=Method("mac")),
    "classes": Config(model=Model([5, 3], ["relu", "softmax"], loss="cross_entropy"), method=Method("mac")),
    "l1": Config(model=Model([5, 3, 5], "tanh"), penalty=Penalty(l1=0.01), method=Method("mac")),
    "feasible": Config(model=Model([5, 3, 5], activation="sigmoid"), method=Method(acceleration="feasible")),
    "momentum": Config(
        model=Model([5, 3, 5], sites="before", activation="sigmoid"), method=Method(acceleration="momentum")
    ),
    "stochastic": Config(
        model=Model([5, 3, 5], activation="sigmoid"),
        method=Method("stochastic"),
        stochastic=Stochastic(batch=20, parts=6, ridge=0.0),
    ),
}


def data_of(config: Config, n: int = 151) -> Dataset:
    random = np.random.default_rng(2)
    X = random.normal(size=(n, 6)) @ random.normal(size=(6, 6)) / 2.0
    Y = np.eye(3)[np.digitize(X[:, 0], (-0.5, 0.5))] if config.model.loss == "cross_entropy" else X
    unit = fit_scaling(X, "none"), fit_scaling(Y, "none")
    X_val = X[:40] if Y is X else X[:40].copy()
    return Dataset(X, Y, X_val, X_val if Y is X else Y[:40], *unit, "")


def bits(config: Config, ranks: int) -> tuple[Array, list[Any]]:
    """The weights after some iterations and at the end, and all errors, which every rank has."""
    data = data_of(config)

    def work(team: Team) -> tuple[Array, list[Any]]:
        plan = plan_of(config, *data.sizes.counts, ranks)
        method = choose(plan, held_by(data, plan, team.rank), team, Clock())
        state = start(method, Origin())
        method.begin(state)
        found, weights = [method.evaluate(state, feasible=True)], [state.weights.copy()]
        for _ in range(3):
            method.sweep(state)
            found.append(method.evaluate(state))
            weights.append(state.weights.copy())
            if plan.resolved.schedule.multipliers:
                method.move_multipliers(state)
            state.mu *= 3.0
        after = method.finish(state)
        errors = [*found, method.evaluate(after, feasible=True)]
        return np.array([*weights, after.weights]), errors

    (weights, errors), *others = crew(ranks, work)
    for own, seen in others:
        assert_array_equal(own, weights)
        assert seen == errors
    return weights, errors


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("name", CONFIGS)
def test_the_bits_are_those_of_replicated_points(name: str, ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of the few points here, by blocks as of many."""
    monkeypatch.setattr(tiles, "LEAST_ROWS", 0)
    monkeypatch.setattr(tiles, "GRAM_WHOLE", 4)
    monkeypatch.setattr(tiles, "EXACT_WIDTH", 3)
    config = CONFIGS[name]
    weights, errors = bits(replace(config, parallel=Parallel("sharded")), ranks)
    expected, others = bits(config, 1)
    assert_array_equal(weights, expected)
    assert errors == others
    assert errors[-1][0] < errors[0][0]
