"""The dual by which GaussNewtonZ finds its direction, against dense matrices."""

from __future__ import annotations

import numpy as np
import pytest
from contracts.examples import SITES, z_problem
from numpy.testing import assert_allclose
from scipy import linalg

from macmpi.layers import Array, Tangent
from macmpi.objective import ZProblem
from macmpi.solvers.z_gauss_newton import GaussNewtonZ, accumulate, dual_product

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

ACTIVATIONS = ["sigmoid", "tanh", "linear"]


@pytest.fixture(params=CASES, ids=lambda case: "-".join(map(str, case[0])))
def case(request: pytest.FixtureRequest) -> tuple[tuple[int, ...], tuple[float, ...]]:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=ACTIVATIONS)
def activation(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=SITES)
def cut(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def problem(
    activation: str, cut: str, case: tuple[tuple[int, ...], tuple[float, ...]], random: np.random.Generator
) -> ZProblem:
    sizes, mu = case
    return z_problem(random, sizes, activation, n=5, mu=mu, off=0.7, cut=cut)


def linearised(problem: ZProblem) -> tuple[list[Array], list[Array], list[Tangent]]:
    """Sites, segment outputs and tangents at the problem's coordinates."""
    sites = problem.sites(problem.Z)
    pairs = zip(problem.chain.segments, [problem.X, *sites], strict=True)
    F, tangents = zip(*(s.linearise(problem.weights, A) for s, A in pairs), strict=True)
    return sites, list(F), list(tangents)


def jacobians(problem: ZProblem, row: int) -> list[Array]:
    """J_1, ..., J_{K+1} at one point, column by column through its tangents."""
    inputs = [problem.X, *problem.sites(problem.Z)]
    out = []
    for segment, A in zip(problem.chain.segments, inputs, strict=True):
        _, tangent = segment.linearise(problem.weights, np.repeat(A[row : row + 1], A.shape[1], axis=0))
        out.append(tangent.jvp(np.eye(A.shape[1])).T)
    return out


def operators(problem: ZProblem, row: int) -> list[Array]:
    """Phi_k = J_{K+1} ... J_{k+1}, k = 1..K, each (L, H_k)."""
    J, phi = jacobians(problem, row), []
    product = np.eye(problem.chain.n_out)
    for k in range(len(J) - 1, 0, -1):
        product = product @ J[k]
        phi.append(product)
    return phi[::-1]


def dual_matrix(problem: ZProblem, row: int) -> Array:
    """S_n = I + sum_k Phi_k Phi_k^T / mu_k."""
    parts = [phi @ phi.T / mu for phi, mu in zip(operators(problem, row), problem.mu, strict=True)]
    return np.eye(problem.chain.n_out) + np.sum(parts, axis=0)


def dense_direction(problem: ZProblem, row: int) -> Array:
    """Least-squares solution of the linearised residuals sqrt(mu_k) (z_k - f_k(z_{k-1})), y - f_{K+1}(z_K)."""
    J, sites = jacobians(problem, row), problem.sites(problem.Z)
    _, F, _ = linearised(problem)
    bounds = np.cumsum([0, *problem.chain.site_sizes])
    rows, right = [], []
    for k, mu in enumerate(problem.mu):
        block = np.zeros((sites[k].shape[1], bounds[-1]))
        block[:, bounds[k] : bounds[k + 1]] = np.eye(sites[k].shape[1])
        if k:
            block[:, bounds[k - 1] : bounds[k]] = -J[k]
        rows.append(np.sqrt(mu) * block)
        right.append(np.sqrt(mu) * (sites[k][row] - F[k][row]))
    block = np.zeros((problem.chain.n_out, bounds[-1]))
    block[:, bounds[-2] :] = -J[-1]
    A, b = np.vstack([*rows, block]), np.concatenate([*right, problem.Y[row] - F[-1][row]])
    return linalg.solve(A.T @ A, -A.T @ b, assume_a="pos")


def test_the_direction_solves_the_normal_equations(problem: ZProblem) -> None:
    solver = GaussNewtonZ(cg_iterations=60, cg_tolerance=0.0)
    sites, F, tangents = linearised(problem)
    found = solver._direction(problem, sites, F, tangents, solver.prepare(problem))
    expected = np.array([dense_direction(problem, row) for row in range(len(problem.Z))])
    assert_allclose(found, expected, rtol=1e-7, atol=1e-9 * np.abs(expected).max())


def test_cg_ends_after_as_many_iterations_as_outputs(problem: ZProblem) -> None:
    """The dual has as many unknowns as the net has outputs, however many coordinates there are."""
    solver = GaussNewtonZ(cg_iterations=problem.chain.n_out, cg_tolerance=0.0)
    sites, F, tangents = linearised(problem)
    found = solver._direction(problem, sites, F, tangents, np.copy)
    expected = np.array([dense_direction(problem, row) for row in range(len(problem.Z))])
    assert_allclose(found, expected, rtol=1e-6, atol=1e-7 * np.abs(expected).max())


def test_the_direction_goes_down(problem: ZProblem) -> None:
    """Even after a single CG iteration, and whatever the preconditioner."""
    sites, F, tangents = linearised(problem)
    for shared in (np.copy, GaussNewtonZ().prepare(problem)):
        dZ = GaussNewtonZ(cg_iterations=1)._direction(problem, sites, F, tangents, shared)
        ahead, behind = (problem.values(problem.Z + sign * 1e-6 * dZ) for sign in (1.0, -1.0))
        assert (ahead < behind).all()


def test_accumulate_is_the_forward_tangent_pass(problem: ZProblem, random: np.random.Generator) -> None:
    _, _, tangents = linearised(problem)
    terms = [random.normal(size=z.shape) for z in problem.sites(problem.Z)]
    out = [np.empty_like(t) for t in terms]
    accumulate(tangents, terms, out)
    for row in range(len(problem.Z)):
        J, expected = jacobians(problem, row), terms[0][row]
        assert_allclose(out[0][row], expected, rtol=1e-12, atol=1e-12)
        for k in range(1, len(terms)):
            expected = terms[k][row] + J[k] @ expected
            assert_allclose(out[k][row], expected, rtol=1e-12, atol=1e-12)
    accumulate(tangents, terms, terms)
    for in_place, apart in zip(terms, out, strict=True):
        assert_allclose(in_place, apart, rtol=0.0, atol=0.0)


def test_dual_product_is_the_product_with_the_dual_matrix(problem: ZProblem, random: np.random.Generator) -> None:
    _, _, tangents = linearised(problem)
    P = random.normal(size=problem.Y.shape)
    t = [np.empty_like(z) for z in problem.sites(problem.Z)]
    SP = dual_product(tangents, problem.mu, P, t)
    for row in range(len(P)):
        assert_allclose(SP[row], dual_matrix(problem, row) @ P[row], rtol=1e-11, atol=1e-11)
        phi, J, expected = operators(problem, row), jacobians(problem, row), np.zeros(0)
        for k, mu in enumerate(problem.mu):
            expected = phi[k].T @ P[row] / mu + (J[k] @ expected if k else 0.0)
            assert_allclose(t[k][row], expected, rtol=1e-11, atol=1e-11)


def one_point(problem: ZProblem, row: int) -> ZProblem:
    rows = slice(row, row + 1)
    return ZProblem(
        problem.chain, problem.weights, problem.loss, problem.mu, problem.X[rows], problem.Y[rows], problem.Z[rows]
    )


def test_the_preconditioner_of_one_point_is_exact(problem: ZProblem, random: np.random.Generator) -> None:
    R = random.normal(size=(3, problem.chain.n_out))
    for row in range(2):
        precondition = GaussNewtonZ().prepare(one_point(problem, row))
        expected = linalg.solve(dual_matrix(problem, row), R.T, assume_a="pos").T
        assert_allclose(precondition(R), expected, rtol=1e-8, atol=1e-9)


def test_an_exact_preconditioner_needs_one_cg_iteration(problem: ZProblem) -> None:
    alone = one_point(problem, 2)
    solver = GaussNewtonZ(cg_iterations=1)
    sites, F, tangents = linearised(alone)
    found = solver._direction(alone, sites, F, tangents, solver.prepare(alone))
    expected = dense_direction(alone, 0)
    assert_allclose(found[0], expected, rtol=1e-7, atol=1e-8 * np.abs(expected).max())


def test_with_one_site_the_preconditioner_is_the_inverse_of_the_mean(random: np.random.Generator) -> None:
    """After the activation, where the last segment is linear: every S_n is the same."""
    for sizes in ((3, 4, 6), (3, 4, 2)):
        problem = z_problem(random, sizes, n=6, mu=(0.7,))
        R = random.normal(size=(4, sizes[-1]))
        mean = np.mean([dual_matrix(problem, row) for row in range(6)], axis=0)
        assert_allclose(GaussNewtonZ().prepare(problem)(R), linalg.solve(mean, R.T).T, rtol=1e-10, atol=1e-11)


def test_the_preconditioner_is_symmetric_and_positive(problem: ZProblem) -> None:
    P = GaussNewtonZ().prepare(problem)(np.eye(problem.chain.n_out))
    assert_allclose(P, P.T, rtol=0.0, atol=1e-9)
    assert linalg.eigvalsh(0.5 * (P + P.T)).min() > 0.0


def test_the_step_starts_at_the_relaxation_and_falls_back_to_1(random: np.random.Generator) -> None:
    """Under linear activations eq. (4) is quadratic: any relaxation below 2 lowers it, and 2.5 does not."""
    problem = z_problem(random, (3, 5, 4, 2), "linear", n=6)
    steps = {}
    for relaxation in (0.7, 1.0, 1.5, 2.5):
        solver = GaussNewtonZ(relaxation=relaxation, cg_iterations=30, cg_tolerance=0.0)
        steps[relaxation] = solver.solve(problem, solver.prepare(problem)).Z - problem.Z
    for relaxation, length in ((0.7, 0.7), (1.5, 1.5), (2.5, 1.0)):
        assert_allclose(steps[relaxation], length * steps[1.0], rtol=1e-9, atol=1e-12)
