"""The appendix's theorems on small nets: stationary points, multipliers, constraint gradients."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import linalg
from theory.nets import (
    ACTIVATIONS,
    SITES,
    SMOOTH,
    activation_of,
    anywhere,
    before_activation,
    e1,
    e_q,
    feasible,
    gradient,
    jacobian_rows,
    last_features,
    layers,
    method,
    points,
)

from macmpi.data import Dataset, Scaling
from macmpi.layers import Array
from macmpi.mac import MacQP
from macmpi.objective import nested_gradient, split_sites
from macmpi.state import State

HIDDEN = [(3,), (4, 3), (3, 2, 4)]


def backpropagated(mac: MacQP, state: State) -> Array:
    chunks = (slice(0, 3), slice(3, mac.plan.n_train))
    return nested_gradient(mac.plan.chain, mac.plan.loss, mac.weights(state), mac.data.X, mac.data.Y, chunks)


def multipliers(mac: MacQP, state: State) -> list[Array]:
    """lambda_k = -Phi_k^T r for each point, k = 1..K: eq. (kkt3') for any number of layers."""
    sites = split_sites(mac.plan.chain, state.Z)
    residual = mac.data.Y - layers(mac, state)[-1](sites[-1])
    out = [np.empty_like(z) for z in sites]
    for row in range(len(residual)):
        J, u = jacobian_rows(mac, state, row), -residual[row]
        for k in range(len(sites), 0, -1):
            u = J[k].T @ u
            out[k - 1][row] = u
    return out


def lagrangian(mac: MacQP, state: State, lambdas: list[Array]) -> float:
    """1/2 sum ||y - f_{K+1}(z_K)||^2 - sum lambda_k^T (z_k - f_k(z_{k-1}))."""
    sites, net = split_sites(mac.plan.chain, state.Z), layers(mac, state)
    inputs = [mac.data.X, *sites]
    total = 0.5 * float(np.sum((mac.data.Y - net[-1](sites[-1])) ** 2))
    for f, a, z, of_site in zip(net, inputs, sites, lambdas, strict=False):
        total -= float(np.sum(of_site * (z - f(a))))
    return total


# --- theorem A.2 ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sites", SITES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("hidden", HIDDEN, ids=str)
def test_nested_gradient(hidden: tuple[int, ...], activation: str, sites: str) -> None:
    mac = method(hidden, activation, n=8, sites=sites)
    state = anywhere(mac)
    expected = gradient(lambda: e1(mac, state), state.weights)
    assert_allclose(backpropagated(mac, state), expected, rtol=1e-6, atol=1e-6)


def test_nested_gradient_sums_over_chunks() -> None:
    mac = method(n=20)
    state = anywhere(mac)
    whole = nested_gradient(mac.plan.chain, mac.plan.loss, mac.weights(state), mac.data.X, mac.data.Y, [slice(0, 20)])
    assert_allclose(backpropagated(mac, state), whole, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("sites", SITES)
@pytest.mark.parametrize("activation", SMOOTH)
@pytest.mark.parametrize("hidden", HIDDEN, ids=str)
def test_the_kkt_points_of_both_problems_correspond(hidden: tuple[int, ...], activation: str, sites: str) -> None:
    """At any W: with Z = g(W) and lambda_k = -Phi_k^T r, the Lagrangian is stationary in Z and its gradient in W is
    that of E1, so one vanishes where the other does."""
    mac = method(hidden, activation, n=6, sites=sites)
    state = anywhere(mac, off=0.0)
    lambdas = multipliers(mac, state)
    by_z = gradient(lambda: lagrangian(mac, state, lambdas), state.Z)
    assert_allclose(by_z, 0.0, atol=1e-7)
    by_w = gradient(lambda: lagrangian(mac, state, lambdas), state.weights)
    assert np.abs(by_w).max() > 0.1
    assert_allclose(by_w, backpropagated(mac, state), rtol=1e-6, atol=1e-6)


# --- theorem B.3 ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sites", SITES)
@pytest.mark.parametrize("hidden", HIDDEN, ids=str)
def test_constraint_gradients_are_linearly_independent(hidden: tuple[int, ...], sites: str) -> None:
    """At any (W, Z), feasible or not: the constraints' Jacobian with respect to a point's Z is unit triangular."""
    for seed in range(3):
        mac = method(hidden, n=4, seed=seed, sites=sites)
        state = anywhere(mac, seed, off=2.0)
        bounds = np.cumsum([0, *mac.plan.chain.site_sizes])
        for row in range(4):
            J, C = jacobian_rows(mac, state, row), np.eye(bounds[-1])
            for k in range(1, len(hidden)):
                C[bounds[k] : bounds[k + 1], bounds[k - 1] : bounds[k]] = -J[k]
            assert_allclose(C, constraint_jacobian(mac, state, row), rtol=0.0, atol=1e-8)
            assert np.linalg.matrix_rank(C) == bounds[-1]
            assert_allclose(linalg.det(C), 1.0, rtol=1e-10)


def constraint_jacobian(mac: MacQP, state: State, row: int) -> Array:
    """d(z - F(z)) / dz at one point, column by column by central differences."""
    Z, h = np.repeat(state.Z[row : row + 1], 2, axis=0), 1e-6
    X = np.repeat(mac.data.X[row : row + 1], 2, axis=0)
    columns = []
    for i in range(Z.shape[1]):
        moved = Z.copy()
        moved[:, i] += [h, -h]
        sites = split_sites(mac.plan.chain, moved)
        C = np.hstack([z - f(a) for f, a, z in zip(layers(mac, state), [X, *sites], sites, strict=False)])
        columns.append((C[0] - C[1]) / (2.0 * h))
    return np.array(columns).T


@pytest.mark.parametrize(("activation", "cut"), [("sigmoid", "after"), ("tanh", "after"), ("tanh", "before")])
@pytest.mark.parametrize("hidden", HIDDEN, ids=str)
def test_multipliers_are_the_limit_of_minus_mu_times_the_constraints(
    hidden: tuple[int, ...], activation: str, cut: str
) -> None:
    """Along exact minimisation of E_Q over Z, the distance to lambda falls like 1/mu."""
    exact = {"iterations": 40, "relaxation": 1.0, "cg_iterations": 5, "cg_tolerance": 0.0, "halvings": 40}
    mac = method(hidden, activation, n=6, sites=cut, z_step=exact)
    state = anywhere(mac, off=0.0)
    Z = state.Z.copy()
    expected = np.hstack(multipliers(mac, state))
    distances = []
    for mu in (1e2, 1e3, 1e4):
        state.mu = mu
        mac.z_step(state)
        sites = split_sites(mac.plan.chain, state.Z)
        inputs = [mac.data.X, *sites]
        C = np.hstack([z - f(a) for f, a, z in zip(layers(mac, state), inputs, sites, strict=False)])
        distances.append(np.abs(-mu * C - expected).max())
    assert np.abs(expected).max() > 0.1
    assert all(0.05 < after / before < 0.2 for before, after in itertools.pairwise(distances))
    assert_allclose(state.Z, Z, atol=1e-3)


# --- theorem B.4 ------------------------------------------------------------------------------------------------------


def replaced_targets(mac: MacQP, state: State, residual: Array) -> MacQP:
    """The same problem with targets that have this residual at the state's weights."""
    old = mac.data
    A = old.X
    for f in layers(mac, state):
        A = f(A)
    Y = A + residual
    unit = Scaling(np.zeros(Y.shape[1]), np.ones(Y.shape[1]))
    data = Dataset(old.X, Y, old.X_val, old.Y_val, old.scaling_x, unit, "")
    sites = "before" if before_activation(mac) else "after"
    return method(mac.plan.chain.site_sizes, activation_of(mac), data=data, sites=sites, ridge=0.0)


def without(columns: Array, R: Array) -> Array:
    """R less its projection on the span of some columns."""
    Q = linalg.orth(columns)
    return R - Q @ (Q.T @ R)


@pytest.mark.parametrize("mu", [0.1, 10.0, 1e4])
@pytest.mark.parametrize("sites", SITES)
@pytest.mark.parametrize("activation", SMOOTH)
def test_a_feasible_stationary_point_of_e_q_is_one_of_e1(activation: str, sites: str, mu: float) -> None:
    """Built with residuals that neither the last layer's inputs nor its weights see: J^T r = 0 for every n."""
    mac = method((4, 3), activation, n=12, targets=7, sites=sites)
    state = anywhere(mac, mu=mu, off=0.0)
    R = np.random.default_rng(1).normal(size=mac.data.Y.shape)
    V = mac.weights(state)[-1][:, :-1]
    R = without(last_features(mac, state), without(V, R.T).T)
    mac = replaced_targets(mac, state, R)
    mac.begin(state)
    assert e1(mac, state) > 0.1
    for variables in (state.weights, state.Z):
        assert_allclose(gradient(lambda: e_q(mac, state), variables), 0.0, atol=1e-6 * max(1.0, mu))
    assert_allclose(backpropagated(mac, state), 0.0, atol=1e-11)
    # And the method stays there.
    weights, Z = state.weights.copy(), state.Z.copy()
    mac.sweep(state)
    assert_allclose(state.Z, Z, rtol=0.0, atol=1e-9)
    assert_allclose(state.weights, weights, rtol=0.0, atol=1e-7)


@pytest.mark.parametrize("sites", SITES)
@pytest.mark.parametrize("mu", [0.1, 10.0, 1e4])
def test_the_converse_does_not_hold(mu: float, sites: str) -> None:
    """A stationary point of E1 whose J^T r are not 0, though their sums over the points are: E_Q's gradient with
    respect to W vanishes there, that with respect to Z does not, and a Z-step goes below E1."""
    n = 30
    mac = method((3,), n=n, d=2, targets=2, sites=sites)
    state = anywhere(mac, mu=mu, off=0.0)
    hidden, D = last_features(mac, state), np.column_stack([mac.data.X, np.ones(n)])
    slopes = hidden[:, :3] * (1.0 - hidden[:, :3])
    seen = np.hstack([hidden, *(slopes[:, h : h + 1] * D for h in range(3))])
    R = without(seen, np.random.default_rng(1).normal(size=(n, 2)))
    mac = replaced_targets(mac, state, R)
    mac.begin(state)
    assert_allclose(backpropagated(mac, state), 0.0, atol=1e-11)
    assert_allclose(gradient(lambda: e_q(mac, state), state.weights), 0.0, atol=1e-6 * max(1.0, mu))
    by_z = gradient(lambda: e_q(mac, state), state.Z)
    assert_allclose(by_z, np.hstack(multipliers(mac, state)).ravel(), rtol=1e-5, atol=1e-5 * max(1.0, mu))
    assert np.abs(by_z).max() > 0.1
    nested = e1(mac, state)
    assert_allclose(e_q(mac, state), nested, rtol=1e-12)
    mac.z_step(state)
    assert e_q(mac, state) < nested


@pytest.mark.parametrize("sites", SITES)
def test_perfect_weights_are_a_fixed_point(sites: str) -> None:
    """The remark's other half: where E1 = 0 the constraints are met, and nothing moves at any mu."""
    mac = method((4, 3), n=15, sites=sites)
    state = anywhere(mac, off=0.0)
    mac = replaced_targets(mac, state, np.zeros_like(mac.data.Y))
    mac.begin(state)
    weights, Z = state.weights.copy(), state.Z.copy()
    for mu in (0.1, 10.0, 1e6):
        state.mu = mu
        mac.sweep(state)
        assert_allclose(state.weights, weights, rtol=0.0, atol=1e-8)
        assert_allclose(state.Z, Z, rtol=0.0, atol=1e-10)
        assert e1(mac, state) < 1e-20


@pytest.mark.parametrize("sites", SITES)
def test_these_nets_are_what_the_package_computes(sites: str) -> None:
    """The objectives above are written out by hand: they must be those of the method."""
    data = points(3, 10, 4, 3)
    for activation in ACTIVATIONS:
        mac = method((5, 4), activation, data=data, sites=sites)
        state = anywhere(mac)
        assert_allclose(mac.evaluate(state, feasible=True).train, e1(mac, state) / 10, rtol=1e-12)
        assert_allclose(
            np.hstack(mac.plan.chain.coordinates(mac.weights(state), data.X)), feasible(mac, state), rtol=1e-12
        )
