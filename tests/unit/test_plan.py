"""A plan assigns every unit and every point to exactly one rank, and depends on the number of ranks in nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from covering import each
from numpy.testing import assert_allclose, assert_array_equal
from plans import plan_of, resolved_of

from macmpi.config import Config, Loss, Method, Model, Start, Stochastic, WStep, ZStep
from macmpi.config.model import Convolution, Recurrent
from macmpi.data.dataset import Dataset
from macmpi.data.scaling import Scaling
from macmpi.mac import Mac
from macmpi.methods.starts import Origin, start
from macmpi.parallel import tiles
from macmpi.parallel.points import partition_points
from macmpi.parallel.team import Team
from macmpi.plan.plan import Plan
from macmpi.plan.work_lists import Exchange, Gram, Job, Layer, WorkList
from macmpi.solvers.gradient_solvers import LBFGSW, SGDW
from macmpi.state import block_views

MIXED = ["none", "before", "after"]
SIZES = [(37, (7, 5)), (400, (40, 7, 100)), (5, (3,))]
RANKS = range(1, 14)


def planned(
    n: int, hidden: tuple[int, ...], ranks: int, sites: Any = "after", activation: Any = "sigmoid", **tables: Any
) -> Plan:
    return plan_of(
        Config(model=Model(list(hidden), activation, sites=sites), **{"method": Method("mac"), **tables}),
        4,
        33,
        n,
        11,
        ranks,
    )


sizes = each(SIZES, ids=str)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("sites", ["after", "none", "mixed"])
def test_every_weight_has_one_owner(sites: str, sizes: tuple[int, tuple[int, ...]], ranks: int) -> None:
    """Whether units are solved apart or segments whole."""
    p = planned(*sizes, ranks, sites=MIXED[: len(sizes[1])] if sites == "mixed" else sites)
    units = p.work.w_step
    assert len(weight_parts(units)) == ranks
    owners = np.zeros(p.offsets.weights[-1], dtype=int)
    for rank in weight_parts(units):
        for part in rank:
            owners[part] += 1
    assert_array_equal(owners, 1)
    assert p.offsets.weights[-1] == sum(h * d for h, d in p.chain.block_shapes)


@pytest.mark.parametrize("ranks", [1, 3, 13])
def test_parts_are_where_their_jobs_results_lie(sizes: tuple[int, tuple[int, ...]], ranks: int) -> None:
    p = planned(*sizes, ranks)
    flat = np.arange(p.offsets.weights[-1])
    views = block_views(flat, p.chain.block_shapes)
    for work_list in (p.work.w_step, p.work.regressions([len(p.chain.segments) - 1])):
        for rank, weights in enumerate(weight_parts(work_list)):
            assert weights == tuple(job.place for job in work_list.jobs_of(rank))
            for job in work_list.jobs_of(rank):
                (block,) = p.chain.segments[job.segment].parameter_blocks
                assert job.units is not None
                assert_array_equal(flat[job.place], views[block][job.units.rows].ravel())


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("model", "by_unit", "solvers"),
    [
        ({}, (True, True, True), ("GaussNewtonW", "GaussNewtonW", "ClosedForm")),
        ({"sites": "before"}, (True, True, True), ("ClosedForm", "ClosedForm", "ClosedForm")),
        ({"sites": "none"}, (False,), ("HessianFreeW",)),
        ({"sites": ["after", "none"]}, (True, False), ("GaussNewtonW", "HessianFreeW")),
        ({"activation": "softmax"}, (False, False, True), ("HessianFreeW",) * 2 + ("ClosedForm",)),
        ({"loss": "cross_entropy"}, (True, True, False), ("GaussNewtonW",) * 2 + ("HessianFreeW",)),
        *(
            ({"loss": loss}, (True, True, False), ("GaussNewtonW",) * 2 + ("HessianFreeW",))
            for loss in ("logistic", "poisson", "huber", "absolute")
        ),
        ({"output": "tanh"}, (True, True, True), ("GaussNewtonW",) * 3),
    ],
)
def test_auto_takes_units_apart_where_they_separate(
    model: dict[str, Any], by_unit: tuple[bool, ...], solvers: tuple[str, ...]
) -> None:
    config = Config(model=Model(hidden=[7, 5], **model), method=Method("mac"))
    p = plan_of(config, 4, 3, 37, 11, 1)
    assert tuple(r.by_unit for r in p.resolved.regressions.values()) == by_unit
    assert tuple(type(r.solver).__name__ for r in p.resolved.regressions.values()) == solvers


def test_squares_with_gaps_have_no_closed_form() -> None:
    """Each output has points of its own, so units share no Gram; those of other segments do."""
    config = Config(model=Model(hidden=[7, 5], sites="before"), method=Method("mac"), loss=Loss(missing=True))
    regressions = plan_of(config, 4, 3, 37, 11, 1).resolved.regressions
    assert [type(r.solver).__name__ for r in regressions.values()] == ["ClosedForm", "ClosedForm", "HessianFreeW"]
    assert regressions[2].system is None


@pytest.mark.parametrize("ranks", RANKS)
def test_every_gram_is_summed_up_once(sizes: tuple[int, tuple[int, ...]], ranks: int) -> None:
    """The first segment's inputs never change: its Gram is made once, apart from the others."""
    p = planned(*sizes, ranks)
    segments, made = range(len(p.chain.segments)), np.zeros(p.offsets.grams[-1], dtype=int)
    assert [gram.segment for gram in p.work.w_step.grams] == list(segments)[1:]
    assert [gram.segment for gram in p.work.first_gram.grams] == [0]
    assert [gram.segment for gram in p.work.regressions([segments[-1]]).grams] == [segments[-1]]
    assert not p.work.first_gram.jobs
    for work_list in (p.work.w_step, p.work.first_gram):
        assert not any(isinstance(task, Gram) for phase in work_list.phases for rank in phase.own for task in rank)
        assert not any(phase.joint for phase in work_list.phases[1:])
        assert work_list.phases[0].exchange == Exchange("grams")
        assert work_list.fresh == {gram.segment for gram in work_list.grams}
        for share in work_list.grams:
            made[share.place] += 1
            side = p.offsets.sides[share.segment]
            assert share.rows is None
            assert share.place.stop - share.place.start == side**2
            assert side == p.chain.segments[share.segment].n_in + 1
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
    for work_list, segments in ((p.work.w_step, (1, 2, 3)), (p.work.first_gram, (0,))):
        owners = np.zeros(p.offsets.grams[-1], dtype=int)
        for phase in work_list.phases:
            if phase.own and phase.exchange and phase.exchange.what == "grams":
                for rank, parts in zip(phase.own, phase.exchange.parts, strict=True):
                    assert parts == tuple(task.place for task in rank if isinstance(task, Gram))
        for gram in work_list.grams:
            owners[gram.place] += 1
        inside = np.concatenate([np.arange(p.offsets.grams[k], p.offsets.grams[k + 1]) for k in segments])
        assert_array_equal(np.flatnonzero(owners), inside)
        assert owners.max() == 1
    for k in range(4):
        shares, side = p.work.grams(k), p.offsets.sides[k]
        assert p.offsets.large(k) == (side > 8)
        if side <= 8:
            assert [share.rows for share in shares] == [None]
            continue
        assert [i for share in shares if share.rows for i in range(share.rows.start, share.rows.stop)] == [*range(side)]
        assert max(len(share.rows) for share in shares if share.rows) <= 3
        for share in shares:
            assert share.rows is not None
            assert share.place.start == p.offsets.grams[k] + share.rows.start * side
            assert share.place.stop - share.place.start == len(share.rows) * side
        costs = [share.cost / len(share.rows) for share in shares if share.rows]
        assert costs == sorted(costs, reverse=True), "a row of the upper half is the shorter the lower it lies"


