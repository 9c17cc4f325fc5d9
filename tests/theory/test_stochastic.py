"""Stochastic MAC: its directions are the formulas of curvature.py, its sums do not depend on who adds what up."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from plans import plan_of
from scalings import fit_scaling
from targets import taken_by
from theory.checks import deviation
from theory.nets import ACTIVATIONS, VALUES

from macmpi.config import Config, Method, Model, Run, Start, Stochastic
from macmpi.data.dataset import Dataset
from macmpi.methods.stochastic.layers import Shifted
from macmpi.methods.stochastic.method import Stochastic as Method_
from macmpi.methods.stochastic.passes import Points, probed_of, put_slopes
from macmpi.methods.stochastic.schedule import Damping
from macmpi.nets.losses import LOSSES
from macmpi.nets.segment import Tape
from macmpi.parallel import tiles
from macmpi.parallel.shared_work import RowMaker, Sum
from macmpi.parallel.team import Team
from macmpi.plan import tuned
from macmpi.plan.directions import LayerForm, Layout, assign_inverses
from macmpi.reductions import EVERY
from macmpi.solvers import metrics as solver_metrics
from macmpi.solvers.cholesky import inverse
from macmpi.solvers.grams import solve_rows
from macmpi.solvers.metrics import Averages, OfSeen, Seen, metrics, shifted_inverse, shifts
from macmpi.state import State
from macmpi.training.checkpoint import contents
from macmpi.typing import Array

SIZES = (6, [5, 2, 4])


@pytest.fixture(autouse=True)
def few_are_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that Grams and metrics are of some points of a part alone."""
    monkeypatch.setattr(tuned, "PROBED", 7)


def data_of(loss: str, n: int = 90) -> Dataset:
    random = np.random.default_rng(3)
    X = random.normal(size=(n, SIZES[0])) @ random.normal(size=(SIZES[0], SIZES[0])) / 2.0
    Y = taken_by(LOSSES[loss], X)
    if LOSSES[loss].labels:
        Y = np.eye(3)[(X[:, 0] > 0.0).astype(int) + (X[:, 1] > 0.5)]
    scaling = fit_scaling(X, "none")
    return Dataset(X, Y, X[:20], Y[:20], scaling, fit_scaling(Y, "none"), "")


def method_of(loss: str = "squared", activation: str = "sigmoid", n: int = 90, **keys: object) -> tuple[Method_, State]:
    data = data_of(loss, n)
    config = Config(
        model=Model(SIZES[1], activation, loss=loss),  # type: ignore[arg-type]
        start=Start(range=2.0, seed=1),
        method=Method("stochastic"),
        stochastic=Stochastic(**{"batch": 30, "parts": 2, "ridge": 0.0, **keys}),  # type: ignore[arg-type]
        run=Run(max_iterations=5),
    )
    plan = plan_of(config, *data.sizes.counts, 1, autoencoder=False)
    method = Method_(plan, data, Team())
    return method, method.start(2.0, False, 1)


RIDGES = [0.0, 0.03]


def not_biases(method: Method_) -> Array:
    """1 for each weight, 0 for each bias, (W,)."""
    found: Array = np.ones(method.layout.weights[-1].stop)
    for block in method.layout.blocks(found):
        block[:, -1] = 0.0
    return found


def halves(rows: Array) -> dict[int, Array]:
    """A minibatch of two parts."""
    return dict(enumerate(np.array_split(rows, 2)))


def add_gradient(method: Method_, tape: Tape, Y: Array, out: Array) -> None:
    """Adds the sum over points of dE1/dW to `out` (flat)."""
    part = np.full_like(out, np.nan)
    residual = method.plan.resolved.loss.residual(Y, tape.F)
    put_slopes(Seen(tape, Y, residual), [], PRODUCTS, method.layout.blocks(part))
    out += part


