"""Ridge least squares for units with biases and without: what is shared, by rows or whole, and the exact answer."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from contracts.examples import EPS, INPUTS, factored, inputs, narrow, sharing, solvers_of, summed
from numpy.testing import assert_allclose, assert_array_equal
from tolerance import gamma

from macmpi.nets.design import gram, gram_rows
from macmpi.solvers import W_SOLVERS
from macmpi.solvers.cholesky import NORMAL
from macmpi.solvers.closed_form import ClosedForm
from macmpi.solvers.w_problem import UnitProblem
from macmpi.typing import Array

pytestmark = pytest.mark.filterwarnings("error")

CUTS = [(0, 7), (0, 1, 7), (0, 3, 4, 7)]


@pytest.fixture(params=[True, False], ids=["biases", "none"])
def bias(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def design(A: Array, bias: bool) -> Array:
    return np.column_stack([A, np.ones(len(A))]) if bias else A


def problem_of(A: Array, T: Array, W: Array, ridge: float, solver: Any = None) -> tuple[UnitProblem, Any]:
    over_points = summed(len(A), 3)
    return sharing(solver or ClosedForm(), UnitProblem(A, T, ridge, W, "linear"), over_points), over_points


def made(random: np.random.Generator, bias: bool, ridge: float, kind: str = "plain", n: int = 30) -> Any:
    A, T = inputs(random, n, 6, kind), random.normal(size=(n, 4))
    return problem_of(A, T, random.normal(size=(4, 6 + bias)), ridge)


def ridge_fit(problem: UnitProblem) -> Array:
    """The minimiser, by the normal equations."""
    D = design(problem.inputs, problem.bias)
    shrunk = np.arange(D.shape[1]) < problem.inputs.shape[1]
    return np.linalg.solve(D.T @ D + problem.ridge * np.diag(shrunk), D.T @ problem.targets).T


def objectives(problem: UnitProblem, W: Array) -> Array:
    D, V = design(problem.inputs, problem.bias), W[:, : problem.inputs.shape[1]]
    return 0.5 * np.sum((problem.targets - D @ W.T) ** 2, axis=0) + 0.5 * problem.ridge * np.sum(V**2, axis=1)


# --- what is shared ---------------------------------------------------------------------------------------------------


def test_grams_are_their_formula(bias: bool, random: np.random.Generator) -> None:
    A = random.normal(size=(20, 6))
    D = design(A, bias)
    assert_allclose(gram(A, bias), D.T @ D, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "bias"),
    [(name, bias) for name in solvers_of("units") for bias in (True, False) if bias or W_SOLVERS[name].exact],
)
def test_rows_of_what_is_shared_are_those_rows(name: str, bias: bool, random: np.random.Generator) -> None:
    """From the diagonal on, the rest 0; for every solver whose units share something, and the units that it takes."""
    solver = W_SOLVERS[name]()
    A, over_points = random.normal(size=(20, 7 - bias)), summed(20, 3)
    whole = solver.system.sum(A, over_points, bias)
    assert len(whole) == 7
    for cut in CUTS:
        rows = [slice(a, b) for a, b in pairwise(cut)]
        parts = [solver.system.sum(A, over_points, bias, r) for r in rows]
        assert [p.shape for p in parts] == [(r.stop - r.start, 7) for r in rows]
        for r, part in zip(rows, parts, strict=True):
            assert_array_equal(part[:, : r.start], 0.0)
            assert_allclose(part[:, r.start :], whole[r, r.start :], rtol=1e-12, atol=1e-12)


def test_rows_of_a_gram_do_not_depend_on_how_points_are_summed_or_on_which_rank_asks(
    bias: bool, random: np.random.Generator
) -> None:
    A = random.normal(size=(20, 6))
    assert_array_equal(gram_rows(A, slice(2, 5), bias), gram_rows(A.copy(), slice(2, 5), bias))
    parts = sum(gram_rows(A[rows], slice(2, 5), bias) for rows in (slice(0, 9), slice(9, 20)))
    assert_allclose(parts, gram_rows(A, slice(2, 5), bias), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_the_lower_half_of_a_gram_is_never_looked_at(ridge: float, bias: bool, random: np.random.Generator) -> None:
    problem, over_points = made(random, bias, ridge)
    upper = factored(ClosedForm(), replace(problem, shared=np.triu(problem.shared)))
    assert_array_equal(ClosedForm().solve(upper, over_points), ClosedForm().solve(problem, over_points))


@pytest.mark.parametrize("ridge", [0.0, 1e-12, 0.3])
def test_inputs_in_single_precision_give_what_they_give_in_double(
    ridge: float, bias: bool, random: np.random.Generator
) -> None:
    """To the last bit, where inputs differ in their fourth digit alone: a Gram in single precision would hide it."""
    A, T, W = random.normal(size=(30, 6)), random.normal(size=(30, 4)), random.normal(size=(4, 6 + bias))
    given, found = narrow((A[:, :1] + 1e-3 * A, T, W)), []
    for precision in (np.float32, np.float64):
        problem, over_points = problem_of(*(part.astype(precision) for part in given), ridge)
        assert problem.factor.regular == (ridge == 0.3)
        found.append(ClosedForm().solve(problem, over_points))
    assert_array_equal(*found)


# --- the answer -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ridge", [1e-6, 0.3, 1e4])
def test_it_is_the_ridge_regression(ridge: float, bias: bool, random: np.random.Generator) -> None:
    problem, over_points = made(random, bias, ridge)
    assert_allclose(ClosedForm().solve(problem, over_points), ridge_fit(problem), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kind", ["duplicates", "alike"])
def test_of_many_minima_it_takes_the_nearest(kind: str, bias: bool, random: np.random.Generator) -> None:
    """The correction of the present weights is the shortest one, but for rounding over jitter."""
    problem, over_points = made(random, bias, 0.0, kind)
    D = design(problem.inputs, bias)
    residual = problem.targets - D @ problem.start.T
    moved = np.linalg.lstsq(D, residual, rcond=1e-10)[0].T
    over_jitter = gamma(len(D)) * (np.abs(D.T) @ np.abs(residual)).max() / (NORMAL * np.square(D).sum(axis=0).mean())
    assert over_jitter < 0.5 * np.abs(moved).max()
    assert_allclose(ClosedForm().solve(problem, over_points), problem.start + moved, rtol=0.0, atol=over_jitter)


@pytest.mark.parametrize("ridge", [0.0, 1e-9, 0.1])
@pytest.mark.parametrize("kind", INPUTS)
def test_no_unit_gets_worse(kind: str, ridge: float, bias: bool, random: np.random.Generator) -> None:
    for n, relaxation in ((3, 1.0), (30, 1.6)):
        problem, over_points = made(random, bias, ridge, kind, n)
        found = ClosedForm(relaxation).solve(problem, over_points)
        assert np.isfinite(found).all()
        before, after = objectives(problem, problem.start), objectives(problem, found)
        assert (after <= before * (1.0 + 50.0 * n * EPS)).all()


@pytest.mark.parametrize("relaxation", [0.5, 1.6])
@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_relaxation_is_a_share_of_the_way(
    ridge: float, relaxation: float, bias: bool, random: np.random.Generator
) -> None:
    problem, over_points = made(random, bias, ridge)
    whole, part = (ClosedForm(r).solve(problem, over_points) - problem.start for r in (1.0, relaxation))
    assert_allclose(part, relaxation * whole, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("ridge", [0.0, 0.5])
def test_inputs_that_are_all_0_leave_a_problem_that_can_be_solved(
    ridge: float, bias: bool, random: np.random.Generator
) -> None:
    """All radial basis functions far away: without biases there is nothing to fit."""
    T, W = random.normal(size=(9, 2)), random.normal(size=(2, 3 + bias))
    problem, over_points = problem_of(np.zeros((9, 3)), T, W, ridge)
    found = ClosedForm().solve(problem, over_points)
    assert_allclose(found[:, :3], W[:, :3] if ridge == 0.0 else 0.0, rtol=0.0, atol=1e-12)
    if bias:
        assert_allclose(found[:, 3], T.mean(axis=0), rtol=1e-9)