def test_a_factor_made_by_rows_fits_the_same_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = []
    for whole in (512, 4):
        monkeypatch.setattr(tiles, "GRAM_WHOLE", whole)
        monkeypatch.setattr(tiles, "GRAM_ROWS", 3)
        mac, state = swept(Config(model=Model([9, 7], sites="before", activation="sigmoid"), method=Method("mac")), 2)
        assert (len(mac.plan.work.grams(1)) > 1) == (whole == 4)
        answers.append(state.weights)
    assert_allclose(answers[1], answers[0], rtol=1e-6, atol=1e-8)


def swept(config: Config, iterations: int) -> tuple[Mac, Any]:
    random, unit = np.random.default_rng(5), Scaling(np.zeros(4), np.ones(4))
    X, X_val = (random.normal(size=(n, 4)) for n in (40, 9))
    data = Dataset(X, X, X_val, X_val, unit, unit, "")
    mac = Mac(plan_of(config, 4, 4, 40, 9, 1), data, Team())
    state = start(mac, Origin())
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


@pytest.mark.parametrize(("sites", "given", "found"), [("after", 3, 3), ("both", 100, 37), ("none", 3, 1)])
def test_each_minibatch_of_coordinates_has_a_point(sites: Any, given: int, found: int) -> None:
    keys = {"model": Model([4], sites=sites), "z_step": ZStep(minibatches=given), "method": Method("mac")}
    assert plan_of(Config(**keys), 4, 3, 37, 11, 1).resolved.minibatches == found


@pytest.fixture(params=TRAINED)
def trained(request: pytest.FixtureRequest) -> tuple[dict[str, Any], list[int], list[int]]:
    return TRAINED[request.param]


