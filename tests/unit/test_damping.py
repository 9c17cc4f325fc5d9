"""Damping of stochastic MAC: bounded, monotone in the loss and in the success of a step, never zero."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from sampled import examples

from macmpi.methods.stochastic.schedule import Damping
from macmpi.plan import tuned

often = examples(100)
asked = st.sampled_from([0.0, 1e-4, 0.3])
dampings = st.builds(Damping, st.sampled_from([0, 2, 10, 1000]), st.sampled_from([0.25, 1.0, 3.0]), asked)
present = st.floats(1e-12, tuned.DAMPING_MOST)
losses = st.floats(1e-9, 1e3)
ratios = st.floats(-1e6, 1e6)
minibatches = st.integers(1, 50)


@often
@given(dampings, present, losses, losses)
def test_inverses_are_damped_less_the_lower_the_loss_of_labels_is(
    found: Damping, damping: float, one: float, two: float
) -> None:
    low, high = (found.of_inverses(damping, loss) for loss in sorted((one, two)))
    assert 0.0 < low <= high <= damping
    assert found.classes or low == damping


@often
@given(dampings, present, st.floats(0.0, 1e3), st.floats(0.0, 1e3))
def test_a_step_is_damped_less_the_lower_the_loss_of_labels_is_but_never_by_nothing(
    found: Damping, damping: float, one: float, two: float
) -> None:
    low, high = (found.of_length(damping, loss) for loss in sorted((one, two)))
    assert tuned.LEARNT_LEAST * damping <= low <= high <= damping
    assert found.classes or low == damping


@often
@given(dampings, losses, losses, losses)
def test_a_length_is_shortened_only_where_the_loss_is_higher_than_where_it_was_measured(
    found: Damping, loss: float, measured: float, level: float
) -> None:
    share = found.of_loss(loss, measured, level)
    assert 0.0 < share <= 1.0
    assert share == 1.0 or (found.classes and loss > measured)
    assert found.of_loss(2.0 * loss, measured, level) <= share <= found.of_loss(loss, 2.0 * measured, level)


@often
@given(dampings, present, ratios, ratios, minibatches)
def test_the_better_a_step_was_predicted_the_less_damping(
    found: Damping, damping: float, one: float, two: float, count: int
) -> None:
    worse, better = (found.adapted(damping, ratio, count) for ratio in sorted((one, two)))
    assert 0.0 < better <= worse <= tuned.DAMPING_MOST


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
        assert after > damping or damping == after == tuned.DAMPING_MOST
