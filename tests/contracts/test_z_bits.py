"""The contract of a Z-solver that keeps bits, for each such row of Z_SOLVERS, and what is known of its answers."""

from __future__ import annotations

import itertools
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from contracts.examples import (
    BITS,
    DECODERS,
    METRICS,
    Z_BITS,
    bits_problem,
    cases,
    example_of,
    some,
)
from covering import each
from numpy.testing import assert_allclose, assert_array_equal
from scipy import special

from macmpi.demand import Demand
from macmpi.nets.losses import dense
from macmpi.solvers import Z_SOLVERS
from macmpi.solvers.z_binary import BinaryZ
from macmpi.solvers.z_problem import ZProblem
from macmpi.typing import Array

pytestmark = pytest.mark.filterwarnings("error")

SCENES: tuple[dict[str, Any], ...] = (
    {},
    {"loss": "cross_entropy"},
    {"shifted": True},
    {"form": "diagonal", "shifted": True},
    {"form": "full", "loss": "cross_entropy", "shifted": True},
)
EXACT, ALTERNATING = BinaryZ(), BinaryZ(enumerated=0, iterations=50)


@pytest.fixture(params=cases(BITS, Z_BITS))
def solver(request: pytest.FixtureRequest) -> Any:
    return Z_SOLVERS[request.param[0]](**example_of(request.param, Z_BITS, "Z_BITS"))


decoder = each(DECODERS)


def solved(solver: Any, problem: ZProblem) -> Any:
    return solver.solve(problem, solver.prepare(problem))


