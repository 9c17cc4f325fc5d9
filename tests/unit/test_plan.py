"""A plan deals every unit and every point to exactly one rank, and depends on the number of ranks in nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from macmpi import plan
from macmpi.config import Config, Model, Penalty, Run, WStep, ZStep
from macmpi.layers.activation import FUNCTIONS
from macmpi.plan import Deal, Job, Plan, deal_points, make_plan
from macmpi.solvers import W_SOLVERS, Z_SOLVERS
from macmpi.solvers.closed_form import ClosedForm
from macmpi.solvers.w_descent import LBFGSW
from macmpi.solvers.w_gauss_newton import GaussNewtonW
from macmpi.solvers.w_sgd import SGDW
from macmpi.solvers.z_descent import LBFGSZ
from macmpi.solvers.z_gauss_newton import GaussNewtonZ
from macmpi.state import block_views

MIXED = ["none", "before", "after"]
WHOLE = {name for name, kind in W_SOLVERS.items() if "segment" in kind.takes}  # type: ignore[attr-defined]
SIZES = [(37, (7, 5)), (400, (40, 7, 100)), (5, (3,))]
RANKS = range(1, 14)


def planned(n: int, hidden: tuple[int, ...], ranks: int, sites: Any = "after", **tables: Any) -> Plan:
    return make_plan(Config(model=Model(hidden=list(hidden), sites=sites), **tables), 4, 33, n, 11, ranks)


@pytest.fixture(params=SIZES, ids=str)
def sizes(request: pytest.FixtureRequest) -> tuple[int, tuple[int, ...]]:
    return request.param  # type: ignore[no-any-return]


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("sites", ["after", "none", "mixed"])
def test_every_weight_has_one_owner(sites: str, sizes: tuple[int, tuple[int, ...]], ranks: int) -> None:
    """Whether units are solved apart or segments whole."""
    p = planned(*sizes, ranks, sites=MIXED[: len(sizes[1])] if sites == "mixed" else sites)
    units = p.all_units
    assert len(units.jobs) == len(units.weight_parts) == ranks
    owners = np.zeros(p.weight_bounds[-1], dtype=int)
    for rank in units.weight_parts:
        for part in rank:
            owners[part] += 1
    assert_array_equal(owners, 1)
    assert p.weight_bounds[-1] == sum(h * d for h, d in p.chain.block_shapes)


@pytest.mark.parametrize("ranks", [1, 3, 13])
def test_parts_are_where_their_jobs_results_lie(sizes: tuple[int, tuple[int, ...]], ranks: int) -> None:
    p = planned(*sizes, ranks)
    flat = np.arange(p.weight_bounds[-1])
    views = block_views(flat, p.chain.block_shapes)
    for deal in (p.all_units, p.last_units):
        for jobs, weights in zip(deal.jobs, deal.weight_parts, strict=True):
            assert weights == tuple(job.place for job in jobs)
            for job in jobs:
                (block,) = p.chain.segments[job.segment].weighted
                assert job.units is not None
                assert_array_equal(flat[job.place], views[block][job.units.rows].ravel())


def test_a_segment_solved_whole_is_one_job_over_all_its_blocks() -> None:
    p = planned(37, (7, 5, 6), 2, sites=["none", "after", "none"])
    flat = np.arange(p.weight_bounds[-1])
    views = block_views(flat, p.chain.block_shapes)
    jobs = sorted((job for rank in p.all_units.jobs for job in rank), key=lambda job: job.segment)
    assert [(job.segment, job.units) for job in jobs] == [(0, None), (1, None)]
    for job, blocks in zip(jobs, ((0, 1), (2, 3)), strict=True):
        assert p.chain.segments[job.segment].weighted == blocks
        assert p.shapes(job.segment) == tuple(p.chain.block_shapes[b] for b in blocks)
        assert_array_equal(flat[job.place], np.concatenate([views[b].ravel() for b in blocks]))


@pytest.mark.parametrize(
    ("model", "by_unit", "solvers"),
    [
        ({}, (True, True, True), ("GaussNewtonW", "GaussNewtonW", "ClosedForm")),
        ({"sites": "before"}, (True, True, True), ("ClosedForm", "ClosedForm", "ClosedForm")),
        ({"sites": "none"}, (False,), ("HessianFreeW",)),
        ({"sites": ["after", "none"]}, (True, False), ("GaussNewtonW", "HessianFreeW")),
        ({"activation": "softmax"}, (False, False, True), ("HessianFreeW",) * 2 + ("ClosedForm",)),
        ({"loss": "cross_entropy"}, (True, True, False), ("GaussNewtonW",) * 2 + ("HessianFreeW",)),
        ({"output": "tanh"}, (True, True, True), ("GaussNewtonW",) * 3),
    ],
)
def test_auto_takes_units_apart_where_they_separate(
    model: dict[str, Any], by_unit: tuple[bool, ...], solvers: tuple[str, ...]
) -> None:
    config = Config(model=Model(hidden=[7, 5], **model))
    p = make_plan(config, 4, 3, 37, 11, 1)
    assert p.by_unit == by_unit
    assert tuple(solver.__class__.__name__ for solver in p.w_solvers) == solvers


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
    assert {job.segment for job in jobs} == {len(p.chain.segments) - 1}
    assert sum(len(job.units) for job in jobs if job.units) == 33


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


def sorted_jobs(deal: Deal) -> list[Job]:
    return sorted((job for rank in deal.jobs for job in rank), key=lambda job: job.place.start)


def test_tiles_jobs_blocks_chunks_and_sample_are_those_of_one_rank(sizes: tuple[int, tuple[int, ...]]) -> None:
    """Only who computes them differs: this is what gives the same bits on any number of ranks."""
    alone = planned(*sizes, 1)
    for ranks in RANKS:
        p = planned(*sizes, ranks)
        for ours, theirs in ((p.all_units, alone.all_units), (p.last_units, alone.last_units)):
            assert sorted_jobs(ours) == sorted_jobs(theirs)
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
    assert [s.activation for s in p.chain.segments] == [activation, activation, "linear"]


def test_softmax_is_a_map_of_its_own_and_sites_go_where_the_list_puts_them() -> None:
    model = Model(hidden=[7, 5, 6], activation=["softmax", "tanh", "relu"], sites=["after", "none", "before"])
    p = make_plan(Config(model=model), 4, 3, 37, 11, 1)
    kinds = [m.spec()["kind"] for m in p.chain.maps]
    assert kinds == ["affine", "softmax", "affine", "activation", "affine", "activation", "affine"]
    assert p.chain.sites == (2, 5)
    assert p.chain.site_sizes == (7, 6)
    assert [s.weighted for s in p.chain.segments] == [(0,), (1, 2), (3,)]
    assert p.chain.layer_sizes == (4, 7, 5, 6, 3)
    assert p.chain.layer_ends == (2, 4, 5)


def test_what_the_config_says_reaches_the_parts() -> None:
    p = planned(
        37,
        (3,),
        1,
        penalty=Penalty(
            *("quadratic", 2.0, 3.0, 50.0, 0.2),
            tolerance_decay=0.5,
            site_weights=[4.0],
            ridge=0.7,
            ridge_scale="objective",
        ),
        z_step=ZStep(
            *("gauss_newton", "primal"),
            iterations=2,
            relaxation=1.1,
            cg_iterations=9,
            cg_tolerance=0.3,
            forcing=0.8,
            halvings=4,
        ),
        w_step=WStep(
            iterations=5,
            relaxation=1.2,
            cg_iterations=6,
            cg_tolerance=0.4,
            forcing=0.9,
            tolerance=0.6,
            halvings=7,
            factor_every=3,
        ),
        run=Run(max_iterations=12),
    )
    assert (p.schedule.mu0, p.schedule.factor, p.schedule.mu_max) == (2.0, 3.0, 50.0)
    assert (p.schedule.tolerance, p.schedule.tolerance_decay, p.schedule.max_iterations) == (0.2, 0.5, 12)
    assert (p.site_weights, p.forcing, p.factor_every, p.metric) == ((4.0,), (0.8, 0.9), 3, "identity")
    assert (p.ridge.value, p.ridge.scale, p.ridge.until_mu) == (0.7, "objective", 1e4)
    z, w, last = p.z_solver, p.w_solvers[0], p.w_solvers[-1]
    assert z == GaussNewtonZ(2, "primal", 1.1, 9, 0.3, 4)
    assert w == GaussNewtonW(5, 1.2, 6, 0.4, 0.6, 7)
    assert last == ClosedForm(1.2)


def test_every_solver_of_the_config_gets_the_keys_that_it_knows() -> None:
    keys = {"iterations": 4, "halvings": 3, "memory": 2}
    assert planned(37, (3,), 1, z_step=ZStep("lbfgs", **keys)).z_solver == LBFGSZ(4, 3, memory=2)
    sgd = planned(37, (3,), 1, w_step=WStep("sgd", iterations=2, batch=9, rate=0.3, momentum=0.5))
    assert sgd.w_solvers[0] == SGDW(2, 9, 0.3, 0.5)
    lbfgs = planned(37, (3,), 1, w_step=WStep("lbfgs", "same", tolerance=0.2, **keys))
    assert lbfgs.w_solvers == (LBFGSW(4, 0.2, 3, 2),) * 2


@pytest.mark.parametrize("name", Z_SOLVERS)
def test_0_iterations_are_the_z_solvers_own(name: Any) -> None:
    config = ZStep(name)
    assert planned(37, (3,), 1, z_step=config).z_solver.iterations == Z_SOLVERS[name]().iterations >= 1


@pytest.mark.parametrize("name", sorted(W_SOLVERS.keys() - {"closed_form"}))
def test_0_iterations_are_the_w_solvers_own(name: Any) -> None:
    solver = planned(37, (3,), 1, sites="none" if name in WHOLE else "after", w_step=WStep(name)).w_solvers[0]
    assert solver.iterations == W_SOLVERS[name]().iterations >= 1
