"""Batched descent: every direction, on rows of quadratics and on valleys that bend."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from covering import each
from numpy.testing import assert_allclose, assert_array_equal

from macmpi.solvers.descent import Conjugate, Descent, Gradients, Values, line_search
from macmpi.solvers.gradient_solvers import LBFGSZ, ConjugateGradientZ, TruncatedNewton
from macmpi.typing import Array

pytestmark = pytest.mark.filterwarnings("error")

DESCENTS: dict[str, type[Descent]] = {
    "steepest": Descent,
    "conjugate": ConjugateGradientZ,
    "L-BFGS": LBFGSZ,
    "Newton": TruncatedNewton,
}


@dataclass(frozen=True)
class Rows:
    """Independent problems, one a row: 1/2 (x - a)^T H (x - a) + 1, or Rosenbrock's function times c, plus 1."""

    start: Array
    values: Values
    gradients: Gradients
    minima: Array

    def take(self, rows: list[int]) -> Rows:
        def padded(X: Array) -> Array:
            whole = self.start.copy()
            whole[rows] = X
            return whole

        def gradients(X: Array) -> tuple[Array, Array]:
            f, G = self.gradients(padded(X))
            return f[rows], G[rows]

        return Rows(self.start[rows], lambda X: self.values(padded(X))[rows], gradients, self.minima[rows])


def quadratics(random: np.random.Generator, m: int = 6, P: int = 5, condition: float = 30.0) -> Rows:
    """Rows of other sizes, condition numbers up to `condition`; the last one starts at its minimum."""
    H = np.empty((m, P, P))
    for row in range(m):
        Q = np.linalg.qr(random.normal(size=(P, P)))[0]
        H[row] = 10.0 ** (row - 3) * (Q * np.linspace(1.0, condition, P)) @ Q.T
    a, start = random.normal(size=(m, P)), random.normal(size=(m, P))
    start[-1] = a[-1]

    def gradients(X: Array) -> tuple[Array, Array]:
        G = np.einsum("mij,mj->mi", H, X - a)
        return 1.0 + 0.5 * np.einsum("mi,mi->m", G, X - a), G

    return Rows(start, lambda X: gradients(X)[0], gradients, a)


def valleys(random: np.random.Generator, m: int = 4) -> Rows:
    c, start = 10.0 ** np.arange(m - 2, -2, -1.0), np.array([-1.2, 1.0]) + 0.1 * random.normal(size=(m, 2))

    def gradients(X: Array) -> tuple[Array, Array]:
        x, y = X.T
        f = (1.0 - x) ** 2 + 20.0 * (y - x * x) ** 2
        G = np.stack([-2.0 * (1.0 - x) - 80.0 * x * (y - x * x), 40.0 * (y - x * x)], axis=1)
        return 1.0 + c * f, c[:, None] * G

    return Rows(start, lambda X: gradients(X)[0], gradients, np.ones((m, 2)))


name = each(DESCENTS)


@pytest.fixture
def kind(name: str) -> type[Descent]:
    return DESCENTS[name]


@pytest.fixture(params=[quadratics, valleys], ids=["quadratics", "valleys"])
def rows(request: pytest.FixtureRequest, random: np.random.Generator) -> Rows:
    return request.param(random)  # type: ignore[no-any-return]


def run(kind: type[Descent], rows: Rows, iterations: int) -> tuple[Array, Array]:
    return kind(iterations, 0.0, 20).minimise(rows.values, rows.gradients, rows.start)


def test_no_row_rises(kind: type[Descent], rows: Rows) -> None:
    before = rows.values(rows.start)
    for iterations in (0, 1, 2, 7, 40):
        X, f = run(kind, rows, iterations)
        assert_allclose(f, rows.values(X), rtol=1e-12)
        assert (f <= before).all()
        before = np.minimum(before, f * (1.0 + 1e-14))


def test_every_iteration_lowers_what_can_fall(kind: type[Descent], rows: Rows) -> None:
    first, before = run(kind, rows, 1)[1], rows.values(rows.start)
    away = (rows.start != rows.minima).any(axis=1)
    assert_array_equal(first < before, away)


def test_a_quadratic_ends_at_its_minimum(kind: type[Descent], random: np.random.Generator) -> None:
    rows = quadratics(random)
    X, f = run(kind, rows, 400)
    assert_allclose(f, 1.0, rtol=0.0, atol=1e-12)
    assert_allclose(X[2:], rows.minima[2:], rtol=0.0, atol=1e-5)


