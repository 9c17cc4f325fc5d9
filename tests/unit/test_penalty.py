"""The ridge's two conventions, and the rules by which mu grows and a run ends."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macmpi import NumericalError
from macmpi.penalty import Decision, Ridge, Schedule

often = settings(deadline=None, derandomize=True, database=None, max_examples=200)
ERRORS = st.floats(1e-6, 1e6)
SCHEDULE = Schedule(mu0=1.0, factor=10.0, mu_max=1e4, tolerance=0.01, max_iterations=100)


# --- ridge ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("output", [False, True])
@pytest.mark.parametrize("mu", [0.1, 1.0, 100.0])
def test_of_unit_and_of_objective_differ_by_the_factor_of_the_units_residuals(mu: float, output: bool) -> None:
    for scale in ("unit", "objective"):
        ridge = Ridge(0.3, scale, 1e4)
        assert ridge.of_objective(mu, output) == pytest.approx(ridge.of_unit(mu, output) * (1.0 if output else mu))


def test_unit_ridge_is_the_same_in_every_units_own_regression() -> None:
    ridge = Ridge(0.3, "unit", 1e4)
    assert {ridge.of_unit(mu, output) for mu in (0.1, 1.0, 1e4) for output in (False, True)} == {0.3}
    assert ridge.of_objective(10.0, output=False) == pytest.approx(3.0)


def test_objective_ridge_is_the_same_in_e_q() -> None:
    ridge = Ridge(0.3, "objective", 1e4)
    for mu in (0.1, 1.0, 1e4):
        for output in (False, True):
            assert ridge.of_objective(mu, output) == pytest.approx(0.3)
    assert ridge.of_unit(10.0, output=False) == pytest.approx(0.03)
    assert ridge.of_unit(10.0, output=True) == 0.3


def test_no_ridge_beyond_its_mu() -> None:
    for scale in ("unit", "objective"):
        ridge = Ridge(0.3, scale, 100.0)
        for output in (False, True):
            assert ridge.of_unit(100.0, output) > 0.0
            assert ridge.of_unit(100.1, output) == ridge.of_objective(100.1, output) == 0.0


# --- schedule ---------------------------------------------------------------------------------------------------------


@often
@given(before=ERRORS, now=ERRORS, mu=st.sampled_from([1.0, 10.0, 300.0, 1e4]))
def test_mu_grows_just_when_the_error_settles_or_rises(before: float, now: float, mu: float) -> None:
    decision = SCHEDULE.decide(mu, 5, before, now)
    if before - now < 0.01 * before:
        assert decision == (Decision(mu, "converged") if mu == 1e4 else Decision(min(10.0 * mu, 1e4), None))
    else:
        assert decision == Decision(mu, None)


def test_the_rule_in_examples() -> None:
    decide = SCHEDULE.decide
    assert decide(1.0, 1, 2.0, 1.0) == Decision(1.0, None)
    assert decide(1.0, 1, 2.0, 1.999) == Decision(10.0, None)
    assert decide(1.0, 1, 2.0, 2.5) == Decision(10.0, None)
    assert decide(1e4, 1, 2.0, 1.999) == Decision(1e4, "converged")
    assert decide(1e4, 1, 2.0, 1.0) == Decision(1e4, None)


def test_the_first_iteration_has_nothing_to_compare_with() -> None:
    assert SCHEDULE.decide(1.0, 1, math.inf, 5.0) == Decision(1.0, None)


def test_mu_ends_at_mu_max_even_between_powers() -> None:
    schedule = Schedule(1.0, 10.0, 50.0, 0.01, 100)
    assert schedule.decide(10.0, 1, 1.0, 1.0) == Decision(50.0, None)
    assert schedule.decide(50.0, 2, 1.0, 1.0) == Decision(50.0, "converged")


def test_the_last_iteration_allowed_ends_the_run() -> None:
    assert SCHEDULE.decide(1.0, 99, 2.0, 1.0).stop is None
    assert SCHEDULE.decide(1.0, 100, 2.0, 1.0).stop == "max_iterations"
    assert SCHEDULE.decide(1.0, 100, 2.0, 2.0) == Decision(10.0, "max_iterations")
    assert SCHEDULE.decide(1e4, 100, 2.0, 2.0).stop == "converged"


@pytest.mark.parametrize("now", [math.nan, math.inf, -math.inf])
def test_an_error_that_is_not_finite_names_iteration_and_remedy(now: float) -> None:
    with pytest.raises(NumericalError, match=r"iteration 7 .*penalty\.ridge"):
        SCHEDULE.decide(1.0, 7, 2.0, now)


@often
@given(errors=st.lists(ERRORS, min_size=1, max_size=60))
def test_mu_never_falls_and_a_run_ends(errors: list[float]) -> None:
    """Whatever the errors do."""
    mu, before = SCHEDULE.mu0, math.inf
    for iteration, now in enumerate(errors, start=41):
        decision = SCHEDULE.decide(mu, iteration, before, now)
        assert mu <= decision.mu <= SCHEDULE.mu_max
        mu, before = decision.mu, now
        if decision.stop:
            break
    else:
        assert iteration < SCHEDULE.max_iterations
