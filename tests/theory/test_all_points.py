"""Steps of stochastic MAC on all points: their model is that of Gauss and Newton, they descend, damping has a floor."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from plans import plan_of
from theory.nets import ACTIVATIONS
from theory.test_stochastic import RIDGES, SIZES, at_once, data_of, metrics_of, not_biases

from macmpi.config import Config, Method, Model, Start, Stochastic
from macmpi.methods.stochastic import all_points
from macmpi.methods.stochastic.all_points import AllPoints
from macmpi.methods.stochastic.passes import Points, probed_of
from macmpi.nets.losses import LOSSES
from macmpi.parallel.shared_work import Sum
from macmpi.parallel.team import Team
from macmpi.plan import tuned
from macmpi.reductions import sum_over
from macmpi.solvers.metrics import shifts
from macmpi.solvers.w_gauss_newton import layer_metrics
from macmpi.solvers.w_problem import SegmentProblem
from macmpi.state import State
from macmpi.training.checkpoint import contents
from macmpi.typing import Array


def method_of(
    loss: str = "squared", activation: str = "sigmoid", n: int = 90, autoencoder: bool = False, **keys: object
) -> tuple[AllPoints, State]:
    data = data_of(loss, n)
    config = Config(
        model=Model(SIZES[1], activation, loss=loss),  # type: ignore[arg-type]
        start=Start(range=2.0, seed=1),
        method=Method("stochastic"),
        stochastic=Stochastic(**{"batch": "all", "ridge": 0.0, **keys}),  # type: ignore[arg-type]
    )
    plan = plan_of(config, *data.sizes.counts, 1, autoencoder=autoencoder)
    method = AllPoints(plan, data, Team())
    state = method.start(2.0, False, 1)
    method.begin(state)
    return method, state


def points_of(method: AllPoints, state: State, ridge: float, damping: float) -> Points:
    rows = method.schedule.drawn(0, 0)
    passed = method._pass(rows, state)
    return Points(rows, passed.tapes, passed.n, ridge, damping)


def outputs(method: AllPoints, flat: Array, X: Array) -> Array:
    """The net with complex weights, written out once more."""
    weights, A = method.layout.blocks(flat), X
    for W in weights[:-1]:
        A = ACTIVATIONS["sigmoid"](A @ W[:, :-1].T + W[:, -1])
    return A @ weights[-1][:, :-1].T + weights[-1][:, -1]


def dense(method: AllPoints, flat: Array, X: Array, Y: Array) -> tuple[Array, Array]:
    """The Gauss-Newton matrix of E1 (P, P), and its gradient (P,), by a complex step along each weight."""
    P = len(flat)
    J = np.stack([outputs(method, flat + 1e-30j * np.eye(P)[i], X).imag / 1e-30 for i in range(P)], axis=-1)
    loss, F = method.plan.resolved.loss, outputs(method, flat, X)
    B = np.stack([loss.hessian(y[None], f[None]) for y, f in zip(Y, F, strict=True)])
    H = np.einsum("nlp,nlm,nmq->pq", J, B, J) / len(X)
    return H, -np.einsum("nlp,nl->p", J, loss.residual(Y, F)) / len(X)


def close(found: Array, expected: Array, bound: float = 1e-11) -> None:
    """As far as rounding of sums over points and of a solve lets them be, in units of the largest number."""
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=bound * np.abs(expected).max())


def moved(state: State, scale: float = 0.3) -> None:
    """Output layers of labels begin at 0."""
    state.weights += scale * np.random.default_rng(0).normal(size=state.weights.shape)


@pytest.mark.parametrize("ridge", RIDGES)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_model_of_all_points_is_the_dense_one(loss: str, ridge: float) -> None:
    method, state = method_of(loss)
    moved(state)
    points, random = points_of(method, state, ridge, 0.07), np.random.default_rng(2)
    H, g = dense(method, state.weights, method.data.X, method.data.Y)
    held = not_biases(method)
    ways = [random.normal(size=g.shape), random.normal(size=g.shape)]
    expected = [H @ way + (0.07 + ridge * held) * way for way in ways]
    close(method.model.product(ways[0], points), expected[0])
    b, h = method.model.within(ways, points, state)
    slope = g + ridge * held * state.weights
    damped = [[a @ H @ c + 0.07 * a @ c for c in ways] for a in ways]
    close(h, np.array(damped))
    close(b, np.array([-slope @ way for way in ways]))


@pytest.mark.parametrize("loss", LOSSES)
def test_cg_finds_the_step_of_levenberg_and_marquardt(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_points.tuned, "CG_TOLERANCE", 1e-10)
    method, state = method_of(loss, cg_iterations=300, damping=0.3)
    moved(state)
    before, last = state.weights.copy(), 1e-3 * np.random.default_rng(3).normal(size=state.weights.shape)
    state.own.step = last.copy()
    H, g = dense(method, before, method.data.X, method.data.Y)
    method.sweep(state)
    plane = np.stack([-np.linalg.solve(H + 0.3 * np.eye(len(g)), g), last], axis=1)
    step = state.weights - before
    inside, *_ = np.linalg.lstsq(plane, step, rcond=None)
    close(plane @ inside, step, 1e-7)


def test_the_metric_and_the_gram_of_one_point_are_the_dense_matrix() -> None:
    """Of points that are all alike the block of each layer is M (x) G; its damped inverse is what is applied."""
    like = method_of()[0]
    X, Y = (np.repeat(A[:1], len(A), axis=0) for A in (like.data.X, like.data.Y))
    method = AllPoints(like.plan, replace(like.data, X=X, Y=Y), Team())
    state = method.start(2.0, False, 1)
    moved(state)
    passed = method._pass(method.schedule.drawn(0, 0), state)
    method.curvature.note(passed.tapes, passed.probed, state)
    method.curvature.refresh(passed.tapes, passed.probed, 0.05, state)
    H, g = dense(method, state.weights, X[:1], Y[:1])
    found = method.directions.whole(Sum(g[None], 0, np.add), 1.0, 0.05, state)
    pairs = method.curvature._pairs(passed.tapes, passed.probed, state)
    for (G, M), place in zip((pairs[k] for k in sorted(pairs)), method.layout.weights, strict=True):
        close(np.kron(M, G), H[place, place])
        (b, a), n = shifts(G, M, 0.05), (len(M), len(G))
        close(found[place], -np.linalg.solve(np.kron(M + a * np.eye(n[0]), G + b * np.eye(n[1])), g[place]))


@pytest.mark.parametrize("loss", LOSSES)
def test_a_segment_is_preconditioned_by_the_metrics_of_all_its_points(loss: str) -> None:
    method, state = method_of(loss)
    moved(state)
    chain, weights, X, Y = method.plan.chain, method.layout.blocks(state.weights), method.data.X, method.data.Y
    whole, shapes = chain.whole, chain.block_shapes
    problem = SegmentProblem(X, Y, 0.0, state.weights[None], whole, method.plan.resolved.loss, shapes)
    runs = [slice(0, 50), slice(50, 90)]
    tapes = {rows.start: whole.tape(weights, X[rows]) for rows in runs}
    found = layer_metrics(problem, tapes, sum_over(runs))
    tape = whole.tape(weights, X)
    expected = metrics_of(method, tape, at_once(tape, Y, 90))
    for k, M in enumerate(expected):
        close(found[k], M)


@pytest.mark.parametrize("ridge", RIDGES)
@pytest.mark.parametrize("cg_iterations", [0, 4])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_objective_falls_in_every_step_and_damping_never_below_its_floor(
    loss: str, cg_iterations: int, ridge: float
) -> None:
    method, state = method_of(loss, cg_iterations=cg_iterations, ridge=ridge)

    def objective() -> float:
        return method.evaluate(state).train + ridge * method.model.ridge_value(state.weights)

    before, first = objective(), objective()
    for _ in range(25):
        method.sweep(state)
        after = objective()
        assert after < before or not state.own.step.any()
        assert state.own.damping >= method.damping.least
        before = after
    assert after < (0.97 if loss == "absolute" else 0.9) * first


def test_a_step_that_nothing_shortens_enough_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights stay, the damping grows, and the next step is along the direction alone."""
    method, state = method_of()
    method.sweep(state)
    before, damping = state.weights.copy(), state.own.damping
    monkeypatch.setattr(method, "_objective", lambda *of: 1.0)
    method.sweep(state)
    assert_array_equal(state.weights, before)
    assert state.own.damping == tuned.DAMPING_RAISED * damping
    assert not state.own.step.any()
    monkeypatch.undo()
    method.sweep(state)
    assert state.own.step.any()


