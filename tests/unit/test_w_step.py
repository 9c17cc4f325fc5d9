"""The parts of a W-step: regressions descend and write where their work list says, on any number of ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from plans import plan_of
from theory.nets import anywhere, layers, method, of_sites
from theory.problems import w_problem
from tolerance import gamma
from unit.crew import crew

from macmpi.config import Config, Method, Model, WStep
from macmpi.half_steps import w_step
from macmpi.half_steps.w_step import keep_better, solve
from macmpi.mac import Mac
from macmpi.parallel import tiles
from macmpi.parallel.team import Team
from macmpi.plan.work_lists import Gram, Job, Layer, WorkList
from macmpi.solvers.w_problem import values
from macmpi.state import MacState, State
from macmpi.typing import Array

NETS: dict[str, dict[str, Any]] = {
    "units": {},
    "before": {"sites": "before"},
    "descent": {"w_step": {"solver": "lbfgs"}},
    "minibatches": {"w_step": {"solver": "sgd"}},
    "classes": {"loss": "cross_entropy"},
    "mixed": {"sites": ["none", "after"]},
    "softmax": {"activation": ["softmax", "relu"]},
}


def objectives(mac: Mac, job: Job, weights: Array, state: State) -> Array:
    """Each row's objective at some weights (flat)."""
    problem = w_problem(mac, job, state)
    return values(problem, weights[job.place].astype(float).reshape(np.shape(problem.start)), mac.parts.points.over)


def mask(jobs: list[Job], count: int) -> Array:
    found = np.zeros(count, dtype=bool)
    for job in jobs:
        found[job.place] = True
    return found


@pytest.mark.parametrize("name", NETS)
def test_a_regression_lowers_its_objective_and_touches_only_its_own_places(name: str) -> None:
    """Segment by segment; the objective is a sum of N terms, rounded by gamma_N of it at most, both times."""
    mac = method(**NETS[name])
    for k in range(len(mac.plan.chain.segments)):
        state, work_list = anywhere(mac), mac.plan.work.regressions([k])
        weights, grams = state.weights.copy(), state.own.grams.copy()
        jobs = list(work_list.jobs)
        solve(mac.parts, work_list, state)
        own = mask(jobs, len(weights))
        assert own.any()
        assert_array_equal(state.weights[~own], weights[~own])
        outside = np.ones(len(grams), dtype=bool)
        outside[slice(*mac.plan.offsets.grams[k : k + 2])] = False
        assert_array_equal(state.own.grams[outside], grams[outside])
        for job in jobs:
            before, after = (objectives(mac, job, flat, state) for flat in (weights, state.weights))
            assert (after <= before * (1.0 + 2.0 * gamma(2 * mac.plan.n_train + 100))).all()
            assert (after < before).any()


def wide(team: Team, w_step: WStep) -> tuple[Mac, State]:
    """Layers of several tiles of units, the same state on every rank."""
    random = np.random.default_rng(8)
    alone = method((90, 70), n=60)
    plan = plan_of(
        Config(model=Model([90, 70], activation="sigmoid"), w_step=w_step, method=Method("mac")),
        *alone.data.sizes.counts,
        team.size,
    )
    mac = Mac(plan, alone.data, team)
    state = State(random.normal(size=plan.offsets.weights[-1]) / 4.0, random.random((60, 160)), 10.0, MacState())
    mac.begin(state)
    return mac, state


def work_lists(mac: Mac) -> list[WorkList]:
    """One rank does all jobs late, for the others to compare with."""
    again = early(mac.plan.work.w_step) if mac.team.size > 1 else mac.plan.work.w_step
    return [mac.plan.work.w_step, again, mac.plan.work.regressions([1])]


def early(work_list: WorkList) -> WorkList:
    """The jobs that need not wait for rows of a Gram before those that do."""
    *before, rows, last = work_list.phases
    if not any(isinstance(task, Gram) for rank in rows.own for task in rank):
        return work_list
    free, bound = (
        tuple(tuple(job for job in rank if (job.segment in waiting_for(work_list)) == waits) for rank in last.own)
        for waits in (False, True)
    )
    own = tuple(a + b for a, b in zip(rows.own, free, strict=True))
    return WorkList((*before, replace(rows, own=own), replace(last, own=bound)))


def waiting_for(work_list: WorkList) -> set[int]:
    """The segments whose Gram is made by rows."""
    return {gram.segment for gram in work_list.grams if gram.rows is not None}


