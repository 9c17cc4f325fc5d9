"""The contract of a Z-solver, for every row of Z_SOLVERS."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from contracts.examples import SITES, Z_ARGUMENTS, Z_THOROUGH, example_of, z_problem
from numpy.testing import assert_allclose, assert_array_equal
from scipy import optimize

from macmpi.layers import Array
from macmpi.layers.activation import FUNCTIONS
from macmpi.objective import ZProblem
from macmpi.solvers import Z_SOLVERS

pytestmark = pytest.mark.filterwarnings("error")

DEEP = (4, 5, 3, 6, 4)
WIDE_OUTPUT = (3, 2, 8)
NARROW_OUTPUT = (3, 6, 4, 2)
SIZES = [DEEP, WIDE_OUTPUT, NARROW_OUTPUT]


@pytest.fixture(params=Z_SOLVERS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def solvers(name: str) -> list[Any]:
    """The solver as it comes, and under other arguments."""
    return [Z_SOLVERS[name](**arguments) for arguments in Z_ARGUMENTS.get(name, [{}])]


@pytest.fixture
def solver(solvers: list[Any]) -> Any:
    return solvers[0]


@pytest.fixture
def thorough(name: str) -> Any:
    return Z_SOLVERS[name](**example_of((name, 0), Z_THOROUGH, "Z_THOROUGH"))


@pytest.fixture(params=SITES)
def cut(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("mu", [1e-2, 1.0, 10.0, 1e3, 1e5, 1e8])
@pytest.mark.parametrize("activation", FUNCTIONS)
def test_no_point_gets_worse(
    activation: str, mu: float, cut: str, solvers: list[Any], random: np.random.Generator
) -> None:
    """Far from feasible, near it, exactly there; under small weights and under saturating ones; several in a row."""
    for sizes, off, wide in itertools.product(SIZES, (3.0, 1e-4, 0.0), (0.1, 1.5, 20.0)):
        problem = z_problem(random, sizes, activation, mu=mu, off=off, wide=wide, cut=cut)
        for solver in solvers:
            assert solver.descends, "a solver that does not descend needs a contract of its own"
            before = problem.values(problem.Z)
            found = solver.solve(problem, solver.prepare(problem))
            after = problem.values(found.Z)
            assert np.isfinite(found.Z).all()
            assert (after <= before * (1.0 + 1e-12)).all()
            assert_allclose(found.errors, after, rtol=1e-12, atol=1e-12 * before.max())
            problem = replace(problem, Z=found.Z)


def test_the_first_step_goes_half_the_way(cut: str, solver: Any, thorough: Any, random: np.random.Generator) -> None:
    """Descent alone would hold for a solver that never moves."""
    for sizes in SIZES:
        problem = z_problem(random, sizes, off=1.0, cut=cut)
        shared = solver.prepare(problem)
        before, least = problem.values(problem.Z).sum(), thorough.solve(problem, shared).errors.sum()
        assert before - solver.solve(problem, shared).errors.sum() > 0.5 * (before - least)


def test_some_points_give_those_rows(cut: str, solvers: list[Any], random: np.random.Generator) -> None:
    """Points do not see each other: this is what deals the Z-step to ranks.  Some are perfect from the start."""
    for sizes, solver in itertools.product(SIZES, solvers):
        problem = z_problem(random, sizes, n=20, cut=cut)
        perfect = [3, 7]
        X = problem.X[perfect]
        problem.Y[perfect] = problem.chain.forward(problem.weights, X)
        problem.Z[perfect] = np.hstack(problem.chain.coordinates(problem.weights, X))
        shared = solver.prepare(problem)
        whole = solver.solve(problem, shared)
        for rows in ([0, 7, 19, 4], [11], [3], [1, 2, 5]):
            part = solver.solve(replace(problem, X=problem.X[rows], Y=problem.Y[rows], Z=problem.Z[rows]), shared)
            assert_allclose(part.Z, whole.Z[rows], rtol=0.0, atol=1e-11)
            assert_allclose(part.errors, whole.errors[rows], rtol=1e-11, atol=1e-20)


def test_the_same_tile_gives_the_same_bits(solver: Any, random: np.random.Generator) -> None:
    problem = z_problem(random, DEEP, n=20)
    again = replace(problem, X=problem.X.copy(), Y=problem.Y.copy(), Z=problem.Z.copy())
    first, second = (solver.solve(p, solver.prepare(p)) for p in (problem, again))
    assert_array_equal(first.Z, second.Z)
    assert_array_equal(first.errors, second.errors)


def test_a_problem_is_a_value(solver: Any, random: np.random.Generator) -> None:
    """Solving leaves it as it was."""
    problem = z_problem(random, DEEP)
    arrays = (problem.X, problem.Y, problem.Z, *problem.weights)
    kept = [array.copy() for array in arrays]
    solver.solve(problem, solver.prepare(problem))
    for array, copy in zip(arrays, kept, strict=True):
        assert_array_equal(array, copy)


def test_a_perfect_point_stays(solver: Any, random: np.random.Generator) -> None:
    problem = z_problem(random, DEEP, off=0.0)
    problem = replace(problem, Y=problem.chain.forward(problem.weights, problem.X))
    found = solver.solve(problem, solver.prepare(problem))
    assert_allclose(found.Z, problem.Z, rtol=0.0, atol=1e-14)
    assert_allclose(found.errors, 0.0, atol=1e-25)


@pytest.mark.parametrize("mu", [0.1, 10.0, 1e4])
@pytest.mark.parametrize("sizes", [(2, 2, 2), (2, 2, 1), (1, 2, 5), (2, 2, 2, 2), (3, 1, 2, 1)])
def test_reaches_the_minimum_that_brute_force_finds(
    sizes: tuple[int, ...], mu: float, cut: str, thorough: Any, random: np.random.Generator
) -> None:
    """Layers of one and two units, three points, one and two sites."""
    problem = z_problem(random, sizes, n=3, mu=mu, off=0.1, cut=cut)
    found = thorough.solve(problem, thorough.prepare(problem))
    for row in range(3):
        best = optimize.least_squares(lambda z, row=row: residuals(problem, z, row), problem.Z[row], **TIGHT)
        assert found.errors[row] <= best.cost * (1.0 + 1e-9) + 1e-14
        gradient = best.jac.T @ residuals(problem, found.Z[row], row)
        assert np.abs(gradient).max() <= 1e-5 * max(1.0, mu)


TIGHT: dict[str, Any] = {"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15, "max_nfev": 10_000}


def residuals(problem: ZProblem, z: Array, row: int) -> Array:
    """Those whose half sum of squares is eq. (4) at one point, from the segments alone."""
    sites = [part[0] for part in problem.sites(z[None])]
    inputs, parts = [problem.X[row], *sites], []
    for segment, a, mu, to in zip(problem.chain.segments, inputs, problem.mu, sites, strict=False):
        parts.append(np.sqrt(mu) * (to - segment.forward(problem.weights, a[None])[0]))
    last = problem.chain.segments[-1].forward(problem.weights, sites[-1][None])[0]
    return np.concatenate([*parts, problem.Y[row] - last])


def test_these_residuals_are_those_of_the_problem(random: np.random.Generator) -> None:
    problem = z_problem(random, DEEP, mu=(3.0, 0.2, 50.0))
    expected = [0.5 * np.sum(residuals(problem, z, row) ** 2) for row, z in enumerate(problem.Z)]
    assert_allclose(problem.values(problem.Z), expected, rtol=1e-13)
    rows = np.array([5, 1])
    assert_allclose(problem.values(problem.Z[rows], rows), np.array(expected)[rows], rtol=1e-13)
