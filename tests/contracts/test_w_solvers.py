"""The contract of a W-solver that takes units, under every activation that it can train."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from contracts.examples import (
    EPS,
    INPUTS,
    W_ARGUMENTS,
    W_EXCESS,
    W_THOROUGH,
    example_of,
    inputs,
    reachable,
    solvers_of,
    unit_objectives,
    value,
    w_problem,
)
from covering import each
from numpy.testing import assert_allclose
from scipy import linalg, optimize
from tolerance import gamma

from macmpi.nets.layers.activation import FUNCTIONS
from macmpi.solvers import W_SOLVERS
from macmpi.solvers.cholesky import regular_factor
from macmpi.solvers.w_problem import UnitProblem
from macmpi.typing import Array

pytestmark = pytest.mark.filterwarnings("error")

PAIRS = [(name, act) for name in solvers_of("units") for act in W_SOLVERS[name].activations or FUNCTIONS]


pair = each(PAIRS, ids="-".join)


@pytest.fixture
def name(pair: tuple[str, str]) -> str:
    return pair[0]


@pytest.fixture
def activation(pair: tuple[str, str]) -> str:
    return pair[1]


@pytest.fixture
def solvers(name: str) -> list[Any]:
    """The solver as it comes, and under other arguments."""
    return [W_SOLVERS[name](**arguments) for arguments in W_ARGUMENTS.get(name, [{}])]


@pytest.fixture
def solver(solvers: list[Any]) -> Any:
    return solvers[0]


@pytest.fixture
def thorough(name: str) -> Any:
    return W_SOLVERS[name](**example_of((name, 0), W_THOROUGH, "W_THOROUGH"))


def well_posed(solver: Any, random: np.random.Generator, activation: str, ridge: float = 0.1) -> tuple[Any, Any]:
    """Five units, forty points, targets in range: rounding is not magnified.  The last unit is there from the start."""
    A, T = random.normal(size=(40, 6)), reachable(random, (40, 5), activation)
    W = 0.5 * random.normal(size=(5, 7))
    W[4, :6] = 0.0
    T[:, 4] = value(activation, W[4, 6:])
    return w_problem(solver, A, T, W, activation, ridge)


# --- descent ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pair", "kind"),  # every solver and every activation meets every kind of input, by halves
    [(pair, kind) for i, pair in enumerate(PAIRS) for kind in INPUTS[i % 2 :: 2]],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_no_unit_gets_worse(kind: str, solvers: list[Any], activation: str, random: np.random.Generator) -> None:
    """Whatever the inputs; units that start small, saturated or at zero; targets in range and far out of it."""
    shapes = [(3, 5), (40, 7), (24, 30)]
    for i, (solver, shape) in enumerate(itertools.product(solvers, [*shapes, shapes[INPUTS.index(kind) % 3]])):
        (n, d), ridge = shape, (0.0, 0.01, 1e-8, 10.0)[(i + INPUTS.index(kind)) % 4]
        A = inputs(random, n, d, kind)
        T = random.normal(size=(n, 4)) * [1.0, 3.0, 100.0, 0.1]
        W = random.normal(size=(4, d + 1)) * [[0.1], [1.0], [30.0], [0.0]]
        problem, over_points = w_problem(solver, A, T, W, activation, ridge)
        found = solver.solve(problem, over_points)
        assert found.shape == W.shape
        assert np.isfinite(found).all()
        before, after = unit_objectives(problem, W), unit_objectives(problem, found)
        assert (after <= before * (1.0 + 50.0 * n * EPS)).all()


def test_a_minimum_stays(name: str, thorough: Any, activation: str, random: np.random.Generator) -> None:
    """Solving again from the answer finds nothing more."""
    problem, over_points = well_posed(thorough, random, activation)
    first = thorough.solve(problem, over_points)
    again, _ = w_problem(thorough, problem.inputs, problem.targets, first, activation, 0.1)
    second = thorough.solve(again, over_points)
    nothing = W_EXCESS.get(name, 1e-9)
    assert_allclose(unit_objectives(problem, second), unit_objectives(problem, first), rtol=nothing, atol=1e-20)


def test_a_fit_without_residual_is_left_alone(solver: Any, activation: str, random: np.random.Generator) -> None:
    A, W = random.normal(size=(30, 4)), random.normal(size=(3, 5))
    T = value(activation, A @ W[:, :-1].T + W[:, -1])
    problem, over_points = w_problem(solver, A, T, W, activation)
    assert_allclose(solver.solve(problem, over_points), W, rtol=0.0, atol=1e-12)


# --- against brute force ----------------------------------------------------------------------------------------------


LEAST: dict[tuple[int, float, str], list[float]] = {}
"""What brute force finds, which is the same for all solvers."""


@pytest.mark.parametrize(("seed", "ridge"), [(0, 0.01), (1, 1.0)])
def test_no_worse_than_brute_force(seed: int, ridge: float, name: str, thorough: Any, activation: str) -> None:
    """Two units and three points, from the same start."""
    random = np.random.default_rng(seed)
    A, T = random.normal(size=(3, 2)), reachable(random, (3, 2), activation)
    # All units of a rectifier start alive.
    W = np.column_stack([0.3 * random.normal(size=(2, 2)), np.ones(2)])
    problem, over_points = w_problem(thorough, A, T, W, activation, ridge)
    found = unit_objectives(problem, thorough.solve(problem, over_points))
    if (seed, ridge, activation) not in LEAST:
        LEAST[seed, ridge, activation] = [
            optimize.minimize(lambda w, unit=unit: _one(problem, w, unit), W[unit], method="BFGS", tol=1e-12).fun
            for unit in range(2)
        ]
    for unit, least in enumerate(LEAST[seed, ridge, activation]):
        assert found[unit] <= least * (1.0 + W_EXCESS.get(name, 1e-7)) + 1e-12


def _one(problem: UnitProblem, w: Array, unit: int) -> float:
    W = problem.start.copy()
    W[unit] = w
    return float(unit_objectives(problem, W)[unit])


@pytest.mark.parametrize("name", [n for n, a in PAIRS if a == "linear"])
def test_linear_units_reach_the_normal_equations(name: str, thorough: Any, random: np.random.Generator) -> None:
    """Every solver that can train linear units finds the one ridge regression there is."""
    A, T, ridge = random.normal(size=(30, 4)), random.normal(size=(30, 3)), 0.7
    D = np.column_stack([A, np.ones(30)])
    expected = np.linalg.solve(D.T @ D + np.diag([ridge] * 4 + [0.0]), D.T @ T).T
    problem, over_points = w_problem(thorough, A, T, random.normal(size=(3, 5)), "linear", ridge)
    near = W_EXCESS.get(name, 1e-8)
    assert_allclose(thorough.solve(problem, over_points), expected, rtol=near, atol=near)


# --- precision --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("iterations", [1, 4])
@pytest.mark.parametrize("off", [1.0, 1e-4, 1e-9])
def test_directions_in_single_precision_move_as_in_double(
    off: float, iterations: int, activation: str, random: np.random.Generator
) -> None:
    """Also where targets are missed by 1e-9: what is left of them is rounded, not they."""
    A, W = random.normal(size=(80, 6)), 0.5 * random.normal(size=(5, 7))
    W[:, -1] = 4.0  # rectifiers stay on one side
    T = value(activation, A @ W[:, :-1].T + W[:, -1]) + 0.05 * off * random.normal(size=(80, 5))
    steps = []
    for precision in ("single", "double"):
        solver = W_SOLVERS["gauss_newton"](iterations=iterations, tolerance=0.0, cg_precision=precision)
        problem, over_points = w_problem(solver, A, T, W, activation)
        assert (problem.rounded is not None) == (precision == "single")
        steps.append(solver.solve(problem, over_points) - W)
    single, double = steps
    assert np.abs(double).max() > 0.0
    if gamma(1, np.float32) * np.abs(double).max() > EPS * np.abs(W).max():  # else W + step may hide the rounding
        assert (single != double).any()
    assert_allclose(single, double, rtol=0.0, atol=0.02 * np.abs(double).max())


# --- separability and sums --------------------------------------------------------------------------------------------


def test_some_units_give_those_rows(solvers: list[Any], activation: str, random: np.random.Generator) -> None:
    """Units do not see each other, but for rounding: of sums over points, magnified by the condition of the system."""
    for solver in solvers:
        problem, over_points = well_posed(solver, random, activation)
        whole = solver.solve(problem, over_points)
        D = np.column_stack([problem.inputs, np.ones(len(problem.inputs))])
        single = gamma(len(D), np.float32) * np.linalg.cond(D) ** 2 * np.abs(whole).max()
        for units in ([3, 0], [1], [4, 2], [0, 1, 2, 3, 4]):
            part = solver.solve(
                replace(problem, targets=problem.targets[:, units], start=problem.start[units]), over_points
            )
            assert_allclose(part, whole[units], rtol=0.0, atol=single if solver.system.single else 1e-11)


# --- ridge ------------------------------------------------------------------------------------------------------------


def test_a_gram_that_rounding_spoilt_is_factorised_all_the_same() -> None:
    """Single precision and inputs of very different scale: a Cholesky factor of the Gram as it is need not exist."""
    random = np.random.default_rng(0)
    H = random.normal(size=(6, 3))
    G = (H @ H.T).astype(np.float32).astype(np.float64)
    with pytest.raises(np.linalg.LinAlgError):
        linalg.cho_factor(G - 1e-3 * np.eye(6))
    factor = regular_factor(G - 1e-3 * np.eye(6))
    assert np.isfinite(factor).all() and (np.diag(factor) > 0.0).all()
