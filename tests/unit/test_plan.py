"""A plan deals every unit and every point to exactly one rank, and depends on the number of ranks in nothing else."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from macmpi import UsageError, plan
from macmpi.chain import Chain
from macmpi.config import Config, Model, Penalty, Run, WStep, ZStep
from macmpi.layers.activation import FUNCTIONS, Activation
from macmpi.layers.affine import Affine
from macmpi.plan import Plan, deal_points, make_plan
from macmpi.state import block_views

SIZES = [(37, (7, 5)), (400, (40, 7, 100)), (5, (3,))]
RANKS = range(1, 14)


def planned(n: int, hidden: tuple[int, ...], ranks: int, **tables: Any) -> Plan:
    return make_plan(Config(model=Model(hidden=list(hidden)), **tables), 4, 33, n, 11, ranks)


@pytest.fixture(params=SIZES, ids=str)
def sizes(request: pytest.FixtureRequest) -> tuple[int, tuple[int, ...]]:
    return request.param  # type: ignore[no-any-return]


@pytest.mark.parametrize("ranks", RANKS)
def test_every_weight_and_every_units_error_has_one_owner(sizes: tuple[int, tuple[int, ...]], ranks: int) -> None:
    p = planned(*sizes, ranks)
    units = p.all_units
    assert len(units.jobs) == len(units.weight_parts) == len(units.error_parts) == ranks
    for parts, size in ((units.weight_parts, p.weight_bounds[-1]), (units.error_parts, p.unit_bounds[-1])):
        owners = np.zeros(size, dtype=int)
        for rank in parts:
            for part in rank:
                owners[part] += 1
        assert_array_equal(owners, 1)
    assert p.weight_bounds[-1] == sum(h * d for h, d in p.chain.block_shapes)
    assert p.unit_bounds[-1] == sum(h for h, _ in p.chain.block_shapes)


@pytest.mark.parametrize("ranks", [1, 3, 13])
def test_parts_are_where_their_jobs_results_lie(sizes: tuple[int, tuple[int, ...]], ranks: int) -> None:
    p = planned(*sizes, ranks)
    flat = np.arange(p.weight_bounds[-1])
    views = block_views(flat, p.chain.block_shapes)
    numbers = np.arange(p.unit_bounds[-1])
    of_block = np.split(numbers, p.unit_bounds[1:-1])
    for deal in (p.all_units, p.last_units):
        for jobs, weights, errors in zip(deal.jobs, deal.weight_parts, deal.error_parts, strict=True):
            for job, of_weights, of_errors in zip(jobs, weights, errors, strict=True):
                assert_array_equal(flat[of_weights], views[job.block][job.tile.rows].ravel())
                assert_array_equal(numbers[of_errors], of_block[job.block][job.tile.rows])


@pytest.mark.parametrize("ranks", RANKS)
def test_every_shared_factor_has_one_owner(sizes: tuple[int, tuple[int, ...]], ranks: int) -> None:
    """The first segment's inputs never change: its factor is computed once, apart from the others."""
    p = planned(*sizes, ranks)
    segments, owners = range(len(p.chain.segments)), np.zeros(p.shared_bounds[-1], dtype=int)
    assert sorted(k for rank in p.all_units.shared for k in rank) == list(segments)[1:]
    assert [k for rank in p.first_factor.shared for k in rank] == [0]
    assert [k for rank in p.last_units.shared for k in rank] == [segments[-1]]
    assert not any(p.first_factor.jobs)
    for deal in (p.all_units, p.first_factor):
        for rank, parts in zip(deal.shared, deal.shared_parts, strict=True):
            for k, part in zip(rank, parts, strict=True):
                owners[part] += 1
                rows, columns = p.shared_shape(k)
                assert part.stop - part.start == rows * columns
                assert columns == p.chain.segments[k].n_in + 1
    assert_array_equal(owners, 1)


@pytest.mark.parametrize("ranks", [1, 4, 13])
def test_the_refit_is_of_the_last_layer_alone(sizes: tuple[int, tuple[int, ...]], ranks: int) -> None:
    p = planned(*sizes, ranks)
    jobs = [job for rank in p.last_units.jobs for job in rank]
    assert {job.block for job in jobs} == {len(p.chain.block_shapes) - 1}
    assert sum(len(job.tile) for job in jobs) == 33


@pytest.mark.parametrize("ranks", RANKS)
def test_every_point_has_one_owner(ranks: int) -> None:
    for n in (1, 5, 37, 400, 2000, 5000, 7000):
        deal = deal_points(n, ranks)
        rows = [i for rank in range(ranks) for tile in deal.tiles_of(rank) for i in range(tile.start, tile.stop)]
        assert rows == list(range(n))
        assert [sum(map(len, deal.tiles_of(rank))) for rank in range(ranks)] == list(deal.row_counts)
        assert sum(deal.row_counts) == n
        assert sum(deal.block_counts) == len(deal.blocks)
        numbers = [b for rank in range(ranks) for b, _ in deal.blocks_of(rank)]
        assert numbers == list(range(len(deal.blocks)))
        assert max(deal.block_counts) - min(deal.block_counts) <= 1