def test_conjugate_directions_are_those_of_polak_and_ribiere(random: np.random.Generator) -> None:
    """d = -g + max(0, g . (g - g_old) / g_old . g_old) d_old, row by row; a row whose gradient stays begins again."""
    direction, (old, new) = Conjugate(), random.normal(size=(2, 5, 4))
    new[0], new[1] = old[0], 0.5 * old[1]
    assert_array_equal(direction.next(old, old), -old)
    beta = np.maximum(0.0, np.sum(new * (new - old), axis=1) / np.sum(old * old, axis=1))
    assert (beta > 0.0).any() and (beta == 0.0).any()
    assert_allclose(direction.next(new, new), -new - beta[:, None] * old, rtol=1e-12, atol=1e-14)


def test_curvature_pays(random: np.random.Generator) -> None:
    """On an ill-conditioned quadratic conjugate gradients and L-BFGS leave steepest descent far behind."""
    rows = quadratics(random, condition=1e4).take([3])
    left = {name: float(run(kind, rows, 30)[1][0]) - 1.0 for name, kind in DESCENTS.items()}
    assert left["conjugate"] < 1e-2 * left["steepest"]
    assert left["L-BFGS"] < 1e-2 * left["steepest"]


def test_a_row_alone_has_the_answer_that_it_has_among_others(kind: type[Descent], rows: Rows) -> None:
    whole, f = run(kind, rows, 6)
    for some in ([0], [1], [3], [2, 0], [3, 1]):
        X, g = run(kind, rows.take(some), 6)
        assert_allclose(X, whole[some], rtol=0.0, atol=1e-9)
        assert_allclose(g, f[some], rtol=1e-9)


def test_a_row_stops_once_it_falls_by_less_than_the_tolerance(random: np.random.Generator) -> None:
    rows, calls = quadratics(random), []

    def gradients(X: Array) -> tuple[Array, Array]:
        calls.append(1)
        return rows.gradients(X)

    LBFGSZ(200, 0.5, 20).minimise(rows.values, gradients, rows.start)
    strict = len(calls)
    LBFGSZ(200, 0.0, 20).minimise(rows.values, gradients, rows.start)
    assert strict < len(calls) - strict


# --- values that are no numbers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_trial_values_that_are_no_numbers_are_stepped_back_from(
    bad: float, kind: type[Descent], random: np.random.Generator
) -> None:
    """Beyond a wall the objective is not finite; the minimum lies before it."""
    rows = quadratics(random)
    reach = np.abs(rows.start).max() + np.abs(rows.minima).max()

    def values(X: Array) -> Array:
        return np.where(np.abs(X).max(axis=1) > reach, bad, rows.values(X))

    X, f = kind(400, 0.0, 30).minimise(values, rows.gradients, rows.start)
    assert np.isfinite(X).all()
    assert_allclose(f, 1.0, rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_that_starts_without_a_finite_gradient_harms_no_other(
    bad: float, kind: type[Descent], random: np.random.Generator
) -> None:
    """And stays where it is."""
    rows = quadratics(random)
    whole, _ = run(kind, rows, 5)

    def gradients(X: Array) -> tuple[Array, Array]:
        f, G = rows.gradients(X)
        G[1, 2] = bad
        return f, G

    X, f = kind(5, 0.0, 20).minimise(rows.values, gradients, rows.start)
    others = [0, 2, 3, 4, 5]
    assert_allclose(X[others], whole[others], rtol=0.0, atol=1e-12)
    assert_array_equal(X[1], rows.start[1])
    assert f[1] == rows.values(rows.start)[1]


@pytest.mark.parametrize(("dtype", "tiny"), [(np.float64, 1e-155), (np.float32, 1e-20)])
def test_a_gradient_that_vanishes_keeps_its_row(dtype: type, tiny: float, kind: type[Descent]) -> None:
    """Its squares are close to the smallest number there is; the other row goes on."""
    scales, start = np.array([1.0, 3.0, 10.0], dtype), np.array([[1.0] * 3, [tiny] * 3], dtype)

    def gradients(X: Array) -> tuple[Array, Array]:
        return np.einsum("mp,p,mp->m", X, scales, X) / 2, X * scales

    X, f = kind(20, 0.0, 20).minimise(lambda X: gradients(X)[0], gradients, start)
    assert (np.abs(X) <= np.abs(start)).all()
    assert f[0] < 1e-2


# --- the line search --------------------------------------------------------------------------------------------------


def test_a_parabola_gives_the_best_step_of_a_quadratic(random: np.random.Generator) -> None:
    """Of a first trial within a factor of its own: `exact` finds the minimum along the line at once."""
    rows = quadratics(random).take([0, 1, 2, 3, 4])
    f, G = rows.gradients(rows.start)
    slope = -np.sum(G * G, axis=1)
    best = -slope / (2.0 * (rows.values(rows.start - G) - f - slope))
    for factor in (0.2, 3.0, 8.0):
        length, after = line_search(rows.values, rows.start, -G, f, slope, factor * best, True, 10)
        assert_allclose(length, best, rtol=1e-6)
        assert_allclose(after, rows.values(rows.start - length[:, None] * G), rtol=1e-12)
