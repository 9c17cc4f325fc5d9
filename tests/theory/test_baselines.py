"""The baselines by backpropagation: gradients, steps by their formulas, line searches; where the error never rises."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from covering import covering
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from plans import plan_of
from sampled import examples
from scipy.optimize import LbfgsInvHessProduct
from theory.checks import deviation
from theory.nets import points, richardson

from macmpi.config import Baseline, Config, Method, Model, Run, Start
from macmpi.methods import backprop
from macmpi.methods.backprop import ARMIJO, Backprop, Trial, cubic_minimum, search
from macmpi.methods.choose import choose
from macmpi.methods.starts import Origin, start
from macmpi.nets.losses import LOSSES
from macmpi.parallel.team import Team
from macmpi.solvers.descent import inverse_times, pair
from macmpi.state import Record, State
from macmpi.typing import Array

N = 37
often = examples(200)


def begun(name: str, loss: str = "squared", activation: str = "sigmoid", seed: int = 0, **keys: Any) -> Any:
    """A method and its first State."""
    data = points(seed, N, 4, 3, loss=loss)
    config = Config(
        model=Model([5, 4], activation, loss=loss),  # type: ignore[arg-type]
        start=Start(range=3.0, seed=seed),
        method=Method(name),  # type: ignore[arg-type]
        baseline=Baseline(**keys),
        run=Run(max_iterations=5),
    )
    plan = plan_of(config, data.X.shape[1], data.Y.shape[1], len(data.X), len(data.X_val), 1)
    method: Any = choose(plan, data, Team())
    state = start(method, Origin())
    method.begin(state)
    return method, state


def error(method: Backprop[Any], flat: Array, rows: Any = slice(None)) -> float:
    """Mean loss of some points."""
    F = method.plan.chain.forward(method.parts.weights(State(flat, np.empty(0), 1.0, Record())), method.data.X[rows])
    return float(method.plan.resolved.loss.value(method.data.Y[rows], F).mean())


def slopes(method: Backprop[Any], flat: Array, rows: Any = slice(None)) -> Array:
    """Its gradient by central differences, extrapolated."""
    ways = np.eye(len(flat))
    return np.array([richardson(lambda t, way=way: error(method, flat + t * way, rows)) for way in ways])


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("activation", ["sigmoid", "tanh", "softmax"])
def test_error_and_gradient_are_those_of_the_nested_net(loss: str, activation: str) -> None:
    method, state = begun("cg", loss, activation)
    found = method.error(state.weights)
    assert found[-1] == pytest.approx(error(method, state.weights), rel=1e-12)
    assert found[-1] == pytest.approx(method.evaluate(state).train, rel=1e-12)
    assert_allclose(found[:-1], slopes(method, state.weights), rtol=1e-5, atol=1e-8)


# --- minibatches ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_moves_by_its_formula(momentum: float) -> None:
    method, state = begun("sgd", batch=6, rate=0.1, momentum=momentum)
    expected, velocity = state.weights.copy(), np.zeros_like(state.weights)
    for rows in (np.arange(6), np.array([30, 2, 8, 11, 36, 5])):
        velocity = momentum * velocity + slopes(method, expected, rows)
        expected -= 0.1 * velocity
        method.step(rows, state)
    deviation("SGD", state.weights, expected)


def test_adam_moves_by_its_formula() -> None:
    method, state = begun("adam", batch=6, rate=0.1, momentum=0.8)
    expected, m, v = state.weights.copy(), np.zeros_like(state.weights), np.zeros_like(state.weights)
    for t, rows in enumerate((np.arange(6), np.arange(10, 16), np.array([30, 2, 8, 11, 36, 5])), start=1):
        g = slopes(method, expected, rows)
        m, v = 0.8 * m + 0.2 * g, 0.999 * v + 0.001 * g * g
        expected -= 0.1 * (m / (1.0 - 0.8**t)) / (np.sqrt(v / (1.0 - 0.999**t)) + 1e-8)
        method.step(rows, state)
    deviation("Adam", state.weights, expected)


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_an_epoch_takes_each_point_once_in_an_order_of_its_own(name: str) -> None:
    method, state = begun(name, batch=6)
    seen: list[list[int]] = [[], []]
    for epoch in seen:
        method.step = lambda rows, _, epoch=epoch: epoch.extend(rows.tolist())
        method.sweep(state)
        assert len(epoch) == N // 6 * 6 == len(set(epoch))
    assert seen[0] != seen[1]


# --- line searches on all points --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "activation", "loss", "seed"),
    covering(["cg", "lbfgs"], ["sigmoid", "tanh", "relu"], LOSSES, range(3)),
)
def test_the_error_never_rises(
    name: str, activation: str, loss: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backprop, "RESTART", 7)
    monkeypatch.setattr(backprop, "PAIRS", 3)
    method, state = begun(name, loss, activation, seed)
    errors = [state.own.gradient[-1]]
    for _ in range(30):
        method.sweep(state)
        assert state.own.gradient[-1] == pytest.approx(error(method, state.weights), rel=1e-12)
        errors.append(state.own.gradient[-1])
    assert all(b <= a for a, b in pairwise(errors))
    assert errors[-1] < 0.9 * errors[0]


def test_conjugate_gradients_follow_polak_and_ribiere_and_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backprop, "RESTART", 3)
    method, state = begun("cg")
    for i in range(7):
        old, direction = state.own.gradient[:-1].copy(), state.own.direction.copy()
        method.sweep(state)
        g = state.own.gradient[:-1]
        beta = max(0.0, g @ (g - old) / (old @ old)) if (i + 1) % 3 else 0.0
        deviation("PR+", state.own.direction, beta * direction - g)


def test_lbfgs_keeps_the_last_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backprop, "PAIRS", 3)
    method, state = begun("lbfgs")
    history = []
    for _ in range(6):
        w, g = state.weights.copy(), state.own.gradient[:-1].copy()
        method.sweep(state)
        history.insert(0, (state.weights - w, state.own.gradient[:-1] - g))
    S, Y = state.own.pairs.reshape(2, 3, -1)
    assert_allclose(S, [s for s, _ in history[:3]], rtol=1e-6, atol=1e-12)
    assert_array_equal(Y, [y for _, y in history[:3]])
    assert_allclose(state.own.direction, -two_loops(S, Y, state.own.gradient[:-1]))


def two_loops(S: Array, Y: Array, g: Array) -> Array:
    """H g for pairs of which the last comes first."""
    pairs = [pair(s[None], y[None]) for s, y in zip(S[::-1], Y[::-1], strict=True)]
    return inverse_times(pairs, g[None])[0]


def test_the_two_loops_are_scipys() -> None:
    random = np.random.default_rng(4)
    for m in (1, 2, 5):
        S = random.normal(size=(m, 9))
        Y = S @ np.diag(random.uniform(0.5, 3.0, 9))
        g = random.normal(size=9)
        gamma = S[0] @ Y[0] / (Y[0] @ Y[0])
        root = math.sqrt(gamma)
        theirs = gamma * LbfgsInvHessProduct(S[::-1] / root, Y[::-1] * root).matvec(g)
        deviation("L-BFGS", two_loops(S, Y, g), theirs)
        assert_allclose(two_loops(S, Y, Y[0]), S[0], rtol=1e-10)
    assert_array_equal(two_loops(np.empty((0, 9)), np.empty((0, 9)), g), g)


def test_where_the_direction_leads_up_it_is_the_gradient_that_leads_down() -> None:
    for name in ("cg", "lbfgs"):
        method, state = begun(name)
        method.sweep(state)
        before = state.own.gradient[-1]
        state.own.direction = state.own.gradient[:-1].copy()
        method.sweep(state)
        assert state.own.gradient[-1] < before


# --- the line search itself -------------------------------------------------------------------------------------------


def along(function: Any, slope: Any) -> Any:
    return lambda t: Trial(t, function(t), slope(t), np.empty(0))


@often
@given(minimum=st.floats(1e-6, 1e6), tilt=st.floats(0.0, 0.9), waves=st.floats(0.0, 3.0), first=st.floats(1e-6, 1e6))
@pytest.mark.parametrize("bend", [0.1, 0.9])
def test_a_search_ends_where_both_conditions_hold(
    bend: float, minimum: float, tilt: float, waves: float, first: float
) -> None:
    """A valley with waves in it, its floor anywhere within twelve orders of magnitude of the first trial."""

    def f(t: float) -> float:
        u = t / minimum
        return (u - 1.0) ** 2 - tilt * math.sin(waves * u) * 0.3

    def d(t: float) -> float:
        u = t / minimum
        return (2.0 * (u - 1.0) - tilt * waves * 0.3 * math.cos(waves * u)) / minimum

    at = along(f, d)
    begin = at(0.0)
    found = search(at, begin, first, bend, 60)
    assert found.t > 0.0
    assert found.value <= begin.value + ARMIJO * found.t * begin.slope
    assert abs(found.slope) <= -bend * begin.slope


def test_a_search_steps_back_from_where_numbers_end() -> None:
    """-log(1 - t) - 2 t, infinite from t = 1 on."""
    at = along(
        lambda t: -math.log(1.0 - t) - 2.0 * t if t < 1.0 else math.inf,
        lambda t: 1.0 / (1.0 - t) - 2.0 if t < 1.0 else math.nan,
    )
    found = search(at, at(0.0), 1e3, 0.1, 60)
    assert abs(found.slope) <= 0.1
    assert found.t == pytest.approx(0.5, abs=0.1)


def test_a_search_that_finds_nothing_stays() -> None:
    begin = Trial(0.0, 1.0, -1.0, np.empty(0))
    assert search(along(lambda t: 2.0, lambda t: 1.0), begin, 1.0, 0.1, 20) is begin


def test_the_cubic_is_exact_for_cubics() -> None:
    f, d = (lambda t: t**3 - 3.0 * t), (lambda t: 3.0 * t * t - 3.0)
    at = along(f, d)
    for a, b in ((0.0, 2.0), (2.0, 0.5), (1.5, 4.0)):
        assert cubic_minimum(at(a), at(b)) == pytest.approx(1.0)
    down = along(lambda t: -t - t**3, lambda t: -1.0 - 3.0 * t * t)
    assert math.isnan(cubic_minimum(down(0.0), down(1.0)))
