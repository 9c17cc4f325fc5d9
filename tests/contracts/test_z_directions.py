"""The three ways to a Gauss-Newton direction of the Z-step, against dense matrices and each other."""

from __future__ import annotations

import numpy as np
import pytest
from contracts.examples import DIRECTIONS, SCENES, SITES, basis_problem, linearised, narrowed, some, z_problem
from covering import each
from numpy.testing import assert_allclose, assert_array_equal
from scipy import linalg
from tolerance import gamma

from macmpi.nets.layers.activation import softmax
from macmpi.nets.losses import dense
from macmpi.solvers.z_gauss_newton import (
    GaussNewtonZ,
    Precondition,
    columns,
    direct_dual,
    direct_primal,
    dual,
    dual_product,
)
from macmpi.solvers.z_problem import ZProblem
from macmpi.typing import Array

CASES = [
    # K = 1, 2, 3; more outputs than units in the last hidden layer (Woodbury's branch), as many, and fewer.
    ((3, 4, 6), (2.0,)),
    ((3, 4, 4), (0.1,)),
    ((3, 4, 2), (50.0,)),
    ((3, 5, 2, 6), (0.3, 20.0)),
    ((3, 2, 5, 1), (7.0, 0.2)),
    ((4, 5, 3, 2, 7), (3.0, 0.05, 400.0)),
    ((4, 2, 3, 6, 3), (1e4, 0.5, 9.0)),
]
Case = tuple[tuple[int, ...], tuple[float, ...]]

ACTIVATIONS = ["sigmoid", "tanh", "linear"]


case = each(CASES, ids=lambda case: "-".join(map(str, case[0])))
cut = each(SITES)