def error(method: Method_, flat: Array, rows: slice = slice(None)) -> float:
    F = method.plan.chain.forward(method.layout.blocks(flat), method.data.X[rows])
    return float(method.plan.resolved.loss.value(method.data.Y[rows], F).sum())


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("activation", ["sigmoid", "tanh", "linear"])
def test_the_gradient_is_that_of_the_error(loss: str, activation: str) -> None:
    method, state = method_of(loss, activation)
    flat = state.weights + 0.1 * np.random.default_rng(0).normal(size=state.weights.shape)
    out = np.zeros_like(flat)
    tape = method.plan.chain.whole.tape(method.layout.blocks(flat), method.data.X)
    add_gradient(method, tape, method.data.Y, out)
    direction = np.random.default_rng(1).normal(size=flat.shape)
    A, weights, h = method.data.X, method.layout.blocks(flat + 1e-30j * direction), 1e-30
    for W in weights[:-1]:
        A = ACTIVATIONS[activation](A @ W[:, :-1].T + W[:, -1])
    F = A @ weights[-1][:, :-1].T + weights[-1][:, -1]
    slope = np.sum(VALUES[type(method.plan.resolved.loss).__name__](method.data.Y, F)).imag / h
    deviation("gradient of a minibatch", float(out @ direction), slope)


def at_once(tape: Tape, Y: Array, points: int) -> Averages:
    """Means over the first points of a single tape."""
    return averages_of(Seen(tape, Y, Y, slice(0, points)))


def averages_of(known: Seen) -> Averages:
    """Means over the points of one Seen."""

    def mean(put: OfSeen, n: int) -> Array:
        found = np.full((n, n), np.nan)
        put(known, 1.0, found)
        return found

    def product(V: Array, M: Array | None, times: RowMaker | None) -> Array:
        found = V.T @ V if M is None else V.T @ M @ V
        return found if times is None else times(EVERY) * found

    return Averages(lambda matrices: [mean(*of).__getitem__ for of in matrices], mean, product)


def metrics_of(method: Method_, tape: Tape, over: Averages) -> list[Array]:
    """The metrics of all layers."""
    found, _ = metrics(method.plan.resolved.loss, tape, over, range(len(method.layout.shapes)))
    return [found[k] for k in sorted(found)]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("activation", ["sigmoid", "tanh", "relu"])
def test_the_metrics_of_one_point_are_the_curvature_at_the_outputs_of_each_layer(loss: str, activation: str) -> None:
    """Phi^T B^T B Phi, with Phi by finite differences of the pre-activations."""
    method, state = method_of(loss, activation)
    flat = state.weights + 0.3 * np.random.default_rng(0).normal(size=state.weights.shape)
    weights, chain, X = method.layout.blocks(flat), method.plan.chain, method.data.X[:1]
    tape = chain.whole.tape(weights, X)
    found = metrics_of(method, tape, at_once(tape, method.data.Y, 1))
    affine = [i for i, m in enumerate(chain.maps) if m.parameter_shape is not None]
    for M, i in zip(found, affine, strict=True):
        outputs, above = chain.part(0, i + 1).forward(weights, X), chain.part(i + 1, len(chain.maps))
        run = (lambda S, above=above: above.forward(weights, S)) if above.maps else (lambda S: S)
        h = 1e-6 * np.eye(outputs.shape[1])
        Phi = (run(outputs + h) - run(outputs - h)).T / 2e-6
        np.testing.assert_allclose(
            M, Phi.T @ method.plan.resolved.loss.hessian(method.data.Y[:1], run(outputs)) @ Phi, rtol=1e-5, atol=1e-8
        )


