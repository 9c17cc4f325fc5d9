"""What GaussNewtonZ chooses: its direction, its step lengths, when its CG stops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from contracts.examples import linearised, z_problem
from numpy.testing import assert_allclose
from targets import taken_by

from macmpi.nets.losses import LOSSES, Squared, metric
from macmpi.solvers.z_gauss_newton import STIFF, GaussNewtonZ, direct_primal
from macmpi.solvers.z_problem import ZProblem

# --- choices ----------------------------------------------------------------------------------------------------------


def shaped(random: np.random.Generator, sizes: tuple[int, ...]) -> ZProblem:
    return z_problem(random, sizes, n=2)


@pytest.mark.parametrize(
    ("sizes", "cg_iterations", "chosen"),
    [
        ((3, 20, 1), 4, "dual"),  # one output: CG is exact after one iteration
        ((3, 20, 20, 1), 1, "dual"),
        ((3, 2, 50), 4, "direct_primal"),  # a code of two units
        ((3, 1, 50), 1, "direct_primal"),
        ((256, 300, 100, 20, 100, 300, 256), 4, "dual"),  # the paper's autoencoder
        ((50, 40, 3), 4, "direct_dual"),  # fewer outputs than CG iterations
    ],
)
def test_auto_chooses_the_fewest_flops(
    sizes: tuple[int, ...], cg_iterations: int, chosen: str, random: np.random.Generator
) -> None:
    assert GaussNewtonZ(cg_iterations=cg_iterations).choice(shaped(random, sizes)) == chosen


# --- step lengths -----------------------------------------------------------------------------------------------------


def test_the_step_starts_at_the_relaxation_and_falls_back_to_1(random: np.random.Generator) -> None:
    """Under linear activations eq. (4) is quadratic: any relaxation below 2 lowers it, and 2.5 does not."""
    problem = z_problem(random, (3, 5, 4, 2), "linear", n=6)
    steps = {}
    for relaxation in (0.7, 1.0, 1.5, 2.5):
        solver = GaussNewtonZ(relaxation=relaxation, cg_iterations=30, cg_tolerance=0.0)
        steps[relaxation] = solver.solve(problem, solver.prepare(problem)).Z - problem.Z
    for relaxation, length in ((0.7, 0.7), (1.5, 1.5), (2.5, 1.0)):
        assert_allclose(steps[relaxation], length * steps[1.0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("mu", [0.1, 10.0, 1e8])
@pytest.mark.parametrize("loss", LOSSES)
def test_inexact_cg_in_single_precision_moves_as_in_double(mu: float, loss: str, random: np.random.Generator) -> None:
    """Also where the constraints hold to 1e-9 and mu is large: what is left of them is rounded, not they."""
    problem = replace(z_problem(random, (4, 6, 5, 6, 7), off=1e-9 if mu > 1e6 else 0.1, mu=mu), loss=LOSSES[loss])
    problem = replace(problem, Y=taken_by(LOSSES[loss], problem.Y))
    solver = GaussNewtonZ(direction="dual", cg_iterations=30, cg_tolerance=1e-3, halvings=20, cg_precision="single")
    single = solver.solve(problem, solver.prepare(problem))
    solver = replace(solver, cg_precision="double")
    double = solver.solve(problem, solver.prepare(problem))
    assert single.Z.dtype == np.float64
    assert (single.Z != double.Z).any() == (LOSSES[loss].stiffness <= STIFF * mu)
    moved = np.abs(double.Z - problem.Z).max()
    assert moved > 0.0
    assert_allclose(single.Z, double.Z, rtol=0.0, atol=0.02 * moved)
    before = problem.values(problem.Z)
    assert (single.errors <= before).all()
    assert_allclose(single.errors, problem.values(single.Z), rtol=1e-12)


def test_a_residual_far_smaller_than_its_targets_is_not_rounded_away(
    random: np.random.Generator,
) -> None:
    """As where one site is solved by itself: its targets are the next site's coordinates."""
    problem = z_problem(random, (4, 6, 5, 7), off=0.0, mu=1e8)
    F = problem.outputs(problem.Z)[-1]
    problem = replace(problem, Y=F + 1e-9 * random.normal(size=F.shape), loss=Squared(metric(1e8)))
    solver = GaussNewtonZ(direction="dual", cg_iterations=30, cg_tolerance=1e-3, relaxation=1.0, cg_precision="single")
    single = solver.solve(problem, solver.prepare(problem)).Z - problem.Z
    solver = replace(solver, cg_precision="double")
    double = solver.solve(problem, solver.prepare(problem)).Z - problem.Z
    assert np.abs(double).max() > 0.0
    assert_allclose(single, double, rtol=0.0, atol=0.02 * np.abs(double).max())


def test_the_solver_takes_the_direction_that_it_names(random: np.random.Generator) -> None:
    problem = z_problem(random, (3, 5, 4, 2), off=0.1, mu=3.0)
    for name in ("dual", "direct"):
        solver = GaussNewtonZ(direction=name, relaxation=1.0, cg_iterations=30, cg_tolerance=0.0, halvings=0)
        moved = solver.solve(problem, solver.prepare(problem)).Z - problem.Z
        rows = (moved != 0.0).any(axis=1)
        assert rows.any()
        assert_allclose(moved[rows], direct_primal(linearised(problem))[rows], rtol=1e-7, atol=1e-9)
