"""Theorem A.1: minimisers (and maximisers) of the nested and of the MAC-constrained problem correspond, one to one.

By enumeration where all variables take finitely many values, by two optimisers where the maps are smooth, and by the
curvature of E on the feasible set.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import optimize
from theory.nets import anywhere, constraint, e1, feasible, gradient, method, multipliers
from theory.problems import z_problem
from theory.test_appendix import backpropagated, lagrangian
from theory.test_splittings import Absolute

from macmpi.mac import Mac
from macmpi.nets.chain import Chain
from macmpi.nets.layers.activation import Activation
from macmpi.nets.layers.affine import Affine
from macmpi.nets.losses import Loss, Squared, metric
from macmpi.solvers.z_problem import ZProblem
from macmpi.state import State
from macmpi.typing import Array

# --- enumeration: maps that are not smooth, or jump -------------------------------------------------------------------


@dataclass(frozen=True)
class Elementwise(Activation):
    """A map that only evaluates: no slope, so no capability but to be there."""

    capabilities: ClassVar[frozenset[str]] = frozenset({"elementwise"})  # type: ignore[misc]

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        return NONSMOOTH[self.name](A)


NONSMOOTH: dict[str, Any] = {
    "step": lambda a: np.where(a >= 0.0, 1.0, 0.0),
    "quantise": lambda a: np.clip(np.floor(0.5 * a), -1.0, 2.0),
    "relu": lambda a: np.maximum(a, 0.0),
}
LEVELS = {"step": [0.0, 1.0], "quantise": [-1.0, 0.0, 1.0, 2.0], "relu": [0.0, 1.0, 2.0]}
X, Y = np.array([[-2.0], [1.0], [2.0]]), np.array([[0.4], [-1.0], [1.3]])
BOXES: dict[str, Any] = {
    "box": lambda W: np.abs(W).max() <= 1.0,
    "smaller box": lambda W: np.abs(W).max() <= 1.0 and (W >= 0.0).all(),
    "budget": lambda W: np.abs(W).sum() <= 3.0,
}


@dataclass(frozen=True)
class Enumerated:
    """Every W of a grid that keeps its constraints, E1 there, and E of every (W, Z) that is feasible."""

    W: Array
    nested: Array
    constrained: dict[tuple[int, tuple[float, ...]], float]


def enumerate_all(name: str, loss: Loss, allowed: Any) -> Enumerated:
    """x -> w1 -> s -> w2 -> s -> (w3, c): two sites; weights in {-1, 0, 1}, coordinates in all values that s takes.

    Feasibility is tested pair by pair: z_k = f_k(z_{k-1}) for given (W, Z), never by propagating x.
    """
    maps = (Affine(1, 1), Elementwise(name, 1), Affine(1, 1), Elementwise(name, 1), Affine(1, 1))
    chain = Chain(maps, (2, 4))
    grid = np.array(list(itertools.product(LEVELS[name], repeat=2)))
    found, nested, constrained = [], [], {}
    for w in itertools.product([-1.0, 0.0, 1.0], repeat=4):
        W = np.array(w)
        if not allowed(W):
            continue
        weights = [np.array([[W[0], 0.0]]), np.array([[W[1], 0.0]]), np.array([[W[2], W[3]]])]
        per_point = []
        for x, y in zip(X, Y, strict=True):
            repeated = np.repeat(x[None], len(grid), axis=0), np.repeat(y[None], len(grid), axis=0)
            problem = ZProblem(chain.segments, (1, 1), weights, loss, (metric(1.0),) * 2, *repeated, grid)
            F = problem.outputs(grid)
            meets = (np.hstack(F[:-1]) == grid).all(axis=1)
            values = loss.value(repeated[1], F[-1])
            per_point.append([(tuple(z), v) for z, v in zip(grid[meets], values[meets], strict=True)])
        for choice in itertools.product(*per_point):
            Z = tuple(itertools.chain.from_iterable(z for z, _ in choice))
            constrained[len(found), Z] = float(sum(v for _, v in choice))
        found.append(W)
        nested.append(float(loss.value(Y, chain.forward(weights, X)).sum()))
    return Enumerated(np.array(found), np.array(nested), constrained)


def local(W: Array, values: Array, strict: bool, sign: float) -> set[int]:
    """The rows of W whose value is lowest (sign 1) or highest (-1) among their neighbours on the grid."""
    out = set()
    for i, w in enumerate(W):
        near = (np.abs(W - w).max(axis=1) <= 1.0) & (np.arange(len(W)) != i)
        others = sign * values[near]
        if (others > sign * values[i]).all() if strict else (others >= sign * values[i]).all():
            out.add(i)
    return out


@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("loss", [Squared(), Absolute()], ids=["squared", "absolute"])
@pytest.mark.parametrize("name", NONSMOOTH)
def test_minimisers_and_maximisers_correspond_without_smoothness(name: str, loss: Loss, box: str) -> None:
    """Local and global, strict or not: the same W, each with one Z, which is g(W), and the same value."""
    all_ = enumerate_all(name, loss, BOXES[box])
    rows, values = np.array([i for i, _ in all_.constrained]), np.array(list(all_.constrained.values()))
    assert len(all_.W) > 10
    assert sorted(rows) == list(range(len(all_.W)))  # one feasible Z for each W
    for sign, strict in itertools.product((1.0, -1.0), (False, True)):
        theirs = local(all_.W, all_.nested, strict, sign)
        ours = {int(rows[i]) for i in local(all_.W[rows], values, strict, sign)}
        assert ours == theirs
        assert theirs or strict
    best = np.flatnonzero(np.isclose(all_.nested, all_.nested.min()))
    assert set(rows[np.isclose(values, values.min())]) == set(best)
    assert len(np.unique(np.round(all_.nested, 9))) >= 3


def test_at_a_jump_a_neighbourhood_has_to_leave_z_free() -> None:
    """What the printed proof of <= passes over: with balls in (W, Z), a jump of g separates feasible neighbours, so
    that (W*, g(W*)) is a local minimiser in its ball and W* is none of E1.  With N x {all Z}, as for =>, it is."""
    chain = Chain((Affine(1, 1), Elementwise("step", 1), Affine(1, 1)), (2,))
    x, y, levels = np.ones((2, 1)), np.full((2, 1), 0.4), np.array([[0.0], [1.0]])

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
    assert z_star == 1.0
    in_the_ball = [e for pairs in near for z, e in pairs.items() if abs(z - z_star) < 0.5]
    assert min(in_the_ball) == e_star
    assert min(e for pairs in near for e in pairs.values()) < 0.5 * e_star
    assert 0 < len(in_the_ball) < len(near) == sum(len(pairs) for pairs in near)


# --- two optimisers: smooth maps --------------------------------------------------------------------------------------

NETS: dict[str, dict[str, Any]] = {
    "tanh": {"activation": "tanh"},
    "before": {"activation": "tanh", "sites": "before"},
    "sigmoid, two layers": {"hidden": (1, 2)},
    "labels": {"activation": "tanh", "loss": "cross_entropy", "hidden": (1,)},
    "none below": {"activation": "tanh", "hidden": (2, 1), "sites": ["none", "after"]},
}
BOX = 1.5


def small(net: str) -> tuple[Mac, State]:
    mac = method(**{"hidden": (2,), "n": 4, "d": 1, "targets": 2, "seed": 3} | NETS[net])
    return mac, anywhere(mac, off=0.0)


def error(mac: Mac, state: State) -> float:
    """E(W, Z): the loss at the outputs of the last segment alone, as the package computes it."""
    problem = z_problem(mac, slice(None), state)
    return float(mac.plan.choices.loss.value(mac.data.Y, problem.outputs(state.Z)[-1]).sum())


def constrained_minimum(mac: Mac, state: State, start: Array) -> Array:
    """min E(W, Z) over |W| <= BOX subject to z = F(z, W): W and Z are variables alike.  Gives (W, Z)."""
    n_w = state.weights.size

    def put(v: Array) -> None:
        state.weights[:], state.Z[:] = v[:n_w], v[n_w:].reshape(state.Z.shape)

    def of_variables(v: Array) -> float:
        put(v)
        return error(mac, state)

    def violation(v: Array) -> Array:
        put(v)
        return constraint(mac, state).ravel()

    found = optimize.minimize(
        of_variables,
        start,
        method="SLSQP",
        bounds=[(-BOX, BOX)] * n_w + [(None, None)] * state.Z.size,
        constraints={"type": "eq", "fun": violation},
        options={"maxiter": 400, "ftol": 1e-13},
    )
    put(found.x)
    return found.x


def nested_minimum(mac: Mac, state: State, start: Array) -> Array:
    """min E1(W) over |W| <= BOX, from the package's own gradient."""

    def objective(w: Array) -> tuple[float, Array]:
        state.weights[:] = w
        return e1(mac, state), backpropagated(mac, state)

    options = {"gtol": 1e-10, "ftol": 1e-16, "maxiter": 2000}
    found = optimize.minimize(
        objective, start, jac=True, method="L-BFGS-B", bounds=[(-BOX, BOX)] * len(start), options=options
    )
    state.weights[:] = found.x
    return found.x


