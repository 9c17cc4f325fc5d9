"""The contract of a Z-solver, for every row of Z_SOLVERS but those that keep bits (test_z_bits.py)."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from contracts.examples import (
    CONTINUOUS,
    SCENES,
    SITES,
    Z_ARGUMENTS,
    Z_EXCESS,
    Z_THOROUGH,
    cases,
    example_of,
    point_gradients,
    some,
    z_problem,
)
from covering import covering, each
from numpy.testing import assert_allclose
from scipy import optimize

from macmpi.nets.layers.activation import FUNCTIONS, softmax
from macmpi.nets.losses import dense
from macmpi.solvers import Z_SOLVERS
from macmpi.solvers.z_problem import ZProblem
from macmpi.typing import Array

pytestmark = pytest.mark.filterwarnings("error")

DEEP = (4, 5, 3, 6, 4)
WIDE_OUTPUT = (3, 2, 8)
NARROW_OUTPUT = (3, 6, 4, 2)
SIZES = [DEEP, WIDE_OUTPUT, NARROW_OUTPUT]


name = each(CONTINUOUS)


@pytest.fixture
def solvers(name: str) -> list[Any]:
    """The solver as it comes, and under other arguments."""
    return [Z_SOLVERS[name](**arguments) for arguments in Z_ARGUMENTS.get(name, [{}])]


@pytest.fixture
def solver(solvers: list[Any]) -> Any:
    return solvers[0]


case = each(cases(CONTINUOUS, Z_THOROUGH))


@pytest.fixture
def thorough(case: tuple[str, int]) -> Any:
    return Z_SOLVERS[case[0]](**example_of(case, Z_THOROUGH, "Z_THOROUGH"))


cut = each(SITES)
scene = each(SCENES, ids=lambda scene: "-".join(map(str, scene.get("forms", ()))) + scene.get("loss", ""))


each_two = pytest.mark.parametrize(("scene", "cut", "name"), covering(SCENES, SITES, CONTINUOUS))
"""Every two of a scene, a cut and a solver meet."""


def size_of(scene: dict[str, Any], cut: str) -> tuple[int, ...]:
    """Each size with each scene and with each cut, not with all pairs of them."""
    return SIZES[(SCENES.index(scene) + SITES.index(cut)) % len(SIZES)]


@pytest.mark.parametrize("mu", [1e-2, 10.0, 1e8])
@pytest.mark.parametrize("activation", FUNCTIONS)
def test_no_point_gets_worse(
    activation: str, mu: float, cut: str, solvers: list[Any], random: np.random.Generator
) -> None:
    """Far from feasible, near it, exactly there; under small weights and under saturating ones."""
    start, wides = list(FUNCTIONS).index(activation) + round(np.log10(mu)), (0.1, 1.5, 20.0)
    for i, (sizes, off) in enumerate(itertools.product(SIZES, (3.0, 1e-4, 0.0))):
        wide, scene = wides[(start + i + i // 3) % 3], SCENES[(start + i) % len(SCENES)]
        problem = z_problem(random, sizes, activation, mu=mu, off=off, wide=wide, cut=cut, **scene)
        solver = solvers[i % len(solvers)]
        before = problem.values(problem.Z)
        found = solver.solve(problem, solver.prepare(problem))
        after = problem.values(found.Z)
        assert np.isfinite(found.Z).all()
        assert (after <= before * (1.0 + 1e-12)).all()
        assert_allclose(found.errors, after, rtol=1e-12, atol=1e-12 * before.max())


@each_two
def test_the_first_step_goes_half_the_way(
    scene: dict[str, Any], cut: str, name: str, solver: Any, random: np.random.Generator
) -> None:
    """Descent alone would hold for a solver that never moves."""
    thorough = Z_SOLVERS[name](**example_of((name, 0), Z_THOROUGH, "Z_THOROUGH"))
    problem = z_problem(random, size_of(scene, cut), off=1.0, cut=cut, **scene)
    before = problem.values(problem.Z).sum()
    least = thorough.solve(problem, thorough.prepare(problem)).errors.sum()
    assert before - solver.solve(problem, solver.prepare(problem)).errors.sum() > 0.5 * (before - least)


@pytest.mark.parametrize("sizes", [(3, 5, 4, 2), DEEP])
def test_a_sweep_of_alternating_ends_with_the_first_site(sizes: tuple[int, ...], random: np.random.Generator) -> None:
    """Of a linear net each site is solved exactly, and its gradient is 0 until another one moves."""
    problem = z_problem(random, sizes, "linear")
    solver = Z_SOLVERS["alternating"](cg_iterations=50, cg_tolerance=0.0)
    Z = solver.solve(problem, solver.prepare(problem)).Z
    start = np.abs(point_gradients(problem, problem.Z)[1]).max()
    first, *others = problem.sites(point_gradients(problem, Z)[1])
    assert np.abs(first).max() < 1e-8 * start
    assert all(np.abs(other).max() > 1e-4 * start for other in others)


@each_two
def test_some_points_give_those_rows(
    scene: dict[str, Any], cut: str, name: str, solvers: list[Any], random: np.random.Generator
) -> None:
    """Points do not see each other: this is what lets the Z-step be split among ranks."""
    for solver in solvers:
        problem = z_problem(random, size_of(scene, cut), n=20, cut=cut, **scene)
        make_perfect(problem, [3, 7])
        shared = solver.prepare(problem)
        whole = solver.solve(problem, shared)
        for rows in ([0, 7, 19, 4], [11], [3], [1, 2, 5]):
            part = solver.solve(some(problem, rows), shared)
            assert_allclose(part.Z, whole.Z[rows], rtol=0.0, atol=1e-11)
            assert_allclose(part.errors, whole.errors[rows], rtol=1e-11, atol=1e-20)


def make_perfect(problem: ZProblem, rows: list[int]) -> None:
    """Rows that satisfy all constraints and, where the loss can vanish, are fitted."""
    F = problem.X[rows]
    for segment, z, u in zip(problem.segments, problem.sites(problem.Z), shifts(problem), strict=False):
        F = z[rows] = segment.forward(problem.weights, F) + u[rows]
    if not problem.loss.labels:
        problem.Y[rows] = problem.segments[-1].forward(problem.weights, F)


def shifts(problem: ZProblem) -> list[Array]:
    return problem.sites(np.zeros_like(problem.Z) if problem.shift is None else problem.shift)


def test_a_perfect_point_stays(solvers: list[Any], cut: str, random: np.random.Generator) -> None:
    for shifted, solver in itertools.product((False, True), solvers):
        problem = z_problem(random, DEEP, cut=cut, forms=("full", "number"), shifted=shifted)
        make_perfect(problem, list(range(len(problem.Z))))
        found = solver.solve(problem, solver.prepare(problem))
        assert_allclose(found.Z, problem.Z, rtol=0.0, atol=1e-13)
        assert_allclose(found.errors, 0.0, atol=1e-25)


# --- against brute force ----------------------------------------------------------------------------------------------


SMALL: list[tuple[tuple[int, ...], float]] = [
    *(((2, 2, 2), 1e4), ((2, 2, 1), 1.0), ((1, 2, 5), 1e4), ((2, 2, 2, 2), 1.0), ((2, 2, 2, 2), 1e4)),
    ((3, 1, 2, 1), 1.0),
]
"""Layers of one and two units, one and two sites; each with a mu."""


@pytest.mark.parametrize(
    ("small", "cut", "case"), covering(SMALL, SITES, [case.values[0] for case in cases(CONTINUOUS, Z_THOROUGH)])
)
def test_reaches_the_minimum_that_brute_force_finds(
    small: tuple[tuple[int, ...], float], cut: str, case: tuple[str, int], thorough: Any, random: np.random.Generator
) -> None:
    """At three points; a scene after the other."""
    sizes, mu = small
    scene, excess = SCENES[(sum(sizes) + round(np.log10(mu))) % len(SCENES)], Z_EXCESS.get(case[0], 1e-9)
    problem = z_problem(random, sizes, n=3, mu=mu, off=0.1, cut=cut, **scene)
    found = thorough.solve(problem, thorough.prepare(problem))
    if (sizes, mu, cut) not in LEAST:
        LEAST[sizes, mu, cut] = [
            optimize.least_squares(lambda z, row=row: residuals(problem, z, row), problem.Z[row], **TIGHT).cost
            for row in range(3)
        ]
    assert (found.errors <= np.array(LEAST[sizes, mu, cut]) * (1.0 + excess) + 1e-14).all()
    if case[0] not in Z_EXCESS:
        assert np.abs(point_gradients(problem, found.Z)[1]).max() <= 1e-5 * max(1.0, mu)


LEAST: dict[tuple[tuple[int, ...], float, str], list[float]] = {}
"""What brute force finds, which is the same for all solvers."""

TIGHT: dict[str, Any] = {"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15, "max_nfev": 1000}


def residuals(problem: ZProblem, z: Array, row: int) -> Array:
    """Those whose half sum of squares is eq. (4) at one point, from the segments and the metrics' matrices alone."""
    sites = [part[0] for part in problem.sites(z[None])]
    inputs, parts = [problem.X[row], *sites], []
    for k, (segment, a, to, u) in enumerate(zip(problem.segments, inputs, sites, shifts(problem), strict=False)):
        L = np.linalg.cholesky(dense(problem.metrics[k].M, len(to)))
        parts.append((to - segment.forward(problem.weights, a[None])[0] - u[row]) @ L)
    F = problem.segments[-1].forward(problem.weights, sites[-1][None])
    if problem.loss.labels:
        return np.concatenate([*parts, np.sqrt(-2.0 * np.log(np.sum(problem.Y[[row]] * softmax(F), axis=1)))])
    return np.concatenate([*parts, problem.Y[row] - F[0]])


def test_gradients_are_those_of_the_values(scene: dict[str, Any], cut: str, random: np.random.Generator) -> None:
    problem, h = z_problem(random, DEEP, cut=cut, **scene), 1e-6
    f, G = point_gradients(problem, problem.Z)
    assert_allclose(f, problem.values(problem.Z), rtol=1e-14)
    for column in range(G.shape[1]):
        step = np.zeros_like(problem.Z)
        step[:, column] = h
        ahead, behind = (problem.values(problem.Z + sign * step) for sign in (1.0, -1.0))
        assert_allclose(G[:, column], (ahead - behind) / (2.0 * h), rtol=1e-6, atol=1e-6)
