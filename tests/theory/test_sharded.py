"""Sharded points give the curve of replicated ones: only the order of sums differs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from plans import plan_of
from scalings import fit_scaling

from macmpi.config import Config, Method, Model, Parallel, Penalty, Stochastic
from macmpi.data.dataset import Dataset
from macmpi.methods.choose import choose
from macmpi.methods.starts import Origin, start
from macmpi.parallel.clock import Clock
from macmpi.parallel.team import Team
from macmpi.state import Errors

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
    "feasible": Config(model=Model([5, 3, 5], activation="sigmoid"), method=Method(acceleration="feasible")),
    "momentum": Config(
        model=Model([5, 3, 5], sites="before", activation="sigmoid"), method=Method(acceleration="momentum")
    ),
    "stochastic": Config(
        model=Model([5, 3, 5], activation="sigmoid"),
        method=Method("stochastic"),
        stochastic=Stochastic(batch=20, parts=3, ridge=0.0),
    ),
}


def data_of(config: Config, n: int = 151) -> Dataset:
    random = np.random.default_rng(2)
    X = random.normal(size=(n, 6)) @ random.normal(size=(6, 6)) / 2.0
    Y = np.eye(3)[np.digitize(X[:, 0], (-0.5, 0.5))] if config.model.loss == "cross_entropy" else X
    unit = fit_scaling(X, "none"), fit_scaling(Y, "none")
    X_val = X[:40] if Y is X else X[:40].copy()
    return Dataset(X, Y, X_val, X_val if Y is X else Y[:40], *unit, "")


def curve(config: Config) -> list[Errors]:
    data = data_of(config)
    plan = plan_of(config, *data.sizes.counts, 1)
    method = choose(plan, data, Team(), Clock())
    state = start(method, Origin())
    found = [method.evaluate(state, feasible=True)]
    method.begin(state)
    for _ in range(4):
        method.sweep(state)
        found.append(method.evaluate(state))
        if plan.resolved.schedule.multipliers:
            method.move_multipliers(state)
        state.mu *= 3.0
    return [*found, method.evaluate(method.finish(state), feasible=True)]


@pytest.mark.parametrize("name", CONFIGS)
def test_the_curve_is_that_of_replicated_points(name: str) -> None:
    config = CONFIGS[name]
    ours, theirs = (curve(replace(config, parallel=Parallel(kind))) for kind in ("sharded", "replicated"))  # type: ignore[arg-type]
    values: Any = [[[np.nan if value is None else value for value in errors] for errors in c] for c in (ours, theirs)]
    assert_allclose(values[0], values[1], rtol=1e-10)
    assert values[0][-1][0] < values[0][0][0]
