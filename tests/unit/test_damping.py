"""Damping of stochastic MAC: bounded, monotone in the loss and in the success of a step, never zero."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macmpi.methods.stochastic.damping import CODES, ENOUGH, FEWEST, LEARNT, LEAST, MOST, Damping

often = settings(deadline=None, derandomize=True, database=None, max_examples=100)
asked = st.sampled_from([0.0, 1e-4, 0.3])
dampings = st.builds(Damping, st.sampled_from([0, 2, 10, 1000]), st.sampled_from([0.25, 1.0, 3.0]), asked)
present = st.floats(1e-12, MOST)
losses = st.floats(1e-9, 1e3)
ratios = st.floats(-1e6, 1e6)
minibatches = st.integers(1, 50)


@often
@given(dampings)
def test_what_is_asked_for_is_taken(found: Damping) -> None:
    assert found.first == found.first_asked or not found.first_asked
    assert found.first > 0.0
    assert 0.0 < found.least < found.first


@pytest.mark.parametrize("classes", [0, 10])
def test_the_first_damping_goes_by_the_square_of_the_slope_and_is_larger_for_labels(classes: int) -> None:
    assert Damping(classes, 0.25).first == Damping(classes, 1.0).first / 16.0
    assert Damping(10, 1.0).first > Damping(0, 1.0).first > Damping(0, 1.0, code=True).first == CODES


@often
@given(dampings, present, losses, losses)
def test_inverses_are_damped_less_the_lower_the_loss_of_labels_is(
    found: Damping, damping: float, one: float, two: float
) -> None:
    low, high = (found.of_inverses(damping, loss) for loss in sorted((one, two)))
    assert 0.0 < low <= high <= damping
    assert found.classes or low == damping


@pytest.mark.parametrize("classes", [2, 10])
def test_inverses_are_fully_damped_at_the_loss_of_guessing(classes: int) -> None:
    guessing = math.log(classes)
    assert Damping(classes, 1.0).of_inverses(0.5, guessing) == 0.5
    assert Damping(classes, 1.0).of_inverses(0.5, 0.25 * guessing) == 0.125


@often
@given(dampings, present, st.floats(0.0, 1e3), st.floats(0.0, 1e3))
def test_a_step_is_damped_less_the_lower_the_loss_of_labels_is_but_never_by_nothing(
    found: Damping, damping: float, one: float, two: float
) -> None:
    low, high = (found.of_length(damping, loss) for loss in sorted((one, two)))
    assert LEAST * damping <= low <= high <= damping
    assert found.classes or low == damping


def test_a_step_is_less_damped_only_once_the_labels_are_learnt() -> None:
    labels = Damping(10, 1.0)
    assert labels.of_length(0.5, LEARNT) == 0.5
    assert labels.of_length(0.5, 0.25 * LEARNT) == 0.125
    assert labels.of_length(0.5, 0.0) == LEAST * 0.5


@often
@given(dampings, losses, losses, losses)
def test_a_length_is_shortened_only_where_the_loss_is_higher_than_where_it_was_measured(
    found: Damping, loss: float, measured: float, level: float
) -> None:
    share = found.of_loss(loss, measured, level)
    assert 0.0 < share <= 1.0
    assert share == 1.0 or (found.classes and loss > measured)
    assert found.of_loss(2.0 * loss, measured, level) <= share <= found.of_loss(loss, 2.0 * measured, level)


def test_a_length_of_learnt_labels_falls_as_the_loss_rises() -> None:
    labels = Damping(10, 1.0)
    assert labels.of_loss(1e-4, 1e-5, 1e-5) == 0.1
    assert labels.of_loss(1e-4, 1e-5, 5.0 * LEARNT) == 0.5
    assert labels.of_loss(1.0, 0.5, 1.0) == labels.of_loss(0.0, 0.0, 0.0) == 1.0


@often
@given(dampings, present, ratios, ratios, minibatches)
def test_the_better_a_step_was_predicted_the_less_damping(
    found: Damping, damping: float, one: float, two: float, count: int
) -> None:
    worse, better = (found.adapted(damping, ratio, count) for ratio in sorted((one, two)))
    assert 0.0 < better <= worse <= MOST


@often
@given(dampings, present, ratios, minibatches)
def test_success_lowers_the_damping_to_the_least_and_failure_raises_it_to_the_most(
    found: Damping, damping: float, ratio: float, count: int
) -> None:
    after = found.adapted(damping, ratio, count)
    if ratio > 0.75:
        assert min(found.least, damping) <= after <= damping
        assert after < damping or damping <= found.least
    elif ratio >= 0.25:
        assert after == damping
    else:
        assert after > damping or damping == after == MOST


@often
@given(dampings, present, st.sampled_from([-1.0, 1.0]))
def test_the_bounds_are_reached_and_kept(found: Damping, damping: float, ratio: float) -> None:
    for _ in range(100):
        damping = found.adapted(damping, ratio, 5)
    bound = MOST if ratio < 0.0 else found.least
    assert damping == bound or (ratio > 0.0 and damping < bound)
    assert found.adapted(damping, ratio, 5) == damping


def test_a_loss_that_is_no_number_counts_as_failure() -> None:
    assert Damping(0, 1.0).adapted(0.5, math.nan, 1) > 0.5


@pytest.mark.parametrize(("batch", "times"), [(4.0, FEWEST), (40.0, 10.0), (100.0, 4.0), (ENOUGH, 1.0), (5000.0, 1.0)])
def test_labels_in_small_minibatches_are_damped_more_at_first(batch: float, times: float) -> None:
    assert Damping(3, 1.0, batch=batch).first == pytest.approx(times * Damping(3, 1.0).first)
    assert Damping(0, 1.0, batch=batch).first == Damping(0, 1.0).first
    assert Damping(3, 1.0, first_asked=0.7, batch=batch).first == 0.7