@pytest.mark.parametrize("loss", LOSSES)
def test_metrics_are_means_of_the_maps_one_after_the_other(loss: str) -> None:
    method, state = method_of(loss)
    flat = state.weights + 0.3 * np.random.default_rng(0).normal(size=state.weights.shape)  # of labels some are 0
    weights, chain, X, points = method.layout.blocks(flat), method.plan.chain, method.data.X[:9], 5
    tape = chain.whole.tape(weights, X)
    found, M = (
        metrics_of(method, tape, at_once(tape, method.data.Y, points)),
        method.plan.resolved.loss.hessian(method.data.Y[:points], tape.F[:points]),
    )
    for k in (3, 2, 1, 0):
        deviation("metrics of stochastic MAC", found[k], M)
        V, B = weights[k][:, :-1], chain.part(0, 2 * k).forward(weights, X[:points])
        slope = B * (1.0 - B)
        M = (V.T @ M @ V) * (slope.T @ slope / points)


PRODUCTS = [(False, False)] * 4
"""No inverse is applied to factors."""


def joined(flat: Array) -> Sum:
    return Sum(flat[None], 0, np.add)


def seen(method: Method_, flat: Array, rows: slice) -> Seen:
    tape = method.plan.chain.whole.tape(method.layout.blocks(flat), method.data.X[rows])
    Y = method.data.Y[rows]
    return Seen(tape, Y, method.plan.resolved.loss.residual(Y, tape.F), slice(0, 7))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("points", [1.0, 3.0, 1e9])
