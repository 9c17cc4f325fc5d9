"""The law of weights: a point of weight k counts as k copies of it, in every sum, half step and method."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from plans import plan_of
from scalings import fit_scaling
from theory.nets import AUGMENTED, anywhere, method, points
from tolerance import gamma

from macmpi.config import Baseline, Config, Method, Model, Stochastic
from macmpi.data.dataset import Dataset
from macmpi.mac import Mac
from macmpi.methods.choose import choose
from macmpi.methods.embedding import principal_codes
from macmpi.nets.losses import LOSSES
from macmpi.parallel.team import Team
from macmpi.plan import tuned
from macmpi.results.scores import levels, scores_of, sums_of
from macmpi.solvers import W_SOLVERS
from macmpi.state import MacState, State
from macmpi.typing import Array

N = 24
COUNTS = np.random.default_rng(5).integers(1, 4, size=N)
"""Whole-number weights, copies of each point: together fewer than the points of the sample of a preconditioner."""

DIGITS = float(np.sqrt(np.finfo(float).eps))
"""Sums of both data sets differ by rounding alone, some hundreds of u; systems here have conditions below 1e3, and a
half step solves a few of them one after the other: half of the digits stay."""

RUNS: dict[str, dict[str, Any]] = {
    "after": {},
    "before": {"sites": "before"},
    "nested": {"sites": "none"},
    "augmented": AUGMENTED,
    "augmented, mixed": {"sites": ["none", "after"], **AUGMENTED},
    "variance": {"metric": "variance"},
    "curvature": {"metric": "curvature", "sites": "before"},
    "several steps of CG": {"w_step": {"cg_iterations": 3}},
    "alternating": {"z_step": {"solver": "alternating"}},
    "same": {"sites": "before", "w_step": {"linear_solver": "same"}},
    "proximal": {"w_step": {"solver": "proximal"}},
    "l1": {"l1": 0.01},
    "group_lasso": {"group_lasso": 0.01},
    "softmax": {"activation": ["tanh", "softmax"]},
    "bits": {"activation": ["binary", "tanh"], "sites": ["after", "none"]},
    "no ridge": {"ridge": 0.0},
    **{
        f"{name} W-step": {"sites": "none", "w_step": {"solver": name}}
        for name in ("newton", "lbfgs", "ncg", "gradient")
    },
    **{f"{name} of units": {"w_step": {"solver": name}} for name in ("newton", "lbfgs", "ncg", "gradient")},
    **{loss: {"loss": loss} for loss in LOSSES if loss != "squared"},
    **{f"{loss}, proximal": {"loss": loss, "l1": 0.01} for loss in ("cross_entropy", "poisson", "huber")},
}


def weighed(data: Dataset, counts: Array = COUNTS) -> Dataset:
    """The data with whole-number weights, of validation points too."""
    held = np.resize(counts, len(data.X_val)).astype(float)
    return replace(data, weights=counts.astype(float), weights_val=held)


def repeated(data: Dataset, counts: Array = COUNTS) -> Dataset:
    """The data with as many copies of each point."""
    X, Y = (np.repeat(A, counts, axis=0) for A in (data.X, data.Y))
    X_val, Y_val = (np.repeat(A, np.resize(counts, len(A)), axis=0) for A in (data.X_val, data.Y_val))
    return replace(data, X=X, Y=X if data.autoencoder else Y, X_val=X_val, Y_val=Y_val)


def both(keys: dict[str, Any]) -> tuple[Mac, Mac]:
    data = points(0, N, 4, 3, keys.get("loss", "squared"))
    return method(data=weighed(data), **keys), method(data=repeated(data), **keys)


def as_copies(ours: State[MacState], theirs: State[MacState]) -> None:
    """Gives the copies the same weights, coordinates and multipliers as the points have."""
    theirs.weights[:], theirs.mu = ours.weights, ours.mu
    theirs.Z[:] = np.repeat(ours.Z, COUNTS, axis=0)
    if len(ours.own.multipliers):
        theirs.own.multipliers[:] = np.repeat(ours.own.multipliers, COUNTS, axis=0)


def assert_near(found: Any, expected: Any) -> None:
    """Half of the digits of the largest number."""
    found, expected = np.asarray(found, float), np.asarray(expected, float)
    assert_allclose(found, expected, rtol=0.0, atol=DIGITS * max(float(np.abs(expected).max(initial=0.0)), 1.0))


def assert_same_errors(ours: Any, theirs: Any) -> None:
    for own, other in zip(ours, theirs, strict=True):
        assert (own is None) == (other is None)
        if own is not None:
            assert_near(own, other)


@pytest.mark.parametrize("name", RUNS)
def test_half_steps_errors_and_grams_are_those_of_copies(name: str) -> None:
    ours, theirs = both(RUNS[name])
    one, two = anywhere(ours), anywhere(theirs)
    as_copies(one, two)
    two.own.metric, two.own.metric_mu = one.own.metric.copy(), one.own.metric_mu
    assert_same_errors(ours.evaluate(one), theirs.evaluate(two))
    assert_near(one.own.grams, two.own.grams)
    assert ours.parts.points.total_weight == theirs.plan.n_train
    for _ in range(2):
        ours.z_step(one)
        theirs.z_step(two)
        assert_near(np.repeat(one.Z, COUNTS, axis=0), two.Z)
        as_copies(one, two)
        ours.w_step(one)
        theirs.w_step(two)
        assert_near(one.weights, two.weights)
        assert_near(one.own.grams, two.own.grams)
        as_copies(one, two)
        assert_same_errors(ours.evaluate(one), theirs.evaluate(two))
        if len(one.own.multipliers):
            ours.move_multipliers(one)
            theirs.move_multipliers(two)
            assert_near(np.repeat(one.own.multipliers, COUNTS, axis=0), two.own.multipliers)
    assert_near(ours.finish(one).weights, theirs.finish(two).weights)


def test_every_w_solver_is_under_the_law_or_draws_points() -> None:
    asked = {keys.get("w_step", {}).get("solver") for keys in RUNS.values()}
    used = {r.name for keys in RUNS.values() for r in both(keys)[0].plan.resolved.regressions.values()}
    assert used | asked >= W_SOLVERS.keys() - {"sgd"}


@pytest.mark.parametrize("name", ["variance", "curvature"])
def test_metrics_are_those_of_copies(name: str) -> None:
    ours, theirs = both(RUNS[name])
    one, two = anywhere(ours), anywhere(theirs)
    as_copies(one, two)
    two.own.metric_mu = one.own.metric_mu = 0.0
    for mac, state in ((ours, one), (theirs, two)):
        mac.z_step(state)
    assert_near(one.own.metric, two.own.metric)


@pytest.mark.parametrize("loss", LOSSES)
def test_weights_enter_e1_linearly_and_their_scale_does_not(loss: str) -> None:
    """Computed once more, by E1 of single points: sum w E1_n / sum w, to the rounding of its sums."""
    data = points(1, N, 4, 3, loss)
    w = np.random.default_rng(2).uniform(0.0, 3.0, size=N)
    mac = method(data=replace(data, weights=w), loss=loss)
    state = mac.start(2.0, False, 0)
    F = mac.plan.chain.forward(mac.parts.weights(state), data.X)
    losses = LOSSES[loss].value(data.Y, F)
    expected = float(w @ losses) / w.sum()
    bound = gamma(2 * N + 2) * float(w @ np.abs(losses)) / w.sum() * 2.0
    assert abs(mac.evaluate(state).train - expected) <= bound
    scaled = method(data=replace(data, weights=8.0 * w), loss=loss)
    assert scaled.evaluate(state).train == mac.evaluate(state).train


@pytest.mark.parametrize("loss", LOSSES)
def test_constants_and_scores_are_those_of_copies(loss: str) -> None:
    data = points(3, N, 4, 3, loss)
    ours, theirs = weighed(data), repeated(data)
    chain = method(data=data, loss=loss).plan.chain
    found, expected = (levels(chain, one, LOSSES[loss]) for one in (ours, theirs))
    assert [level.name for level in found] == [level.name for level in expected]
    assert_near([level.value for level in found], [level.value for level in expected])
    F = np.random.default_rng(0).normal(size=ours.Y_val.shape)
    labels = LOSSES[loss].labels
    many = np.repeat(F, np.resize(COUNTS, len(F)), axis=0)
    one = scores_of(sums_of(ours.Y_val, F, labels, ours.weights_val), np.ones(3), data.classes)
    two = scores_of(sums_of(theirs.Y_val, many, labels), np.ones(3), data.classes)
    for field in vars(one):
        assert_near(getattr(one, field), getattr(two, field))


def test_a_point_of_weight_0_moves_nothing() -> None:
    data, w = points(4, N, 4, 3), COUNTS.astype(float)
    w[::5] = 0.0
    wild = replace(data, X=data.X.copy(), Y=data.Y.copy(), weights=w)
    wild.Y[::5] = 1e6
    ours, theirs = method(data=wild), method(data=replace(data, weights=w))
    one, two = anywhere(ours), anywhere(theirs)
    two.Z[:] = one.Z
    ours.w_step(one)
    theirs.w_step(two)
    assert_near(one.weights, two.weights)
    assert_near(ours.evaluate(one).E_Q, theirs.evaluate(two).E_Q)


@pytest.mark.parametrize("wide", [False, True])
def test_principal_codes_are_those_of_copies(wide: bool) -> None:
    X = np.random.default_rng(6).normal(size=(N, 40 if wide else 5)) * np.linspace(3.0, 0.5, 40 if wide else 5)
    ours = principal_codes(X, 2, 1.0, COUNTS.astype(float))
    assert_near(np.repeat(ours, COUNTS, axis=0), principal_codes(np.repeat(X, COUNTS, axis=0), 2, 1.0))


def test_the_scaling_is_that_of_copies() -> None:
    X = np.random.default_rng(7).normal(size=(N, 3)) * [1.0, 10.0, 0.1]
    X[3, 1] = np.nan
    ours, theirs = (
        fit_scaling(X, "standard", COUNTS.astype(float)),
        fit_scaling(np.repeat(X, COUNTS, axis=0), "standard"),
    )
    assert_near(ours.shift, theirs.shift)
    assert_near(ours.scale, theirs.scale)


# --- methods without coordinates --------------------------------------------------------------------------------------


def chosen(config: Config, data: Dataset) -> Any:
    plan = plan_of(config, *data.sizes.counts, 1)
    return choose(plan, data, Team())


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("activation", ["tanh", "softmax"])
def test_steps_of_stochastic_mac_on_all_points_are_those_of_copies(
    loss: str, activation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = int(COUNTS.sum())
    monkeypatch.setattr(tuned, "PROBED", total)
    config = Config(
        model=Model([6, 5], ["tanh", activation], loss=loss),  # type: ignore[arg-type]
        method=Method("stochastic"),
        stochastic=Stochastic(parts=1, ridge=0.0, damping=0.3),
    )
    data = points(8, N, 4, 3, loss)
    pair = chosen(config, weighed(data)), chosen(config, repeated(data))
    flat = pair[0].start(0.0, False, 0).weights
    states = [one.start_at(flat, False) for one in pair]
    for one, state in zip(pair, states, strict=True):
        one.begin(state)
        for _ in range(11):
            one.step({0: np.arange(one.plan.n_train)}, state)
        one.curvature.fold(state)
    for name in ("grams", "inverses", "average", "damping", "length", "level"):
        assert_near(*(getattr(state.own, name) for state in states))
    assert_near(*(state.weights for state in states))
    assert np.abs(states[0].weights - flat).max() > 1e-3


@pytest.mark.parametrize("name", ["sgd", "adam", "cg", "lbfgs"])
@pytest.mark.parametrize("loss", ["squared", "cross_entropy", "huber"])
def test_baselines_on_all_points_are_those_of_copies(name: str, loss: str) -> None:
    config = Config(
        model=Model([6], "tanh", loss=loss),  # type: ignore[arg-type]
        method=Method(name),  # type: ignore[arg-type]
        baseline=Baseline(batch=int(COUNTS.sum()), rate=1e-3),
    )
    data = points(9, N, 4, 3, loss)
    states = []
    for one in (chosen(config, weighed(data)), chosen(config, repeated(data))):
        state = one.start(1.0, True, 0)
        one.begin(state)
        for _ in range(3):
            one.sweep(state)
        states.append(state)
    assert_near(*(state.weights for state in states))


def test_minibatches_have_the_gradient_of_e1_for_an_expectation() -> None:
    """Whatever the scale of the weights: their mean divides."""
    data = points(10, N, 4, 3)
    config = Config(model=Model([6], "tanh"), method=Method("sgd"), baseline=Baseline(batch=8, momentum=0.0))
    starts = []
    for scale in (1.0, 64.0):
        one = chosen(config, replace(data, weights=scale * COUNTS))
        state = one.start(1.0, False, 0)
        for _ in range(2):
            one.sweep(state)
        starts.append(state.weights)
    assert_array_equal(*starts)
