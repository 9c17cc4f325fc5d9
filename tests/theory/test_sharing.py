"""Weights that maps share: recurrent layers and tied ones, their objectives written out once more in plain NumPy."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from covering import covering
from numpy.testing import assert_allclose
from theory.nets import ACTIVATIONS, SITES, SMOOTH, anywhere, method, points, started

from macmpi.config import Recurrent
from macmpi.mac import Mac
from macmpi.nets.layers.activation import Activation, Softmax
from macmpi.nets.layers.affine import Affine
from macmpi.nets.losses import LOSSES
from macmpi.nets.regression import JointLoss
from macmpi.nets.segment import Segment
from macmpi.solvers import W_SOLVERS
from macmpi.state import State, block_views
from macmpi.typing import Array

STEPS, UNITS, INPUTS = 3, 4, 2
UNLIKE = {"closed_form", "gauss_newton", "sgd"}  # others than these fit all weights of a segment and lower E_Q
KINDS = ("recurrent", "tied", "stacked")
Z_SOLVING, W_SOLVING = ("gauss_newton", "alternating"), ("auto", *sorted(W_SOLVERS.keys() - UNLIKE))


def net(kind: str, activation: str, sites: str, seed: int = 0, **keys: Any) -> Mac:
    """A recurrent layer of 3 steps of 2 inputs and a dense layer, or a tied autoencoder 6-4-2-4-6, or a recurrent
    layer that gives all states behind another of 3 units."""
    if kind == "recurrent":
        data = points(seed, 37, STEPS * INPUTS, 2)
        return method([Recurrent(UNITS, STEPS), 3], activation, sites=sites, data=data, **keys)  # type: ignore[list-item]
    if kind == "stacked":
        data, layers = points(seed, 37, STEPS * INPUTS, 2), [Recurrent(UNITS, STEPS, states="all"), Recurrent(3, STEPS)]
        return method(layers, activation, sites=sites, data=data, **keys)  # type: ignore[arg-type]
    data = points(seed, 37, 6, 6)
    return method([4, 2, 4], activation, sites=sites, data=data, tied=True, **keys)


def e_q(mac: Mac, state: State, sites: str, activation: str) -> float:
    """Eq. (3), a sum over points, from its words alone."""
    s, after, X, Y = ACTIVATIONS[activation], sites == "after", mac.data.X, mac.data.Y
    weights = block_views(state.weights, mac.plan.chain.block_shapes)
    if weights[1].shape[1] == 3 + UNITS + 1:
        return stacked_e_q(mac, state, weights, s, after)
    layers = recurrent(weights, X) if len(weights) == 3 else tied(weights)
    ends = np.cumsum([W.shape[0] if forwards else W.shape[1] for W, _, forwards, _ in layers[:-1]])
    Z = np.split(state.Z, ends[:-1], axis=1)
    total, before = 0.0, None if len(weights) == 3 else X
    for k, (W, c, forwards, side) in enumerate(layers):
        a = before if before is None or k == 0 or after else s(before)
        inputs = np.hstack([part for part in (a, side) if part is not None])
        if before is None:
            inputs = np.hstack([np.zeros((len(X), UNITS)), inputs])
        f = inputs @ (W.T if forwards else W) + c
        if k + 1 == len(layers):
            return total + 0.5 * float(np.sum((Y - f) ** 2))
        total += 0.5 * state.mu * float(np.sum((Z[k] - (s(f) if after else f)) ** 2))
        before = Z[k]
    raise AssertionError


def stacked_e_q(mac: Mac, state: State, weights: Sequence[Array], s: Any, after: bool) -> float:
    """Behind a state are coordinates of those before it, and in the second layer of those that it has not read yet."""
    (V, U, W), X, n = weights, mac.data.X, len(mac.data.X)
    sites = np.split(state.Z, np.cumsum(mac.plan.chain.site_sizes)[:-1], axis=1)
    sides = np.split(X, STEPS, axis=1)
    squares, before = 0.0, np.zeros((n, UNITS))

    def moved(cell: Array, h: Array, x: Array, rest: list[Array], z: Array) -> Array:
        """What the next step reads."""
        nonlocal squares
        a = np.hstack([h, x]) @ cell[:, :-1].T + cell[:, -1]
        squares += float(np.sum((z - np.hstack([s(a) if after else a, *rest])) ** 2))
        return z if after else np.hstack([s(z[:, : len(cell)]), z[:, len(cell) :]])

    for t, side in enumerate(sides):
        h, past = before[:, :UNITS], before[:, UNITS:]
        before = moved(V, h, side, [past, h] if t else [], sites[t])
    before = np.hstack([np.zeros((n, 3)), before[:, UNITS:], before[:, :UNITS]])
    for z in sites[STEPS:]:
        before = moved(U, before[:, :3], before[:, 3 : 3 + UNITS], [before[:, 3 + UNITS :]], z)
    loss = float(np.sum((mac.data.Y - before @ W[:, :-1].T - W[:, -1]) ** 2))
    return 0.5 * loss + 0.5 * state.mu * squares


def test_stacked_layers_compute_states_of_states() -> None:
    """The net, and a layer that reads all states, the last one first."""
    mac = net("stacked", "tanh", "after")
    weights = block_views(started(mac).weights, mac.plan.chain.block_shapes)
    V, U, W = ((A[:, :-1].T, A[:, -1]) for A in weights)
    h, g, states = np.zeros((37, UNITS)), np.zeros((37, 3)), []
    for x in np.split(mac.data.X, STEPS, axis=1):
        h = np.tanh(np.hstack([h, x]) @ V[0] + V[1])
        g = np.tanh(np.hstack([g, h]) @ U[0] + U[1])
        states.append(h)
    assert_allclose(mac.plan.chain.forward(weights, mac.data.X), g @ W[0] + W[1], rtol=1e-12)
    all_states = mac.plan.chain.part(0, mac.plan.chain.sites[STEPS - 1]).forward(weights, mac.data.X)
    assert_allclose(all_states, np.hstack([states[-1], *states[:-1]]), rtol=1e-12)


Layers = list[tuple[Array, Array, bool, Array | None]]
"""Weights without biases, biases, whether they multiply as they are and not transposed, data that come with them."""


def recurrent(weights: Sequence[Array], X: Array) -> Layers:
    cell, *dense = weights
    sides = [X[:, t * INPUTS : (t + 1) * INPUTS] for t in range(STEPS)]
    steps: Layers = [(cell[:, :-1], cell[:, -1], True, side) for side in sides]
    return [*steps, *((W[:, :-1], W[:, -1], True, None) for W in dense)]


def tied(weights: Sequence[Array]) -> Layers:
    outer, outer_shift, inner, inner_shift = weights
    there: Layers = [(W[:, :-1], W[:, -1], True, None) for W in (outer, inner)]
    back: Layers = [(W[:, :-1], c[:, 0], False, None) for W, c in ((inner, inner_shift), (outer, outer_shift))]
    return [*there, *back]


def ridge(mac: Mac, state: State) -> float:
    return mac.parts.shaping_of(state, range(len(mac.plan.chain.segments)), ridge_alone=True)


@pytest.mark.parametrize(("kind", "activation", "sites"), covering(KINDS, ACTIVATIONS, SITES))
def test_e_q_is_that_of_the_words(kind: str, activation: str, sites: str) -> None:
    mac = net(kind, activation, sites)
    state = anywhere(mac)
    assert_allclose(mac.evaluate(state).E_Q * mac.plan.n_train, e_q(mac, state, sites, activation), rtol=1e-12)


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("solved", "activation", "sites", "mu", "scale", "z_solver"),
    covering(
        [*itertools.product(KINDS, W_SOLVING)], ACTIVATIONS, SITES, [0.01, 1.0, 1e3], ["unit", "objective"], Z_SOLVING
    ),
)
def test_no_half_step_raises_e_q_and_the_ridge(
    solved: tuple[str, str], activation: str, sites: str, mu: float, scale: str, z_solver: str
) -> None:
    """By every W-solver of segments in every kind of net."""
    kind, w_solver = solved
    for seed, value in enumerate((0.0, 0.3)):
        steps = {"z_step": {"solver": z_solver}, "w_step": {"solver": w_solver}}
        keys = {"ridge": value, "ridge_scale": scale, **steps}
        mac = net(kind, activation, sites, seed, **keys)
        state = (started if seed else anywhere)(mac, seed)
        state.mu = mu
        values = [e_q(mac, state, sites, activation) + ridge(mac, state)]
        for half_step in (mac.z_step, mac.w_step) * 3:
            half_step(state)
            values.append(e_q(mac, state, sites, activation) + ridge(mac, state))
        assert all(after <= before * (1.0 + 1e-11) for before, after in itertools.pairwise(values))
        assert values[-1] < values[0]


@pytest.mark.parametrize("kind", KINDS)
def test_coordinates_on_both_sides_of_activations_are_those_before_and_those_after(kind: str) -> None:
    """In the order of the net, step by step, and no half step raises E_Q and the ridge."""
    keys = {"ridge": 0.1, "ridge_scale": "objective"}
    mac, *others = (net(kind, "tanh", sites, **keys) for sites in ("both", "before", "after"))
    chain, state = mac.plan.chain, anywhere(mac)
    assert chain.sites == tuple(sorted(site for other in others for site in other.plan.chain.sites))
    values = []
    for half_step in (mac.z_step, mac.w_step) * 3:
        values.append(mac.evaluate(state).E_Q + ridge(mac, state) / mac.plan.n_train)
        half_step(state)
    assert all(after < before for before, after in itertools.pairwise(values))


@pytest.mark.parametrize(("kind", "sites"), covering(KINDS, SITES))
def test_the_w_step_ends_where_e_q_is_flat_in_the_shared_weights(kind: str, sites: str) -> None:
    """Central differences of E_Q + ridge, a weight at a time."""
    w_step = {"iterations": 60, "cg_iterations": 60, "cg_tolerance": 1e-9, "tolerance": 0.0}
    mac = net(kind, "tanh", sites, w_step=w_step, ridge=0.1, ridge_scale="objective")
    state = anywhere(mac, mu=3.0)
    for _ in range(4):
        mac.w_step(state)

    def at(i: int, step: float) -> float:
        kept = state.weights[i]
        state.weights[i] = kept + step
        value = e_q(mac, state, sites, "tanh") + ridge(mac, state)
        state.weights[i] = kept
        return value

    start = e_q(mac, state, sites, "tanh") + ridge(mac, state)
    slopes = [(at(i, 1e-5) - at(i, -1e-5)) / 2e-5 for i in range(len(state.weights))]
    assert np.abs(slopes).max() < 1e-5 * start


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("activation", SMOOTH)
def test_the_gradient_of_the_nested_error_is_that_of_differences(kind: str, activation: str) -> None:
    mac = net(kind, activation, "after")
    chain, X = mac.plan.chain, mac.data.X
    random = np.random.default_rng(0)
    flat, dF = random.normal(size=mac.plan.offsets.weights[-1]), random.normal(size=(len(X), chain.n_out))

    def at(weights: Array) -> Array:
        return chain.forward(block_views(weights, chain.block_shapes), X)

    tape = chain.whole.tape(block_views(flat, chain.block_shapes), X)
    gradient = np.concatenate([g.ravel() for g in tape.weight_vjp(dF)])
    way = random.normal(size=len(flat))
    change = (at(flat + 1e-6 * way) - at(flat - 1e-6 * way)) / 2e-6
    assert_allclose(tape.weight_jvp(block_views(way, chain.block_shapes)), change, atol=1e-6 * np.abs(change).max())
    assert_allclose(gradient @ way, np.vdot(change, dF), rtol=1e-6)


def test_the_curvature_of_weighted_squares_is_how_their_residual_changes(random: np.random.Generator) -> None:
    loss = JointLoss((LOSSES["squared"], LOSSES["squared"]), (2.5, 0.3), (2, 3), (2, 3))
    Y, F, dF = random.normal(size=(3, 7, 5))
    change = loss.residual(Y, F) - loss.residual(Y, F + dF)
    assert_allclose(loss.root(Y, F).normal(dF), change, rtol=0.0, atol=1e-13 * np.abs(change).max())


def test_a_closed_form_fits_all_steps_at_once() -> None:
    mac = net("recurrent", "linear", "before", ridge=0.0)
    state = anywhere(mac)
    mac.w_step(state)
    X, Z = mac.data.X, state.Z
    before = np.hstack([np.zeros((len(X), UNITS)), Z[:, : (STEPS - 1) * UNITS]]).reshape(-1, UNITS)
    A = np.hstack([before, X.reshape(-1, INPUTS), np.ones((len(before), 1))])
    expected = np.linalg.lstsq(A, Z[:, : STEPS * UNITS].reshape(-1, UNITS), rcond=None)[0].T
    found = block_views(state.weights, mac.plan.chain.block_shapes)[0]
    assert_allclose(found, expected, atol=1e-9 * np.abs(expected).max())


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_memory_keeps_the_length_of_a_state(activation: str) -> None:
    """The identity under a rectifier, another orthogonal matrix under tanh."""
    mac = net("recurrent", activation, "after")
    state = mac.start(2.0, False, 0)
    U = block_views(state.weights, mac.plan.chain.block_shapes)[0][:, :UNITS]
    assert_allclose(U @ U.T, np.eye(UNITS), atol=1e-12)
    assert np.array_equal(U, np.eye(UNITS)) == (activation == "relu")


@pytest.mark.parametrize("first", [Affine(5, 4), Softmax(5)])
def test_forms_go_through_a_segment_that_reads_data_as_through_its_derivative(first: Any) -> None:
    """J M J^T and J^T M J, with J by differences in the coordinates alone, for the mean over points."""
    random = np.random.default_rng(0)
    segment = Segment(
        (first, Activation("tanh", first.n_out)), (0 if first.parameter_shape else None, None), ((6, 8), None)
    )
    weights = [random.normal(size=(4, 6))]
    assert segment.n_in == 3
    A = random.normal(size=(1, 5))
    steps = 1e-6 * np.eye(3, 5)
    J = ((segment.forward(weights, A + steps) - segment.forward(weights, A - steps)) / 2e-6).T
    for M, found, expected in (
        (np.diag([1.0, 2.0, 3.0]) + 0.3, segment.congruence, lambda M: J @ M @ J.T),
        (np.eye(first.n_out) + 0.3, segment.pullback, lambda M: J.T @ M @ J),
    ):
        assert_allclose(found(weights, A, M), expected(M), atol=1e-7)