@pytest.mark.parametrize("low_rank", [False, True])
def test_an_inverse_may_be_applied_to_the_factors_of_a_gradient(
    loss: str, points: float, low_rank: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M^-1 (Q^T A) G^-1 = (Q M^-1)^T (A G^-1), whichever sides the counted flops choose, of all inverses or of those in
    some eigenvectors.
    """
    if low_rank:
        for name, value in (("LOW_RANK_WIDE", 3), ("LOW_RANK_SHARE", 2), ("SPECTRAL_TURNS", 0.0)):
            monkeypatch.setattr(tuned, name, value)
    method, state = method_of(loss)
    method.step(halves(np.arange(30)), state)
    inverses = [layer.inverses for layer in method.curvature.layers(state)]
    forms = method.curvature.forms.layers
    found = []
    for scaled in (np.inf, points):
        method.directions.assign(scaled)
        slopes, part = np.zeros_like(state.weights), np.full_like(state.weights, np.nan)
        for rows in (slice(9), slice(9, 20)):
            put_slopes(seen(method, state.weights, rows), inverses, method.curvature.sides, method.layout.blocks(part))
            slopes += part
        found.append(method.directions.whole(joined(slopes), 20.0, 0.01, state).copy())
    np.testing.assert_allclose(*found, rtol=1e-9, atol=1e-13)
    assert any(any(form.ranks) for form in forms) == low_rank
    chosen = sum(map(sum, method.curvature.sides))
    always = (loss == "squared") + 2 * sum(form.spectral for form in forms)
    assert chosen == {1.0: 8 - always, 1e9: 0}.get(points, chosen)


@pytest.mark.parametrize("ridge", RIDGES)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_model_along_a_way_is_that_of_gauss_and_newton(loss: str, ridge: float) -> None:
    """1/2 |B J w|^2 + damping/2 |w|^2 and the slope, over the points of both parts."""
    method, state = method_of(loss)
    random = np.random.default_rng(4)
    way, gradient = random.normal(size=state.weights.shape), np.zeros_like(state.weights)
    found = seen(method, state.weights, slice(9))
    tape = found.tape
    slope, curvature = method.model.along(way, Points({}, {0: found, 1: found}, 18.0, ridge, 0.3), state)
    add_gradient(method, tape, found.Y, gradient)
    gradient = gradient / 9.0 + ridge * not_biases(method) * state.weights
    change = tape.weight_jvp(method.layout.blocks(way))
    curved = (
        sum(
            c @ method.plan.resolved.loss.hessian(y[None], f[None]) @ c
            for c, y, f in zip(change, found.Y, tape.F, strict=True)
        )
        / 9.0
    )
    assert slope == pytest.approx(-gradient @ way, rel=1e-12)
    deviation("curvature along a way", curvature, curved + 0.3 * way @ way)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_length_is_the_minimum_of_the_model_at_the_points_probed(weighted: bool) -> None:
    """Of weighted points, which are probed as often as they weigh, none weighs more than another there."""
    method, state = method_of()
    method.unridged = True
    if weighted:
        method.passes.point_weights = np.random.default_rng(5).uniform(0.1, 3.0, len(method.data.X))
    before, rows, slope, curved = state.weights.copy(), halves(np.arange(30)), 0.0, 0.0
    method.step(rows, state)
    way = (state.weights - before) / (tuned.STRIDE * state.own.length)
    for own in rows.values():
        few = own[probed_of(15, method.passes.point_weights[own] if weighted else None, 7)]
        assert len(few) == 7
        tape = method.plan.chain.whole.tape(method.layout.blocks(before), method.data.X[few])
        change = tape.weight_jvp(method.layout.blocks(way))
        slope += np.vdot(change, method.data.Y[few] - tape.F)
        curved += np.vdot(change, change)
    deviation("length of a step", state.own.length, slope / (curved + 14.0 * state.own.damping * way @ way))


@pytest.mark.parametrize("ridge", RIDGES)
def test_a_step_goes_along_the_direction_and_the_last_step(ridge: float) -> None:
    method, state = method_of(ridge=ridge)
    for i in range(4):
        before, last, damping = state.weights.copy(), state.own.step.copy(), state.own.damping
        rows = halves(np.arange(i, 30 + i))
        method.step(rows, state)
        gradient = np.zeros_like(before)
        for own in rows.values():
            tape = method.plan.chain.whole.tape(method.layout.blocks(before), method.data.X[own])
            add_gradient(method, tape, method.data.Y[own], gradient)
        gradient += 30.0 * ridge * not_biases(method) * before
        state.own.steps = i
        method.directions.assign(np.inf)
        direction = method.directions.whole(joined(gradient), 30.0, damping + ridge, state).copy()
        method.directions.assign(method._scaled_points(0))
        state.own.steps = i + 1
        expected = method.schedule.momentum(0) * last + tuned.STRIDE * state.own.length * direction
        deviation("step of stochastic MAC", state.weights - before, expected)


@pytest.mark.parametrize("loss", LOSSES)
def test_it_trains(loss: str) -> None:
    method, state = method_of(loss)
    before = method.evaluate(state).train
    for _ in range(12):
        method.sweep(state)
    assert method.evaluate(state).train < (0.9 if loss == "logistic" else 0.8) * before


@pytest.mark.parametrize("loss", LOSSES)
def test_the_damping_is_told_the_decrease_of_loss_and_ridge(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """(lambda / 2) ||W||^2 counts as the loss does, before the step and after it."""
    ridge, told = 0.2, list[float]()
    method, state = method_of(loss, ridge=ridge)
    counted = not_biases(method)
    monkeypatch.setattr(Damping, "adapted", lambda self, damping, ratio, count: (told.append(ratio), damping)[1])
    predictions: list[float] = []
    along = method.model.along

    def spied(*of: Any) -> tuple[float, float]:
        slope, curvature = along(*of)
        predictions.append(slope - 0.5 * curvature)
        return slope, curvature

    monkeypatch.setattr(method.model, "along", spied)
    for i in range(tuned.ADAPTED):
        before = state.weights.copy()
        method.step(halves(np.arange(i, 30 + i)), state)
    seen = slice(tuned.ADAPTED - 1, 29 + tuned.ADAPTED)
    objectives = [
        error(method, flat, seen) / 30.0 + ridge / 2.0 * float(counted @ flat**2) for flat in (before, state.weights)
    ]
    assert told == pytest.approx([(objectives[0] - objectives[1]) / predictions[-1]], rel=1e-7)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_decrease_is_that_of_the_points_probed(weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they give the length; of weighted points none weighs more than another there."""
    told = list[float]()
    method, state = method_of()
    method.unridged = True
    if weighted:
        method.passes.point_weights = np.random.default_rng(5).uniform(0.1, 3.0, len(method.data.X))
    monkeypatch.setattr(Damping, "adapted", lambda self, damping, ratio, count: (told.append(ratio), damping)[1])
    along, predictions = method.model.along, list[float]()

    def spied(*of: Any) -> tuple[float, float]:
        slope, curvature = along(*of)
        predictions.append(slope - 0.5 * curvature)
        return slope, curvature

    monkeypatch.setattr(method.model, "along", spied)
    for i in range(tuned.ADAPTED):
        before = state.weights.copy()
        method.step(halves(np.arange(i, 30 + i)), state)
    decrease = 0.0
    for own in halves(np.arange(tuned.ADAPTED - 1, 29 + tuned.ADAPTED)).values():
        few = own[probed_of(15, method.passes.point_weights[own] if weighted else None, 7)]
        outputs = (
            method.plan.chain.forward(method.layout.blocks(W), method.data.X[few]) for W in (before, state.weights)
        )
        first, second = (0.5 * np.sum((F - method.data.Y[few]) ** 2) for F in outputs)
        decrease += (first - second) / 14.0
    assert told == pytest.approx([decrease / predictions[-1]], rel=1e-7)


def test_the_run_shows_and_keeps_the_average() -> None:
    """An average of weights whose loss has been seen: all but the last ones."""
    method, state = method_of(averaging=0.8)
    mean = state.weights.copy()
    for i in range(50):
        if i:
            mean += max(0.2, 8.0 / (i + 7)) * (state.weights - mean)
        method.step(halves(np.arange(i, 30 + i)), state)
    np.testing.assert_allclose(state.own.average, mean, rtol=1e-12)
    rows = slice(None)
    assert method.evaluate(state).train == pytest.approx(error(method, state.own.average, rows) / len(method.data.X))
    np.testing.assert_array_equal(method.finish(state).weights, state.own.average)
    state.note_validation(0.1)
    np.testing.assert_array_equal(state.history.best_weights, state.own.average)


def test_a_state_between_two_epochs_holds_all_that_the_next_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuned, "REMADE", 4)
    method, state = method_of()
    for _ in range(2):
        method.sweep(state)
    copied = copy.deepcopy(state)
    other, _ = method_of()
    for _ in range(2):
        method.sweep(state)
        other.sweep(copied)
    ours, theirs = contents(state), contents(copied)
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)


