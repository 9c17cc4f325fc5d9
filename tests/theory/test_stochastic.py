"""Stochastic MAC: its directions are the formulas of curvature.py, its sums do not depend on who adds what up."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from macmpi import tiles
from macmpi.config import Config, Method, Model, Run, Start, Stochastic
from macmpi.curvature import Layout, add_curvature, add_gradient, damped_inverses
from macmpi.data import Dataset, fit_scaling
from macmpi.layers import Array
from macmpi.losses import LOSSES
from macmpi.plan import make_plan
from macmpi.record import Clock
from macmpi.state import State
from macmpi.stochastic import Stochastic as Method_
from macmpi.streams import stream
from macmpi.team import Solo
from macmpi.tiles import Tile

SIZES = (6, [5, 2, 4])


def data_of(labels: bool, n: int = 90) -> Dataset:
    random = np.random.default_rng(3)
    X = random.normal(size=(n, SIZES[0])) @ random.normal(size=(SIZES[0], SIZES[0])) / 2.0
    Y = np.eye(3)[(X[:, 0] > 0.0).astype(int) + (X[:, 1] > 0.5)] if labels else X
    scaling = fit_scaling(X, "none")
    return Dataset(X, Y, X[:20], Y[:20], scaling, fit_scaling(Y, "none"), "")


def method_of(loss: str = "squared", activation: str = "sigmoid", n: int = 90, **keys: object) -> tuple[Method_, State]:
    data = data_of(loss == "cross_entropy", n)
    config = Config(
        model=Model(SIZES[1], activation, loss=loss),  # type: ignore[arg-type]
        start=Start(range=2.0, seed=1),
        method=Method("stochastic"),
        stochastic=Stochastic(**{"batch": 30, "probed": 7, **keys}),  # type: ignore[arg-type]
        run=Run(max_iterations=5),
    )
    plan = make_plan(config, data.X.shape[1], data.Y.shape[1], len(data.X), len(data.X_val), 1)
    method = Method_(plan, data, Solo(), Clock(), config.stochastic)
    return method, method.start(2.0, False, 1)


def halves(rows: Array) -> dict[int, Array]:
    """A minibatch of two parts."""
    return dict(enumerate(np.array_split(rows, 2)))


def error(method: Method_, flat: Array, rows: slice = slice(None)) -> float:
    F = method.plan.chain.forward(method.layout.blocks(flat), method.data.X[rows])
    return float(method.plan.loss.value(method.data.Y[rows], F).sum())


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("activation", ["sigmoid", "tanh", "linear"])
def test_the_gradient_is_that_of_the_error(loss: str, activation: str) -> None:
    method, state = method_of(loss, activation)
    flat = state.weights + 0.1 * np.random.default_rng(0).normal(size=state.weights.shape)
    out = np.zeros_like(flat)
    tape = method.plan.chain.whole.tape(method.layout.blocks(flat), method.data.X)
    value = add_gradient(method.plan.loss, tape, method.data.Y, method.layout.blocks(out))
    assert value == pytest.approx(error(method, flat), rel=1e-12)
    direction = np.random.default_rng(1).normal(size=flat.shape)
    h = 1e-5
    slope = (error(method, flat + h * direction) - error(method, flat - h * direction)) / (2.0 * h)
    assert slope == pytest.approx(float(out @ direction), rel=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_metrics_are_the_curvature_at_the_outputs_of_each_layer(loss: str) -> None:
    """The mean over many probes is sum_n Phi^T B^T B Phi, with Phi by finite differences of the pre-activations."""
    method, state = method_of(loss)
    flat = state.weights + 0.3 * np.random.default_rng(0).normal(size=state.weights.shape)
    weights, chain, X, Y = method.layout.blocks(flat), method.plan.chain, method.data.X[:4], method.data.Y[:4]
    random, pairs = np.random.default_rng(5), None
    repeats = 4000
    total = np.zeros(method.layout.sizes[1])
    tape = chain.whole.tape(weights, X)
    for _ in range(repeats):
        add_curvature(method.plan.loss, tape, Y, random.standard_normal(Y.shape), method.layout.pairs(total))
    pairs = method.layout.pairs(total / repeats)
    affine = [i for i, m in enumerate(chain.maps) if m.parameter_shape is not None]
    for k, i in enumerate(affine):
        inputs = chain.part(0, i).forward(weights, X)
        A = np.hstack([inputs, np.ones((len(X), 1))])
        np.testing.assert_allclose(pairs[k][0], A.T @ A, rtol=1e-10)
        outputs, above = chain.part(0, i + 1).forward(weights, X), chain.part(i + 1, len(chain.maps))
        run = (lambda S, above=above: above.forward(weights, S)) if above.maps else (lambda S: S)
        F, h = run(outputs), 1e-5
        expected = np.zeros((outputs.shape[1],) * 2)
        for n in range(len(X)):
            Phi = np.empty((F.shape[1], outputs.shape[1]))
            for j in range(outputs.shape[1]):
                up, down = outputs[n : n + 1].copy(), outputs[n : n + 1].copy()
                up[0, j] += h
                down[0, j] -= h
                Phi[:, j] = (run(up) - run(down))[0] / (2.0 * h)
            expected += Phi.T @ method.plan.loss.hessian(F[n : n + 1]) @ Phi
        assert np.linalg.norm(pairs[k][1] - expected) < 0.1 * np.linalg.norm(expected)


def test_the_direction_is_the_damped_one_of_each_layer() -> None:
    method, state = method_of()
    method.step(halves(np.arange(30)), state)
    gradient = np.random.default_rng(2).normal(size=state.weights.shape)
    method._factor(state)
    found = method.layout.blocks(method._direction(gradient, state))
    statistics = method.layout.pairs(state.statistics)
    for D, slope, (G, M) in zip(found, method.layout.blocks(gradient), statistics, strict=True):
        means = [np.trace(A) / len(A) for A in (G, M)]
        b = np.sqrt(state.damping * means[0] / means[1])
        a = state.damping / b
        expected = -np.linalg.solve(M + a * np.eye(len(M)), slope) @ np.linalg.inv(G + b * np.eye(len(G)))
        np.testing.assert_allclose(D, expected, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_step_ends_in_the_minimum_of_its_model(loss: str) -> None:
    """1/2 |B J (x D + y P)|^2 + damping/2 |x D + y P|^2 + gradient, on the probed points, has no lower point around."""
    method, state = method_of(loss)
    random = np.random.default_rng(4)
    ways = [random.normal(size=state.weights.shape) for _ in range(2)]
    gradient = random.normal(size=state.weights.shape)
    X, Y = method.data.X[:9], method.data.Y[:9]
    tape = method.plan.chain.whole.tape(method.weights(state), X)
    tapes = {0: (tape, Y), 1: (tape, Y)}
    lengths, predicted = method._plane(ways, gradient, tapes, 18.0, 0.3)

    def model(x: Array) -> float:
        step = x[0] * ways[0] + x[1] * ways[1]
        change = tape.weight_jvp(method.layout.blocks(step))
        curved = method.plan.loss.root(Y, tape.F).normal(change)
        return float(gradient @ step + 0.5 * np.vdot(change, curved) / 9.0 + 0.15 * step @ step)

    assert model(lengths) == pytest.approx(-predicted, rel=1e-6)
    for moved in random.normal(size=(20, 2)):
        assert model(lengths + 1e-2 * moved) >= model(lengths)


@pytest.mark.parametrize("loss", LOSSES)
def test_it_trains(loss: str) -> None:
    method, state = method_of(loss)
    before = method.evaluate(state).train
    for _ in range(12):
        method.sweep(state)
    assert method.evaluate(state).train < 0.8 * before


def test_the_run_shows_and_keeps_the_average() -> None:
    method, state = method_of(averaging=0.8)
    mean = state.weights.copy()
    for i in range(6):
        method.step(halves(np.arange(i, 30 + i)), state)
        mean += max(0.2, 1.0 / (i + 1)) * (state.weights - mean)
    np.testing.assert_allclose(state.average, mean, rtol=1e-12)
    rows = slice(None)
    assert method.evaluate(state).train == pytest.approx(error(method, state.average, rows) / len(method.data.X))
    np.testing.assert_array_equal(method.finish(state).weights, state.average)
    state.note_validation(0.1)
    np.testing.assert_array_equal(state.best_weights, state.average)


def test_a_state_between_two_epochs_holds_all_that_the_next_needs() -> None:
    method, state = method_of(factor_every=4)
    for _ in range(2):
        method.sweep(state)
    copied = copy.deepcopy(state)
    other, _ = method_of(factor_every=4)
    for _ in range(2):
        method.sweep(state)
        other.sweep(copied)
    for name in ("weights", "average", "momentum", "statistics", "inverses"):
        np.testing.assert_array_equal(getattr(state, name), getattr(copied, name))
    assert (state.damping, state.level, state.steps) == (copied.damping, copied.level, copied.steps)


@pytest.mark.parametrize("loss", LOSSES)
def test_statistics_are_running_means_over_minibatches(loss: str) -> None:
    """However late the parts are added up, and whatever a step that was taken back has seen."""
    method, state = method_of(loss, memory=0.7, curvature_every=1, factor_every=100)
    mean = np.zeros_like(state.statistics)
    for i in range(5):
        rows, kept = halves(np.arange(i, 30 + i)), copy.deepcopy(state)
        method.step(rows, state)
        total, probed = np.zeros_like(mean), 0
        for part, own in rows.items():
            own = own[:7]
            tape = method.plan.chain.whole.tape(method.weights(kept), method.data.X[own])
            Y = method.data.Y[own]
            probe = stream(1, "probe", 0, 0, part).standard_normal(Y.shape, dtype=np.float32).astype(float)
            add_curvature(method.plan.loss, tape, Y, probe, method.layout.pairs(total))
            probed += len(own)
        mean += max(0.3, 1.0 / (i + 1)) * (total / probed - mean)
    method._fold(state)
    np.testing.assert_allclose(state.statistics, mean, rtol=1e-9, atol=1e-13)


def test_an_epoch_goes_on_from_its_position() -> None:
    method, state = method_of()
    later = copy.deepcopy(state)
    method.sweep(state)
    steps = method.steps(0)
    for position in range(2):
        method.step({i: method._drawn(i, steps, later) for i in method.rows}, later)
        later.position = position + 1
    method.sweep(later)
    np.testing.assert_array_equal(state.weights, later.weights)
    assert (later.position, later.iteration) == (0, 1)


@pytest.mark.parametrize(("n", "parts", "batch"), [(90, 2, 30), (91, 4, 13), (50, 7, 32), (33, 1, 8)])
def test_an_epoch_takes_every_point_once_each_from_its_own_part(n: int, parts: int, batch: int) -> None:
    method, state = method_of(n=n, parts=parts, batch=batch)
    steps, drawn = method.steps(0), []
    for state.position in range(steps):
        minibatch = {i: method._drawn(i, steps, state) for i in method.rows}
        for i, rows in minibatch.items():
            assert ((rows >= method.rows[i].start) & (rows < method.rows[i].stop)).all()
        drawn += [row for rows in minibatch.values() for row in rows]
        assert abs(sum(len(rows) for rows in minibatch.values()) - n / steps) <= parts
    assert sorted(drawn) == list(range(n))
    state.position = 0
    first = method._drawn(0, steps, state)
    state.iteration = 1
    assert not np.array_equal(method._drawn(0, steps, state), first)


def test_a_step_gone_wrong_is_taken_back() -> None:
    method, state = method_of()
    for i in range(8):
        method.step(halves(np.arange(i, 30 + i)), state)
    damping = state.damping
    state.weights = state.weights + 1e3
    method.step(halves(np.arange(30)), state)
    np.testing.assert_array_equal(state.weights, state.average)
    assert not state.momentum.any()
    assert state.damping == 10.0 * damping
    state.weights = np.full_like(state.weights, np.nan)
    method.step(halves(np.arange(30)), state)
    assert np.isfinite(state.weights).all()


def test_minibatches_grow() -> None:
    method, _ = method_of(batch=10, batch_max=45, grow_every=3)
    assert [method.steps(e) for e in (0, 2, 3, 6, 9, 10**6)] == [9, 9, 4, 2, 2, 2]
    method, _ = method_of(batch=10, batch_max=10**6, grow_every=1)
    assert method.steps(1000) == 1


def test_inverses_of_what_is_singular_are_finite() -> None:
    for G in (np.zeros((3, 3)), np.ones((3, 3))):
        for found in damped_inverses(G, np.zeros((2, 2)), 1e-4):
            assert np.isfinite(found).all()


# --- the tree of sums -------------------------------------------------------------------------------------------------

LEAVES = st.integers(1, 70)


@given(LEAVES, st.integers(1, 20))
def test_the_nodes_of_all_ranks_cover_the_leaves_in_order(leaves: int, ranks: int) -> None:
    nodes = [n for run in tiles.deal_runs(leaves, ranks) for n in tiles.nodes(leaves, run)]
    assert [i for n in nodes for i in range(n.start, n.stop)] == list(range(leaves))


@given(LEAVES, st.integers(1, 20), st.integers(0, 2**32 - 1))
def test_sums_up_the_tree_have_the_same_bits_for_any_runs(leaves: int, ranks: int, seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=leaves) * 10.0 ** np.random.default_rng(seed).integers(
        -9, 9, leaves
    )

    def total(start: int, stop: int) -> float:
        if stop - start == 1:
            return float(values[start])
        middle = tiles.halves(start, stop)
        assert start < middle < stop
        return total(start, middle) + total(middle, stop)

    found = {n: total(n.start, n.stop) for run in tiles.deal_runs(leaves, ranks) for n in tiles.nodes(leaves, run)}

    def joined(node: Tile) -> float:
        if node in found:
            return found[node]
        middle = tiles.halves(node.start, node.stop)
        return joined(Tile(node.start, middle)) + joined(Tile(middle, node.stop))

    assert joined(Tile(0, leaves)) == total(0, leaves)


@given(st.integers(0, 6))
def test_a_rank_of_a_power_of_two_exchanges_one_sum(power: int) -> None:
    assert all(len(tiles.nodes(64, run)) == 1 for run in tiles.deal_runs(64, 2**power))


def test_the_layout_covers_both_buffers() -> None:
    layout = Layout(((3, 5), (2, 4)))
    assert layout.sizes == (23, 25 + 9 + 16 + 4)
    flat = np.arange(23.0)
    assert [b.shape for b in layout.blocks(flat)] == [(3, 5), (2, 4)]
    np.testing.assert_array_equal(flat[layout.place(1, slice(1, 2))], layout.blocks(flat)[1][1])
    assert [tuple(a.shape for a in pair) for pair in layout.pairs(np.zeros(54))] == [((5, 5), (3, 3)), ((4, 4), (2, 2))]