@pytest.fixture(params=range(2))
def problem(request: pytest.FixtureRequest, cut: str, case: Case, random: np.random.Generator) -> ZProblem:
    """Each case meets every scene, at some cut."""
    sizes, mu = case
    scene = (CASES.index(case) + 2 * SITES.index(cut) + request.param) % len(SCENES)
    activation = ACTIVATIONS[(sum(sizes) + scene) % len(ACTIVATIONS)]
    mu = mu[: (len(mu) + 1) // 2] if cut == "sparse" else mu
    return z_problem(random, sizes, activation, n=4, mu=mu, off=0.7, cut=cut, **SCENES[scene])


def preconditioner(problem: ZProblem) -> Precondition:
    shared = GaussNewtonZ(direction="dual").prepare(problem)
    assert shared is not None
    return shared.precondition


def direction(problem: ZProblem, name: str, cg_iterations: int = 60, exact: bool = False) -> Array:
    """A direction with the preconditioner of the problem's own points, or without one."""
    model = linearised(problem)
    if name in ("direct_dual", "direct_primal"):
        return (direct_dual if name == "direct_dual" else direct_primal)(model)
    return dual(model, np.copy if exact else preconditioner(problem), cg_iterations, 0.0)


# --- dense references -------------------------------------------------------------------------------------------------


def jacobians(problem: ZProblem, row: int) -> list[Array]:
    """J_2, ..., J_{K+1} at one point, by central differences of the segments."""
    out, h = [], 1e-6
    for segment, z in zip(problem.segments[1:], problem.sites(problem.Z), strict=True):
        steps = h * np.eye(z.shape[1])
        ahead, behind = (segment.forward(problem.weights, z[row] + sign * steps) for sign in (1.0, -1.0))
        out.append((ahead - behind).T / (2.0 * h))
    return out


def quadratic(problem: ZProblem, row: int) -> tuple[Array, Array]:
    """Gauss-Newton Hessian (sum H, sum H) and gradient (sum H,) of eq. (4) at one point, from its formula."""
    J, bounds, H = jacobians(problem, row), np.cumsum([0, *problem.sizes]), sum(problem.sizes)
    at = some(problem, [row])
    sites, F = at.sites(at.Z), at.outputs(at.Z)
    A, g = np.zeros((H, H)), np.zeros(H)
    for k, h in enumerate(problem.sizes):
        block = np.zeros((h, H))
        block[:, bounds[k] : bounds[k + 1]] = np.eye(h)
        if k:
            block[:, bounds[k - 1] : bounds[k]] = -J[k - 1]
        M = dense(problem.metrics[k].M, h)
        A += block.T @ M @ block
        g += block.T @ M @ (sites[k] - F[k])[0]
    block = np.zeros((problem.Y.shape[1], H))
    block[:, bounds[-2] :] = J[-1]
    p = softmax(F[-1])[0]
    loss = np.diag(p) - np.outer(p, p) if problem.loss.labels else np.eye(len(p))
    residual = at.Y[0] - (p if problem.loss.labels else F[-1][0])
    return A + block.T @ loss @ block, g - block.T @ residual


def dense_direction(problem: ZProblem, row: int) -> Array:
    A, g = quadratic(problem, row)
    return linalg.solve(A, -g, assume_a="pos")


def dual_matrix(problem: ZProblem, row: int) -> Array:
    """I + sum_k Phi_k M_k^-1 Phi_k^T of one point, column by column through its tangents."""
    model, L = linearised(some(problem, [row] * problem.Y.shape[1])), problem.Y.shape[1]
    S, phi = np.eye(L), np.eye(L)
    for tangent, form, h in zip(reversed(model.tangents), reversed(model.metrics), reversed(model.sizes), strict=True):
        phi = tangent.vjp(phi)
        S += phi @ dense(form.inverse, h) @ phi.T
    return S


# --- the directions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DIRECTIONS)
def test_the_direction_solves_the_normal_equations(name: str, problem: ZProblem) -> None:
    found = direction(problem, name)
    expected = np.array([dense_direction(problem, row) for row in range(len(problem.Z))])
    assert_allclose(found, expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("scene", range(len(SCENES)))
def test_the_directions_of_a_net_of_radial_basis_functions(scene: int, random: np.random.Generator) -> None:
    problem = basis_problem(random, **SCENES[scene])
    expected = np.array([dense_direction(problem, row) for row in range(len(problem.Z))])
    for name in DIRECTIONS:
        near = 1e-6 * np.abs(expected).max()
        assert_allclose(direction(problem, name), expected, rtol=1e-5, atol=near)


def test_a_direct_direction_in_single_precision_is_solved_in_double(problem: ZProblem) -> None:
    """Matrix and gradient are rounded, and the condition of the system magnifies both."""
    narrow = narrowed(problem, "weights", "metrics", "X", "Y", "Z", "shift")
    condition = max(np.linalg.cond(quadratic(problem, row)[0]) for row in range(len(problem.Z)))
    near = 2.0 * gamma(problem.Z.shape[1] + problem.Y.shape[1], np.float32) * condition
    for name in ("direct_primal", "direct_dual"):
        found, expected = direction(narrow, name), direction(problem, name)
        assert found.dtype == np.float32
        assert_allclose(found, expected, rtol=0.0, atol=near * np.linalg.norm(expected, axis=1).max())


def test_columns_are_those_of_the_jacobian(random: np.random.Generator) -> None:
    problem = basis_problem(random)
    _, tangents = problem.linearise(problem.Z)
    for k, (tangent, size) in enumerate(zip(tangents, problem.sizes, strict=True)):
        found = columns(tangent, 4, size, np.dtype(float))
        for row in range(4):
            assert_allclose(found[row], jacobians(problem, row)[k].T, rtol=1e-6, atol=1e-8)


def test_all_directions_agree(problem: ZProblem) -> None:
    expected = direction(problem, "direct_primal")
    for name in DIRECTIONS:
        assert_allclose(direction(problem, name), expected, rtol=1e-7, atol=1e-8 * np.abs(expected).max())


# --- products ---------------------------------------------------------------------------------------------------------


def test_accumulate_is_the_forward_tangent_pass(problem: ZProblem, random: np.random.Generator) -> None:
    model = linearised(problem)
    terms = [random.normal(size=z.shape) for z in problem.sites(problem.Z)]
    out = [t.copy() for t in terms]
    model.accumulate(out)
    for row in range(len(problem.Z)):
        J, expected = jacobians(problem, row), terms[0][row]
        assert_allclose(out[0][row], expected, rtol=1e-12, atol=1e-12)
        for k in range(1, len(terms)):
            expected = terms[k][row] + J[k - 1] @ expected
            assert_allclose(out[k][row], expected, rtol=1e-6, atol=1e-7)


def test_dual_product_is_the_product_with_the_dual_matrix(problem: ZProblem, random: np.random.Generator) -> None:
    P, model = random.normal(size=problem.Y.shape), linearised(problem)
    t, t_last = ([np.empty_like(z) for z in problem.sites(problem.Z)] for _ in range(2))
    curvature, SP = dual_product(model, P, t)
    last = dual_product(model, P, t_last, last=True)
    assert last[1] is None
    assert_allclose(last[0], curvature, rtol=1e-10)
    assert_array_equal(np.hstack(t_last), np.hstack(t))
    for row in range(len(P)):
        expected = dual_matrix(problem, row) @ P[row]
        assert_allclose(curvature[row], P[row] @ expected, rtol=1e-10)
        assert_allclose(SP[row], expected, rtol=1e-10, atol=1e-10 * np.abs(expected).max())


# --- preconditioners --------------------------------------------------------------------------------------------------


def test_the_dual_preconditioner_of_one_point_is_exact(problem: ZProblem, random: np.random.Generator) -> None:
    R = random.normal(size=(3, problem.Y.shape[1]))
    for row in range(2):
        precondition = preconditioner(some(problem, [row]))
        expected = linalg.solve(dual_matrix(problem, row), R.T, assume_a="pos").T
        assert_allclose(precondition(R), expected, rtol=1e-8, atol=1e-9)


def test_an_exact_preconditioner_needs_one_cg_iteration(problem: ZProblem) -> None:
    alone = some(problem, [2])
    expected = direction(alone, "direct_primal")
    assert_allclose(direction(alone, "dual", 1), expected, rtol=1e-7, atol=1e-8 * np.abs(expected).max())


@pytest.mark.parametrize("sizes", [(3, 4, 6), (3, 4, 2)])
def test_with_one_site_the_preconditioner_is_the_inverse_of_the_mean(
    sizes: tuple[int, ...], random: np.random.Generator
) -> None:
    """After the activation, where the last segment is linear: every S_n is the same."""
    for form in ("number", "full"):
        problem = z_problem(random, sizes, n=6, mu=(0.7,), forms=(form,))
        R = random.normal(size=(4, sizes[-1]))
        mean = np.mean([dual_matrix(problem, row) for row in range(6)], axis=0)
        precondition = preconditioner(problem)
        assert_allclose(precondition(R), linalg.solve(mean, R.T).T, rtol=1e-10, atol=1e-11)