@pytest.mark.parametrize("loss", LOSSES)
def test_statistics_are_running_means_over_minibatches(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However late the parts are added up; but for the inputs themselves, whose Gram is that of all points."""
    monkeypatch.setattr(tuned, "GRAM_MEMORY", 0.7)
    monkeypatch.setattr(tuned, "NOTED", 1)
    monkeypatch.setattr(tuned, "REMADE", 100)
    method, state = method_of(loss)
    means = [np.zeros((d, d)) for _, d in method.layout.shapes]
    for i in range(5):
        rows, kept = halves(np.arange(i, 30 + i)), copy.deepcopy(state)
        method.step(rows, state)
        totals = [np.zeros_like(G) for G in means]
        for own in rows.values():
            for G, A in zip(totals, inputs(method, kept, method.data.X[own][:7]), strict=True):
                G += A.T @ A / 14.0
        for mean, total in zip(means, totals, strict=True):
            mean += max(0.3, 1.0 / (i + 1)) * (total - mean)
    method.curvature.fold(state)
    method.curvature.complete(state)
    found = method.layout.gram_blocks(state.own.grams)
    X = np.hstack([method.data.X, np.ones((len(method.data.X), 1))])
    np.testing.assert_allclose(found[0], X.T @ X / len(X), rtol=1e-10, atol=1e-12)
    for G, mean in zip(found[1:], means[1:], strict=True):
        np.testing.assert_allclose(G, mean, rtol=1e-9, atol=1e-13)


def inputs(method: Method_, state: State, X: Array) -> list[Array]:
    """[A, 1] of each layer."""
    weights, chain = method.parts.weights(state), method.plan.chain
    before = (chain.part(0, 2 * k).forward(weights, X) if k else X for k in range(len(weights)))
    return [np.hstack([A, np.ones((len(A), 1))]) for A in before]


@pytest.mark.parametrize("times", [1, 2, 9])
def test_grams_are_those_of_the_layers_inputs(times: int) -> None:
    """Of each minibatch by its weight, whether rows are multiplied now or later; and then of none."""
    method, state = method_of()
    shapes = method.layout.shapes
    layers = [Shifted(k, LayerForm(), d, [0]) for k, (_, d) in enumerate(shapes)]
    expected = [np.zeros((d, d)) for _, d in shapes]
    for i in range(times):
        X = method.data.X[9 * i : 9 * i + 9]
        seen = Seen(method.plan.chain.whole.tape(method.parts.weights(state), X), X, X, slice(0, 5))
        for layer in layers:
            layer.note(0, seen, 0.5, 0.9)
        expected = [0.9 * G + 0.5 * A.T @ A for G, A in zip(expected, inputs(method, state, X[:5]), strict=True)]
    for result in (expected, [np.zeros_like(G) for G in expected]):
        for layer, G in zip(layers, result, strict=True):
            found = np.full(G.shape, np.nan)
            layer.running[0].put(found)
            np.testing.assert_allclose(found, G, rtol=1e-12)


def test_an_epoch_goes_on_from_its_position() -> None:
    method, state = method_of()
    later = copy.deepcopy(state)
    method.sweep(state)
    for position in range(2):
        method.step(method.schedule.drawn(0, position), later)
        later.position = position + 1
    method.sweep(later)
    np.testing.assert_array_equal(state.weights, later.weights)
    assert (later.position, later.iteration) == (0, 1)


@pytest.mark.parametrize(("n", "parts", "batch"), [(90, 2, 30), (91, 4, 13), (50, 7, 32), (33, 1, 8)])
def test_an_epoch_takes_every_point_once_each_from_its_own_part(n: int, parts: int, batch: int) -> None:
    method, _ = method_of(n=n, parts=parts, batch=batch)
    steps, drawn = method.schedule.of_epoch(0), []
    for place in range(steps):
        minibatch = method.schedule.drawn(0, place)
        for i, rows in minibatch.items():
            assert ((rows >= method.rows[i].start) & (rows < method.rows[i].stop)).all()
        drawn += [row for rows in minibatch.values() for row in rows]
        assert abs(sum(len(rows) for rows in minibatch.values()) - n / steps) <= parts
    assert sorted(drawn) == list(range(n))
    first, second = (method.schedule.drawn(iteration, 0)[0] for iteration in (0, 1))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize(
    ("validation", "far", "lost"),
    [(1.0 + 1e-9, True, True), (1.0, True, False), (1.0 + 1e-9, False, False), (0.5, False, False)],
)
def test_an_epoch_after_lost_weights_begins_again_at_the_best_ones(validation: float, far: bool, lost: bool) -> None:
    """As a run would begin there, with ten times the damping; a few validation points alone do not lose them."""
    method, state = method_of()
    method.begin(state)
    state.note_validation(1.0)
    best = state.history.best_weights.copy()
    method.sweep(state)
    state.own.average[:] += 1e3 if far else 0.0
    state.note_validation(validation * tuned.LOST)
    assert_array_equal(state.history.best_weights, best)
    taken, damping = state.own.steps, state.own.damping
    method.sweep(state)
    steps = method.schedule.of_epoch(1)
    assert state.own.steps == (steps if lost else taken + steps)
    if lost:
        other, fresh = method_of()
        other.begin(fresh)
        fresh.weights[:], fresh.own.average[:] = best, best
        fresh.own.damping, fresh.iteration = 10.0 * damping, 1
        other.sweep(fresh)
        assert_allclose(state.weights, fresh.weights, rtol=1e-12, atol=1e-14)


def test_a_step_gone_wrong_is_taken_back() -> None:
    method, state = method_of()
    for i in range(8):
        method.step(halves(np.arange(i, 30 + i)), state)
    damping = state.own.damping
    state.weights = state.weights + 1e3
    method.step(halves(np.arange(30)), state)
    np.testing.assert_array_equal(state.weights, state.own.average)
    assert not state.own.step.any()
    assert not state.own.inverses.any() and not state.own.length
    assert state.own.damping == 10.0 * damping
    state.weights = np.full_like(state.weights, np.nan)
    method.step(halves(np.arange(30)), state)
    assert np.isfinite(state.weights).all()
    method.step(halves(np.arange(30)), state)
    assert np.isfinite(state.weights).all()
    assert state.own.inverses.any()


@pytest.mark.parametrize(("records", "iterations"), [(1, 1), (2, 2), (4, 4), (7, 7), (9, 9), (1000, 9)])
def test_iterations_share_the_minibatches_of_each_epoch(records: int, iterations: int) -> None:
    """Each at most one more than another, none of an epoch whose minibatches have not grown without any."""
    minibatches = method_of(batch=10, batch_max=45, grow_every=3, records=records)[0].schedule
    for epoch in (0, 1, 5, 100):
        own = range(epoch * iterations, (epoch + 1) * iterations)
        places = [minibatches.of_iteration(i) for i in own]
        assert [minibatches.epoch(i) for i in own] == [epoch] * iterations
        assert [place for run in places for place in run] == list(range(minibatches.of_epoch(epoch)))
        assert max(map(len, places)) - min(map(len, places)) <= 1


@pytest.mark.parametrize(("lowest", "more"), [(7, 90), (7, 23), (89, 90)])
def test_minibatches_are_smaller_from_a_stall_of_the_validation_error_to_the_next(lowest: int, more: int) -> None:
    """Twice the first size at most, and what an epoch has does not depend on errors behind its beginning."""
    minibatches = method_of(batch=9, batch_max=45, grow_every=3, records=2)[0].schedule
    usual = [minibatches.of_epoch(epoch) for epoch in range(60)]
    errors = np.r_[np.arange(90.0, 90.0 - lowest, -1.0), np.full(91 - lowest, 90.0 - lowest)]
    begun = []
    for iteration in range(more):
        minibatches.watch(errors[: iteration + 1])
        begun += [minibatches.of_epoch(iteration // 2)] * (iteration % 2 == 0)
    first = -(-lowest // 2) + tuned.STALLED[0]
    second = first + tuned.STALLED[1]
    expected = [5 if first <= epoch < second else count for epoch, count in enumerate(usual)]
    assert max(usual[first:], default=0) < 5
    assert begun == expected[: len(begun)]


def test_an_epoch_in_parts_has_the_minibatches_of_one_as_a_whole() -> None:
    """The weights are those of an epoch without records on its way, but for the sums of Grams."""
    (whole, a), (parts, b) = method_of(batch=10), method_of(batch=10, records=3)
    whole.sweep(a)
    for iteration in range(3):
        assert b.iteration == iteration
        parts.sweep(b)
    assert a.own.steps == b.own.steps == 9
    np.testing.assert_allclose(b.weights, a.weights, rtol=1e-9, atol=1e-12)


def test_inverses_of_what_is_singular_are_finite() -> None:
    for G in (np.zeros((3, 3)), np.ones((3, 3))):
        for A, shift in zip((G, np.zeros((2, 2))), shifts(G, np.zeros((2, 2)), 1e-4), strict=True):
            assert np.isfinite(shifted_inverse(A, shift)).all()


def test_an_inverse_that_single_precision_cannot_give_is_made_in_double(monkeypatch: pytest.MonkeyPatch) -> None:
    """The eigenvalues of wide layers' Grams span more than float32 resolves; there its factor has no square root."""
    tried = []

    def strict(S: np.ndarray) -> np.ndarray:
        tried.append(S.dtype)
        if S.dtype == np.float32:
            raise np.linalg.LinAlgError
        return inverse(S)

    monkeypatch.setattr(solver_metrics, "inverse", strict)
    A = np.random.default_rng(0).normal(size=(40, 9)).astype(np.float32)
    A = A @ A.T
    exact = np.linalg.inv(A.astype(np.float64) + 1e-4 * np.eye(40))
    np.testing.assert_allclose(shifted_inverse(A, 1e-4), exact, rtol=1e-6, atol=1e-6 * np.abs(exact).max())
    assert tried == [np.float32, np.float64]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 9, 128, 129, 301, 514])