def trainable(keys: dict[str, Any], ranks: int) -> Plan:
    return plan_of(Config(model=Model(**keys), start=Start("pca"), method=Method("mac")), 4, 33, 37, 11, ranks)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 12])
def test_regressions_and_trainers_share_the_weights_out(ranks: int, trained: Any) -> None:
    """Every weight is found once in a W-step and the layers before the first regression: on one rank, or on all."""
    keys, before, after = trained
    p = trainable(keys, ranks)
    owners = np.zeros(p.offsets.weights[-1], dtype=int)
    leading, trailing = p.work.leading(range(len(p.chain.segments))), p.work.trailing_layers
    for work_list, blocks in ((leading, before), (trailing, after)):
        assert sorted(layer.block for layer in layers_of(work_list)) == blocks
        copied = {f.block for f in layers_of(work_list) if p.resolved.trainers[f.block].copies and f.map == 0}
        for rank in range(ranks) if blocks else ():
            own = {layer.block: layer.place for layer in work_list.phases[0].own[rank]}
            assert copied <= own.keys()
            assert weight_parts(work_list)[rank] == tuple(place for b, place in own.items() if b not in copied)
        for layer in layers_of(work_list):
            assert layer.place == slice(p.offsets.weights[layer.block], p.offsets.weights[layer.block + 1])
            assert p.chain.segments[layer.segment].blocks[layer.map] == layer.block
            owners[layer.place] += 1
    for part in (part for rank in weight_parts(p.work.w_step) for part in rank):
        owners[part] += 1
    assert_array_equal(owners, 1)
    assert p.resolved.trainers.keys() == {*before, *after}


def test_layers_do_not_depend_on_the_ranks(trained: Any) -> None:
    keys, *_ = trained
    alone = trainable(keys, 1)
    for ranks in (2, 5):
        p = trainable(keys, ranks)
        for work_list, single in (
            (p.work.leading_layers, alone.work.leading_layers),
            (p.work.trailing_layers, alone.work.trailing_layers),
            (p.work.leading([len(p.chain.sites)]), alone.work.leading([len(p.chain.sites)])),
            (p.work.leading([0]), alone.work.leading([0])),
        ):
            assert layers_of(work_list) == layers_of(single)
        assert replace(p, ranks=1) == alone


@pytest.mark.parametrize("ranks", RANKS)
def test_every_point_has_one_owner(ranks: int) -> None:
    for n in (1, 5, 37, 400, 2000, 5000, 7000):
        points = partition_points(n, ranks)
        rows = [i for rank in range(ranks) for tile in points.tiles_of(rank) for i in range(tile.start, tile.stop)]
        assert rows == list(range(n))
        assert [sum(map(len, points.tiles_of(rank))) for rank in range(ranks)] == list(points.row_counts)
        assert sum(points.row_counts) == n
        assert sum(points.block_counts) == len(points.blocks)
        numbers = [b for rank in range(ranks) for b, _ in points.blocks_of(rank)]
        assert numbers == list(range(len(points.blocks)))
        assert max(points.block_counts) - min(points.block_counts) <= 1


def sorted_jobs(work_list: WorkList) -> list[Job]:
    return sorted(work_list.jobs, key=lambda job: job.place.start)


def weight_parts(work: WorkList) -> tuple[tuple[slice, ...], ...]:
    """Where the weights lie that each rank has found."""
    (found,) = (p.exchange.parts for p in work.phases if p.exchange and p.exchange.what == "weights")
    return found


def layers_of(work: WorkList) -> list[Any]:
    """The layers that trainers fit."""
    found = {layer.block: layer for layer in work.tasks if isinstance(layer, Layer)}
    return [found[block] for block in sorted(found)]


def loads_of(work: WorkList) -> list[list[float]]:
    """What each rank has of its own to do in each phase."""
    return [[sum(task.cost for task in rank) for rank in phase.own] for phase in work.phases if phase.own]


def test_tiles_jobs_and_blocks_are_those_of_one_rank(sizes: tuple[int, tuple[int, ...]]) -> None:
    """Only who computes them differs: this is what gives the same bits on any number of ranks."""
    alone = planned(*sizes, 1)
    for ranks in RANKS:
        p = planned(*sizes, ranks)
        for ours, theirs in (
            (p.work.w_step, alone.work.w_step),
            (p.work.regressions([0]), alone.work.regressions([0])),
        ):
            assert sorted_jobs(ours) == sorted_jobs(theirs)
        assert (p.work.train.tiles, p.work.train.blocks) == (alone.work.train.tiles, alone.work.train.blocks)
        assert p.work.validation.blocks == alone.work.validation.blocks
        assert replace(p, ranks=1) == alone


PAPER = Config(model=Model(hidden=[300, 100, 20, 100, 300], activation="sigmoid"), method=Method("mac"))


