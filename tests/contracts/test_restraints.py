"""W-solvers that heed restraints: l1, groups of columns, bounds and zeros that stay, on units and on segments."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from contracts.examples import (
    EPS,
    INPUTS,
    SEGMENTS,
    W_ARGUMENTS,
    W_THOROUGH,
    example_of,
    factored,
    inputs,
    reachable,
    segment_problem,
    unit_objectives,
    w_problem,
)
from covering import each
from numpy.testing import assert_allclose, assert_array_equal
from tolerance import gamma

from macmpi.demand import Demand
from macmpi.nets.layers.activation import FUNCTIONS
from macmpi.nets.losses import LOSSES
from macmpi.solvers import W_SOLVERS
from macmpi.solvers.w_problem import Restraint, SegmentProblem, UnitProblem, gradients, values
from macmpi.typing import Array

pytestmark = pytest.mark.filterwarnings("error")

RESTRAINING = [name for name, kind in W_SOLVERS.items() if Demand.RESTRAINED in kind.handles]  # type: ignore[attr-defined]
RESTRAINTS = {
    "l1": Restraint(l1=0.5),
    "large l1": Restraint(l1=30.0),
    "groups": Restraint(group=1.0),
    "l1 and groups": Restraint(l1=0.3, group=1.0),
    "bounds": Restraint(least=-0.3, most=0.2),
    "l1 within bounds": Restraint(l1=0.5, least=-0.4, most=0.1),
    "non-negative groups": Restraint(group=1.0, least=0.0),
    "non-negative": Restraint(least=0.0),
    "apart from 0": Restraint(least=0.1, most=0.2),
    "kept": Restraint(kept=True),
    "kept within bounds": Restraint(kept=True, most=0.1),
}


name = each(RESTRAINING)


@pytest.fixture
def thorough(name: str) -> Any:
    return W_SOLVERS[name](**example_of((name, 0), W_THOROUGH, "W_THOROUGH"))


@pytest.fixture(params=RESTRAINTS)
def restraint(request: pytest.FixtureRequest) -> Restraint:
    return RESTRAINTS[request.param]


def penalties(restraint: Restraint, W: Array) -> Array:
    """Of each unit, l1 sum |v|; and behind them that of the groups of all units."""
    V = W[:, :-1]
    return np.append(restraint.l1 * np.abs(V).sum(axis=1), restraint.group * np.linalg.norm(V, axis=0).sum())


def objectives(problem: UnitProblem, W: Array) -> Array:
    """Recomputed: of each unit, or where a restraint joins them of all."""
    found, added = unit_objectives(problem, W), penalties(problem.restraint, W)
    return np.array([found.sum() + added.sum()]) if problem.restraint.group else found + added[:-1]


def allowed(restraint: Restraint, W: Array, start: Array) -> bool:
    V, V0 = W[:, :-1], start[:, :-1]
    kept = not restraint.kept or not V[V0 == 0.0].any()
    return kept and bool((restraint.least <= V).all() and (restraint.most >= V).all())


def well_posed(
    solver: Any, random: np.random.Generator, restraint: Restraint, ridge: float = 0.1, n: int = 60, d: int = 8
) -> tuple[UnitProblem, Any]:
    """Four linear units, half of whose targets' weights are 0."""
    A, true = random.normal(size=(n, d)), random.normal(size=(4, d)) * (random.uniform(size=(4, d)) < 0.5)
    T = A @ true.T + 0.3 + 0.1 * random.normal(size=(n, 4))
    problem, over_points = w_problem(solver, A, T, 0.5 * random.normal(size=(4, d + 1)), "linear", ridge)
    return replace(problem, restraint=restraint), over_points


