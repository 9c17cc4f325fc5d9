"""Tiles depend on the size of the problem alone, cover it exactly once, and are assigned in balance."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampled import examples

from macmpi.parallel import tiles
from macmpi.parallel.placement import EVERYWHERE, PLACEMENTS
from macmpi.parallel.points import partition_points
from macmpi.parallel.tiles import Tile

SHARDED = PLACEMENTS["sharded"]

SIZES = st.integers(1, 30_000)
RANKS = st.integers(1, 60)
often = examples(150)


def assert_cover(runs: Sequence[Tile], n: int) -> None:
    """Contiguous, in order, from 0 to n; none empty."""
    assert runs[0].start == 0
    assert runs[-1].stop == n
    assert all(a.stop == b.start for a, b in pairwise(runs))
    assert all(len(tile) > 0 for tile in runs)


@often
@given(n=SIZES)
def test_point_tiles(n: int) -> None:
    runs = tiles.point_tiles(n)
    assert_cover(runs, n)
    assert max(map(len, runs)) <= (tiles.MANY_ROWS if len(runs) >= 48 else tiles.POINT_ROWS)
    assert max(map(len, runs)) - min(map(len, runs)) <= 1
    assert min(map(len, runs)) >= min(n, 8)
    if n > 24 * tiles.POINT_ROWS:
        assert len(runs) % 48 == 0
        assert min(map(len, runs)) >= 64
    elif n > 12 * 96:
        assert len(runs) in (12, 24)
    else:
        assert len(runs) <= 12


@often
@given(h=st.integers(1, 2000))
def test_unit_tiles(h: int) -> None:
    """A multiple of 8 units but for the last, and never a thin tile where there are units for a wider one."""
    runs = tiles.unit_tiles(h)
    assert_cover(runs, h)
    assert max(map(len, runs)) - min(map(len, runs)) < 16
    assert all(len(tile) % 8 == 0 for tile in runs[:-1])
    assert min(map(len, runs)) >= min(h, tiles.UNIT_WIDTH // 2)
    assert max(map(len, runs)) <= 1.5 * tiles.UNIT_WIDTH + 8


MANY = st.integers(1, 10**9)


@often
@given(n=MANY, rank_counts=st.lists(st.integers(1, 20_000), min_size=2, max_size=2))
def test_blocks_depend_on_the_points_alone(n: int, rank_counts: list[int]) -> None:
    """48 up to 49,152 points, then doubled; so sums have the same bits on any number of ranks."""
    one, other = (partition_points(n, ranks, placement=SHARDED) for ranks in rank_counts)
    assert (one.tiles, one.blocks) == (other.tiles, other.blocks)
    count = tiles.block_count(n)
    assert len(one.blocks) == min(count, len(tiles.point_tiles(n)))
    assert count % tiles.BLOCKS == 0
    assert count == tiles.BLOCKS or n > count // 2 * tiles.BLOCK_ROWS
    assert count == tiles.MOST_BLOCKS or n <= count * tiles.BLOCK_ROWS
    assert count == tiles.BLOCKS or n > tiles.BLOCKS * tiles.BLOCK_ROWS
    summed = tiles.sum_blocks(n)
    assert summed == count or (summed < tiles.BLOCKS and n < tiles.BLOCKS * tiles.SUMMED_ROWS)


@often
@given(n=MANY, ranks=st.integers(1, 20_000), sharded=st.booleans())
def test_every_point_has_one_rank_and_none_has_many_more_than_another(n: int, ranks: int, sharded: bool) -> None:
    """Runs of points one behind the other, from the first to the last; the busiest rank has at most a block more than
    its even share, and blocks are alike but for a tile."""
    points = partition_points(n, ranks, placement=SHARDED if sharded else EVERYWHERE)
    owned = [points.own(rank) for rank in range(ranks)]
    assert owned[0].start == 0
    assert owned[-1].stop == n
    assert all(a.stop == b.start for a, b in pairwise(owned))
    assert points.row_counts == tuple(map(len, owned))
    blocks, tile = len(points.blocks), -(-n // len(points.tiles))
    largest = max(map(len, (points.points(b, b + 1) for b in {0, blocks // 2, blocks - 1}))) + tile
    assert max(points.row_counts) <= -(-blocks // ranks) * largest
    assert max(points.block_counts) <= blocks / ranks + 1


@often
@given(n=st.integers(1, 10**6), pieces=st.integers(1, 60), data=st.data())
def test_a_cut_gives_the_runs_that_it_is_asked_for(n: int, pieces: int, data: st.DataObject) -> None:
    lazily = tiles.cut(n, pieces)
    runs = [Tile(a, b) for a, b in pairwise(n * i // len(lazily) for i in range(len(lazily) + 1))]
    assert list(lazily) == runs
    first, stop = sorted(data.draw(st.lists(st.integers(0, len(lazily)), min_size=2, max_size=2)))
    assert list(lazily[first:stop]) == runs[first:stop]
    assert lazily.run(first, stop) == Tile(n * first // len(lazily), n * stop // len(lazily))
    assert lazily[-1] == runs[-1]
    with pytest.raises(IndexError):
        lazily[len(lazily)]


COSTS = st.lists(st.floats(0.0, 1e6), max_size=60)


@often
@given(costs=COSTS, ranks=RANKS)
def test_assign_by_cost(costs: list[float], ranks: int) -> None:
    """Each job once, in ascending order on its rank; loads within the largest job of each other."""
    owned = tiles.assign_by_cost(costs, ranks)
    assert len(owned) == ranks
    assert sorted(chain.from_iterable(owned)) == list(range(len(costs)))
    assert all(list(jobs) == sorted(jobs) for jobs in owned)
    loads = [sum(costs[j] for j in jobs) for jobs in owned]
    assert max(loads) - min(loads) <= max(costs, default=0.0) * (1.0 + 1e-9)
    assert tiles.assign_by_cost(list(costs), ranks) == owned


@often
@given(costs=st.lists(st.sampled_from([1.0, 2.0, 5.0]), min_size=1, max_size=40), ranks=st.integers(1, 12))
def test_the_costliest_load_is_close_to_the_best_possible(costs: list[float], ranks: int) -> None:
    """Graham's bound for the costliest first: 4/3 of the optimum, itself at least the mean and the largest."""
    loads = [sum(costs[j] for j in jobs) for jobs in tiles.assign_by_cost(costs, ranks)]
    assert max(loads) <= sum(costs) / ranks + (1.0 - 1.0 / ranks) * max(costs) + 1e-9