@pytest.mark.parametrize("rows", [False, True], ids=["whole Grams", "Grams by rows"])
@pytest.mark.parametrize("w_step", [WStep(), WStep("sgd")], ids=["auto", "sgd"])
def test_a_work_list_gives_the_same_weights_on_any_number_of_ranks(
    w_step: WStep, rows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Grams by rows are exchanged between two rounds of jobs, as large ones are."""
    if rows:
        monkeypatch.setattr(tiles, "GRAM_WHOLE", 50)
        monkeypatch.setattr(tiles, "GRAM_ROWS", 24)

    def found(team: Team) -> tuple[Array, Array]:
        mac, state = wide(team, w_step)
        for work_list in work_lists(mac):
            solve(mac.parts, work_list, state)
        return state.weights, state.own.grams

    mac, state = wide(Team(), w_step)
    assert bool(waiting_for(mac.plan.work.w_step)) == rows
    assert (early(mac.plan.work.w_step) != mac.plan.work.w_step) == rows
    weights, grams = found(Team())
    assert (weights != state.weights).all()
    for ranks in (2, 3):
        for theirs in crew(ranks, found):
            assert_array_equal(theirs[0], weights)  # type: ignore[index]
            assert_array_equal(theirs[1], grams)  # type: ignore[index]


def test_each_rank_does_its_own_jobs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the exchange; the jobs of all ranks are those of one."""
    every = sorted(wide(Team(), WStep())[0].plan.work.w_step.jobs, key=lambda job: job.place.start)
    done: list[list[Job]] = [[], [], []]
    plain = w_step.w_problem

    def noted(given: Any, job: Job, factor: Any) -> Any:
        done[given.parts.team.rank].append(job)
        return plain(given, job, factor)

    monkeypatch.setattr(w_step, "w_problem", noted)

    def work(team: Team) -> None:
        mac, state = wide(team, WStep())
        solve(mac.parts, mac.plan.work.w_step, state)

    crew(3, work)
    assert all(done)
    found = sorted((job for rank in done for job in rank), key=lambda job: job.place.start)
    assert [(job.segment, job.place) for job in found] == [(job.segment, job.place) for job in every]


# --- layers with a quantiser ------------------------------------------------------------------------------------------

CODEWORDS: dict[str, dict[str, Any]] = {
    "code": {"hidden": (4,), "activation": "quantise"},
    "deep": {"hidden": (4, 5), "activation": ["quantise", "sigmoid"]},
    "variance": {"hidden": (4,), "activation": "quantise", "metric": "variance"},
}


def segment_error(mac: Mac, weights: Array, state: State) -> float:
    """1/2 sum r^T M r of the first segment, r = z_1 - f_1(x), at other weights than the state's."""
    sizes = mac.plan.chain.site_sizes
    M = state.own.metric[: sizes[0]] if mac.plan.resolved.metric == "variance" else np.ones(sizes[0])
    f = layers(mac, State(weights, state.Z, state.mu, MacState()))[0]
    return 0.5 * state.mu * float(np.sum(M * (of_sites(mac, state.Z)[0] - f(mac.data.X)) ** 2))


@pytest.mark.parametrize("name", CODEWORDS)
@pytest.mark.parametrize("seed", range(6))
def test_a_segment_with_a_quantiser_keeps_the_better_of_its_weights(name: str, seed: int) -> None:
    mac = method(**CODEWORDS[name])
    state, random = anywhere(mac, seed), np.random.default_rng(seed)
    first = slice(0, mac.plan.offsets.weights[mac.plan.chain.segments[0].parameter_blocks[-1] + 1])
    before = state.weights.copy()
    state.weights += 0.3 * random.normal(size=before.shape)
    found, rest = state.weights.copy(), slice(first.stop, None)
    errors = [segment_error(mac, flat, state) for flat in (before, found)]
    keep_better(mac.parts, before, state)
    assert segment_error(mac, state.weights, state) == min(errors)
    assert_array_equal(state.weights[first], (before, found)[int(np.argmin(errors))][first])
    assert_array_equal(state.weights[rest], found[rest])


def test_weights_that_are_no_numbers_are_not_kept() -> None:
    mac = method(**CODEWORDS["code"])
    state = anywhere(mac)
    before = state.weights.copy()
    for b in mac.plan.chain.segments[0].parameter_blocks:
        state.weights[slice(*mac.plan.offsets.weights[b : b + 2])] = np.nan
    keep_better(mac.parts, before, state)
    assert_array_equal(state.weights, before)


def quantisation_error(mac: Mac, layer: Layer, state: State) -> float:
    C = state.weights[layer.place].reshape(mac.plan.chain.block_shapes[layer.block])
    A = mac.plan.chain.segments[layer.segment].part(0, layer.map).forward(mac.parts.weights(state), mac.data.X)
    return float(np.square(A[:, None] - C).sum(axis=2).min(axis=1).sum())


@pytest.mark.parametrize("ranks", [1, 2])
def test_trained_layers_come_to_all_ranks_and_nothing_else_changes(ranks: int) -> None:
    """Codewords by k-means, from others than its own."""
    keys = CODEWORDS["deep"]
    plain = method(**keys)
    begun = anywhere(plain)
    (layer,) = plain.plan.work.trailing_layers.tasks
    begun.weights[layer.place] += np.random.default_rng(1).normal(size=layer.place.stop - layer.place.start)
    before = begun.weights.copy()

    def work(team: Team) -> State:
        mac = Mac(replace(plain.plan, ranks=team.size), plain.data, team)
        state = replace(begun, weights=before.copy())
        solve(mac.parts, mac.plan.work.trailing_layers, state)
        return state

    for state in crew(ranks, work):
        assert isinstance(state, State)
        assert quantisation_error(plain, layer, state) < quantisation_error(plain, layer, begun)
        assert np.isfinite(state.weights).all()
        state.weights[layer.place] = before[layer.place]
        assert_array_equal(state.weights, before)