# --- descent ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", FUNCTIONS)
def test_no_unit_gets_worse_and_all_are_allowed(
    activation: str, name: str, restraint: Restraint, random: np.random.Generator
) -> None:
    """From a start that is allowed, whatever the inputs; out of bounds it ends within them."""
    for i, kind in enumerate(INPUTS):
        for arguments in W_ARGUMENTS.get(name, [{}]):
            solver, (n, d) = W_SOLVERS[name](**arguments), ((3, 5), (40, 7), (24, 30))[i % 3]
            A, T = inputs(random, n, d, kind), random.normal(size=(n, 4)) * [1.0, 3.0, 100.0, 0.1]
            W = random.normal(size=(4, d + 1)) * [[0.1], [1.0], [30.0], [0.0]]
            outside, over_points = w_problem(solver, A, T, W, activation, (0.0, 0.01)[i % 2])
            found = solver.solve(replace(outside, restraint=restraint), over_points)
            assert np.isfinite(found).all()
            assert allowed(restraint, found, W)
            W[:, :-1] = np.clip(W[:, :-1], restraint.least, restraint.most)
            problem = replace(outside, start=W, restraint=restraint)
            before, after = (objectives(problem, V) for V in (W, solver.solve(problem, over_points)))
            assert (after <= before * (1.0 + 50.0 * n * EPS)).all()


@pytest.mark.parametrize("kind", [kind for kind, maps in SEGMENTS.items() if not any("low" in name for name in maps)])
def test_no_segment_gets_worse_and_all_are_allowed(
    kind: str, name: str, restraint: Restraint, random: np.random.Generator
) -> None:
    for loss in LOSSES:
        made, over_points = segment_problem(random, kind, loss)
        blocks = made.blocks(made.start[0])
        for W in blocks:
            W[0, :2] = 0.0
        inside = [np.hstack([np.clip(W[:, :-1], restraint.least, restraint.most), W[:, -1:]]) for W in blocks]
        problem = replace(
            made, restraints=(restraint,) * len(blocks), start=np.concatenate([W.ravel() for W in inside])[None]
        )
        found = W_SOLVERS[name]().solve(problem, over_points)
        after, before = (_segment_objective(problem, theta, over_points) for theta in (found, problem.start))
        assert after <= before * (1.0 + 50.0 * 40 * EPS)
        for W, start in zip(problem.blocks(found[0]), inside, strict=True):
            assert allowed(restraint, W, start)
        if restraint not in (RESTRAINTS["large l1"], RESTRAINTS["apart from 0"]):
            assert after < 0.999 * before


def _segment_objective(problem: SegmentProblem, theta: Array, over_points: Any) -> float:
    pairs = zip(problem.restraints, problem.blocks(theta[0]), strict=True)
    return float(values(problem, theta, over_points)[0]) + sum(penalties(r, W).sum() for r, W in pairs)


# --- minima -----------------------------------------------------------------------------------------------------------


def slopes(problem: UnitProblem, W: Array) -> tuple[Array, Array]:
    """Gradient of the smooth part, and a bound on how far rounding and an end short of the minimum move it.

    An objective f at most gamma_n f above the minimum of a quadratic of largest eigenvalue L has a gradient of at most
    sqrt(2 L gamma_n f).
    """
    D = np.column_stack([problem.inputs, np.ones(problem.rows)])
    R = D @ W.T - problem.targets
    G = R.T @ D
    G[:, :-1] += problem.ridge * W[:, :-1]
    largest = np.linalg.norm(D, 2) ** 2 + problem.ridge
    rounding = gamma(2 * problem.rows) * np.maximum(objectives(problem, W), 1.0)
    return G, np.broadcast_to(np.sqrt(2.0 * largest * rounding)[:, None], (len(rounding), W.shape[1]))