@pytest.mark.parametrize("ranks", [2, 5, 12])
def test_costs_are_assigned_in_balance(ranks: int) -> None:
    """All phases are nearly even."""
    loads = loads_of(plan_of(PAPER, 256, 256, 5000, 5000, ranks).work.w_step)
    assert sum(map(max, loads)) <= 1.08 * sum(map(sum, loads)) / ranks


@pytest.mark.parametrize("whole", [2, 8, 512])
def test_what_is_early_waits_for_no_rows(
    whole: int, sizes: tuple[int, tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And every job is done once, early or late."""
    monkeypatch.setattr(tiles, "GRAM_WHOLE", whole)
    for ranks in RANKS:
        assert_early_waits_for_no_rows(sizes, ranks)


def assert_early_waits_for_no_rows(sizes: tuple[int, tuple[int, ...]], ranks: int) -> None:
    p = planned(*sizes, ranks, sites="before")
    for work_list in (
        p.work.w_step,
        p.work.regressions([len(p.chain.segments) - 1]),
        p.work.regressions([0]),
    ):
        waited_for = {gram.segment for gram in work_list.grams if gram.rows is not None}
        assert waited_for == {k for k in work_list.fresh if p.offsets.large(k)}
        *_, early, late = (*((),) * 2, *(phase.own for phase in work_list.phases if phase.own))
        if waited_for:
            assert not {task.segment for rank in early for task in rank if isinstance(task, Job)} & waited_for
        assert all(isinstance(task, Job) for rank in late for task in rank)
        assert sorted_jobs(work_list) == [j for k in sorted(work_list.segments) for j in p.work.jobs(k)]


def test_a_rank_with_many_rows_has_few_early_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows and early jobs are assigned jointly: no rank has much more of both than another."""
    monkeypatch.setattr(tiles, "GRAM_WHOLE", 100)
    for ranks in (3, 5, 8):
        work = plan_of(PAPER, 256, 256, 5000, 5000, ranks).work.w_step
        loads, _ = loads_of(work)
        assert any(isinstance(task, Job) for rank in work.phases[1].own for task in rank)
        assert max(loads) <= 1.15 * sum(loads) / ranks


def test_every_solver_of_the_config_gets_the_keys_that_it_knows() -> None:
    sgd = planned(37, (3,), 1, w_step=WStep("sgd", iterations=2, batch=9, rate=0.3, momentum=0.5))
    assert sgd.resolved.regressions[0].solver == SGDW(2, 9, 0.3, 0.5)
    lbfgs = planned(37, (3,), 1, w_step=WStep("lbfgs", "same", iterations=4, tolerance=0.2))
    assert [r.solver for r in lbfgs.resolved.regressions.values()] == [LBFGSW(4, 0.2)] * 2


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_minibatches_are_shared_where_that_is_worth_an_exchange(ranks: int) -> None:
    """By the sizes of net and minibatch, never by the ranks: another number of parts gives other bits."""

    def parts(hidden: tuple[int, ...], n: int = 5000, **keys: Any) -> int:
        return planned(n, hidden, ranks, method=Method("stochastic"), stochastic=Stochastic(**keys)).minibatch_parts

    assert parts((50,)) == 1
    assert parts((300, 300)) == 2
    assert parts((50,), batch=500, batch_max=500) == 1
    assert parts((200,), batch=4000, batch_max=4000) == 2
    assert parts((50,), parts=3) == parts((300, 300), parts=3) == 3
    assert parts((50,), n=3, parts=40) == 3
    assert planned(5000, (50,), ranks).minibatch_parts == 0


@pytest.mark.parametrize(
    ("n_out", "loss", "share", "few"), [(4, "squared", 20, 0), (3, "squared", 20, 128), (3, "cross_entropy", 10, 256)]
)
def test_minibatches_grow_where_they_are_few_or_the_targets_are_the_inputs(
    n_out: int, loss: Any, share: int, few: int
) -> None:
    """With other targets an epoch keeps its first number of minibatches, unless they have at most `few` points."""
    config = Config(model=Model([5], loss=loss), method=Method("stochastic"))
    for n in (10, 200, 700, 1500, 2600, 6000, 25_000, 100_000):
        of = resolved_of(config, 4, n_out, n, 11)
        sizes = [of.minibatch(n, epoch) for epoch in range(40)]
        assert sizes == sorted(sizes)
        assert sizes[0] == min(250, max(n // share, 32))
        most = n // 5 if not few else max(n // share, min(n // 5, few))
        assert sizes[-1] == max(min(most, 1000, 10 * sizes[0]), 32)
        for layer, image in ((Recurrent(5, 2), []), (Convolution(3, 2), [2, 2])):
            model = Model([layer], loss=loss, image=image)
            shared = resolved_of(replace(config, model=model), 4, n_out, n, 11)
            assert {shared.minibatch(n, epoch) for epoch in range(40)} == {sizes[0]}