def test_ties_go_to_the_lower_job_and_the_lower_rank() -> None:
    assert tiles.assign_by_cost([1.0, 1.0, 1.0, 1.0, 1.0], 3) == ((0, 3), (1, 4), (2,))
    assert tiles.assign_by_cost([1.0, 9.0, 1.0], 2) == ((1,), (0, 2))


COSTS = st.lists(st.floats(0.1, 10.0), min_size=1, max_size=40)


@often
@given(costs=COSTS, ranks=RANKS)
def test_assign_in_order(costs: list[float], ranks: int) -> None:
    """Every job once, as runs or as by cost, and no rank with noticeably more than by cost."""
    assigned, by_cost = tiles.assign_in_order(costs, ranks), tiles.assign_by_cost(costs, ranks)
    assert len(assigned) == ranks
    assert sorted(chain.from_iterable(assigned)) == list(range(len(costs)))
    assert assigned == by_cost or list(chain.from_iterable(assigned)) == list(range(len(costs)))
    longest, least = (max(sum(costs[j] for j in jobs) for jobs in owned) for owned in (assigned, by_cost))
    assert longest <= (1.0 + tiles.IN_ORDER) * least * (1.0 + 1e-12)


@pytest.mark.parametrize(
    ("n", "blocks"),
    [
        *((1, 1), (16, 1), (17, 2), (176, 11), (177, 12), (1536, 12), (1537, 24), (3072, 24), (3073, 48), (49_152, 48)),
        *((49_153, 96), (98_304, 96), (98_305, 192), (10**8, 49_152)),
    ],
)
def test_points_have_the_blocks_that_docs_parallel_says(n: int, blocks: int) -> None:
    assert len(partition_points(n, 1).blocks) == blocks
