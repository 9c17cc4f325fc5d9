"""Single precision: the laws of maps, Z-solvers and W-solvers at its tolerances."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from contracts.examples import (
    CONTINUOUS,
    MAPS,
    SCENES,
    SEGMENTS,
    SITES,
    WITH_EXAMPLE,
    Z_ARGUMENTS,
    MapExample,
    cases,
    example_of,
    narrow,
    narrowed,
    segment_problem,
    solvers_of,
    some,
    z_problem,
)
from covering import each
from numpy.testing import assert_allclose

from macmpi.nets.losses import LOSSES
from macmpi.solvers import W_SOLVERS, Z_SOLVERS
from macmpi.solvers.w_problem import values
from macmpi.solvers.z_problem import ZProblem
from macmpi.typing import Array

pytestmark = pytest.mark.filterwarnings("error")

NEAR = 1e-5
"""Rounding of a product in single precision, relative to the size of its terms."""

SIZES = [(4, 5, 3, 6, 4), (3, 2, 8), (3, 6, 4, 2)]


def is_single(*arrays: Array) -> bool:
    return all(array.dtype == np.float32 for array in arrays)


# --- maps -------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=cases(WITH_EXAMPLE, MAPS))
def example(request: pytest.FixtureRequest, random: np.random.Generator) -> MapExample:
    return example_of(request.param, MAPS, "MAPS")(random)


def test_maps(example: MapExample, random: np.random.Generator) -> None:
    """Values and products are those of double precision, rounded, and stay single."""
    m, A, W = example.map, narrow(example.A), narrow(example.W)
    B = m.forward(W, A)
    assert is_single(B)
    assert_allclose(B, m.forward(example.W, example.A), rtol=NEAR, atol=NEAR)
    if "jacobian" in m.capabilities:
        dA, dB = random.normal(size=A.shape), random.normal(size=B.shape)
        single, double = m.tangent(W, A, m.forward(W, A)), example.tangent
        for found, expected in (
            (single.jvp(narrow(dA)), double.jvp(dA)),
            (single.vjp(narrow(dB)), double.vjp(dB)),
        ):
            assert is_single(found)
            assert_allclose(found, expected, rtol=NEAR, atol=NEAR)
    if "weight_jacobian" in m.capabilities:
        assert example.W is not None
        dW, dB = random.normal(size=example.W.shape), random.normal(size=B.shape)
        for found, expected in (
            (m.weight_jvp(W, A, narrow(dW)), m.weight_jvp(example.W, example.A, dW)),
            (m.weight_vjp(W, A, narrow(dB)), m.weight_vjp(example.W, example.A, dB)),
        ):
            assert is_single(found)
            assert_allclose(found, expected, rtol=NEAR, atol=10.0 * NEAR)


# --- Z-solvers --------------------------------------------------------------------------------------------------------


@pytest.fixture(params=CONTINUOUS)
def z_solvers(request: pytest.FixtureRequest) -> list[Any]:
    return [Z_SOLVERS[request.param](**arguments) for arguments in Z_ARGUMENTS.get(request.param, [{}])]


cut = each(SITES)


def single(problem: ZProblem) -> ZProblem:
    return narrowed(problem, "weights", "metrics", "X", "Y", "Z", "shift")  # type: ignore[no-any-return]


@pytest.mark.parametrize("mu", [1e-2, 10.0, 1e4])
def test_no_point_gets_worse(mu: float, cut: str, z_solvers: list[Any], random: np.random.Generator) -> None:
    for i, (sizes, off) in enumerate((s, o) for s in SIZES for o in (3.0, 1e-3)):
        wide = z_problem(random, sizes, off=off, mu=mu, cut=cut, **SCENES[i % len(SCENES)])
        problem = single(wide)
        for solver in z_solvers:
            before = problem.values(problem.Z)
            found = solver.solve(problem, solver.prepare(problem))
            assert is_single(found.Z)
            assert np.isfinite(found.Z).all()
            assert (found.errors <= before * (1.0 + NEAR)).all()
            assert_allclose(found.errors, problem.values(found.Z), rtol=NEAR, atol=NEAR * float(before.max()))
            exact = replace(wide, Z=problem.Z.astype(float)), replace(wide, Z=found.Z.astype(float))
            assert (exact[1].values(exact[1].Z) <= exact[0].values(exact[0].Z) * (1.0 + 100.0 * NEAR)).all()


def test_the_answer_is_that_of_double_precision(cut: str, z_solvers: list[Any], random: np.random.Generator) -> None:
    """As far down: the coordinates may differ along a flat valley."""
    for sizes, scene in ((s, c) for s in SIZES for c in SCENES):
        wide = z_problem(random, sizes, off=0.5, cut=cut, **scene)
        problem = single(wide)
        for solver in z_solvers:
            found = solver.solve(problem, solver.prepare(problem)).errors.sum(dtype=float)
            expected = solver.solve(wide, solver.prepare(wide)).errors.sum()
            assert_allclose(found, expected, rtol=2e-2)


def test_some_points_give_those_rows(cut: str, z_solvers: list[Any], random: np.random.Generator) -> None:
    for solver, scene in ((s, c) for s in z_solvers for c in SCENES):
        problem = single(z_problem(random, SIZES[0], n=20, cut=cut, **scene))
        shared = solver.prepare(problem)
        whole = solver.solve(problem, shared)
        for rows in ([0, 7, 19, 4], [11]):
            part = solver.solve(some(problem, rows), shared)
            assert_allclose(part.errors, whole.errors[rows], rtol=1e-2)


# --- W-solvers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", SEGMENTS)
@pytest.mark.parametrize("name", solvers_of("segment"))
def test_a_segment_falls_as_far_as_in_double_precision(
    name: str, kind: str, loss: str, random: np.random.Generator
) -> None:
    wide, over_points = segment_problem(random, kind, loss, n=100)
    problem, solver = narrowed(wide, "inputs", "targets", "start"), W_SOLVERS[name]()
    (after,), (expected,) = (values(wide, solver.solve(p, over_points), over_points) for p in (problem, wide))
    assert_allclose(after, expected, rtol=2e-2)
