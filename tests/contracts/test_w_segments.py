"""The contract of a W-solver that takes segments, on every kind of segment and under every loss."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from contracts.examples import (
    EPS,
    INPUTS,
    METRICS,
    SEGMENTS,
    W_ARGUMENTS,
    W_EXCESS,
    W_THOROUGH,
    example_of,
    inputs,
    metric_example,
    segment_problem,
    sharing,
    solvers_of,
    summed,
)
from covering import each
from numpy.testing import assert_allclose

from macmpi.nets.chain import Segment
from macmpi.nets.layers.affine import Affine
from macmpi.nets.losses import LOSSES, Squared
from macmpi.reductions import OverPoints
from macmpi.solvers import W_SOLVERS
from macmpi.solvers.gradient_solvers import SGDW
from macmpi.solvers.w_problem import SegmentProblem, UnitProblem, values
from macmpi.typing import Array

pytestmark = pytest.mark.filterwarnings("error")


name = each(solvers_of("segment"))


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


kind = each(SEGMENTS)


@pytest.fixture
def loss(kind: str, name: str) -> str:
    """Every solver and every kind of segment meets every loss, not every two of them."""
    return list(LOSSES)[(list(SEGMENTS).index(kind) + solvers_of("segment").index(name)) % len(LOSSES)]


def objective(problem: SegmentProblem, theta: Array, over_points: OverPoints) -> float:
    (f,) = values(problem, theta, over_points)
    return float(f)


# --- descent ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("points", INPUTS)
def test_the_objective_never_rises(points: str, kind: str, solvers: list[Any], random: np.random.Generator) -> None:
    """Whatever the inputs; weights that start at zero, small or saturating; with a ridge and without."""
    at = INPUTS.index(points)
    starts = ((0.0, 0.1), (0.5, 0.0), (0.5, 10.0), (20.0, 0.0))[at % 2 :: 2]
    for i, (solver, (scale, ridge)) in enumerate(itertools.product(solvers, starts)):
        problem, over_points = segment_problem(
            random, kind, list(LOSSES)[(i + at // 2) % len(LOSSES)], ridge, scale=scale
        )
        problem = replace(problem, inputs=inputs(random, 40, 4, points))
        found = solver.solve(problem, over_points)
        assert found.shape == problem.start.shape
        assert np.isfinite(found).all()
        before, after = (objective(problem, theta, over_points) for theta in (problem.start, found))
        assert after <= before * (1.0 + 50.0 * 40 * EPS)


def test_a_few_iterations_go_some_of_the_way(kind: str, loss: str, solver: Any, random: np.random.Generator) -> None:
    """Descent alone would hold for a solver that never moves."""
    problem, over_points = segment_problem(random, kind, loss)
    before = objective(problem, problem.start, over_points)
    assert objective(problem, solver.solve(problem, over_points), over_points) < 0.999 * before


# --- minima -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("start", ["linear", "before"])
def test_a_linear_segment_reaches_the_normal_equations(
    start: str, metric: str, name: str, thorough: Any, random: np.random.Generator
) -> None:
    """min 1/2 sum (t - W [a; 1])^T M (t - W [a; 1]) + ridge/2 ||V||^2: M W G + ridge V = M T^T [A, 1]."""
    made, over_points = segment_problem(random, start, ridge=0.7)
    form = metric_example(metric, 3, random)
    problem = replace(made, loss=Squared(form))
    D = np.column_stack([problem.segment.features([], problem.inputs), np.ones(40)])
    M = np.diag(np.broadcast_to(form.M, 3)) if np.ndim(form.M) < 2 else form.M
    left = np.kron(M, D.T @ D) + np.kron(np.eye(3), np.diag([0.7] * 4 + [0.0]))
    expected = np.linalg.solve(left, (M @ problem.targets.T @ D).ravel())
    near = W_EXCESS.get(name, 1e-6)
    assert_allclose(thorough.solve(problem, over_points)[0], expected, rtol=near, atol=near)


@pytest.mark.parametrize("batch", [40, 20, 8])
def test_an_epoch_of_minibatches_shrinks_weights_by_the_ridge_of_the_mean(batch: int) -> None:
    """Of inputs and targets that are 0 the ridge alone is left: (1 - rate ridge / N) a step."""
    n, ridge, flat = 40, 4.0, np.array([1.0, 2.0, 3.0, 0.0, 1.0, -1.0, 1.0, 0.0])
    segment, shapes = Segment((Affine(3, 2),), (0,)), ((2, 4),)
    problem = SegmentProblem(np.zeros((n, 3)), np.zeros((n, 2)), ridge, flat[None], segment, Squared(), shapes)
    found = SGDW(iterations=1, batch=batch, rate=0.1, momentum=0.0).solve(problem, summed(n, 3))
    assert_allclose(found[0], flat * (1.0 - 0.1 * ridge / n) ** (n // batch), rtol=1e-12)


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in solvers_of("segment") if n in solvers_of("units")])
def test_a_segment_of_one_unit_is_that_unit(name: str, random: np.random.Generator) -> None:
    """Solvers that take both give the same answer whichever way one unit is put."""
    A, T, W = random.normal(size=(40, 4)), random.normal(size=(40, 1)), random.normal(size=(1, 5))
    solver, over_points = W_SOLVERS[name](), summed(40, 3)
    joint = SegmentProblem(A, T, 0.3, W.reshape(1, -1), Segment((Affine(4, 1),), (0,)), Squared(), ((1, 5),))
    apart = UnitProblem(A, T, 0.3, W, "linear")
    if name == "proximal":  # it measures units in their Gram, a segment in that which it sums up itself
        apart = sharing(solver, apart, over_points)
    assert_allclose(solver.solve(joint, over_points), solver.solve(apart, over_points), rtol=0.0, atol=1e-9)
