"""In ParMAC's W-step jobs travel round a ring of blocks of points, and each rank trains them on its own points.

This stochastic W-step is for comparison with the exact W-step by sums over points.  A job's weights and their velocity
travel; points and coordinates stay.

A submodel is a job of the W-step.  It consists of consecutive units of a layer, in coordinates phi in which the Gram of
their inputs is the identity, or it is a whole segment, whose phi are its weights.  B blocks of points form a ring, of
which each rank has consecutive blocks.  A submodel starts at a block of its own and goes from each block to the next,
and from the last to the first; a round takes it once to each.  So its outcome depends only on its path.  In a leg a
rank takes its submodels through all of its own blocks, and then passes the submodels on.  So a round has as many legs
as there are ranks, whatever B is, and in each leg every rank works.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import numpy as np

from macmpi.half_steps.problems import WInputs, layer_gram, unit_targets, w_problem
from macmpi.nets.design import at
from macmpi.nets.layers.activation import function
from macmpi.parallel import tiles
from macmpi.parallel.streams import stream
from macmpi.plan.work_lists import Job
from macmpi.reductions import EVERY
from macmpi.solvers import better
from macmpi.solvers.gradient_solvers import SGDW, Gradient
from macmpi.solvers.grams import UnitWhitening, Whitening
from macmpi.solvers.w_problem import UnitProblem, WProblem
from macmpi.typing import Array


@np.errstate(over="ignore", invalid="ignore")  # weights that go too far are not kept
def travel(given: WInputs, jobs: Sequence[Job]) -> None:
    """Trains each job for e rounds, then gives its weights to all ranks; rows that are not better keep their start.

    Cost of a rank with N/P points, M weights that travel and e rounds: 2 N/P D^2 flops for the features of a layer of D
    inputs, 4 (e + 1) M N/P for steps and checks; 2 e M numbers are passed on, M gathered at the end.  Collective: yes.
    """
    plan, team = given.parts.plan, given.parts.team
    points, solver = plan.work.train, plan.resolved.ring
    assert solver is not None
    ring = Ring(tuple(jobs), points.runs, solver.iterations)
    submodels = Submodels(given, ring, team.rank)
    for leg in range(ring.legs):
        for block, cut in points.blocks_of(team.rank):
            submodels.visit(block, tiles.Tile(cut[0].start, cut[-1].stop), leg, solver)
        if leg + 1 < ring.legs:
            team.shift_to_next(submodels.flat, submodels.parts(leg))
    weights = submodels.weights()
    team.gather_parts(weights, [[jobs[j].place for j in ring.at(rank, 0)] for rank in range(ring.ranks)])
    _keep_better(given, jobs, weights)


def _keep_better(given: WInputs, jobs: Sequence[Job], weights: Array) -> None:
    """Puts new weights (P,) into the state for those rows of the jobs whose objective has fallen.

    The objectives before and after are sums over all points, for all segments in one exchange; rank 0's numbers decide.
    Collective: yes.
    """
    parts = given.parts
    wholes = [_joined([job for job in jobs if job.segment == k]) for k in sorted({job.segment for job in jobs})]
    problems = [w_problem(given, job) for job in wholes]
    starts = [np.asarray(problem.start, float) for problem in problems]
    ends = [matrix_of(weights, job).astype(float) for job in wholes]
    pairs = [*zip(problems * 2, starts + ends, strict=True)]
    views = [parts.plan.chain.views[job.segment] for job in wholes]
    per_point = [view.rows_per_point if p.by_unit else 1 for p, view in zip(problems, views, strict=True)] * 2

    def errors(rows: slice) -> tuple[Array, ...]:
        runs = [slice(P * rows.start, P * rows.stop) for P in per_point]
        return tuple(p.partial(theta, run, slope=False)[0] for (p, theta), run in zip(pairs, runs, strict=True))

    sums = zip(parts.over_points(errors), pairs, strict=True)
    every = np.concatenate([total + p.ridge_part(theta)[0] for total, (p, theta) in sums])
    bounds = np.cumsum([len(theta) for _, theta in pairs])[:-1]
    objectives = np.split(parts.shared_matrix.from_rank0(every), bounds)
    befores, afters = objectives[: len(wholes)], objectives[len(wholes) :]
    for job, start, before, end, after in zip(wholes, starts, befores, ends, afters, strict=True):
        matrix_of(given.state.weights, job)[:] = better(start, before, end, after)


def _joined(jobs: Sequence[Job]) -> Job:
    """Joins all jobs of one segment to a single job of all its units."""
    first, last = jobs[0], jobs[-1]
    units = None if first.units is None or last.units is None else tiles.Tile(first.units.start, last.units.stop)
    return Job(first.segment, units, slice(first.place.start, last.place.stop), 0.0)


def matrix_of(flat: Array, job: Job) -> Array:
    """Returns a view of a job's part of a flat array, a row for each unit, or one row for a whole segment.

    Collective: no.
    """
    return flat[job.place].reshape(1 if job.units is None else len(job.units), -1)


class Travelling:
    """Trains the jobs of a segment by the gradients of their W-problems.

    phi are the weights of each unit in coordinates in which the Gram of its inputs is the identity; for a segment that
    is trained as a whole, phi are its weights.  Collective: no.
    """

    def __init__(self, k: int, given: WInputs) -> None:
        plan = given.parts.plan
        assert plan.resolved.ring is not None
        self._k, self._given, self._view = k, given, plan.chain.views[k]
        self._by_unit = plan.resolved.regressions[k].by_unit
        self._factor = plan.resolved.ring.system.prepare(layer_gram(given, k)) if self._by_unit else None
        self._problems: dict[int, tuple[WProblem, UnitWhitening]] = {}

    def problem(self, job: Job) -> tuple[WProblem, UnitWhitening]:
        """Makes the W-problem of a job, and the whitening that turns its weights into phi and back.  Collective: no."""
        if job.place.start not in self._problems:
            problem = w_problem(self._given, job, self._factor)
            self._problems[job.place.start] = problem, UnitWhitening(problem.parts())
        return self._problems[job.place.start]

    def fastest(self, points: float, momentum: float) -> float:
        """Computes the largest rate at which the noise of minibatches does not undo the progress of steps.

        For a linear unit with the error e of phi, and H the Gram of a minibatch where that of all points is the
        identity, E||(I - r H) e||^2 = (1 - 2 r + r^2 (1 + width / points)) ||e||^2.  This is least at r = 1 / (1 +
        width / points), and half of this r is returned.  Momentum makes steps longer by 1 / (1 - momentum), and a slope
        s of the activation makes them longer by s^2.  For a segment that is trained as a whole no limit is known, and
        it is inf.

        points: the points of a minibatch.
        momentum: the momentum of SGDW.  Collective: no.
        """
        if not self._by_unit:
            return float("inf")
        noise = 1.0 + self._view.shapes[0][1] / points
        slope = function(self._view.segments[0].activation).steepest
        return 0.5 * (1.0 - momentum) / (slope**2 * noise)

    def at(self, order: Array) -> Callable[[Job], Gradient]:
        """Returns a function that makes, for a job, the gradient of its objective over minibatches of some points.

        The gradient is N times the mean over the minibatch, plus the gradient of the ridge; for a segment that is
        trained as a whole, the sum is divided by the sum of all points' weights.

        order: shuffled rows of this rank; a minibatch has consecutive ones.  Collective: no.
        """
        P, points = (self._view.rows_per_point if self._by_unit else 1), self._given.parts.plan.n_train
        rows_of = (P * order[:, None] + np.arange(P)).reshape(len(order), P)

        def of(job: Job) -> Gradient:
            problem, whitening = self.problem(job)
            weight = 1.0 if self._by_unit else problem.rows

            def gradient(phi: Array, rows: slice) -> Array:
                theta = whitening.back(phi)
                _, G = problem.partial(theta, rows_of[rows].ravel(), slope=True)
                mean = G / (rows.stop - rows.start) * (points / weight)
                return whitening.pull(mean + problem.ridge_part(theta)[1] / weight)

            return gradient

        return of


class Dense(Travelling):
    """Trains the jobs of a dense layer; the features [A, 1] L^-T, which phi multiplies, are made once.

    These features are n (D + 1) numbers.  Collective: no.
    """

    def __init__(self, k: int, given: WInputs, here: Sequence[tiles.Tile]) -> None:
        super().__init__(k, given)
        plan, inputs = given.parts.plan, given.inputs[k].design
        self._points, self._ridge = plan.n_train, plan.unit_ridge(k, given.state.mu)
        self._whitening = Whitening(self._factor)
        self._features = np.empty((given.parts.points.count, inputs.shape[1] + 1), plan.dtype)
        for tile in here:
            self._features[tile.rows] = self._whitening.features(inputs[tile.rows])

    def at(self, order: Array) -> Callable[[Job], Gradient]:
        A, T = self._features[order], unit_targets(self._given, self._k, EVERY)[order]
        point_weights, activation = at(self._given.parts.data.weights, order), self._view.segments[0].activation

        def of(job: Job) -> Gradient:
            assert job.units is not None
            start = np.empty((len(job.units), A.shape[1]))
            units = UnitProblem(A, T[:, job.units.rows], 0.0, start, activation, point_weights=point_weights)

            def gradient(phi: Array, rows: slice) -> Array:
                _, G = units.partial(phi, rows, slope=True)
                return self._points / (rows.stop - rows.start) * G + self._ridge * self._whitening.shrink(phi)

            return gradient

        return of


class Submodels:
    """Holds the weights of all jobs that travel round the ring, as this rank has them.

    flat (2 P,): phi of each job at the job's place among the weights, then all velocities.  Only jobs that are on this
        rank in the present leg are up to date.  Collective: no.
    """

    def __init__(self, given: WInputs, ring: Ring, rank: int) -> None:
        plan, state = given.parts.plan, given.state
        self._plan, self._state, self._ring, self._rank = plan, state, ring, rank
        self._travelling: dict[int, Travelling] = {}
        for k in sorted({job.segment for job in ring.jobs}):
            dense = plan.resolved.regressions[k].by_unit and plan.chain.views[k].dense
            self._travelling[k] = Dense(k, given, plan.work.train.tiles_of(rank)) if dense else Travelling(k, given)
        self.flat = np.zeros(2 * plan.offsets.weights[-1])
        self._phi, self._velocity = self.flat.reshape(2, -1)
        for job in self._at_home():
            matrix_of(self._phi, job)[:] = self._whitening(job).into(matrix_of(state.weights, job).astype(float))

    def _at_home(self) -> list[Job]:
        """Lists the jobs that start and end on this rank."""
        return [self._ring.jobs[j] for j in self._ring.at(self._rank, 0)]

    def _whitening(self, job: Job) -> UnitWhitening:
        """Returns the whitening that turns the weights of a job into phi and back."""
        return self._travelling[job.segment].problem(job)[1]

    def parts(self, leg: int) -> dict[int, list[slice]]:
        """Returns, by rank, the places in `flat` of the jobs that this rank and the rank before it have in a leg.

        `shift_to_next` reads only these two entries.  Collective: no.
        """
        of = {r % self._ring.ranks for r in (self._rank, self._rank - 1)}
        held, M = {r: [self._ring.jobs[j].place for j in self._ring.at(r, leg)] for r in of}, len(self._phi)
        return {r: [*phi, *(slice(M + place.start, M + place.stop) for place in phi)] for r, phi in held.items()}

    def visit(self, block: int, rows: tiles.Tile, leg: int, solver: SGDW) -> None:
        """Trains each job that comes to a block of points in this leg, one step for each minibatch of the block.

        The order of the points depends only on the block, the round and the iteration, not on the job.

        rows: the rows of the block, which this rank holds.  Collective: no.
        """
        ring = self._ring
        here = [(ring.round_of(j, block, leg), ring.jobs[j].segment, j) for j in ring.at(self._rank, leg)]
        coming = sorted((number, k, j) for number, k, j in here if number is not None)
        batches = [tile.rows for tile in tiles.cut(len(rows), -(-len(rows) // solver.batch))]
        for (number, k), group in groupby(coming, key=lambda turn: turn[:2]):
            key = (self._state.iteration, block, number)
            order = rows.start + stream(self._plan.seed, "ring", *key).permutation(len(rows))
            travelling, gradient_of = self._travelling[k], self._travelling[k].at(order)
            rate = min(solver.rate, travelling.fastest(len(rows) / len(batches), solver.momentum))
            for job in (ring.jobs[j] for *_, j in group):
                phi, velocity = matrix_of(self._phi, job), matrix_of(self._velocity, job)
                phi[:], velocity[:] = solver.steps(phi, velocity, batches, gradient_of(job), rate)

    def weights(self) -> Array:
        """Returns weights (P,): new ones for jobs at home on this rank after the last leg, the others from the state.

        Collective: no.
        """
        weights = self._state.weights.copy()
        for job in self._at_home():
            matrix_of(weights, job)[:] = self._whitening(job).back(matrix_of(self._phi, job))
        return weights


@dataclass(frozen=True)
class Ring:
    """Schedules the ring: says which rank trains which job on which block of points, and when.  Collective: no.

    Work is even over the blocks from which jobs start, whatever blocks the ranks have.

    jobs: the jobs that travel.
    runs: the blocks of each rank.
    rounds: the number of times that each job comes to each block.
    """

    jobs: tuple[Job, ...]
    runs: tuple[tiles.Tile, ...]
    rounds: int

    @property
    def blocks(self) -> int:
        """The number of blocks.  Collective: no."""
        return self.runs[-1].stop

    @property
    def ranks(self) -> int:
        """The number of ranks.  Collective: no."""
        return len(self.runs)

    @property
    def legs(self) -> int:
        """The number of legs: rounds times ranks, and one more.  Between two legs all ranks pass their jobs on.

        In the last leg a job is again on the rank where it began.  Collective: no.
        """
        return self.rounds * self.ranks + 1

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The block from which each job starts; with more blocks than jobs these are evenly spaced.  Collective: no."""
        places = self.blocks if self.blocks <= tiles.BLOCKS else min(self.blocks, len(self.jobs))
        owners = tiles.assign_by_cost([job.cost for job in self.jobs], places)
        starts = {j: place * self.blocks // places for place, owned in enumerate(owners) for j in owned}
        return tuple(starts[j] for j in range(len(self.jobs)))

    @cached_property
    def homes(self) -> tuple[int, ...]:
        """For each job the rank that owns the block where the job starts; the job also ends there.  Collective: no."""
        stops = [run.stop for run in self.runs]
        return tuple(bisect_right(stops, b) for b in self.starts)

    def at(self, rank: int, leg: int) -> list[int]:
        """Lists the numbers of the jobs that a rank has in a leg; in the first and the last leg these are its own jobs.

        Collective: no.
        """
        return [j for j, home in enumerate(self.homes) if (home + leg) % self.ranks == rank]

    def round_of(self, job: int, block: int, leg: int) -> int | None:
        """Returns the round, from 0, in which a job is trained on a block in a leg; None if it is not trained there.

        On the rank that is the job's home, a leg begins a round at the job's first block, and ends the last round in
        the blocks before that.

        block: a block of the rank that has the job in this leg.  Collective: no.
        """
        at_home = leg % self.ranks == 0
        number = leg // self.ranks - (at_home and block < self.starts[job])
        return number if 0 <= number < self.rounds else None