@pytest.mark.parametrize("ridge", [0.0, 0.1, 10.0])
@pytest.mark.parametrize("l1", [0.01, 1.0, 10.0])
def test_linear_units_meet_the_conditions_of_l1_and_bounds(
    l1: float, ridge: float, name: str, random: np.random.Generator
) -> None:
    """-gradient is l1 sign(v) where v is not 0, within +-l1 where it is, beyond these at a bound, 0 at the biases."""
    for least, most in ((-np.inf, np.inf), (0.0, np.inf), (-0.2, 0.5)):
        problem, over_points = well_posed(W_SOLVERS[name](), random, Restraint(l1, least=least, most=most), ridge)
        W = W_SOLVERS[name]().solve(problem, over_points)
        G, tolerance = slopes(problem, W)
        V, pull, tolerance = W[:, :-1], -G[:, :-1], tolerance[:, :-1]
        at_least, at_most = least == V, most == V
        inner = (V != 0.0) & ~at_least & ~at_most
        assert (np.abs(pull - l1 * np.sign(V)) <= tolerance)[inner].all()
        zero = V == 0.0
        assert (pull <= l1 + tolerance)[zero].all()
        assert (pull >= -l1 - tolerance)[zero & ~at_least].all()
        assert (pull >= l1 * np.sign(most) - tolerance)[at_most & ~zero].all()
        assert (pull <= l1 * np.sign(least) + tolerance)[at_least & ~zero].all()
        assert (np.abs(G[:, -1]) <= tolerance[:, 0]).all()
        assert zero.any() or l1 < 1.0


def test_linear_units_agree_with_scikit_learn(name: str, random: np.random.Generator) -> None:
    """Its objective is ours / n.  At a duality gap g its weights are within sqrt(2 n g / least eigenvalue) of ours."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    for l1, ridge in ((1.0, 0.0), (5.0, 0.0), (5.0, 2.0)):
        problem, over_points = well_posed(W_SOLVERS[name](), random, Restraint(l1), ridge)
        W, A, T = W_SOLVERS[name]().solve(problem, over_points), problem.inputs, problem.targets
        n, both = problem.rows, l1 + ridge
        centred = A - A.mean(axis=0)
        least = np.linalg.eigvalsh(centred.T @ centred)[0] + ridge
        for unit in range(4):
            other = linear_model.ElasticNet(alpha=both / n, l1_ratio=l1 / both, tol=1e-12, max_iter=100_000)
            other.fit(A, T[:, unit])
            near = np.sqrt(2.0 * n * max(other.dual_gap_, gamma(n) * np.sum(T**2)) / least)
            assert np.abs(W[unit, :-1] - other.coef_).max() <= near
            sure = np.abs(other.coef_) > near
            assert_array_equal((W[unit, :-1] != 0.0)[sure], True)
            assert_array_equal(W[unit, :-1] == 0.0, other.coef_ == 0.0)


CORRELATIONS = [0.0, 0.2, 0.5, 0.8, 0.9, 0.95]
SHRINKING = {
    "l1": (1.0, 0.0, -np.inf, np.inf),
    "l1 within bounds": (1.0, 0.0, -0.5, 0.5),
    "l1, non-negative": (1.0, 0.0, 0.0, np.inf),
    "groups": (0.0, 1.0, -np.inf, np.inf),
    "l1 and groups": (0.3, 1.0, -np.inf, np.inf),
    "non-negative groups": (0.0, 1.0, 0.0, np.inf),
}
"""Shares of l1 and of groups in what draws all weights to 0, and bounds."""

PROBLEMS = 14
"""Problems of each pair of the two: 504 in all."""


def correlated(
    solver: Any, random: np.random.Generator, correlation: float, kind: tuple[float, float, float, float]
) -> tuple[UnitProblem, Any]:
    """Linear units of 15 to 40 inputs that all have this correlation; lambda 1e-3 to 0.5 of what leaves no weight."""
    d, w = int(random.integers(15, 41)), int(random.integers(1, 8))
    n = int(random.integers(2 * d, 5 * d))
    A = np.sqrt(correlation) * random.normal(size=(n, 1)) + np.sqrt(1.0 - correlation) * random.normal(size=(n, d))
    true = random.normal(size=(w, d)) * (random.uniform(size=(w if kind[0] else 1, d)) < 0.4)
    T = A @ true.T + 0.3 + 0.3 * random.normal(size=(n, w))
    W, pull = random.choice([0.0, 0.5, 2.0]) * random.normal(size=(w, d + 1)), (T - T.mean(axis=0)).T @ A
    W[:, :-1] = np.clip(W[:, :-1], *kind[2:])
    share = 10.0 ** random.uniform(-3.0, -0.3)
    l1, group = kind[0] * share * np.abs(pull).max(), kind[1] * share * np.linalg.norm(pull, axis=0).max()
    problem, over_points = w_problem(solver, A, T, W, "linear", float(random.choice([0.0, 0.1, 1.0])))
    return replace(problem, restraint=Restraint(l1, group, *kind[2:])), over_points


def lacking(problem: UnitProblem, W: Array) -> float:
    """How much the worst condition of a minimum lacks, as a share of l1 + group: from the points, not from a Gram.

    Pull, minus the gradient, less group V_j / ||V_j||, is l1 sign(v); of a v that is 0 within +-l1; at a bound it
    may push outwards.  Of a group that is 0, what is left of pull by l1 and bounds is not longer than `group`.
    """
    asked, D = problem.restraint, np.column_stack([problem.inputs, np.ones(problem.rows)])
    G, V = (D @ W.T - problem.targets).T @ D, W[:, :-1]
    pull, lengths = -G[:, :-1] - problem.ridge * V, np.linalg.norm(V, axis=0)
    pull = pull - asked.group * V / np.where(lengths > 0.0, lengths, 1.0)
    over = pull - np.where(V == 0.0, np.clip(pull, -asked.l1, asked.l1), asked.l1 * np.sign(V))
    over[((asked.least >= V) & (over < 0.0)) | ((asked.most <= V) & (over > 0.0))] = 0.0
    if asked.group:
        gone = lengths == 0.0
        over = np.where(gone, np.maximum(np.linalg.norm(over, axis=0) - asked.group, 0.0), over)
    return float(max(np.abs(over).max(), np.abs(G[:, -1]).max()) / (asked.l1 + asked.group))


@pytest.mark.parametrize("correlation", CORRELATIONS)
@pytest.mark.parametrize("kind", SHRINKING)
def test_one_step_of_linear_units_meets_each_condition(kind: str, correlation: float, name: str) -> None:
    """To 1e-10 of l1 + group, or to rounding, whatever the inputs' correlation and the start."""
    for seed in range(PROBLEMS):
        random = np.random.default_rng([seed, *kind.encode()])
        problem, over_points = correlated(W_SOLVERS[name](), random, correlation, SHRINKING[kind])
        W = W_SOLVERS[name]().solve(problem, over_points)
        size, A = problem.restraint.l1 + problem.restraint.group, np.abs(problem.inputs)
        sizes = [np.abs(problem.targets), *(A @ np.abs(V[:, :-1]).T for V in (problem.start, W))]
        rounding = gamma(problem.rows) * A.sum(axis=0).max() * max(terms.max() for terms in sizes) / size
        assert lacking(problem, W) <= min(1e-10 + rounding, 1e-6)