def test_a_shifted_inverse_is_symmetric_and_of_its_precision(n: int, dtype: type) -> None:
    A = (np.random.default_rng(0).normal(size=(n, n + 31)) / np.sqrt(n)).astype(dtype)
    found = shifted_inverse(A @ A.T, 0.1)
    np.testing.assert_array_equal(found, found.T)
    assert found.dtype == dtype
    near = 3e-4 if dtype == np.float32 else 1e-11
    np.testing.assert_allclose(found @ (A @ A.T + 0.1 * np.eye(n)), np.eye(n), atol=near)


@pytest.mark.parametrize("h", [1, 5, 70])
def test_a_few_rows_solved_for_are_those_of_all(h: int) -> None:
    random = np.random.default_rng(1)
    A, B = random.normal(size=(40, 30)), random.normal(size=(h, 30))
    lower = np.linalg.cholesky(A.T @ A)
    np.testing.assert_allclose(solve_rows(lower, B) @ (A.T @ A), B, atol=1e-9)


# --- the tree of sums -------------------------------------------------------------------------------------------------

LEAVES = st.integers(1, 70)


@given(LEAVES, st.integers(1, 20))
def test_the_nodes_of_all_ranks_cover_the_leaves_in_order(leaves: int, ranks: int) -> None:
    nodes = [n for run in tiles.contiguous_runs(leaves, ranks) for n in tiles.nodes(leaves, run)]
    assert [i for n in nodes for i in range(n.start, n.stop)] == list(range(leaves))