@pytest.mark.long
@pytest.mark.parametrize("net", NETS)
def test_minimisers_of_one_problem_are_those_of_the_other_under_box_constraints(net: str) -> None:
    """=>: from (W*, g(W*)) disturbed, the constrained problem is never lower than E1(W*) nearby, and ends there.
    <=: from anywhere, feasible or not, it ends at a feasible point whose W the nested problem cannot improve."""
    mac, state = small(net)
    random = np.random.default_rng(7)
    start = np.clip(state.weights, -1.0, 1.0)
    w = nested_minimum(mac, state, start)
    best = e1(mac, state)
    z = feasible(mac, state)
    near = np.concatenate([w, z.ravel()]) + 0.01 * random.normal(size=w.size + z.size)
    constrained_minimum(mac, state, near)
    assert_allclose(state.Z, feasible(mac, state), rtol=0.0, atol=1e-6)
    assert_allclose(e1(mac, state), best, rtol=1e-4)
    anywhere_ = np.concatenate([start, random.normal(size=z.size)])
    there = constrained_minimum(mac, state, anywhere_)[: w.size]
    assert_allclose(state.Z, feasible(mac, state), rtol=0.0, atol=1e-6)
    value = e1(mac, state)
    slope = backpropagated(mac, state)
    projected = there - np.clip(there - slope, -BOX, BOX)
    assert np.abs(projected).max() < 1e-2
    nested_minimum(mac, state, there)
    assert_allclose(e1(mac, state), value, rtol=1e-3)


