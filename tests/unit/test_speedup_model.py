"""The figures of a speedup and the cost model: laws of both, and an assignment worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cost_model import ceiling, parmac
from hypothesis import given
from hypothesis import strategies as st
from plans import plan_of as planned_of
from speedup_tables import karp_flatt

from macmpi.config import Config, Method, Model
from macmpi.parallel import shared_work, tiles
from macmpi.plan.cost import (
    Machine,
    Rates,
    Round,
    exchange,
    predict,
    rounds,
    seconds_of,
)
from macmpi.plan.plan import Plan

QUIET = Machine(alpha=0.0, beta=0.0)
RANKS = st.integers(1, 200)
TIMES = st.floats(1e-6, 10.0)


def plan_of(ranks: int, points: int = 960, hidden: tuple[int, ...] = (64, 32)) -> Plan:
    return planned_of(
        Config(model=Model(hidden=list(hidden), activation="sigmoid"), method=Method("mac")), 10, 10, points, 100, ranks
    )


def work_of(plan: Plan, point: float = 1e-3, factor: float = 2e-6, unit: float = 1e-4, shared: float = 0.0) -> Rates:
    segments = len(plan.chain.segments)
    return Rates(point, (factor,) * segments, (unit,) * segments, shared)


@given(st.floats(0.0, 1.0), st.integers(2, 4096))
def test_karp_flatt_finds_the_fraction_of_amdahls_law(serial: float, ranks: int) -> None:
    assert karp_flatt(1.0 / (serial + (1.0 - serial) / ranks), ranks) == pytest.approx(serial, abs=1e-9)


@given(RANKS)
def test_no_work_is_lost_or_made_by_assigning(ranks: int) -> None:
    plan = plan_of(ranks)
    (points, *one), (many_points, *many) = (rounds(work_of(plan), p) for p in (replace(plan, ranks=1), plan))
    assert all(len(r.seconds) == ranks for r in many)
    assert sum(many_points.seconds) == pytest.approx(sum(points.seconds))
    assert sum(sum(r.seconds) for r in many) == pytest.approx(sum(sum(r.seconds) for r in one))
    assert (many_points.bytes, many[-1].bytes) == (points.bytes, one[-1].bytes)


@pytest.mark.parametrize("ranks", [1, 2, 3, 12])
def test_grams_are_summed_by_their_points_and_each_rank_adds_its_share(
    ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """960 points are 12 blocks: one subtree a rank; the sums of all, then a share of the columns of each rank."""
    monkeypatch.setattr(shared_work, "WIDE", 1)
    plan = plan_of(ranks)
    _, *found, late = rounds(work_of(plan), plan)
    assert len(found) == (4 if ranks > 2 else 2), "two sums, or one, are added up by every rank"
    first = found[0]
    width = 8 * 65 * 65
    assert first.bytes == width * sum(len(tiles.nodes(12, run)) for run in plan.work.summed.runs)
    assert ranks == 3 or first.bytes == width * ranks
    assert sum(first.seconds) == pytest.approx(2e-6 * plan.work.grams(1)[0].cost)
    assert len(set(first.seconds)) == 1
    if ranks > 2:
        assert found[1].bytes == width
        assert not any(found[1].seconds)
    assert sum(late.seconds) == pytest.approx(1e-4 * sum(job.cost for job in plan.work.w_step.jobs))


@given(RANKS, TIMES, TIMES, st.floats(1.0, 2.0))
def test_the_terms_of_a_prediction_are_its_total(ranks: int, alpha: float, shared: float, crowding: float) -> None:
    plan = plan_of(ranks)
    work, machine = work_of(plan, shared=shared), Machine(alpha, 1e-9, crowding=crowding)
    found, found_rounds = predict(work, plan, machine), rounds(work, plan)
    computed = sum(r.times * max(r.seconds) for r in found_rounds) + shared
    messages = sum(exchange(machine, r, ranks) for r in found_rounds)
    assert found.total == pytest.approx((crowding if ranks > 1 else 1.0) * computed + messages)
    assert all(term >= -1e-12 for term in vars(found).values())


@given(RANKS)
def test_no_more_than_the_ceiling_is_predicted(ranks: int) -> None:
    plan = plan_of(ranks)
    work = work_of(plan, shared=0.01)
    alone = predict(work, replace(plan, ranks=1), QUIET).total
    assert alone / predict(work, plan, QUIET).total <= min(ranks, ceiling(work, plan)[2]) * (1.0 + 1e-9)


def test_the_seconds_of_a_round_are_those_of_each_time() -> None:
    """The busiest rank's, as often as the round comes; what is left of an even share is lost."""
    found = seconds_of([Round((1.0, 1.0), 0), Round((2.0, 4.0), 0, times=5)], [Round((2.0,), 0)] * 2, 0.0, QUIET)
    assert (found.ideal, found.uneven_points, found.uneven_weights) == (2.0, 0.0, 19.0)


def test_the_assignment_is_that_of_the_plan() -> None:
    """960 points are 12 tiles of 80; on 5 ranks the busiest has 3 of them."""
    plan = plan_of(5)
    assert max(rounds(work_of(plan), plan)[0].seconds) == pytest.approx(3 * 80e-3)
    assert ceiling(work_of(plan), plan)[0] == pytest.approx(12.0)


@given(st.integers(1, 64), TIMES, TIMES)
def test_parmac_is_linear_while_units_divide_and_messages_cost_nothing(times: int, z: float, w: float) -> None:
    ranks = 4
    assert parmac(ranks, times * ranks, z, w, QUIET, 8.0) == pytest.approx(ranks)
    assert parmac(1, times, z, w, Machine(1.0, 1.0), 8.0) == pytest.approx(1.0)
    assert parmac(ranks, times * ranks, z, w, Machine(1e-3, 0.0), 8.0) < ranks


def test_parmac_of_8_units_on_4_ranks() -> None:
    """A rank has 2 units, and each of them is sent 4 times to be trained and 4 times to be known: 0.5 s each."""
    alone, together = 8.0 + 16.0, 8.0 / 4 + 2 * (16.0 / 8 + (4 + 4) * 0.5)
    assert parmac(4, 8, 8.0, 16.0, Machine(0.5, 0.0), 8.0) == pytest.approx(alone / together)
