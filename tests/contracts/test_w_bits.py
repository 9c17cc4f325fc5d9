"""The W-step of binary units: the objective of their bits never rises, whatever solver fits them as sigmoids."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from contracts.examples import INPUTS, W_THOROUGH, inputs, sharing, solvers_of, summed
from covering import each
from numpy.testing import assert_array_equal

from macmpi.solvers import W_SOLVERS, Thresholded
from macmpi.solvers.w_gauss_newton import GaussNewtonW
from macmpi.solvers.w_problem import UnitProblem
from macmpi.typing import Array

pytestmark = pytest.mark.filterwarnings("error")

SIGMOIDS = [n for n in solvers_of("units") if "sigmoid" in (W_SOLVERS[n].activations or {"sigmoid"})]  # type: ignore[attr-defined]


name = each(SIGMOIDS)


@pytest.fixture
def solver(name: str) -> Any:
    return Thresholded(W_SOLVERS[name]())


def units(solver: Any, A: Array, T: Array, W: Array, ridge: float = 0.1) -> tuple[UnitProblem, Any]:
    over_points = summed(len(A), 2)
    return sharing(solver, UnitProblem(A, T, ridge, W, "sigmoid"), over_points), over_points


def objectives(problem: UnitProblem, W: Array) -> Array:
    """1/2 sum (t - [w [a; 1] > 0])^2 + ridge/2 ||v||^2, recomputed: (w,)."""
    total = 0.5 * problem.ridge * np.sum(np.square(W[:, :-1], dtype=float), axis=1)
    A = problem.inputs.astype(float)
    total += 0.5 * np.sum((problem.targets - (A @ W[:, :-1].T + W[:, -1] > 0.0)) ** 2, axis=0)
    return total


def made(random: np.random.Generator, solver: Any, kind: str, targets: str, ridge: float) -> tuple[UnitProblem, Any]:
    A = inputs(random, 40, 6, kind)
    T = (A @ random.normal(size=(6, 4)) + A.std() * random.normal(size=(40, 4)) > 0.0).astype(float)
    if targets == "shifted":  # bits less the multipliers' share
        T += random.normal(size=T.shape)
    return units(solver, A, T, 0.5 * random.normal(size=(4, 7)), ridge)


@pytest.mark.parametrize("targets", ["bits", "shifted"])
@pytest.mark.parametrize("kind", INPUTS)
def test_no_unit_gets_worse(kind: str, targets: str, solver: Any, random: np.random.Generator) -> None:
    for ridge in (0.0, 0.1, 10.0):
        problem, over_points = made(random, solver, kind, targets, ridge)
        found = solver.solve(problem, over_points)
        assert found.shape == problem.start.shape
        assert np.isfinite(found).all()
        before, after = objectives(problem, problem.start), objectives(problem, found)
        assert (after <= before * (1.0 + 1e-12)).all()


def test_a_unit_takes_the_inner_solvers_weights_or_keeps_its_own(name: str, random: np.random.Generator) -> None:
    """Whichever has the lower objective.  From weights that are about right, both happen."""
    inner, outer = W_SOLVERS[name](), Thresholded(W_SOLVERS[name]())
    A, V = random.normal(size=(40, 6)), random.normal(size=(60, 7))
    T = (A @ V[:, :-1].T + V[:, -1] > random.normal(size=(40, 60))) + 0.5 * random.normal(size=(40, 60))
    problem, over_points = units(outer, A, T, V)
    fitted = inner.solve(problem, over_points)
    better = objectives(problem, fitted) <= objectives(problem, V)
    assert 0 < better.sum() < 60
    assert_array_equal(outer.solve(problem, over_points), np.where(better[:, None], fitted, V))


def test_the_bits_of_separable_classes_are_found(random: np.random.Generator) -> None:
    A, V = random.normal(size=(60, 4)), random.normal(size=(3, 5))
    T = (A @ V[:, :-1].T + V[:, -1] > 0.0).astype(float)
    solver = Thresholded(W_SOLVERS["gauss_newton"](**W_THOROUGH["gauss_newton"][0] | {"iterations": 100}))
    problem, over_points = units(solver, A, T, 0.1 * random.normal(size=(3, 5)), ridge=1e-5)
    assert (objectives(problem, solver.solve(problem, over_points)) < 0.5).all()


def test_it_shares_what_its_inner_solver_shares() -> None:
    for name in SIGMOIDS:
        inner = W_SOLVERS[name]()
        outer = Thresholded(inner)
        assert outer.system == inner.system
    assert Thresholded(GaussNewtonW()) == Thresholded(GaussNewtonW())