@pytest.mark.parametrize("cg_iterations", [0, 3])
def test_a_state_between_two_steps_holds_all_that_the_next_needs(cg_iterations: int) -> None:
    """The tape that a step leaves behind is made again by whoever has none."""
    method, state = method_of(cg_iterations=cg_iterations)
    for _ in range(2):
        method.sweep(state)
    copied, (other, _) = copy.deepcopy(state), method_of(cg_iterations=cg_iterations)
    for _ in range(2):
        method.sweep(state)
        other.sweep(copied)
    ours, theirs = contents(state), contents(copied)
    for name in ours:
        assert_array_equal(ours[name], theirs[name], err_msg=name)


def test_what_a_step_shows_is_what_it_has() -> None:
    method, state = method_of()
    method.sweep(state)
    assert state.result is state.weights
    assert_array_equal(method.finish(state).weights, state.weights)


@pytest.mark.parametrize(("n", "most"), [(1, 64), (64, 64), (65, 64), (1000, 64), (7, 1)])
def test_points_in_an_order_are_probed_evenly(n: int, most: int) -> None:
    """The first ones may be of one class."""
    found = np.arange(n)[probed_of(n, None, most, True)]
    assert 0 < len(found) <= most
    assert len(set(np.diff(found).tolist())) <= 1
    assert n - 1 - found[-1] < max(np.diff(found), default=n)