def codes(problem: ZProblem, words: int = 1) -> list[Array]:
    one = [[0.0], [1.0]] if words == 1 else np.eye(words)
    return [np.concatenate(code) for code in itertools.product(one, repeat=problem.Z.shape[1] // words)]


def formula(problem: ZProblem, z: Array, row: int) -> float:
    """Eq. (4) at one point, from the segments and the metric's matrix alone."""
    first, rest = problem.segments
    shift = 0.0 if problem.shift is None else problem.shift[row]
    c = z - first.forward(problem.weights, problem.X[[row]])[0] - shift
    y, f = problem.Y[row], rest.forward(problem.weights, z[None])[0]
    loss = special.logsumexp(f) - y @ f if problem.loss.labels else 0.5 * np.sum((y - f) ** 2)
    return float(loss + 0.5 * c @ dense(problem.metrics[0].M, len(c)) @ c)


# --- the contract -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mu", [1e-3, 1.0, 1e6])
def test_no_point_gets_worse_and_bits_stay_bits(
    mu: float, decoder: str, solver: Any, random: np.random.Generator
) -> None:
    assert Demand.SITE_OF_BITS in solver.handles
    for i, (bits, flips, words) in enumerate(itertools.product((1, 3, 6), (0.0, 0.1, 0.5), (1, 3))):
        problem = bits_problem(random, bits, decoder, mu=mu, flips=flips, words=words, **SCENES[i % len(SCENES)])
        before = problem.values(problem.Z)
        found = solved(solver, problem)
        assert found.Z.shape == problem.Z.shape
        assert np.isin(found.Z, (0.0, 1.0)).all()
        assert words == 1 or (found.Z.reshape(-1, words).sum(axis=1) == 1.0).all()
        assert (found.errors <= before).all()
        assert_array_equal(found.errors, problem.values(found.Z))
        again = solved(solver, replace(problem, Z=found.Z))
        assert (again.errors <= found.errors).all()


def test_it_moves(decoder: str, solver: Any, random: np.random.Generator) -> None:
    """Descent alone would hold for a solver that never does."""
    problem = bits_problem(random, 6, decoder, n=30, flips=0.5)
    least = solved(BinaryZ(), problem).errors.sum()
    before = problem.values(problem.Z).sum()
    assert before - solved(solver, problem).errors.sum() > 0.5 * (before - least)


def test_some_points_give_those_rows(decoder: str, solver: Any, random: np.random.Generator) -> None:
    for scene in SCENES:
        problem = bits_problem(random, 4, decoder, n=20, **scene)
        shared = solver.prepare(problem)
        whole = solver.solve(problem, shared)
        for rows in ([0, 7, 19, 4], [11]):
            part = solver.solve(some(problem, rows), shared)
            assert_array_equal(part.Z, whole.Z[rows])
            assert_allclose(part.errors, whole.errors[rows], rtol=1e-12)


# --- against brute force ----------------------------------------------------------------------------------------------


def test_few_bits_are_solved_exactly(decoder: str, random: np.random.Generator) -> None:
    """Whatever the decoder, loss, metric and shift, and wherever it starts."""
    for (bits, words), scene, mu in product(((1, 1), (5, 1), (1, 4), (3, 3)), SCENES, (1e-2, 1.0, 100.0)):
        problem = bits_problem(random, bits, decoder, n=4, mu=mu, words=words, **scene)
        found = solved(EXACT, problem)
        for row in range(4):
            least = min(codes(problem, words), key=lambda z: formula(problem, z, row))
            assert_array_equal(found.Z[row], least)
            assert_allclose(found.errors[row], formula(problem, least, row), rtol=1e-11)


@pytest.mark.parametrize("scene", SCENES)
def test_many_bits_end_where_no_flip_of_one_helps(
    scene: dict[str, Any], decoder: str, random: np.random.Generator
) -> None:
    problem = bits_problem(random, 14, decoder, n=20, **scene)
    found = solved(ALTERNATING, problem)
    for h in range(14):
        flipped = found.Z.copy()
        flipped[:, h] = 1.0 - flipped[:, h]
        assert (problem.values(flipped) >= found.errors).all()


def test_every_sweep_over_the_bits_lowers_what_can_fall(decoder: str, random: np.random.Generator) -> None:
    problem = bits_problem(random, 12, decoder, n=20)
    before = problem.values(problem.Z)
    for iterations in range(1, 6):
        found = solved(BinaryZ(iterations, enumerated=0), problem)
        assert (found.errors <= before).all()
        before = found.errors
    assert_array_equal(solved(ALTERNATING, replace(problem, Z=found.Z)).errors <= before, True)


def test_codes_are_tried_in_parts_that_fit_into_memory(
    decoder: str, random: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for scene in SCENES:
        problem = bits_problem(random, 5, decoder, n=7, **scene)
        whole = solved(EXACT, problem)
        monkeypatch.setattr("macmpi.solvers.z_binary.AT_A_TIME", 7 * 5)
        assert_array_equal(solved(EXACT, problem).Z, whole.Z)
        monkeypatch.undo()


@pytest.mark.parametrize("form", METRICS)
def test_sweeps_begin_at_the_relaxed_minimum_too(form: str, random: np.random.Generator) -> None:
    """Of a linear decoder: rounding (V V^T + M)^-1 l gives no better code, even where there is but one sweep."""
    for shifted in (False, True):
        problem = bits_problem(random, 12, "linear", n=50, mu=0.3, form=form, shifted=shifted)
        W, M = problem.weights[-1], dense(problem.metrics[0].M, 12)
        linear = (problem.Y - W[:, -1]) @ W[:, :-1] + problem.first @ M
        rounded = np.linalg.solve(W[:, :-1].T @ W[:, :-1] + M, linear.T).T > 0.5
        for iterations in (1, 3):
            found = solved(BinaryZ(iterations, enumerated=0), problem)
            assert (found.errors <= problem.values(rounded.astype(float)) + 1e-12).all()


@pytest.mark.parametrize("form", METRICS)
def test_a_large_mu_gives_the_encoders_bits(form: str, random: np.random.Generator) -> None:
    problem = bits_problem(random, 4, "deep", mu=1e9, form=form)
    expected = problem.segments[0].forward(problem.weights, problem.X)
    for solver in (EXACT, ALTERNATING):
        assert_array_equal(solved(solver, problem).Z, expected)
