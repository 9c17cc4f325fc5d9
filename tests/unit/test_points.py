"""Sums and means over points are the same whether one rank holds all of them or each its own."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from plans import changed, plan_of
from unit.crew import crew

from macmpi.config import Config, Method, Model
from macmpi.parallel import points as of_points
from macmpi.parallel.placement import EVERYWHERE, PLACEMENTS, Placement
from macmpi.parallel.points import Points, partition_points, some
from macmpi.parallel.rows import appended
from macmpi.parallel.streams import stream
from macmpi.parallel.team import Team
from macmpi.reductions import LazyRows

SHARDED = PLACEMENTS["sharded"]

SIZES = [1, 2, 37, 99, 100, 101, 513, 5000]


class Rank(Team):
    """One of several ranks, alone: what it computes before anything is exchanged."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 12, 60])
@pytest.mark.parametrize("n", SIZES)
def test_each_point_is_held_by_one_rank_and_each_sample_point_too(n: int, ranks: int) -> None:
    partition = partition_points(n, ranks, placement=SHARDED)
    held = [partition.held(r) for r in range(ranks)]
    assert [i for tile in held for i in range(tile.start, tile.stop)] == list(range(n))
    assert [len(tile) for tile in held] == list(partition.row_counts)
    found = []
    for r in range(ranks):
        tiles = partition.tiles_of(r)
        assert [i for t in tiles for i in range(t.start, t.stop)] == list(range(len(held[r])))
        points = Points(partition, partition, Rank(r, ranks))
        assert points.count == len(held[r])
        found += (points.sample + held[r].start).tolist()
    assert_array_equal(found, Points(partition_points(n, 1), partition_points(n, 1), Team()).sample)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("parts", [48, 4, 1])
def test_sums_and_means_over_points(n: int, parts: int) -> None:
    """A partial of several arrays, one of none, and the mean and the rows of the sample."""
    A = np.random.default_rng(n).normal(size=(n, 3))
    whole, sharded = (
        Points(partition, partition, Team())
        for partition in (partition_points(n, 1, parts, place) for place in (EVERYWHERE, SHARDED))
    )
    seen: list[int] = []

    def noted(rows: slice) -> tuple[()]:
        seen.extend(range(n)[rows])
        return ()

    for points in (whole, sharded):
        gram, total = points.over(lambda rows: (A[rows].T @ A[rows], A[rows].sum(axis=0)))
        assert_allclose(gram, A.T @ A, rtol=1e-10, atol=1e-12)
        assert_allclose(total, A.sum(axis=0), rtol=1e-10, atol=1e-12)
        seen.clear()
        assert points.over(noted) == ()
        assert seen == list(range(n))
        B = A[points.sample]
        mean = points.average.mean(lambda rows, B=B: B[rows].T @ B[rows] / len(B[rows]), (3, 3))  # type: ignore[misc]
        assert_allclose(mean, B.T @ B / len(B), rtol=1e-10, atol=1e-12)
        assert_array_equal(points.average.rows(lambda rows, B=B: 2.0 * B[rows]), 2.0 * B)  # type: ignore[misc]


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("place", [EVERYWHERE, SHARDED], ids=str)
def test_rows_of_some_points_are_those_on_every_rank(place: Placement, ranks: int) -> None:
    """In any order, of rows that are there or made, of numbers too; rank 0's are given back to their ranks."""
    A = np.random.default_rng(0).normal(size=(403, 3))
    numbers = np.random.default_rng(1).permutation(403)[:70]

    def work(team: Team) -> None:
        partition = partition_points(403, ranks, placement=place)
        held = A[partition.held(team.rank).rows]
        made = LazyRows(lambda rows: 2.0 * held[rows], held.shape, held.dtype)
        assert_array_equal(partition.gathered(held, numbers, team), A[numbers])
        assert_array_equal(partition.gathered(held[:, 0], numbers, team), A[numbers, 0])
        assert_array_equal(partition.gathered(made, numbers, team), 2.0 * A[numbers])
        points = Points(partition, partition, team, subset=some(403, 50, stream(0, "few")))
        assert_array_equal(points.given(A if team.rank == 0 else None, 3), held)
        (total,) = points.alone(lambda rows: (points_at_hand[rows].sum(axis=0),))
        assert_allclose(total, points_at_hand.sum(axis=0))

    points_at_hand = A if place is EVERYWHERE else A[some(403, 50, stream(0, "few"))]
    assert crew(ranks, work) == [None] * ranks


@pytest.mark.parametrize("count", [1, 7, 99, 100, 1000])
def test_points_are_drawn_from_even_runs_and_are_all_where_there_are_few(count: int) -> None:
    found = some(100, count, stream(3, "few"))
    assert len(found) == min(count, 100)
    runs = np.arange(len(found) + 1) * 100 // len(found)
    assert ((runs[:-1] <= found) & (found < runs[1:])).all()
    if count == 7:
        assert (found != some(100, count, stream(4, "few"))).any()


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("place", [EVERYWHERE, SHARDED], ids=str)
def test_sets_of_points_one_after_the_other(place: Placement, ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_points, "MOST_AT_HAND", 30)
    whole = np.random.default_rng(7).normal(size=(215, 2))

    def work(team: Team) -> None:
        first, second, both = (partition_points(n, ranks, placement=place) for n in (151, 64, 215))
        for A, B in ((whole[:151], whole[151:]), (whole[64:], whole[:64]), (whole[64:].copy(), whole[:64])):
            sets = [(p, C[p.held(team.rank).rows]) for p, C in ((first, A), (second, B))]
            found = appended(sets, both, team)
            assert_array_equal(found, np.concatenate([A, B])[both.held(team.rank).rows])
            all_here = len(both.held(team.rank)) == 215
            assert (found is whole) == (all_here and A.base is not None and not np.any(A[0] - whole[0])), "no copy"

    assert crew(ranks, work) == [None] * ranks


def test_sharded_jobs_are_done_by_all_ranks_and_exchange_nothing() -> None:
    config = Config(
        model=Model([40, 7, 100], sites=["before", "after", "none"], activation="sigmoid"), method=Method("mac")
    )
    plans = [plan_of(config, 4, 33, 400, 11, ranks) for ranks in (1, 3)]
    sharded = [changed(p, placement=SHARDED) for p in plans]
    for p in sharded:
        for partition in (p.work.w_step, p.work.first_gram, p.work.regressions([1])):
            assert not any(phase.own or (phase.exchange and phase.exchange.parts) for phase in partition.phases)
            assert {gram.segment for gram in partition.grams} == partition.fresh
        covered = np.zeros(p.offsets.weights[-1], dtype=int)
        for job in p.work.w_step.jobs:
            covered[job.place] += 1
        assert_array_equal(covered, 1)
