"""Theorem A.2 (both problems have the same stationary points), a step of A.1, the constraint gradients of B.3."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import linalg
from theory.checks import deviation
from theory.nets import (
    ACTIVATIONS,
    SITES,
    SMOOTH,
    anywhere,
    constraint,
    e1,
    e_q,
    feasible,
    jacobian_rows,
    layers,
    loss_of,
    method,
    multipliers,
    of_sites,
    points,
    slopes,
    total,
    work,
)

from macmpi.mac import Mac
from macmpi.nets.chain import Chain
from macmpi.nets.layers.affine import Affine
from macmpi.nets.layers.codes import Binary
from macmpi.nets.losses import Squared, metric
from macmpi.reductions import sum_over
from macmpi.solvers.w_problem import SegmentProblem, gradients
from macmpi.solvers.z_problem import ZProblem
from macmpi.state import State
from macmpi.typing import Array

HIDDEN = [(3,), (4, 3), (3, 2, 4)]
NETS: dict[str, dict[str, Any]] = {
    "labels": {"loss": "cross_entropy"},
    "labels, before": {"loss": "cross_entropy", "sites": "before", "activation": ["tanh", "softmax"]},
    "softmax": {"activation": ["softmax", "sigmoid"], "output": "softmax"},
    "mixed": {"sites": ["before", "after"], "activation": ["sigmoid", "tanh"], "output": "tanh"},
    "none below": {"sites": ["none", "after"], "activation": "tanh"},
    "some units": {"sites": [{"after": 1}, "before"], "activation": ["sigmoid", "tanh"]},
    "none above": {"sites": ["before", "none"], "activation": "tanh", "loss": "cross_entropy"},
}


def backpropagated(mac: Mac, state: State) -> Array:
    """The gradient of E1 as the package has it: that of the net as one segment."""
    plan = mac.plan
    nested = SegmentProblem(
        *(mac.data.X, mac.data.Y, 0.0, state.weights[None]),
        *(plan.chain.whole, plan.resolved.loss, plan.chain.block_shapes),
    )
    chunks = (slice(0, 3), slice(3, plan.n_train))
    return gradients(nested, nested.start, sum_over(chunks))[1][0]


def lagrangian(mac: Mac, state: State, lambdas: list[Array]) -> Any:
    """loss - sum lambda_k^T (z_k - f_k(z_{k-1}))."""
    last = layers(mac, state)[-1](of_sites(mac, state.Z)[-1])
    return loss_of(mac, last) - total(np.hstack(lambdas) * constraint(mac, state))


# --- theorem A.2 ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sites", [*SITES, "none"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("hidden", HIDDEN, ids=str)
def test_nested_gradient(hidden: tuple[int, ...], activation: str, sites: str) -> None:
    mac = method(hidden, activation, n=8, sites=sites)
    state = anywhere(mac)
    deviation("grad E1", backpropagated(mac, state), slopes(lambda: e1(mac, state), state, "weights"))


@pytest.mark.parametrize("net", NETS)
def test_nested_gradient_of_other_nets(net: str) -> None:
    mac = method((4, 3), n=8, **NETS[net])
    state = anywhere(mac)
    expected = slopes(lambda: e1(mac, state), state, "weights")
    assert np.abs(expected).max() > 0.1
    deviation("grad E1", backpropagated(mac, state), expected)


def assert_lagrangians_gradient_is_that_of_e1(mac: Mac) -> None:
    """At any W: with Z = g(W) and lambda_k = -Phi_k^T r, the Lagrangian is stationary in Z and its gradient in W is
    that of E1, so one vanishes where the other does."""
    state = anywhere(mac, off=0.0)
    lambdas = multipliers(mac, state)
    by_z = slopes(lambda: lagrangian(mac, state, lambdas), state, "Z")
    assert_allclose(by_z, 0.0, atol=1e-11)
    by_w = slopes(lambda: lagrangian(mac, state, lambdas), state, "weights")
    assert np.abs(by_w).max() > 0.05
    deviation("grad of the Lagrangian", backpropagated(mac, state), by_w)


@pytest.mark.parametrize("sites", SITES)
@pytest.mark.parametrize("activation", SMOOTH)
@pytest.mark.parametrize("hidden", HIDDEN, ids=str)
def test_the_kkt_points_of_both_problems_correspond(hidden: tuple[int, ...], activation: str, sites: str) -> None:
    assert_lagrangians_gradient_is_that_of_e1(method(hidden, activation, n=6, sites=sites))


@pytest.mark.parametrize("net", NETS)
def test_the_kkt_points_of_both_problems_correspond_for_other_nets(net: str) -> None:
    assert_lagrangians_gradient_is_that_of_e1(method((4, 3), n=6, **NETS[net]))


def test_the_packages_augmented_lagrangian_has_these_multipliers() -> None:
    """Its own sum lambda^T (z - f), whose sign and order are those of the Lagrangian above."""
    mac = method((4, 3), n=6, method="augmented_lagrangian")
    state = anywhere(mac)
    last = layers(mac, state)[-1](of_sites(mac, state.Z)[-1])
    expected = loss_of(mac, last) - work(mac, state)
    assert_allclose(lagrangian(mac, state, of_sites(mac, state.own.multipliers)), expected, rtol=1e-12)
    errors = mac.evaluate(state)
    assert errors.lagrangian is not None
    assert_allclose(6 * (errors.E_Q - errors.lagrangian), work(mac, state), rtol=1e-10)
    deviation("augmented Lagrangian", 6 * errors.lagrangian, e_q(mac, state) - work(mac, state))


# --- theorem A.1 ------------------------------------------------------------------------------------------------------


def test_at_a_jump_a_neighbourhood_has_to_leave_z_free() -> None:
    """What the printed proof of <= passes over: with balls in (W, Z), a jump of g separates feasible neighbours, so
    that (W*, g(W*)) is a local minimiser in its ball and W* is none of E1.  With N x {all Z}, as for =>, it is."""
    chain = Chain((Affine(1, 1), Binary(1), Affine(1, 1)), (2,))
    x, y, levels = np.ones((2, 1)), np.full((2, 1), 0.6), np.array([[0.0], [1.0]])

    def feasible_values(w: float) -> dict[float, float]:
        """{z: E(w, z)} of the feasible z among both levels."""
        weights = [np.array([[w, 0.0]]), np.array([[1.0, 0.0]])]
        problem = ZProblem(chain.segments, (1,), weights, Squared(), (metric(1.0),), x, y, levels)
        F = problem.outputs(levels)
        return {
            float(z[0]): float(v) for z, f, v in zip(levels, F[0], Squared().value(y, F[-1]), strict=True) if z == f
        }

    near = [feasible_values(w) for w in np.linspace(-0.3, 0.3, 61)]
    ((z_star, e_star),) = feasible_values(0.0).items()
    assert z_star == 0.0
    in_the_ball = [e for pairs in near for z, e in pairs.items() if abs(z - z_star) < 0.5]
    assert min(in_the_ball) == e_star
    assert min(e for pairs in near for e in pairs.values()) < 0.5 * e_star
    assert 0 < len(in_the_ball) < len(near) == sum(len(pairs) for pairs in near)


# --- theorem B.3: the constraint gradients ----------------------------------------------------------------------------


@pytest.mark.parametrize("sites", SITES)
@pytest.mark.parametrize("hidden", HIDDEN, ids=str)
def test_constraint_gradients_are_linearly_independent(hidden: tuple[int, ...], sites: str) -> None:
    """At any (W, Z), feasible or not: the constraints' Jacobian with respect to a point's Z is unit triangular."""
    for seed in range(3):
        mac = method(hidden, n=4, seed=seed, sites=sites)
        assert_unit_triangular(mac, seed)


@pytest.mark.parametrize("net", NETS)
def test_constraint_gradients_are_linearly_independent_for_other_nets(net: str) -> None:
    assert_unit_triangular(method((4, 3), n=4, **NETS[net]), 0)


def assert_unit_triangular(mac: Mac, seed: int) -> None:
    state = anywhere(mac, seed, off=2.0)
    sizes = mac.plan.chain.site_sizes
    bounds = np.cumsum([0, *sizes])
    for row in range(4):
        J, C = jacobian_rows(mac, state, row), np.eye(bounds[-1])
        for k in range(1, len(sizes)):
            C[bounds[k] : bounds[k + 1], bounds[k - 1] : bounds[k]] = -J[k]
        deviation("constraint gradients", C, constraint_jacobian(mac, state, row))
        assert np.linalg.matrix_rank(C) == bounds[-1]
        assert_allclose(linalg.det(C), 1.0, rtol=1e-10)


def constraint_jacobian(mac: Mac, state: State, row: int) -> Array:
    """d(z - F(z)) / dz at one point, all columns at once by a complex step: a row for each number of z."""
    size, h = state.Z.shape[1], 1e-30
    moved = np.repeat(state.Z[row : row + 1], size, axis=0) + 1j * h * np.eye(size)
    sites = of_sites(mac, moved)
    X = np.repeat(mac.data.X[row : row + 1], size, axis=0)
    C = np.hstack([z - f(a) for f, a, z in zip(layers(mac, state), [X, *sites], sites, strict=False)])
    return C.imag.T / h


# --- the references ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sites", SITES)
def test_these_nets_are_what_the_package_computes(sites: str) -> None:
    """The objectives above are written out by hand: they must be those of the method."""
    data = points(3, 10, 4, 3)
    for activation in ACTIVATIONS:
        mac = method((5, 4), activation, data=data, sites=sites)
        state = anywhere(mac)
        deviation("E1", 10 * mac.evaluate(state, feasible=True).train, e1(mac, state))
        Z = np.hstack(mac.plan.chain.coordinates(mac.parts.weights(state), data.X))
        deviation("feasible coordinates", Z, feasible(mac, state))


@pytest.mark.parametrize("net", NETS)
def test_other_nets_are_what_the_package_computes(net: str) -> None:
    mac = method((5, 4), n=10, **NETS[net])
    state = anywhere(mac)
    deviation("E1", 10 * mac.evaluate(state, feasible=True).train, e1(mac, state))
    Z = np.hstack(mac.plan.chain.coordinates(mac.parts.weights(state), mac.data.X))
    deviation("feasible coordinates", Z, feasible(mac, state))
