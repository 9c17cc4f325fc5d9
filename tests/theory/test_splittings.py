"""E_Q splits exactly by point and by unit, and is E1 where the coordinates are feasible."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from theory.nets import ACTIVATIONS, SITES, anywhere, e1, e_q, feasible, layers, method, started

from macmpi.chain import Chain
from macmpi.layers.activation import Activation
from macmpi.layers.affine import Affine
from macmpi.mac import MacQP
from macmpi.objective import Loss, ZProblem, nested_errors, split_sites
from macmpi.state import State

HIDDEN = [(5,), (7, 5), (6, 2, 6)]
EVERYTHING = slice(None)


def by_point(mac: MacQP, state: State) -> float:
    problem = mac.z_problem(EVERYTHING, state)
    return float(problem.values(problem.Z).sum())


def by_unit(mac: MacQP, state: State) -> float:
    """From the residuals of the regressions that the W-step solves."""
    last, total = len(mac.plan.chain.segments) - 1, 0.0
    for job in mac.plan.all_units.jobs[0]:
        problem = mac.w_problem(job, state)
        (term,) = problem.terms
        act = ACTIVATIONS[problem.activation]
        r = term.targets - act(term.inputs @ problem.W[:, :-1].T + problem.W[:, -1])
        total += 0.5 * (1.0 if job.segment == last else state.mu) * float(np.sum(r * r))
    return total


@pytest.mark.parametrize("mu", [0.01, 1.0, 1e5])
@pytest.mark.parametrize("sites", SITES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("hidden", HIDDEN, ids=str)
def test_both_splittings_sum_to_e_q(hidden: tuple[int, ...], activation: str, sites: str, mu: float) -> None:
    mac = method(hidden, activation, sites=sites)
    state = anywhere(mac, mu=mu)
    assert_allclose(by_point(mac, state), e_q(mac, state), rtol=1e-12)
    assert_allclose(by_unit(mac, state), e_q(mac, state), rtol=1e-12)


def test_tiles_of_points_sum_to_e_q() -> None:
    mac = method()
    state = anywhere(mac)
    total = 0.0
    for tile in mac.plan.train.tiles_of(0):
        problem = mac.z_problem(tile.rows, state)
        total += problem.values(problem.Z).sum()
    assert_allclose(total, e_q(mac, state), rtol=1e-12)


@pytest.mark.parametrize("mu", [1.0, 1e8])
@pytest.mark.parametrize("sites", SITES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("hidden", HIDDEN, ids=str)
def test_at_feasible_coordinates_e_q_is_e1(hidden: tuple[int, ...], activation: str, sites: str, mu: float) -> None:
    """Theorem A.1's step E(W, g(W)) = E1(W); no smoothness needed."""
    mac = method(hidden, activation, sites=sites)
    state = anywhere(mac, mu=mu, off=0.0)
    assert_allclose(state.Z, feasible(mac, state), rtol=1e-13, atol=1e-15)
    assert_allclose(by_point(mac, state), e1(mac, state), rtol=1e-12)
    assert_allclose(by_unit(mac, state), e1(mac, state), rtol=1e-12)
    own = nested_errors(mac.plan.chain, mac.plan.loss, mac.weights(state), mac.data.X, mac.data.Y)
    assert_allclose(own.sum(), e1(mac, state), rtol=1e-12)


def test_theorem_a1_needs_no_squared_error(random: np.random.Generator) -> None:
    """A loss by absolute values, rectifiers, sites at other cuts of the chain: E(W, g(W)) = E1(W) all the same."""
    absolute = Loss(lambda Y, F: np.abs(Y - F).sum(axis=1), lambda Y, F: np.sign(Y - F), quadratic=False)
    maps = (Affine(3, 4), Activation("relu", 4), Affine(4, 2), Activation("relu", 2), Affine(2, 3))
    X, Y = random.normal(size=(9, 3)), random.normal(size=(9, 3))
    for sites in ((2, 4), (1, 3), (4,), (1, 2, 3, 4)):
        chain = Chain(maps, sites)
        weights = tuple(random.normal(size=shape) for shape in chain.block_shapes)
        Z = np.hstack(chain.coordinates(weights, X))
        problem = ZProblem(chain, weights, absolute, (7.0,) * len(sites), X, Y, Z)
        assert Z.shape[1] == sum(chain.site_sizes)
        assert_allclose(problem.values(Z), nested_errors(chain, absolute, weights, X, Y), rtol=1e-13)
        off = Z + 0.1 * random.normal(size=Z.shape)
        assert not np.allclose(problem.values(off), problem.values(Z))


def test_the_chain_is_its_segments_whatever_the_cuts(random: np.random.Generator) -> None:
    maps = (Affine(3, 4), Activation("tanh", 4), Affine(4, 2), Activation("sigmoid", 2), Affine(2, 3))
    X = random.normal(size=(9, 3))
    uncut = Chain(maps, ())
    weights = tuple(random.normal(size=shape) for shape in uncut.block_shapes)
    before = X.copy()
    expected = uncut.forward(weights, X)
    for sites in ((2, 4), (1, 3), (4,), (1, 2, 3, 4)):
        assert_array_equal(Chain(maps, sites).forward(weights, X), expected)
    assert_array_equal(X, before)


@pytest.mark.parametrize("sites", SITES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_record_of_an_iteration_is_e_q_there(activation: str, sites: str) -> None:
    """It comes from the W-step's own residuals."""
    mac = method((7, 5), activation, sites=sites)
    state = started(mac)
    for _ in range(3):
        mac.sweep(state)
        errors, n = mac.evaluate(state), mac.plan.n_train
        assert_allclose(errors.E_Q, e_q(mac, state) / n, rtol=1e-9)
        assert_allclose(errors.train, e1(mac, state) / n, rtol=1e-12)
        coordinates = split_sites(mac.plan.chain, state.Z)
        pairs = zip(layers(mac, state), [mac.data.X, *coordinates], coordinates, strict=False)
        off = np.hstack([z - f(a) for f, a, z in pairs])
        assert_allclose(errors.constraint, np.mean(off**2), rtol=1e-9)
