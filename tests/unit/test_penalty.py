"""The two conventions of what shrinks weights, and the rules by which mu grows, the multipliers move and a run ends."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampled import examples

from macmpi import NumericalError
from macmpi.config import Config, Method, Model, Penalty
from macmpi.nets.losses import LOSSES
from macmpi.plan.choices import schedule_of, shaping_of
from macmpi.plan.resolved import Decision, Patient, Progress, Quadratic, Shaping, Stationary
from macmpi.solvers.w_problem import Restraint
from macmpi.state import Record, State

often = examples(200)
ERRORS = st.floats(1e-6, 1e6)
SCHEDULE = Quadratic(mu0=1.0, factor=10.0, mu_max=1e4, tolerance=0.01, max_iterations=100)
LAGRANGIAN = replace(SCHEDULE, multipliers=True, enough=0.5)


# --- ridge ------------------------------------------------------------------------------------------------------------


def shaped(scale: str, until_mu: float = 1e4, **keys: Any) -> Shaping:
    return shaping_of(Penalty(ridge_scale=scale, ridge_until_mu=until_mu, **{"ridge": 0.3, **keys}), (0, 2))  # type: ignore[arg-type]


def test_objective_ridge_is_the_same_in_e_q() -> None:
    ridge = shaped("objective").ridge
    for mu in (0.1, 1.0, 1e4):
        for output in (False, True):
            assert ridge(0, mu, output) * (1.0 if output else mu) == pytest.approx(0.3)
    assert ridge(2, 10.0, output=False) == pytest.approx(0.03)
    assert ridge(2, 10.0, output=True) == 0.3


@pytest.mark.parametrize("until_mu", [0.0, 1.0, 1e4])
def test_a_path_of_stationary_points_has_one_objective_for_all_mu(until_mu: float) -> None:
    """tau_k compares gradients of E_Q + ridge at different mu: the ridge stays, whatever ridge_until_mu says."""
    ridge = shaped("objective", until_mu, stop="gradient").ridge
    for mu in (0.1, 1.0, 1e4, 1e5, 1e16):
        assert ridge(0, mu, output=False) * mu == pytest.approx(0.3)
        assert ridge(2, mu, output=True) == 0.3


def test_a_list_has_the_value_of_each_layer() -> None:
    """Layers are parameter blocks that regressions fit, here 0 and 2; bounds know no mu."""
    found = shaped("objective", ridge=[0.1, 0.2], l1=[0.0, 0.5], group_lasso=[0.75, 0.0], weights_min=[-1e12, -1.0])
    assert (found.ridge(0, 10.0, False), found.ridge(2, 10.0, True)) == (pytest.approx(0.01), 0.2)
    assert found.restraint(0, 8.0, False) == Restraint(group=0.75 / 8)
    assert found.restraint(2, 8.0, False) == Restraint(l1=0.5 / 8, least=-1.0)
    assert found.restraint(2, 8.0, True) == Restraint(l1=0.5, least=-1.0)
    assert (found.restrained, found.sparse) == ((0, 2), (0, 2))
    assert found.asked(1) == Restraint()


def test_beyond_its_mu_nothing_shrinks_and_zeros_are_kept() -> None:
    for scale in ("unit", "objective"):
        found = shaped(scale, 100.0, l1=[0.5, 0.0], weights_max=2.0)
        assert found.restraint(0, 100.1, False) == Restraint(most=2.0, kept=True)
        assert found.restraint(2, 100.1, False) == Restraint(most=2.0)
    assert not shaped("unit", weights_max=2.0).sparse


# --- quadratic penalty ------------------------------------------------------------------------------------------------


def decided(mu: float, iteration: int, before: float, now: float, schedule: Quadratic = SCHEDULE) -> Decision:
    return schedule.decide(Progress(iteration, mu, before, now))


@often
@given(before=ERRORS, now=ERRORS, mu=st.sampled_from([1.0, 10.0, 300.0, 1e4]))
def test_mu_grows_just_when_the_error_settles_or_rises(before: float, now: float, mu: float) -> None:
    decision = decided(mu, 5, before, now)
    if before - now < 0.01 * before:
        assert decision == (Decision(mu, "converged") if mu == 1e4 else Decision(min(10.0 * mu, 1e4), None))
    else:
        assert decision == Decision(mu, None)


def test_a_run_of_bits_ends_once_they_are_those_of_the_net_and_nothing_has_changed() -> None:
    ends = replace(SCHEDULE, discrete=True)
    for schedule, before, constraint in ((ends, 2.0, 0.1), (ends, 3.0, 0.0), (SCHEDULE, 2.0, 0.0)):
        assert schedule.decide(Progress(5, 1.0, before, 2.0, constraint=constraint)).stop is None
    assert ends.decide(Progress(5, 1.0, 2.0, 2.0, constraint=0.0)).stop == "converged"


@pytest.mark.parametrize("now", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("schedule", [SCHEDULE, LAGRANGIAN])
def test_an_error_that_is_not_finite_names_iteration_and_remedy(schedule: Quadratic, now: float) -> None:
    with pytest.raises(NumericalError, match=r"iteration 7 .*penalty\.ridge"):
        decided(1.0, 7, 2.0, now, schedule)


@often
@given(errors=st.lists(ERRORS, min_size=1, max_size=60))
def test_mu_never_falls_and_a_run_ends(errors: list[float]) -> None:
    """Whatever the errors do."""
    mu, before = SCHEDULE.mu0, math.inf
    for iteration, now in enumerate(errors, start=41):
        decision = decided(mu, iteration, before, now)
        assert mu <= decision.mu <= SCHEDULE.mu_max
        mu, before = decision.mu, now
        if decision.stop:
            break
    else:
        assert iteration < SCHEDULE.max_iterations


@pytest.mark.parametrize("raised", [0, 1, 3])
def test_the_tolerance_shrinks_whenever_mu_grows(raised: int) -> None:
    schedule = Quadratic(2.0, 5.0, 1e9, 0.1, 100, tolerance_decay=0.25)
    mu, tolerance = 2.0 * 5.0**raised, 0.1 * 0.25**raised
    assert decided(mu, 1, 1.0, 1.0 - 1.01 * tolerance, schedule).mu == mu
    assert decided(mu, 1, 1.0, 1.0 - 0.99 * tolerance, schedule).mu == 5.0 * mu


@pytest.mark.parametrize("errors", [(1.0, 0.1), (1.0, 0.999), (1.0, 2.0)])
def test_mu_may_grow_after_so_many_iterations_instead(errors: tuple[float, float]) -> None:
    """Whatever the validation error does (section 4.3: after 70 iterations), and the run goes on at the largest mu."""
    schedule = replace(SCHEDULE, every=7, max_iterations=21)
    for iteration in range(1, 21):
        mu = 10.0 if iteration % 7 == 0 else 1.0
        assert decided(1.0, iteration, *errors, schedule) == Decision(mu, None)
        assert decided(1e4, iteration, *errors, schedule) == Decision(1e4, None)
    assert decided(1e4, 21, *errors, schedule) == Decision(1e4, "max_iterations")
    assert decided(2e3, 14, *errors, schedule) == Decision(1e4, None)


# --- augmented Lagrangian ---------------------------------------------------------------------------------------------

CONSTRAINTS = st.floats(1e-9, 1e3)


@often
@given(before=ERRORS, now=ERRORS, constraint=CONSTRAINTS, reference=CONSTRAINTS, mu=st.sampled_from([1.0, 30.0, 1e4]))
def test_multipliers_move_only_by_less_than_last_time_and_mu_stays_then(
    before: float, now: float, constraint: float, reference: float, mu: float
) -> None:
    decision = LAGRANGIAN.decide(Progress(5, mu, before, now, mu * mu * constraint, reference))
    if mu * mu * constraint <= 0.5**2 * reference:
        assert decision == Decision(mu, None, multipliers=True)
    else:
        assert decision == decided(mu, 5, before, now)


@often
@given(steps=st.lists(st.tuples(ERRORS, CONSTRAINTS), min_size=1, max_size=80))
def test_the_moves_are_a_geometric_series_or_mu_grows(steps: list[tuple[float, float]]) -> None:
    """Whatever happens: each move is at most half the last one, and where the error settles mu grows."""
    mu, before, reference, moves = LAGRANGIAN.mu0, math.inf, math.inf, []
    for iteration, (now, constraint) in enumerate(steps, start=1):
        progress = Progress(iteration, mu, before, now, mu * mu * constraint, reference)
        decision = LAGRANGIAN.decide(progress)
        assert mu <= decision.mu <= LAGRANGIAN.mu_max
        if decision.multipliers:
            assert decision.mu == mu
            moves.append(mu * math.sqrt(constraint))
            reference = progress.move
        elif before - now < 0.01 * before and decision.stop is None:
            assert decision.mu > mu
        mu, before = decision.mu, now
        if decision.stop:
            break
    assert sum(moves) <= 2.0 * (moves or [0.0])[0] * (1.0 + 1e-12)


@often
@given(gradient=ERRORS, lacking=CONSTRAINTS, lacked=CONSTRAINTS, mu=st.sampled_from([1.0, 10.0, 1e4]))
def test_on_a_path_of_gradients_multipliers_come_nearer_by_as_much_as_at_the_next_mu_or_mu_grows(
    gradient: float, lacking: float, lacked: float, mu: float
) -> None:
    """No nearer than 1e-4, as at mu_max, where the run ends; tau_k falls with what they lacked."""
    schedule = Stationary(1.0, 10.0, 1e4, 0.01, 100, multipliers=True, decay=0.1)
    tau = 0.1 * min(1.0 / mu, 0.1 * lacked) * 3.0
    known = {"gradient": gradient, "lacking": lacking, "reference": lacked, "multipliers": 3.0}
    decision = schedule.decide(Progress(5, mu, 2.0, 2.0, **known))
    if gradient > tau * (1.0 + 1e-9):
        assert decision == Decision(mu, None)
    elif gradient < tau * (1.0 - 1e-9):
        if lacking <= 1e-4 * (1.0 + 1e-9):
            assert decision.stop == "converged"
        elif lacking <= 0.1 * min(lacked, 1.0):
            assert decision == Decision(mu, None, multipliers=True)
        else:
            assert decision == (Decision(mu, "converged") if mu == 1e4 else Decision(10.0 * mu, None))


def test_a_run_with_patience_ends_once_the_error_has_not_been_lower_for_so_many_iterations() -> None:
    schedule = Quadratic(1.0, 2.0, 1e4, 0.01, 100, every=10, patience=25)
    assert schedule.decide(Progress(40, 8.0, 1.0, 2.0, best=16)) == Decision(16.0, None)
    assert schedule.decide(Progress(41, 8.0, 1.0, 2.0, best=16)) == Decision(8.0, "converged")
    assert schedule.decide(Progress(99, 8.0, 1.0, 2.0, best=75)) == Decision(8.0, None)
    assert schedule.decide(Progress(100, 8.0, 1.0, 2.0, best=76)) == Decision(16.0, "max_iterations")


# --- the keys that a settled run names --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "sites", "named"),
    [
        ("mac", "after", ["penalty.mu_max", "penalty.tolerance"]),
        ("mac", "none", ["penalty.tolerance"]),
        ("mac with patience", "after", ["penalty.patience"]),
        ("stochastic", "after", ["stochastic.patience"]),
        ("sgd", "after", ["baseline.patience"]),
        ("lbfgs", "after", ["baseline.patience"]),
    ],
)
def test_each_of_them_changes_when_the_run_settles(method: str, sites: str, named: list[str]) -> None:
    name, _, patient = method.partition(" ")
    config = Config(
        model=Model([3], sites=sites, activation="sigmoid", loss="squared"),  # type: ignore[arg-type]
        method=Method(name),  # type: ignore[arg-type]
        penalty=Penalty(mu_every=10, patience=25) if patient else Penalty(),
    )
    assert re.findall(r"\w+\.\w+", schedule_of(config, LOSSES["squared"]).longer) == named
    for table, key in (name.split(".") for name in named):
        keys = getattr(config, table)
        value = getattr(keys, key)
        value = 0.5 * value if key == "tolerance" else 2 * value
        changed = replace(config, **{table: replace(keys, **{key: value})})
        assert schedule_of(changed, LOSSES["squared"]) != schedule_of(config, LOSSES["squared"])


# --- patience ---------------------------------------------------------------------------------------------------------


def test_patience_counts_from_the_best_iteration_or_from_the_last_noticeable_fall() -> None:
    any_fall = Patient(1.0, 2.0, 1.0, 0.01, 100, patience=20)
    noticeable = replace(any_fall, noticeable=0.01)
    for iteration, best, fell, ends in (
        (20, 0, 0, (True, True)),
        (30, 25, 5, (False, True)),
        (24, 5, 5, (False, False)),
    ):
        progress = Progress(iteration, 1.0, 2.0, 2.0, best=best, fell=fell)
        found = tuple(schedule.decide(progress).stop is not None for schedule in (any_fall, noticeable))
        assert found == ends


def test_a_fall_is_noticeable_by_its_share_however_slowly_it_comes() -> None:
    """Steps below the share add up; the best weights are kept all the same."""
    state: State[Record] = State(np.zeros(2), np.zeros((0, 0)), 1.0, Record())
    step = 1.0 - 0.4 * 0.01
    noticed = []
    for state.iteration in range(10):
        state.weights[:] = state.iteration
        state.note_validation(step**state.iteration, noticeable=0.01)
        noticed.append(state.history.fell_at)
        assert state.history.best_iteration == state.iteration == state.history.best_weights[0]
    assert noticed == [0, 0, 0, 3, 3, 3, 6, 6, 6, 9]


def test_a_start_that_is_better_than_the_first_steps_does_not_end_a_run_that_still_falls() -> None:
    """Patience counts from what the steps have reached, while the start stays the best weights until they pass it."""
    state: State[Record] = State(np.zeros(2), np.zeros((0, 0)), 1.0, Record())
    schedule = Patient(1.0, 1.0, 1.0, 0.0, 400, patience=20, noticeable=0.01)
    for state.iteration in range(60):
        error = 1.0 if state.iteration == 0 else 10.0 * 0.95**state.iteration
        state.note_validation(error, noticeable=0.01)
        progress = Progress(
            state.iteration, 1.0, error, error, best=state.history.best_iteration, fell=state.history.fell_at
        )
        assert schedule.decide(progress).stop is None
        assert state.history.best_iteration == (state.iteration if error < 1.0 else 0)
