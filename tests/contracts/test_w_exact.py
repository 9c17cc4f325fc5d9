"""The Hessians of the W-solvers that form them, and what they are for."""

from __future__ import annotations

import numpy as np
import pytest
from contracts.examples import W_THOROUGH, reachable, summed
from numpy.testing import assert_allclose

from macmpi.nets.layers.activation import FUNCTIONS
from macmpi.solvers.w_exact import ExactGaussNewtonW, NewtonW, _hessian
from macmpi.solvers.w_problem import Term, UnitProblem, gradients
from macmpi.typing import Array


@pytest.fixture(params=FUNCTIONS)
def activation(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def units(random: np.random.Generator, activation: str, fit: bool = False) -> UnitProblem:
    """Two terms; with `fit` there are weights that leave no residual, not far from the start."""
    W, terms = random.normal(size=(3, 5)), []
    for n in (40, 40):
        A = random.normal(size=(n, 4))
        B = FUNCTIONS[activation].value(A @ W[:, :-1].T + W[:, -1], np.empty((n, 3)))
        terms.append(Term(A, B if fit else reachable(random, (n, 3), activation)))
    return UnitProblem(tuple(terms), activation, 0.0 if fit else 0.3, W + 0.01 * fit, np.zeros((0, 0)))


def by_differences(problem: UnitProblem, unit: int) -> Array:
    """The Hessian of a unit, its ridge left out."""
    H, h = np.empty((5, 5)), 1e-6
    for column in range(5):
        step = np.zeros_like(problem.W)
        step[unit, column] = h
        ahead, behind = (problem.partial(problem.W + sign * step, slice(None), True)[1][unit] for sign in (1.0, -1.0))
        H[column] = (ahead - behind) / (2.0 * h)
    return H


def test_newton_has_the_hessian(activation: str, random: np.random.Generator) -> None:
    problem = units(random, activation)
    for unit in range(3):
        H = _hessian(problem, problem.W, unit, slice(None), curved=True)
        assert_allclose(H, by_differences(problem, unit), rtol=1e-6, atol=1e-6)


def test_gauss_newton_has_the_hessian_where_nothing_is_left_over(activation: str, random: np.random.Generator) -> None:
    problem = units(random, activation, fit=True)
    fitted = UnitProblem(problem.terms, activation, 0.0, problem.W - 0.01, problem.shared)
    for unit in range(3):
        H = _hessian(fitted, fitted.W, unit, slice(None), curved=False)
        assert_allclose(H, by_differences(fitted, unit), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("curved", [False, True])
def test_hessians_add_up_over_the_points(curved: bool, activation: str, random: np.random.Generator) -> None:
    problem = units(random, activation)
    whole = _hessian(problem, problem.W, 1, slice(None), curved)
    parts = [_hessian(problem, problem.W, 1, slice(a, b), curved) for a, b in ((0, 7), (7, 8), (8, 40))]
    assert_allclose(np.sum(parts, axis=0), whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("smooth", ["sigmoid", "tanh"])
def test_newton_ends_faster_than_gauss_newton(smooth: str, random: np.random.Generator) -> None:
    """Where residuals are left over: one more step from near the minimum."""
    problem, over_points = units(random, smooth), summed(40, 3)
    minimum = NewtonW(**W_THOROUGH["newton"][0]).solve(problem, over_points)
    near = UnitProblem(problem.terms, smooth, problem.ridge, minimum + 1e-3, problem.shared)
    left = [
        np.abs(gradients(near, kind(iterations=1).solve(near, over_points), over_points)[1]).max()
        for kind in (NewtonW, ExactGaussNewtonW)
    ]
    assert left[0] < 0.1 * left[1]
