"""The ring's laws: every job comes to every block once a round, in the order of the ring, on any number of ranks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from sampled import examples

from macmpi.half_steps.ring import Ring
from macmpi.parallel import tiles
from macmpi.plan.work_lists import Job

often = examples(60)
costs = st.lists(st.sampled_from([1.0, 3.0, 3.0, 50.0]), min_size=1, max_size=30)
blocks, ranks, rounds = st.integers(1, 13), st.integers(1, 14), st.integers(1, 3)


def ring(costs: list[float], blocks: int, ranks: int, rounds: int) -> Ring:
    jobs = tuple(Job(0, tiles.Tile(j, j + 1), slice(j, j + 1), cost) for j, cost in enumerate(costs))
    return Ring(jobs, tiles.contiguous_runs(blocks, ranks), rounds)


def way(r: Ring, job: int) -> list[tuple[int, int]]:
    """(round, block) of each visit, leg by leg; in a leg the rank that has the job goes through its blocks in order."""
    found = []
    for leg in range(r.legs):
        (rank,) = (rank for rank in range(r.ranks) if job in r.at(rank, leg))
        for block in range(r.runs[rank].start, r.runs[rank].stop):
            number = r.round_of(job, block, leg)
            found += [] if number is None else [(number, block)]
    return found


@often
@given(costs, blocks, ranks, rounds)
def test_a_job_goes_round_the_ring_once_a_round(costs: list[float], blocks: int, ranks: int, rounds: int) -> None:
    """From its own block on; so its way, and with it its bits, does not depend on the ranks."""
    r = ring(costs, blocks, ranks, rounds)
    for j, start in enumerate(r.starts):
        expected = [(number, (start + i) % blocks) for number in range(rounds) for i in range(blocks)]
        assert way(r, j) == expected


@often
@given(costs, blocks, ranks, rounds)
def test_a_rank_passes_all_that_it_has_to_the_next_one(
    costs: list[float], blocks: int, ranks: int, rounds: int
) -> None:
    r = ring(costs, blocks, ranks, rounds)
    for leg in range(r.legs - 1):
        assert all(r.at(rank, leg) == r.at((rank + 1) % ranks, leg + 1) for rank in range(ranks))
    assert [r.at(rank, 0) for rank in range(ranks)] == [r.at(rank, r.legs - 1) for rank in range(ranks)]
    assert sorted(j for rank in range(ranks) for j in r.at(rank, 0)) == list(range(len(costs)))


@often
@given(st.integers(1, 60), st.sampled_from([96, 3072, tiles.MOST_BLOCKS]), st.integers(1, 2000))
def test_few_jobs_start_evenly_round_many_blocks(count: int, blocks: int, ranks: int) -> None:
    """Whatever the ranks, and so that none begins with more than its share of them and one more."""
    r = ring([2.0] * count, blocks, ranks, 1)
    assert r.starts == ring([2.0] * count, blocks, 1, 1).starts
    assert sorted(r.starts) == [i * blocks // count for i in range(count)]
    assert max(len(r.at(rank, 0)) for rank in range(ranks)) <= -(-count // min(ranks, blocks)) + 1
