"""A plan deals every unit and every point to exactly one rank, and depends on the number of ranks in nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from macmpi.config import Config, Model, Penalty, Run, Start, WStep, ZStep
from macmpi.data.dataset import Dataset, Scaling
from macmpi.mac import Mac
from macmpi.methods.starts import Origin, start
from macmpi.nets.layers.activation import FUNCTIONS
from macmpi.parallel import tiles
from macmpi.parallel.clock import Clock
from macmpi.parallel.partition import partition_points
from macmpi.parallel.serial import Serial
from macmpi.plan.plan import Plan, make_plan
from macmpi.plan.work_lists import Job, WorkList
from macmpi.solvers import W_SOLVERS, Z_SOLVERS, Thresholded
from macmpi.solvers.closed_form import ClosedForm
from macmpi.solvers.w_descent import LBFGSW
from macmpi.solvers.w_gauss_newton import GaussNewtonW
from macmpi.solvers.w_sgd import SGDW
from macmpi.solvers.z_binary import BinaryZ
from macmpi.solvers.z_gauss_newton import GaussNewtonZ
from macmpi.state import block_views

MIXED = ["none", "before", "after"]
WHOLE = {name for name, kind in W_SOLVERS.items() if "segment" in kind.takes}  # type: ignore[attr-defined]
SIZES = [(37, (7, 5)), (400, (40, 7, 100)), (5, (3,))]
RANKS = range(1, 14)


def planned(
    n: int, hidden: tuple[int, ...], ranks: int, sites: Any = "after", activation: Any = "sigmoid", **tables: Any
) -> Plan:
    return make_plan(Config(model=Model(list(hidden), activation, sites=sites), **tables), 4, 33, n, 11, ranks)


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
    for deal in (p.all_units, p.deal([len(p.chain.segments) - 1])):
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
def test_every_gram_is_summed_up_once(sizes: tuple[int, tuple[int, ...]], ranks: int) -> None:
    """The first segment's inputs never change: its Gram is made once, apart from the others."""
    p = planned(*sizes, ranks)
    segments, made = range(len(p.chain.segments)), np.zeros(p.shared_bounds[-1], dtype=int)
    assert [share.segment for share in p.all_units.summed] == list(segments)[1:]
    assert [share.segment for share in p.first_gram.summed] == [0]
    assert [share.segment for share in p.deal([segments[-1]]).summed] == [segments[-1]]
    assert not any(p.first_gram.jobs)
    for deal in (p.all_units, p.first_gram):
        assert not any(deal.shares)
        assert not any(deal.early)
        assert not any(deal.shared_parts)
        assert deal.fresh == {share.segment for share in deal.summed}
        for share in deal.summed:
            made[share.place] += 1
            rows, columns = p.shared_shape(share.segment)
            assert share.rows is None
            assert share.place.stop - share.place.start == rows * columns
            assert columns == p.chain.segments[share.segment].n_in + 1
    assert_array_equal(made, 1)


