"""A penalty that draws coordinates to 0: the term of E_Q, its Z-step, what it reaches, and what is refused of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from theory.nets import AUGMENTED, anywhere, constraint, e_q, gradient, method, points, work
from tolerance import gamma

from macmpi import UsageError
from macmpi.config import validate
from macmpi.half_steps.z_problems import prepare_z, z_problem
from macmpi.mac import Mac
from macmpi.plan.plan import make_plan
from macmpi.reductions import EVERY
from macmpi.solvers.sparsity import NEAR, SMOOTHING, Sparsity, near_zero
from macmpi.solvers.z_alternating import AlternatingZ
from macmpi.solvers.z_gauss_newton import GaussNewtonZ
from macmpi.solvers.z_problem import ZProblem
from macmpi.state import State
from macmpi.typing import Array

SIZES = [0.5, 3.0]
RUNS: dict[str, dict[str, Any]] = {
    "both layers": {"sparsity": SIZES},
    "the first": {"sparsity": [2.0, 0.0]},
    "the last": {"sparsity": [0.0, 2.0], "activation": "relu"},
    "one value": {"sparsity": 1.0, "activation": "tanh", "sites": "before"},
    "one site": {"sparsity": [0.0, 1.0], "sites": ["none", "after"]},
    "multipliers": {"sparsity": SIZES, **AUGMENTED},
    "variance": {"sparsity": SIZES, "metric": "variance"},
    "curvature": {"sparsity": SIZES, "metric": "curvature", "sites": "before"},
    "alternating": {"sparsity": SIZES, "z_step": {"solver": "alternating"}},
    "labels": {"sparsity": SIZES, "loss": "cross_entropy"},
    "counts": {"sparsity": SIZES, "loss": "poisson"},
    "single precision": {"sparsity": SIZES, "precision": "float32", "mu_max": 1e4},
}


def sizes_of(mac: Mac) -> list[float]:
    return [0.0 if one is None else one.size for one in mac.plan.choices.sparsity]


def penalty(mac: Mac, Z: Array) -> float:
    """sum of size (sqrt(z^2 + s^2) - s), written out once more."""
    columns = mac.plan.chain.site_columns
    pairs = zip(sizes_of(mac), columns, strict=True)
    return sum(size * float((np.sqrt(Z[:, c].astype(float) ** 2 + 1e-4) - 1e-2).sum()) for size, c in pairs)


def problem_of(mac: Mac, state: State) -> ZProblem:
    return z_problem(prepare_z(mac.parts, state), EVERY)


@pytest.mark.parametrize("name", RUNS)
def test_e_q_holds_the_penalty_and_no_half_step_raises_it(name: str) -> None:
    mac = method(**RUNS[name])
    state = anywhere(mac)
    N, u = mac.plan.n_train, float(np.finfo(mac.plan.dtype).eps)
    expected = e_q(mac, state) + penalty(mac, state.Z)
    errors = mac.evaluate(state)
    assert_allclose(errors.E_Q * N, expected, rtol=N * state.Z.shape[1] * u * 10.0)
    if errors.lagrangian is not None:
        assert_allclose(errors.lagrangian * N, expected - work(mac, state), rtol=1e-10)
    for _ in range(3):
        before = problem_of(mac, state).values(state.Z).sum()
        mac.z_step(state)
        after = problem_of(mac, state).values(state.Z).sum()
        assert after < before
        level = mac.evaluate(state)
        mac.w_step(state)
        now = mac.evaluate(state)
        if "metric" not in RUNS[name] and not len(state.own.multipliers):
            assert level.E_Q * (1.0 + 100.0 * u) + 1e-4 >= now.E_Q


@pytest.mark.long
@pytest.mark.parametrize("name", ["both layers", "the last", "one site", "multipliers", "variance", "labels"])
@pytest.mark.parametrize("direction", ["dual", "direct"])
def test_many_iterations_end_where_the_objective_has_no_slope(name: str, direction: str) -> None:
    """The gradient of eq. (4) with the penalty, by central differences, which are off by h^2 size / s^2 < 1e-5."""
    keys = {**RUNS[name], "activation": "tanh"}
    mac = method(**keys)
    state = anywhere(mac, off=0.1)
    solver = GaussNewtonZ(iterations=200, relaxation=1.0, cg_iterations=60, cg_tolerance=1e-10, direction=direction)
    problem = problem_of(mac, state)
    found = solver.solve(problem, solver.prepare(problem)).Z
    value = float(problem.values(found).sum())
    at = found.copy()
    slope = gradient(lambda: float(problem.values(at).sum()), at, h=1e-5)
    assert np.abs(slope).max() < 1e-3 * max(value, 1.0)


@pytest.mark.parametrize("name", ["both layers", "the first", "one value", "one site", "curvature", "labels"])
def test_both_directions_are_the_same(name: str) -> None:
    """The dual system by CG to its end, and the normal equations of each point."""
    mac = method(**{**RUNS[name], "activation": "tanh"})
    state = anywhere(mac)
    problem = problem_of(mac, state)
    steps = []
    for direction in ("dual", "direct"):
        solver = GaussNewtonZ(1, 1.0, 200, 1e-12, direction=direction)
        steps.append(solver.solve(problem, solver.prepare(problem)).Z)
    assert_allclose(steps[0], steps[1], rtol=0.0, atol=1e-7)  # CG to 1e-12, systems with conditions below 1e4
    assert np.abs(steps[0] - state.Z).max() > 1e-3


@pytest.mark.parametrize("solver", [GaussNewtonZ(), AlternatingZ()])
def test_a_penalty_of_size_0_changes_no_bit(solver: Any) -> None:
    mac = method(activation="tanh")
    state = anywhere(mac)
    plain = problem_of(mac, state)
    none = replace(plain, sparsity=(None,) * len(plain.sizes))
    one, two = (solver.solve(problem, solver.prepare(problem)) for problem in (plain, none))
    assert_array_equal(one.Z, two.Z)
    assert_array_equal(one.errors, two.errors)


def test_the_parabola_touches_the_penalty_and_lies_nowhere_below() -> None:
    sparsity, z, other = Sparsity(2.0), *np.random.default_rng(0).normal(size=(2, 500, 1)) * 0.05
    c, value = sparsity.curvature(z)[:, 0], sparsity.value(z)
    parabola = value + 0.5 * c * (other**2 - z**2)[:, 0]
    size = 2.0 * (np.abs(z) + np.abs(other) + SMOOTHING)[:, 0] + c * (other**2 + z**2)[:, 0]
    assert (sparsity.value(other) <= parabola + gamma(20) * size).all()
    assert_allclose(sparsity.value(np.array([[0.0, 3.0]])), 2.0 * (np.sqrt(9.0 + SMOOTHING**2) - SMOOTHING), rtol=1e-14)


def test_it_draws_what_the_net_computes_to_0() -> None:
    """More of it, the nearer to 0, and E1 grows; the share is that of single numbers."""
    shares, errors = [], []
    for size in (0.0, 0.02, 0.2):
        mac = method(hidden=(12,), activation="relu", n=200, sparsity=size, ridge=1e-3, mu_max=1e3)
        state = mac.start(2.0, True, 0)
        mac.begin(state)
        for mu in (1.0, 1.0, 10.0, 10.0, 100.0, 100.0):
            state.mu = mu
            mac.sweep(state)
        F = mac.plan.chain.coordinates(mac.parts.weights(state), mac.data.X)[0]
        found = mac.evaluate(state)
        shares.append(near_zero(F) / F.size)
        errors.append(found.train)
        assert found.near_zero is None if size == 0.0 else found.near_zero == shares[-1] == np.mean(np.abs(F) <= NEAR)
    assert shares[0] < shares[1] < shares[2]
    assert errors[0] < errors[2]


def test_weighted_points_have_the_penalty_of_copies() -> None:
    counts = np.arange(1, 13) % 3 + 1
    data = points(0, 12, 4, 3)
    ours = method(data=replace(data, weights=counts.astype(float)), sparsity=SIZES)
    copies = replace(data, X=np.repeat(data.X, counts, axis=0), Y=np.repeat(data.Y, counts, axis=0))
    theirs = method(data=copies, sparsity=SIZES)
    one, two = anywhere(ours), anywhere(theirs)
    two.Z[:], two.weights[:] = np.repeat(one.Z, counts, axis=0), one.weights
    assert_allclose(ours.evaluate(one).E_Q, theirs.evaluate(two).E_Q, rtol=1e-12)
    assert constraint(ours, one).shape == one.Z.shape


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"penalty": {"sparsity": [1.0]}},
        "penalty.sparsity has 1 values, and the net has 2 hidden layers; give one value",
    ),
    ({"method": {"name": "stochastic"}}, 'use method.name = "mac", or leave penalty.sparsity out'),
    ({"method": {"name": "adam"}}, 'use method.name = "mac", or leave penalty.sparsity out'),
    ({"method": {"name": "mac", "acceleration": "momentum"}}, 'use method.acceleration = "none"'),
    ({"model": {"activation": ["binary", "tanh"]}}, "coordinates that are bits or codewords"),
    ({"model": {"activation": ["quantise", "tanh"], "words": 6}}, "coordinates that are bits or codewords"),
    ({"model": {"sites": "none"}}, "needs a site at each hidden layer that it names"),
    (
        {"model": {"sites": ["none", "after"]}, "penalty": {"sparsity": [1.0, 0.0]}},
        'names hidden layer 1, which has no coordinates \\(model.sites = "none" there\\)',
    ),
]


@pytest.mark.parametrize(("tables", "message"), REFUSED)
def test_it_is_refused_where_no_coordinate_could_be_drawn(tables: dict[str, Any], message: str) -> None:
    usual = {"model": {"hidden": [5, 4]}, "penalty": {"sparsity": 1.0}, "method": {"name": "mac"}}
    joined = {name: {**usual.get(name, {}), **tables.get(name, {})} for name in usual}
    with pytest.raises(UsageError, match=message):
        make_plan(validate(joined, "test"), 4, 3, 37, 11, 1)
    free = {**joined, "penalty": {**joined["penalty"], "sparsity": 0.0}}
    make_plan(validate(free, "test"), 4, 3, 37, 11, 1)