@pytest.mark.parametrize("correlation", [0.5, 0.95])
def test_correlated_inputs_leave_the_minimum_of_scikit_learn(correlation: float, name: str) -> None:
    """Our objective is below that of its lasso, and by at most n times its duality gap."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    for seed in range(4):
        random = np.random.default_rng(seed)
        problem, over_points = correlated(W_SOLVERS[name](), random, correlation, SHRINKING["l1"])
        problem = replace(problem, ridge=0.0)
        W = W_SOLVERS[name]().solve(factored(W_SOLVERS[name](), problem), over_points)
        own, n = objectives(problem, W), problem.rows
        other = linear_model.Lasso(alpha=problem.restraint.l1 / n, tol=1e-10, max_iter=1_000_000)
        for unit, target in enumerate(problem.targets.T):
            other.fit(problem.inputs, target)
            its = objectives(problem, np.tile(np.append(other.coef_, other.intercept_), (len(W), 1)))[unit]
            noise = gamma(2 * n) * max(its, float(target @ target))
            assert -n * other.dual_gap_ - noise <= own[unit] - its <= noise


@pytest.mark.parametrize("kind", ["groups", "l1 and groups", "non-negative groups"])
def test_groups_end_where_proximal_gradients_do(kind: str, name: str) -> None:
    """An independent solver: accelerated proximal gradients with restarts on the points, to 1e-12 of their step."""
    for seed, correlation in enumerate((0.0, 0.5)):
        random = np.random.default_rng(seed)
        problem, over_points = correlated(W_SOLVERS[name](), random, correlation, SHRINKING[kind])
        own = objectives(problem, W_SOLVERS[name]().solve(problem, over_points))[0]
        its = objectives(problem, by_proximal_gradients(problem))[0]
        assert abs(own - its) <= 1e-10 * its


def by_proximal_gradients(problem: UnitProblem) -> Array:
    """FISTA from the start with a restart whenever a step turns back (O'Donoghue & Candes 2015)."""
    asked, D = problem.restraint, np.column_stack([problem.inputs, np.ones(problem.rows)])
    ridge = np.append(np.full(problem.n_in, problem.ridge), 0.0)
    pace = 1.0 / (np.linalg.norm(D, 2) ** 2 + problem.ridge)
    W, ahead, t = problem.start, problem.start, 1.0
    for _ in range(100_000):
        new = ahead - pace * ((D @ ahead.T - problem.targets).T @ D + ridge * ahead)
        V = np.sign(new[:, :-1]) * np.maximum(np.abs(new[:, :-1]) - pace * asked.l1, 0.0)
        V = np.maximum(V, asked.least)
        lengths = np.linalg.norm(V, axis=0)
        new[:, :-1] = V * np.maximum(1.0 - pace * asked.group / np.where(lengths > 0.0, lengths, 1.0), 0.0)
        if np.abs(new - W).max() <= 1e-12 * np.abs(new).max():
            return new
        t = 1.0 if np.vdot(ahead - new, new - W) > 0.0 else t
        after = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * t * t))
        ahead, W, t = new + (t - 1.0) / after * (new - W), new, after
    return W


