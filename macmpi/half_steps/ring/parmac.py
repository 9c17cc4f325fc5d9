"""The W-step of ParMAC: jobs go round the ring of blocks, and each rank trains those that it has on its own points.

A stochastic W-step, for comparison with the exact one by sums over points.  What travels is a job's weights and their
velocity; points and coordinates stay.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from macmpi.half_steps.ring.submodels import Ring, Submodels
from macmpi.half_steps.w_problems import WInputs, w_problem
from macmpi.parallel.tiles import Tile
from macmpi.plan.work_lists import Job
from macmpi.solvers import better
from macmpi.typing import Array


def solve(given: WInputs, jobs: Sequence[Job]) -> None:
    """e rounds of each job, then its weights to all ranks; a row's start stays where it is no worse.  Collective: yes.

    Cost of a rank, with N/P points, M weights that travel, e rounds: 2 N/P D^2 flops for the features of a layer of D
    inputs, 4 (e + 1) M N/P for steps and checks; 2 e M numbers are passed on, M gathered at the end.
    """
    plan, team = given.parts.plan, given.parts.team
    points, solver = plan.work.train, plan.resolved.ring
    assert solver is not None
    ring = Ring(tuple(jobs), points.runs, solver.iterations)
    submodels = Submodels(given, ring, team.rank)
    for leg in range(ring.legs):
        with np.errstate(over="ignore", invalid="ignore"):
            for block, cut in points.blocks_of(team.rank):
                submodels.visit(block, Tile(cut[0].start, cut[-1].stop), leg, solver)
        if leg + 1 < ring.legs:
            team.shift_to_next(submodels.flat, submodels.parts(leg))
    with np.errstate(over="ignore", invalid="ignore"):
        found = submodels.found()
    team.gather_parts(found, [[jobs[j].place for j in own] for own in ring.at_home()])
    _keep_better(given, jobs, found)


def _keep_better(given: WInputs, jobs: Sequence[Job], found: Array) -> None:
    """The weights found, for the rows whose objective has fallen; sums over all points, one exchange."""
    wholes = [_joined([job for job in jobs if job.segment == k]) for k in sorted({job.segment for job in jobs})]
    problems = [w_problem(given, job) for job in wholes]
    starts = [np.array(problem.start, dtype=float) for problem in problems]
    ends = [found[job.place].reshape(s.shape).astype(float) for job, s in zip(wholes, starts, strict=True)]
    pairs = [(p, theta) for p, both in zip(problems, zip(starts, ends, strict=True), strict=True) for theta in both]
    with np.errstate(over="ignore", invalid="ignore"):
        sums = given.parts.over_points(lambda rows: tuple(p.partial(theta, rows, slope=False)[0] for p, theta in pairs))
        values = [s + p.ridge_part(theta)[0] for s, (p, theta) in zip(sums, pairs, strict=True)]
    for i, job in enumerate(wholes):
        given.state.weights[job.place] = better(starts[i], values[2 * i], ends[i], values[2 * i + 1]).ravel()


def _joined(jobs: Sequence[Job]) -> Job:
    """All jobs of a segment as one."""
    first, last = jobs[0], jobs[-1]
    units = None if first.units is None or last.units is None else Tile(first.units.start, last.units.stop)
    return Job(first.segment, units, slice(first.place.start, last.place.stop), 0.0)
