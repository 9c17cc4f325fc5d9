"""The contract of a W-problem: values that are sums over points, their gradients, and what is a sum of what."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from contracts.examples import SEGMENTS, metric_example, reachable, segment_problem, summed, unit_objectives, value
from numpy.testing import assert_allclose, assert_array_equal

from macmpi.nets.layers.activation import FUNCTIONS
from macmpi.nets.losses import LOSSES, Squared
from macmpi.solvers.w_problem import SegmentProblem, UnitProblem, gradients, values
from macmpi.typing import Array

CUTS = [(0, 40), (0, 1, 40), (0, 13, 14, 29, 40)]


def units(random: np.random.Generator, activation: str) -> UnitProblem:
    A, T = random.normal(size=(40, 4)), reachable(random, (40, 3), activation)
    return UnitProblem(A, T, 0.3, random.normal(size=(3, 5)), activation)


def segments(random: np.random.Generator, kind: str, loss: str) -> SegmentProblem:
    return segment_problem(random, kind, loss, ridge=0.3)[0]


KINDS = {f"units, {a}": (units, (a,)) for a in FUNCTIONS}
KINDS |= {f"{kind}, {loss}": (segments, (kind, loss)) for kind in SEGMENTS for loss in LOSSES}


@pytest.fixture(params=KINDS)
def problem(request: pytest.FixtureRequest, random: np.random.Generator) -> Any:
    make, arguments = KINDS[request.param]
    return make(random, *arguments)


def test_shapes(problem: Any) -> None:
    f, G = problem.partial(problem.start, slice(0, 40), slope=True)
    assert problem.rows == 40
    assert problem.start.ndim == 2
    assert f.shape == (len(problem.start),)
    assert G.shape == problem.start.shape


def test_parts_add_up_over_any_cut_of_the_points(problem: Any) -> None:
    whole = problem.partial(problem.start, slice(None), slope=True)
    for cut in CUTS:
        parts = [problem.partial(problem.start, slice(a, b), slope=True) for a, b in pairwise(cut)]
        for i in (0, 1):
            assert_allclose(np.sum([p[i] for p in parts], axis=0), whole[i], rtol=1e-12, atol=1e-12)


def test_points_may_come_in_any_order(problem: Any) -> None:
    """Minibatches are index arrays."""
    order = np.random.default_rng(1).permutation(40)
    for found, expected in zip(
        problem.partial(problem.start, order, slope=True),
        problem.partial(problem.start, slice(None), True),
        strict=True,
    ):
        assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_gradients_are_those_of_the_values(problem: Any) -> None:
    theta, over_points, h = problem.start, summed(40, 3), 1e-6
    f, G = gradients(problem, theta, over_points)
    assert_allclose(f, values(problem, theta, over_points), rtol=1e-14)
    expected = np.empty_like(theta)
    for column in range(theta.shape[1]):
        step = np.zeros_like(theta)
        step[:, column] = h
        ahead, behind = (values(problem, theta + sign * step, over_points) for sign in (1.0, -1.0))
        expected[:, column] = (ahead - behind) / (2.0 * h)
    assert_allclose(G, expected, rtol=1e-6, atol=1e-6 * np.abs(G).max())


def test_rows_are_problems_of_their_own(problem: Any, random: np.random.Generator) -> None:
    """A change of one row of theta changes that row's value and gradient alone."""
    theta, over_points = problem.start, summed(40, 3)
    before = gradients(problem, theta, over_points)
    for row in range(len(theta)):
        other = theta.copy()
        other[row] += random.normal(size=theta.shape[1])
        f, G = gradients(problem, other, over_points)
        assert_array_equal(np.flatnonzero(np.abs(f - before[0]) > 1e-12 * np.abs(f)), [row])
        assert_allclose(np.delete(G, row, 0), np.delete(before[1], row, 0), rtol=1e-12, atol=1e-12)


def test_the_ridge_of_units_leaves_the_biases_alone(random: np.random.Generator) -> None:
    problem = units(random, "sigmoid")
    W = problem.start
    f, G = problem.ridge_part(W)
    assert_allclose(f, 0.15 * np.sum(W[:, :-1] ** 2, axis=1), rtol=1e-14)
    assert_allclose(G, np.column_stack([0.3 * W[:, :-1], np.zeros(3)]), rtol=1e-14)


def test_the_ridge_of_a_segment_leaves_every_bias_alone(random: np.random.Generator) -> None:
    problem = segments(random, "two layers", "squared")
    f, G = problem.ridge_part(problem.start)
    blocks = problem.blocks(problem.start[0])
    assert_allclose(f, [0.15 * sum(np.sum(W[:, :-1] ** 2) for W in blocks)], rtol=1e-14)
    for W, g in zip(blocks, problem.blocks(G[0]), strict=True):
        assert_allclose(g, np.column_stack([0.3 * W[:, :-1], np.zeros(len(W))]), rtol=1e-14)


def test_values_of_units_are_those_of_the_formula(random: np.random.Generator) -> None:
    for activation in FUNCTIONS:
        problem = units(random, activation)
        found = values(problem, problem.start, summed(40, 3))
        assert_allclose(found, unit_objectives(problem, problem.start), rtol=1e-12)


def test_values_of_a_segment_are_those_of_the_formula(random: np.random.Generator) -> None:
    problem = segments(random, "two layers", "cross_entropy")
    V, W = problem.blocks(problem.start[0])
    F = value("tanh", problem.inputs @ V[:, :-1].T + V[:, -1]) @ W[:, :-1].T + W[:, -1]
    P = np.exp(F) / np.exp(F).sum(axis=1, keepdims=True)
    expected = -np.sum(problem.targets * np.log(P)) + 0.15 * (np.sum(V[:, :-1] ** 2) + np.sum(W[:, :-1] ** 2))
    assert_allclose(values(problem, problem.start, summed(40, 3)), [expected], rtol=1e-12)


@pytest.mark.parametrize("kind", ["linear", "before", "after"])
def test_a_separable_segment_is_the_sum_of_its_units(kind: str, random: np.random.Generator) -> None:
    problem = segments(random, kind, "squared")
    assert problem.segment.separable
    (W,) = problem.blocks(problem.start[0])
    A = problem.segment.features([], problem.inputs)
    apart = UnitProblem(A, problem.targets, problem.ridge, W, problem.segment.activation)
    f, G = gradients(problem, problem.start, summed(40, 3))
    each, slopes = gradients(apart, W, summed(40, 3))
    assert_allclose(f, [each.sum()], rtol=1e-12)
    assert_allclose(problem.blocks(G[0])[0], slopes, rtol=1e-12, atol=1e-12)


def test_a_metric_weighs_the_outputs_of_a_segment(random: np.random.Generator) -> None:
    """A diagonal one gives each unit's own regression its weight."""
    form = metric_example("diagonal", 3, random)
    made = segment_problem(random, "after", ridge=0.0)[0]
    problem = SegmentProblem(made.inputs, made.targets, 0.0, made.start, made.segment, Squared(form), made.shapes)
    apart = UnitProblem(made.inputs, made.targets, 0.0, made.blocks(made.start[0])[0], "sigmoid")
    (f,), each = values(problem, problem.start, summed(40, 2)), values(apart, apart.start, summed(40, 2))
    assert isinstance(form.M, Array)
    assert_allclose(f, np.sum(form.M * each), rtol=1e-12)