def test_tiles_jobs_blocks_chunks_and_sample_are_those_of_one_rank(sizes: tuple[int, tuple[int, ...]]) -> None:
    """Only who computes them differs: this is what gives the same bits on any number of ranks."""
    alone = planned(*sizes, 1)
    for ranks in RANKS:
        p = planned(*sizes, ranks)
        for ours, theirs in ((p.all_units, alone.all_units), (p.last_units, alone.last_units)):
            assert {j for rank in ours.jobs for j in rank} == {j for rank in theirs.jobs for j in rank}
        assert p.train.blocks == alone.train.blocks
        assert p.validation.blocks == alone.validation.blocks
        assert p.chunks == alone.chunks
        assert_array_equal(p.sample, alone.sample)
        assert replace(p, ranks=1) == alone


def test_more_ranks_than_tiles() -> None:
    p = planned(5, (3,), 40)
    assert sum(bool(jobs) for jobs in p.all_units.jobs) == 2
    assert sorted(p.train.row_counts) == [0] * 39 + [5]
    assert len(p.all_units.jobs) == 40


def test_costs_are_dealt_in_balance() -> None:
    """One list over all layers: no rank has more than the largest job beyond another."""
    p = make_plan(Config(model=Model(hidden=[300, 100, 20, 100, 300])), 256, 256, 5000, 5000, 12)
    loads = [sum(job.cost for job in rank) for rank in p.all_units.jobs]
    largest = max(job.cost for rank in p.all_units.jobs for job in rank)
    assert max(loads) - min(loads) <= largest
    assert max(loads) <= 1.15 * np.mean(loads)


@pytest.mark.parametrize("n", [1, 2, 99, 100, 101, 5000])
def test_the_sample_is_spread_over_the_points(n: int) -> None:
    sample = planned(n, (3,), 1).sample
    assert len(sample) == min(n, plan.SAMPLE_POINTS)
    assert sample[0] == 0
    assert (np.diff(sample) > 0).all()
    assert sample[-1] <= n - 1
    if n > 1:
        assert np.diff(sample).max() - np.diff(sample).min() <= 1


@pytest.mark.parametrize("n", [1, 37, 512, 513, 5000])
def test_chunks_cover_the_points(n: int) -> None:
    rows = [i for chunk in planned(n, (3,), 1).chunks for i in range(chunk.start, chunk.stop)]
    assert rows == list(range(n))


@pytest.mark.parametrize("activation", FUNCTIONS)
def test_a_chain_of_dense_layers(activation: str) -> None:
    p = make_plan(Config(model=Model(hidden=[7, 5], activation=activation)), 4, 3, 37, 11, 1)  # type: ignore[arg-type]
    kinds = [m.spec()["kind"] for m in p.chain.maps]
    assert kinds == ["affine", "activation", "affine", "activation", "affine"]
    assert p.chain.site_sizes == (7, 5)
    assert p.chain.block_shapes == ((7, 5), (5, 8), (3, 6))
    assert (p.chain.n_in, p.chain.n_out) == (4, 3)
    assert [(s.n_in, s.n_out, s.blocks) for s in p.chain.segments] == [
        (4, 7, (0, None)),
        (7, 5, (1, None)),
        (5, 3, (2,)),
    ]
    assert p.activations == (activation, activation, "linear")


def test_what_the_config_says_reaches_the_parts() -> None:
    p = planned(
        37,
        (3,),
        1,
        penalty=Penalty(mu0=2.0, factor=3.0, mu_max=50.0, tolerance=0.2, ridge=0.7, ridge_scale="objective"),
        z_step=ZStep(iterations=2, relaxation=1.1, cg_iterations=9, cg_tolerance=0.3, halvings=4),
        w_step=WStep(iterations=5, cg_iterations=6, cg_tolerance=0.4, tolerance=0.6, halvings=7),
        run=Run(max_iterations=12),
    )
    assert (p.schedule.mu0, p.schedule.factor, p.schedule.mu_max) == (2.0, 3.0, 50.0)
    assert (p.schedule.tolerance, p.schedule.max_iterations) == (0.2, 12)
    assert (p.ridge.value, p.ridge.scale, p.ridge.until_mu) == (0.7, "objective", 1e4)
    z, w, last = p.z_solver, p.w_solvers[0], p.w_solvers[-1]
    assert (z.iterations, z.relaxation, z.cg_iterations, z.cg_tolerance, z.halvings) == (2, 1.1, 9, 0.3, 4)
    assert (w.iterations, w.cg_iterations, w.cg_tolerance, w.tolerance, w.halvings) == (5, 6, 0.4, 0.6, 7)
    assert last.activations == frozenset({"linear"})


# --- refusals ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Opaque(Affine):
    """An affine map that offers nothing."""

    capabilities: ClassVar[frozenset[str]] = frozenset()

    def spec(self) -> dict[str, Any]:
        return {**super().spec(), "kind": "opaque"}


def with_maps(monkeypatch: pytest.MonkeyPatch, *maps: Any) -> None:
    monkeypatch.setattr(plan, "build_chain", lambda model, n_in, n_out: Chain(maps, (2,)))


def test_a_need_that_a_map_does_not_offer_is_named_with_its_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    with_maps(monkeypatch, Affine(4, 3), Activation("tanh", 3), Opaque(3, 2))
    with pytest.raises(UsageError, match=r"'jacobian'; segment 2 \(opaque\) does not offer it"):
        planned(37, (3,), 1)


def test_a_w_solvers_need_is_named_with_its_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    class Seen(Opaque):
        capabilities: ClassVar[frozenset[str]] = frozenset({"jacobian"})

    with_maps(monkeypatch, Affine(4, 3), Activation("tanh", 3), Seen(3, 2))
    with pytest.raises(UsageError, match=r"W-solver of segment 2 needs '(units|linear)'"):
        planned(37, (3,), 1)