# --- Grams by rows -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 12])
@pytest.mark.parametrize("sites", ["before", "after"])
def test_large_grams_are_cut_into_rows_and_each_has_one_owner(
    sites: str, ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are summed up whole."""
    monkeypatch.setattr(tiles, "GRAM_WHOLE", 8)
    monkeypatch.setattr(tiles, "GRAM_ROWS", 3)
    p = planned(50, (7, 20, 9), ranks, sites=sites)
    for deal, segments in ((p.all_units, (1, 2, 3)), (p.first_gram, (0,))):
        owners = np.zeros(p.shared_bounds[-1], dtype=int)
        for rank, parts in zip(deal.shares, deal.shared_parts, strict=True):
            assert parts == tuple(share.place for share in rank)
            for share in rank:
                owners[share.place] += 1
        for share in deal.summed:
            owners[share.place] += 1
        inside = np.concatenate([np.arange(p.shared_bounds[k], p.shared_bounds[k + 1]) for k in segments])
        assert_array_equal(np.flatnonzero(owners), inside)
        assert owners.max() == 1
    for k in range(4):
        shares, (rows, width) = p.shares(k), p.shared_shape(k)
        assert p.large(k) == (width > 8)
        if width <= 8:
            assert [share.rows for share in shares] == [None]
            continue
        assert [i for share in shares if share.rows for i in range(share.rows.start, share.rows.stop)] == [*range(rows)]
        assert max(len(share.rows) for share in shares if share.rows) <= 3
        for share in shares:
            assert share.rows is not None
            assert share.place.start == p.shared_bounds[k] + share.rows.start * width
            assert share.place.stop - share.place.start == len(share.rows) * width
        costs = [share.cost / len(share.rows) for share in shares if share.rows]
        assert costs == sorted(costs, reverse=True), "a row of the upper half is the shorter the lower it lies"


def test_which_rows_there_are_does_not_depend_on_the_ranks() -> None:
    """And the real limits: a Gram of 601 columns is cut into 7 parts, one of 513 into 6, one of 512 is whole."""
    for units, parts in ((600, 7), (512, 6), (511, 1)):
        for ranks in (1, 5):
            p = planned(50, (units, 3), ranks, sites="before")
            assert len(p.shares(1)) == parts
            every = (*p.all_units.summed, *(share for rank in p.all_units.shares for share in rank))
            dealt = [share for share in every if share.segment == 1]
            assert sorted(dealt, key=lambda share: share.place.start) == p.shares(1)


def test_a_factor_made_by_rows_fits_the_same_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = []
    for whole in (512, 4):
        monkeypatch.setattr(tiles, "GRAM_WHOLE", whole)
        monkeypatch.setattr(tiles, "GRAM_ROWS", 3)
        mac, state = swept(Config(model=Model([9, 7], sites="before")), 2)
        assert (len(mac.plan.shares(1)) > 1) == (whole == 4)
        answers.append(state.weights)
    assert_allclose(answers[1], answers[0], rtol=1e-6, atol=1e-8)


def swept(config: Config, iterations: int) -> tuple[Mac, Any]:
    random, unit = np.random.default_rng(5), Scaling(np.zeros(4), np.ones(4))
    X, X_val = (random.normal(size=(n, 4)) for n in (40, 9))
    data = Dataset(X, X, X_val, X_val, unit, unit, "")
    mac = Mac(make_plan(config, 4, 4, 40, 9, 1), data, Serial(), Clock())
    state = start(mac, config, Origin())
    mac.begin(state)
    for _ in range(iterations):
        mac.sweep(state)
    return mac, state


# --- layers that trainers fit -----------------------------------------------------------------------------------------

BASIS = {"activation": ["rbf", "linear", "rbf"], "sites": ["none", "after", "none"]}
TRAINED: dict[str, tuple[dict[str, Any], list[int], list[int]]] = {
    # model keys, and the parameter blocks that trainers fit before and after the regressions
    "radial basis functions": ({"hidden": [6, 2, 7], **BASIS}, [0, 2], []),
    "subset and k-means": ({"hidden": [6, 2, 7], "centres": ["subset", "kmeans"], **BASIS}, [0, 2], []),
    "points and subset": ({"hidden": [37, 2, 7], "centres": ["points", "subset"], **BASIS}, [0, 2], []),
    "codewords": ({"hidden": [4, 3], "activation": ["quantise", "tanh"], "words": 5}, [], [1]),
    "both": (
        {"hidden": [6, 2, 7], **BASIS, "activation": ["rbf", "quantise", "rbf"], "words": 5, "centres": "subset"},
        *([0, 3], [2]),
    ),
    "none": ({"hidden": [4, 3]}, [], []),
}


@pytest.fixture(params=TRAINED)
def trained(request: pytest.FixtureRequest) -> tuple[dict[str, Any], list[int], list[int]]:
    return TRAINED[request.param]


def trainable(keys: dict[str, Any], ranks: int) -> Plan:
    return make_plan(Config(model=Model(**keys), start=Start("pca")), 4, 33, 37, 11, ranks)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 12])
def test_regressions_and_trainers_share_the_weights_out(ranks: int, trained: Any) -> None:
    """Every weight is found once in a W-step and the layers before the first regression: on one rank, or on all."""
    keys, before, after = trained
    p = trainable(keys, ranks)
    owners = np.zeros(p.weight_bounds[-1], dtype=int)
    leading, trailing = p.leading(range(len(p.chain.segments))), p.trailing_layers
    for deal, blocks in ((leading, before), (trailing, after)):
        layers = [*deal.copied, *(layer for rank in deal.fitted for layer in rank)]
        assert sorted(layer.block for layer in layers) == blocks
        assert len(deal.fitted) == len(deal.parts) == ranks
        assert deal.parts == tuple(tuple(layer.place for layer in rank) for rank in deal.fitted)
        for layer in layers:
            assert layer.place == slice(p.weight_bounds[layer.block], p.weight_bounds[layer.block + 1])
            assert p.chain.segments[layer.segment].blocks[layer.map] == layer.block
            assert (layer in deal.copied) == (p.trainers[layer.block].copies and layer.map == 0)
            owners[layer.place] += 1
    for part in (part for rank in p.all_units.weight_parts for part in rank):
        owners[part] += 1
    assert_array_equal(owners, 1)
    assert p.trainers.keys() == {*before, *after}


def test_layers_do_not_depend_on_the_ranks(trained: Any) -> None:
    keys, *_ = trained
    alone = trainable(keys, 1)
    for ranks in (2, 5):
        p = trainable(keys, ranks)
        for deal, single in (
            (p.leading_layers, alone.leading_layers),
            (p.trailing_layers, alone.trailing_layers),
            (p.leading([len(p.chain.sites)]), alone.leading([len(p.chain.sites)])),
            (p.leading([0]), alone.leading([0])),
        ):
            assert deal.copied == single.copied
            dealt = sorted((layer for rank in deal.fitted for layer in rank), key=lambda layer: layer.block)
            assert dealt == list(single.fitted[0])
        assert replace(p, ranks=1) == alone


def test_the_w_step_trains_the_layers_whose_inputs_change() -> None:
    p = trainable(TRAINED["radial basis functions"][0], 1)
    assert [layer.block for layer in p.leading([0]).fitted[0]] == [0]
    assert [layer.block for layer in p.leading_layers.fitted[0]] == [2]
    assert [layer.block for layer in p.leading([len(p.chain.sites)]).fitted[0]] == [2]
    assert not p.trailing_layers.fitted[0]


def test_layers_that_have_weights_already_are_not_untrained() -> None:
    p = trainable(TRAINED["codewords"][0], 2)
    weights = np.zeros(p.weight_bounds[-1])
    assert [layer.block for rank in p.untrained(0, weights).fitted for layer in rank] == [1]
    weights[p.weight_bounds[1]] = 1.0
    found = p.untrained(0, weights)
    assert not any(found.fitted) and not any(found.parts)


def test_what_a_plan_says_of_its_layers() -> None:
    p = trainable(TRAINED["both"][0], 1)
    assert [m.spec()["kind"] for m in p.chain.maps] == ["rbf", "linear", "quantiser", "rbf", "linear", "activation"][:5]
    assert [p.has_bias(k) for k in range(2)] == [False, False]
    assert [p.shapes(k) for k in range(2)] == [((2, 6),), ((33, 7),)]
    assert [s.n_in for s in p.features] == [6, 7]
    assert [m.spec()["kind"] for m in p.hidden] == ["rbf", "linear", "rbf"]
    assert p.basis_sizes == [6, 7]
    assert (p.has_basis, p.chain.differentiable) == (True, False)
    dense = trainable(TRAINED["none"][0], 1)
    assert (dense.has_basis, dense.chain.differentiable, dense.basis_sizes) == (False, True, [])
    assert [dense.has_bias(k) for k in range(3)] == [True] * 3
    assert [m.n_out for m in dense.hidden] == [4, 3]
    bits = make_plan(Config(model=Model([4, 3], ["binary", "tanh"], sites=["after", "none"])), 4, 3, 37, 11, 1)
    assert (bits.chain.differentiable, bits.by_unit) == (False, (True, False))
    assert isinstance(bits.w_solvers[0], Thresholded) and isinstance(bits.z_solver, BinaryZ)


@pytest.mark.parametrize("ranks", [1, 4, 13])
def test_the_refit_is_of_the_last_layer_alone(sizes: tuple[int, tuple[int, ...]], ranks: int) -> None:
    p = planned(*sizes, ranks)
    jobs = [job for rank in p.deal([len(p.chain.segments) - 1]).jobs for job in rank]
    assert {job.segment for job in jobs} == {len(p.chain.segments) - 1}
    assert sum(len(job.units) for job in jobs if job.units) == 33


@pytest.mark.parametrize("ranks", RANKS)
def test_every_point_has_one_owner(ranks: int) -> None:
    for n in (1, 5, 37, 400, 2000, 5000, 7000):
        deal = partition_points(n, ranks)
        rows = [i for rank in range(ranks) for tile in deal.tiles_of(rank) for i in range(tile.start, tile.stop)]
        assert rows == list(range(n))
        assert [sum(map(len, deal.tiles_of(rank))) for rank in range(ranks)] == list(deal.row_counts)
        assert sum(deal.row_counts) == n
        assert sum(deal.block_counts) == len(deal.blocks)
        numbers = [b for rank in range(ranks) for b, _ in deal.blocks_of(rank)]
        assert numbers == list(range(len(deal.blocks)))
        assert max(deal.block_counts) - min(deal.block_counts) <= 1


def sorted_jobs(deal: WorkList) -> list[Job]:
    return sorted((job for rank in deal.jobs for job in rank), key=lambda job: job.place.start)


def test_tiles_jobs_and_blocks_are_those_of_one_rank(sizes: tuple[int, tuple[int, ...]]) -> None:
    """Only who computes them differs: this is what gives the same bits on any number of ranks."""
    alone = planned(*sizes, 1)
    for ranks in RANKS:
        p = planned(*sizes, ranks)
        for ours, theirs in ((p.all_units, alone.all_units), (p.deal([0]), alone.deal([0]))):
            assert sorted_jobs(ours) == sorted_jobs(theirs)
        assert p.train.blocks == alone.train.blocks
        assert p.validation.blocks == alone.validation.blocks
        assert replace(p, ranks=1) == alone


def test_more_ranks_than_tiles() -> None:
    p = planned(5, (3,), 40)
    assert sum(bool(jobs) for jobs in p.all_units.jobs) == 2
    assert sorted(p.train.row_counts) == [0] * 39 + [5]
    assert len(p.all_units.jobs) == 40


PAPER = Config(model=Model(hidden=[300, 100, 20, 100, 300]))


@pytest.mark.parametrize("ranks", [2, 5, 12])
def test_costs_are_dealt_in_balance(ranks: int) -> None:
    """Both rounds together are nearly even."""
    deal = make_plan(PAPER, 256, 256, 5000, 5000, ranks).all_units
    first = [sum(item.cost for item in (*a, *b)) for a, b in zip(deal.shares, deal.early, strict=True)]
    second = [sum(job.cost for job in rank) for rank in deal.late]
    assert max(first) + max(second) <= 1.08 * (sum(first) + sum(second)) / ranks


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("whole", [2, 8, 512])
def test_what_is_early_waits_for_no_rows(
    whole: int, sizes: tuple[int, tuple[int, ...]], ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And every job is done once, early or late."""
    monkeypatch.setattr(tiles, "GRAM_WHOLE", whole)
    p = planned(*sizes, ranks, sites="before")
    for deal in (p.all_units, p.deal([len(p.chain.segments) - 1]), p.deal([0])):
        assert deal.jobs == tuple(a + b for a, b in zip(deal.early, deal.late, strict=True))
        waited_for = {share.segment for rank in deal.shares for share in rank}
        assert waited_for == {k for k in deal.fresh if p.large(k)}
        assert not {job.segment for rank in deal.early for job in rank} & waited_for
        done = [job for rank in deal.jobs for job in rank]
        assert sorted(done, key=lambda j: j.place.start) == [j for k in sorted(deal.segments) for j in p.jobs(k)]


def test_a_rank_with_many_rows_has_few_early_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows and early jobs are dealt together: no rank has much more of both than another."""
    monkeypatch.setattr(tiles, "GRAM_WHOLE", 100)
    for ranks in (3, 5, 8):
        deal = make_plan(PAPER, 256, 256, 5000, 5000, ranks).all_units
        loads = [sum(i.cost for i in (*a, *b)) for a, b in zip(deal.shares, deal.early, strict=True)]
        assert any(deal.early)
        assert max(loads) <= 1.15 * sum(loads) / ranks


def test_a_net_of_many_tiles_is_dealt_at_once() -> None:
    deal = make_plan(Config(model=Model(hidden=[4000] * 8)), 256, 256, 5000, 5000, 64).all_units
    assert sum(len(rank) for rank in deal.jobs) > 800


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
            *("quadratic", 2.0, 3.0, 50.0),
            mu_every=4,
            tolerance=0.2,
            tolerance_decay=0.5,
            ridge=0.7,
            ridge_scale="objective",
        ),
        z_step=ZStep(
            "gauss_newton",
            iterations=2,
            relaxation=1.1,
            cg_iterations=9,
            cg_tolerance=0.3,
        ),
        w_step=WStep(
            iterations=5,
            relaxation=1.2,
            cg_iterations=6,
            cg_tolerance=0.4,
            cg_precision="single",
            tolerance=0.6,
        ),
        run=Run(max_iterations=12),
    )
    assert (p.schedule.mu0, p.schedule.factor, p.schedule.mu_max) == (2.0, 3.0, 50.0)
    assert (p.schedule.tolerance, p.schedule.tolerance_decay, p.schedule.max_iterations) == (0.2, 0.5, 12)
    assert p.schedule.every == 4
    assert p.metric == "identity"
    assert (p.ridge.value, p.ridge.scale, p.ridge.until_mu) == (0.7, "objective", 1e4)
    z, w, last = p.z_solver, p.w_solvers[0], p.w_solvers[-1]
    assert z == GaussNewtonZ(2, 1.1, 9, 0.3)
    assert w == GaussNewtonW(5, 1.2, 6, 0.4, "single", 0.6)
    assert last == ClosedForm(1.2)
    assert p.plain_solvers == (GaussNewtonW(5, 1.0, 6, 0.4, "single", 0.6), ClosedForm())


def test_every_solver_of_the_config_gets_the_keys_that_it_knows() -> None:
    sgd = planned(37, (3,), 1, w_step=WStep("sgd", iterations=2, batch=9, rate=0.3, momentum=0.5))
    assert sgd.w_solvers[0] == SGDW(2, 9, 0.3, 0.5)
    lbfgs = planned(37, (3,), 1, w_step=WStep("lbfgs", "same", iterations=4, tolerance=0.2))
    assert lbfgs.w_solvers == (LBFGSW(4, 0.2),) * 2


@pytest.mark.parametrize("name", Z_SOLVERS)
def test_0_iterations_are_the_z_solvers_own(name: Any) -> None:
    activation = "binary" if Z_SOLVERS[name].bits else "sigmoid"  # type: ignore[attr-defined]
    solver = planned(37, (3,), 1, activation=activation, z_step=ZStep(name)).z_solver
    assert solver.iterations == Z_SOLVERS[name]().iterations >= 1  # type: ignore[attr-defined]


def test_auto_takes_the_z_solver_of_bits_where_there_are_bits() -> None:
    assert planned(37, (3,), 1, activation="binary", z_step=ZStep(iterations=7)).z_solver == BinaryZ(7)
    assert planned(37, (3,), 1).z_solver == GaussNewtonZ()


@pytest.mark.parametrize("name", sorted(W_SOLVERS.keys() - {"closed_form"}))
def test_0_iterations_are_the_w_solvers_own(name: Any) -> None:
    solver = planned(37, (3,), 1, sites="none" if name in WHOLE else "after", w_step=WStep(name)).w_solvers[0]
    assert solver.iterations == W_SOLVERS[name]().iterations >= 1