@given(st.lists(st.tuples(st.integers(1, 400), st.integers(1, 400)), min_size=1, max_size=8), st.integers(1, 20))
def test_each_inverse_is_one_ranks_and_no_rank_has_much_more_than_it_must(
    sides: list[tuple[int, int]], ranks: int
) -> None:
    flat = [n for pair in sides for n in pair]
    costs = [float(n**3) for n in flat]
    assigned = assign_inverses(costs, ranks)
    assert sorted(j for rank in assigned for j in rank) == list(range(len(flat)))
    best = max(sum(costs[j] for j in rank) for rank in tiles.assign_by_cost(costs, ranks))
    assert max(sum(costs[j] for j in rank) for rank in assigned) <= (1.0 + tiles.IN_ORDER) * best


def test_the_layout_covers_both_buffers() -> None:
    layout = Layout(((3, 5), (2, 4)), [LayerForm(), LayerForm()])
    assert (layout.weights[-1].stop, layout.grams[-1].stop, layout.squares[-1][-1].stop) == (23, 41, 25 + 9 + 16 + 4)
    flat = np.arange(23.0)
    assert [b.shape for b in layout.blocks(flat)] == [(3, 5), (2, 4)]
    np.testing.assert_array_equal(flat[layout.place(1, slice(1, 2))], layout.blocks(flat)[1][1])
    assert [a.shape for pair in layout.square_blocks(np.zeros(54)) for a in pair] == [(5, 5), (3, 3), (4, 4), (2, 2)]
    assert [a.shape for a in layout.gram_blocks(np.zeros(41))] == [(5, 5), (4, 4)]
