"""Sharded points give the bits of replicated ones, on any number of ranks: all sums go up the same trees.

Parts that take no sums over points are given the rows of the points at hand: all of them where there are few.
"""

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

from macmpi.config import Baseline, Config, Method, Model, Parallel, Penalty, Selection, Start, Stochastic, WStep
from macmpi.data.dataset import Dataset
from macmpi.half_steps import context
from macmpi.methods.choose import choose
from macmpi.methods.starts import Origin, start
from macmpi.parallel import points, tiles
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

FIRST, BOTH = ["after", "none"], ["none", "after", "none"]
BASIS = Model([9, 2, 7], ["rbf", "linear", "rbf"], sites=BOTH, width=[2.0, 1.0])
LABELS = Model([5, 3], "tanh", loss="cross_entropy")
CODES = Config(model=Model([4, 5], ["quantise", "tanh"], words=6), method=Method("mac"))
BITS = Config(model=Model([4, 5], ["binary", "sigmoid"], sites=FIRST), method=Method("mac"))
TREES = Model([4, 5], ["forest", "tanh"], trees=3, depth=2)
DRAWN = Baseline(batch=20, rate=0.02)
SELECTED = Selection("aic", [0.2], every=1, sizes=[[4, 6], [], [3, 5]])
OF_ROWS = {
    "centres": Config(model=BASIS, start=Start("pca"), method=Method("mac")),
    "centres drawn": Config(model=replace(BASIS, centres="subset"), start=Start("pca"), method=Method("mac")),
    "every point a centre": Config(
        model=replace(BASIS, hidden=[151, 2, 7], centres=["points", "kmeans"]),
        start=Start("elastic_embedding"),
        method=Method("mac"),
    ),
    "centres selected": Config(
        model=replace(BASIS, centres="subset"), start=Start("pca"), selection=SELECTED, method=Method("mac")
    ),
    "ridges selected": Config(
        model=Model([5, 3, 5], "tanh", sites="before"),
        selection=Selection("bic", 0.1, every=1, ridges=[0.01, 1.0]),
        method=Method("mac"),
    ),
    "units selected": Config(
        model=Model([6, 3, 6], "tanh"),
        selection=Selection("bic", 0.01, every=1, sizes=[[3, 5], [], [4]]),
        method=Method("mac"),
    ),
    "halves": Config(model=BASIS, start=Start("pca"), method=Method("alternating")),
    "codewords": CODES,
    "codewords, multipliers": replace(CODES, penalty=replace(LAGRANGIAN, metric="variance")),
    "codewords by pca": replace(
        CODES, model=replace(CODES.model, hidden=[4], activation="quantise"), start=Start("pca")
    ),
    "bits": BITS,
    "words": replace(BITS, model=replace(BITS.model, activation=["argmax", "sigmoid"], words=2), start=Start("staged")),
    "bits of an embedding": replace(BITS, start=Start("elastic_embedding")),
    "bits by a fitter": replace(BITS, model=replace(BITS.model, fitters=["linear_svm", "auto", "auto"])),
    "forest": Config(model=TREES, method=Method("mac")),
    "boosted": Config(model=replace(TREES, activation=["boosted", "kernel_ridge"], examples=9), method=Method("mac")),
    "neighbours": Config(
        model=Model([4, 5], ["nearest_neighbours", "tanh"], examples=20), penalty=LAGRANGIAN, method=Method("mac")
    ),
    "fitter of labels": Config(
        model=replace(LABELS, fitters=["auto", "auto", "logistic"], sites="before"), method=Method("mac")
    ),
    "minibatches of units": Config(
        model=Model([5, 3], "tanh"), w_step=WStep("sgd", batch=20, rate=0.01), method=Method("mac")
    ),
    "minibatches of segments": Config(
        model=replace(LABELS, sites=FIRST), w_step=WStep("sgd", batch=20, rate=1e-4), method=Method("mac")
    ),
    "greedy": Config(model=Model([5, 3, 5], "tanh"), start=Start("greedy"), method=Method("mac")),
    "pca": Config(model=LABELS, start=Start("pca"), method=Method("stochastic"), stochastic=Stochastic(parts=2)),
    "staged": Config(
        model=replace(LABELS, activation=["relu", "softmax"]), start=Start("staged"), method=Method("mac")
    ),
    "ring": Config(
        model=Model([5, 3, 5], "tanh"),
        w_step=WStep(schedule="ring", linear_solver="same", batch=20, rate=0.05),
        method=Method("mac"),
    ),
    **{
        name: Config(model=Model([5, 3, 5], "tanh"), method=Method(name), baseline=DRAWN)
        for name in ("sgd", "adam", "cg", "lbfgs")
    },
}
"""What is fitted to rows, drawn from them, or started by them."""


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
        method = choose(plan, held_by(data, plan, team.rank), team)
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
        return np.concatenate([*weights, after.weights]), errors

    (weights, errors), *others = crew(ranks, work)
    for own, seen in others:
        assert_array_equal(own, weights)
        assert seen == errors
    return weights, errors


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("name", CONFIGS | OF_ROWS)
def test_the_bits_are_those_of_replicated_points(name: str, ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of the few points here, by blocks as of many."""
    monkeypatch.setattr(tiles, "LEAST_ROWS", 0)
    monkeypatch.setattr(tiles, "GRAM_WHOLE", 4)
    monkeypatch.setattr(tiles, "EXACT_WIDTH", 3)
    config = (CONFIGS | OF_ROWS)[name]
    weights, errors = bits(replace(config, parallel=Parallel("sharded")), ranks)
    expected, others = bits(config, 1)
    assert_array_equal(weights, expected)
    assert errors == others
    assert errors[-1][0] < errors[0][0]


@pytest.mark.parametrize("ranks", [2, 3, 5])
@pytest.mark.parametrize("name", OF_ROWS)
def test_the_rows_of_some_points_give_the_same_bits_on_any_number_of_ranks(
    name: str, ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more points than are at hand; and other bits than those of all."""
    for module in (points, context):
        monkeypatch.setattr(module, "MOST_AT_HAND", 60)
    config = replace(OF_ROWS[name], parallel=Parallel("sharded"))
    weights, errors = bits(config, 1)
    others, seen = bits(config, ranks)
    assert_array_equal(others, weights)
    assert seen == errors
    assert np.isfinite(weights).all()
    assert errors[-1][0] < errors[0][0]