# --- curvature: minimisers, maximisers and saddles --------------------------------------------------------------------


def hessian(function: Any, variables: list[Array], h: float = 1e-4) -> Array:
    """Second differences of a scalar function of several arrays, which it reads in place."""
    flats = [v.reshape(-1) for v in variables]
    places = [(flat, i) for flat in flats for i in range(flat.size)]
    H = np.empty((len(places), len(places)))

    def moved(*moves: tuple[int, float]) -> float:
        for at, by in moves:
            places[at][0][places[at][1]] += by
        value = function()
        for at, by in moves:
            places[at][0][places[at][1]] -= by
        return float(value)

    for i, j in itertools.combinations_with_replacement(range(len(places)), 2):
        corners = [a * b * moved((i, a * h), (j, b * h)) for a in (1.0, -1.0) for b in (1.0, -1.0)]
        H[i, j] = H[j, i] = sum(corners) / (4.0 * h * h)
    return H


@pytest.mark.parametrize("net", NETS)
def test_the_lagrangians_curvature_on_the_feasible_set_is_that_of_e1(net: str) -> None:
    """T^T L'' T = E1'' with T = d(W, g(W))/dW, at any W: so minimisers, maximisers and saddles, strict in the second
    order or not, correspond."""
    mac = method(**{"hidden": (2,), "n": 2, "d": 1, "targets": 2, "seed": 3} | NETS[net])
    state = anywhere(mac, off=0.0)
    n_w, Z = state.weights.size, state.Z.copy()
    lambdas = multipliers(mac, state)
    L = hessian(lambda: lagrangian(mac, state, lambdas), [state.weights, state.Z])
    by_weight = [gradient(lambda i=i: feasible(mac, state).ravel()[i], state.weights) for i in range(Z.size)]
    T = np.vstack([np.eye(n_w), by_weight])
    expected = hessian(lambda: e1(mac, state), [state.weights])
    assert_allclose(T.T @ L @ T, expected, rtol=0.0, atol=1e-5)
    assert np.abs(L[:n_w, :n_w] - expected).max() > 1e-2


def test_minimisers_that_are_not_strict_correspond() -> None:
    """A linear net has valleys: W_2 A, A^-1 W_1 for any A.  E is constant along their image in (W, Z), as E1 is."""
    mac = method((2,), "linear", n=8, d=2, targets=2)
    state = anywhere(mac, off=0.0)
    slope, _, _, _ = np.linalg.lstsq(np.column_stack([mac.data.X, np.ones(8)]), mac.data.Y, rcond=None)
    W1, W2 = mac.parts.weights(state)
    W1[:] = slope.T
    W2[:] = np.column_stack([np.eye(2), np.zeros(2)])
    lowest = e1(mac, state)
    assert_allclose(backpropagated(mac, state), 0.0, atol=1e-10)
    inner, random = W1.copy(), np.random.default_rng(3)
    for size in (0.0, 1e-3, 0.3):
        A = np.eye(2) + size * random.normal(size=(2, 2))
        W1[:], W2[:, :2] = np.linalg.solve(A, inner), A
        state.Z[:] = feasible(mac, state)
        assert_allclose(error(mac, state), lowest, rtol=1e-12)
        assert_allclose(e1(mac, state), lowest, rtol=1e-12)
    values = np.linalg.eigvalsh(hessian(lambda: e1(mac, state), [state.weights]))
    assert values.min() > -1e-5
    assert np.sum(values < 1e-5) >= 4


@pytest.mark.parametrize("sites", ["after", "before"])
def test_a_maximiser_under_a_box_is_one_of_both_problems(sites: str) -> None:
    """E1 is convex in the output layer: over a box its largest value lies at a vertex, in both problems."""
    mac = method((1,), "tanh", n=6, d=1, targets=1, sites=sites)
    state = anywhere(mac, off=0.0)
    W2 = mac.parts.weights(state)[1]
    state.Z[:] = feasible(mac, state)
    nested, constrained = [], []
    vertices = list(itertools.product((-1.0, -0.5, 0.0, 0.5, 1.0), repeat=2))
    for v in vertices:
        W2[:] = [v]
        nested.append(e1(mac, state))
        constrained.append(error(mac, state))
        assert np.abs(constraint(mac, state)).max() < 1e-14
    assert np.argmax(nested) == np.argmax(constrained)
    assert np.abs(vertices[int(np.argmax(nested))]).min() == 1.0
    assert_allclose(constrained, nested, rtol=1e-12)