def test_a_thorough_run_ends_where_l1_holds_its_slope(name: str, thorough: Any, random: np.random.Generator) -> None:
    """Units under an activation, and a segment: the same conditions, near a minimum."""
    A, T = random.normal(size=(60, 6)), reachable(random, (60, 3), "sigmoid")
    apart, over_points = w_problem(thorough, A, T, 0.5 * random.normal(size=(3, 7)), "sigmoid", 0.1)
    problem = replace(apart, restraint=Restraint(0.5))
    W = thorough.solve(problem, over_points)
    _meets_l1(gradients(problem, W, over_points)[1][:, :-1], W[:, :-1], 0.5)
    for loss in ("squared", "cross_entropy"):
        made, over_points = segment_problem(random, "linear", loss)
        whole = replace(made, restraints=(Restraint(0.5),))
        theta = thorough.solve(whole, over_points)
        slope = whole.blocks(gradients(whole, theta, over_points)[1][0])[0]
        _meets_l1(slope[:, :-1], whole.blocks(theta[0])[0][:, :-1], 0.5)


def _meets_l1(slope: Array, V: Array, l1: float) -> None:
    assert (V == 0.0).any()
    assert (V != 0.0).any()
    assert (np.abs(slope[V == 0.0]) <= l1 * 1.02).all()
    assert_allclose(-slope[V != 0.0], l1 * np.sign(V[V != 0.0]), rtol=0.0, atol=0.02 * l1)


# --- what each asks for -----------------------------------------------------------------------------------------------


def test_zeros_that_stay_are_those_of_the_start_alone(name: str, random: np.random.Generator) -> None:
    """The others are the least squares on the inputs that are left: a closed form for each pattern of zeros."""
    solver = W_SOLVERS[name]()
    problem, over_points = well_posed(solver, random, Restraint(kept=True), ridge=0.3)
    problem.start[:2, [1, 4]], problem.start[3, :5] = 0.0, 0.0
    found = solver.solve(problem, over_points)
    assert_array_equal(found == 0.0, problem.start == 0.0)
    D = np.column_stack([problem.inputs, np.ones(problem.rows)])
    for unit in range(4):
        own = problem.start[unit] != 0.0
        H = D[:, own].T @ D[:, own] + 0.3 * np.diag(np.append(np.ones(own.sum() - 1), 0.0))
        assert_allclose(found[unit, own], np.linalg.solve(H, D[:, own].T @ problem.targets[:, unit]), rtol=1e-8)
