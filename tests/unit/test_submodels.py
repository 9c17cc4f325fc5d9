"""Submodels round the ring: the weights do not depend on the ranks, and are those of plain steps block by block."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from plans import changed, plan_of
from theory.problems import given, w_problem
from theory.test_parmac import VIEWS
from theory.test_sharded import data_of
from unit.crew import crew

from macmpi.config import Config, Method, Model, Parallel, Start, WStep
from macmpi.half_steps.problems import layer_gram
from macmpi.half_steps.ring import Ring, Submodels
from macmpi.mac import Mac
from macmpi.parallel import tiles
from macmpi.parallel.placement import EVERYWHERE
from macmpi.parallel.streams import stream
from macmpi.parallel.team import Team
from macmpi.parallel.tiles import Tile
from macmpi.plan.work_lists import Job, Tour
from macmpi.state import State
from macmpi.typing import Array

RING = WStep(schedule="ring", linear_solver="same", batch=9, iterations=2)
CONFIGS = {
    "units": Config(model=Model([40, 20], "tanh"), w_step=RING, method=Method("mac")),
    "before": Config(model=Model([20, 5], sites="before", activation="sigmoid"), w_step=RING, method=Method("mac")),
    "segments": Config(
        model=Model([20, 3, 5], sites=["none", "before", "after"], activation="sigmoid"),
        w_step=replace(RING, rate=1e-3),
        method=Method("mac"),
    ),
    **{name: Config(model=model, w_step=RING, method=Method("mac")) for name, model in VIEWS.items()},
}
RANKS = [2, 3, 5, 11]


@cache
def begun(name: str) -> tuple[Mac, State, tuple[Job, ...]]:
    """A state with its Grams and with coordinates that are not feasible, and the jobs that travel."""
    config = replace(CONFIGS[name], parallel=Parallel("sharded"), start=Start(gradient_step=False))
    data = data_of(config)
    mac = Mac(plan_of(config, *data.sizes.counts, 1), data, Team())
    state = mac.start(2.0, False, 0)
    mac.begin(state)
    mac.w_step(state)
    mac.z_step(state)
    return mac, state, tuple(j for t in mac.plan.work.w_step.tasks if isinstance(t, Tour) for j in t.jobs)


def ring_of(mac: Mac, jobs: tuple[Job, ...], ranks: int) -> Ring:
    assert mac.plan.resolved.ring is not None
    return Ring(jobs, replace(mac.plan, ranks=ranks).work.train.runs, mac.plan.resolved.ring.iterations)


def round_the_ring(name: str, team: Team) -> Array:
    """The weights of all jobs.  A rank has all points here, and takes its jobs through its own blocks alone."""
    mac, state, jobs = begun(name)
    plan = changed(replace(mac.plan, ranks=team.size), placement=EVERYWHERE)
    points = replace(replace(mac.plan, ranks=team.size).work.train, placement=EVERYWHERE)
    ring, solver = ring_of(mac, jobs, team.size), mac.plan.resolved.ring
    assert solver is not None
    plan.work.__dict__["train"] = points  # the blocks of sharded points, by the rows of all
    parts = copy(mac.parts)
    parts.plan = plan
    submodels = Submodels(replace(given(mac, state), parts=parts), ring, team.rank)
    for leg in range(ring.legs):
        for block, cut in points.blocks_of(team.rank):
            submodels.visit(block, Tile(cut[0].start, cut[-1].stop), leg, solver)
        if leg + 1 < ring.legs:
            team.shift_to_next(submodels.flat, submodels.parts(leg))
    found = submodels.weights()
    team.gather_parts(found, [[jobs[j].place for j in ring.at(rank, 0)] for rank in range(team.size)])
    return found


@pytest.mark.parametrize("name", CONFIGS)
def test_the_weights_are_the_same_on_any_number_of_ranks(name: str) -> None:
    mac, state, jobs = begun(name)
    expected = round_the_ring(name, Team())
    assert len(mac.plan.work.train.blocks) >= min(RANKS)
    moved = (expected != state.weights) | (state.weights == 0.0)  # a sparse layer's weights that do not exist
    assert all(moved[job.place].all() for job in jobs)
    for ranks in RANKS:
        for found in crew(ranks, lambda team: round_the_ring(name, team)):
            assert_array_equal(found, expected)  # type: ignore[arg-type]


def test_a_segment_goes_through_all_blocks_in_the_order_of_the_ring_by_plain_steps() -> None:
    """v <- m v - rate (mean gradient + ridge / N), theta <- theta + v, minibatch by minibatch, round by round."""
    mac, state, jobs = begun("segments")
    solver, blocks, found = (
        mac.plan.resolved.ring,
        mac.plan.work.train.blocks_of(0),
        round_the_ring("segments", Team()),
    )
    assert solver is not None
    whole = [j for j, job in enumerate(jobs) if job.units is None]
    assert whole
    starts = ring_of(mac, jobs, 1).starts
    for j in whole:
        problem = w_problem(mac, jobs[j], state)
        theta = np.array(problem.start, dtype=float).reshape(1, -1)
        velocity = np.zeros_like(theta)
        for number in range(solver.iterations):
            for b in ((starts[j] + i) % len(blocks) for i in range(len(blocks))):
                first, last = blocks[b][1][0].start, blocks[b][1][-1].stop
                order = first + stream(mac.plan.seed, "ring", state.iteration, b, number).permutation(last - first)
                for batch in tiles.cut(len(order), -(-len(order) // solver.batch)):
                    rows = order[batch.rows]
                    _, gradient = problem.partial(theta, rows, slope=True)
                    gradient = gradient / len(rows) + problem.ridge_part(theta)[1] / mac.plan.n_train
                    velocity = solver.momentum * velocity - solver.rate * gradient
                    theta = theta + velocity
        assert_array_equal(found[jobs[j].place], theta.ravel())


@pytest.mark.parametrize("name", CONFIGS)
def test_without_a_visit_the_weights_come_back(name: str) -> None:
    """Into the coordinates of the ring and back: x L L^-1, rounded by at most the condition of L."""
    mac, state, jobs = begun(name)
    found = Submodels(given(mac, state), ring_of(mac, jobs, 1), 0).weights()
    for job in jobs:
        if job.units is None:
            assert_array_equal(found[job.place], state.weights[job.place])
            continue
        W, G = state.weights[job.place].reshape(len(job.units), -1), layer_gram(given(mac, state), job.segment).G
        condition = np.sqrt(np.linalg.cond(G))
        bound = 4.0 * len(G) ** 2 * np.finfo(float).eps * condition * np.linalg.norm(W, axis=1)
        away = np.linalg.norm(found[job.place].reshape(W.shape) - W, axis=1)
        assert (away <= bound).all()
