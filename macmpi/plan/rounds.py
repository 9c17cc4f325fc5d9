"""Rounds of an iteration of half steps, from the plan: the work of ranks between two exchanges, and what they exchange.

A round is what ranks do between two exchanges, and a message follows each: points, then the phases of the W-step's work
list; of minibatches `plan/minibatch_cost.py` has the rounds.  Where points are sharded a job is several sums over them,
each with an exchange; jobs that go round a ring take a message for each rank and round.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from macmpi.parallel import balance, tiles
from macmpi.parallel.blocks import ROWS
from macmpi.parallel.partition import PointPartition
from macmpi.parallel.tree_sum import alone
from macmpi.plan.plan import Plan
from macmpi.plan.work_lists import Exchange, Factor, Gram, Job, Phase, Task, Tour, WorkList
from macmpi.solvers.cholesky import pieces
from macmpi.solvers.z_gauss_newton import GaussNewtonZ


@dataclass(frozen=True)
class Work:
    """Seconds of an iteration on one rank, by what they are assigned by.

    point: of a point in the Z-step.  factor, unit: of a Gram and of a job of the W-step, for each segment, in units
    of the cost that the plan gives it.  shared: of what every rank does for itself.  again: the first segment's Gram
    is made too, as in an iteration with a selection.  feature: of a point's features, for each segment; local: of what
    a rank with units of a segment makes of its Gram; piece: of a large factor's pieces, a flop; products: of those that
    ranks share in the Z-step, each with the side of what it gives.
    """

    point: float
    factor: tuple[float, ...]
    unit: tuple[float, ...]
    shared: float
    again: bool = False
    feature: tuple[float, ...] = ()
    local: tuple[float, ...] = ()
    piece: float = 0.0
    products: tuple[tuple[float, int], ...] = ()

    def scaled(self, by: float) -> Work:
        """Every rate times a number."""
        factor, unit, feature, local = (
            tuple(by * rate for rate in rates) for rates in (self.factor, self.unit, self.feature, self.local)
        )
        products = tuple((by * seconds, side) for seconds, side in self.products)
        return Work(
            by * self.point, factor, unit, by * self.shared, self.again, feature, local, by * self.piece, products
        )


def grown(work: Work, by: int) -> Work:
    """The work of `by` times as many points: what is counted by points is a rate already.  Collective: no."""
    factor, unit = (tuple(by * rate for rate in rates) for rates in (work.factor, work.unit))
    return replace(work, factor=factor, unit=unit)


@dataclass(frozen=True)
class Round:
    """seconds: of each rank between two exchanges; bytes: what is exchanged then; once: a node has one copy of it.

    verb: of the team, by which it is exchanged; times: how often the round comes.
    """

    seconds: tuple[float, ...]
    bytes: int
    once: bool = False
    verb: str = "gather_rows"
    times: int = 1

    @property
    def longest(self) -> float:
        return self.times * max(self.seconds)

    @property
    def total(self) -> float:
        return self.times * sum(self.seconds)


def work_list(work: Work, plan: Plan) -> WorkList:
    """The W-step's work list."""
    return plan.work.regressions(range(len(plan.chain.segments))) if work.again else plan.work.w_step


def rounds(work: Work, plan: Plan) -> list[Round]:
    """The Z-step's rounds, then those of each phase of the W-step's work list.  Cost: that of assigning the work."""
    tasks, item = work_list(work, plan), plan.dtype.itemsize
    coordinates = item * plan.n_train * sum(plan.chain.site_sizes)
    moved = 0 if plan.sharded else coordinates
    found = [Round(_by_points(work.point * plan.n_train, plan), moved, plan.per_node)]
    found += _means(plan)
    found += [Round(_of_runs(seconds, plan.ranks), item * side**2, plan.per_node) for seconds, side in work.products]
    found += [_features(k, rate, plan) for k in tasks.features for rate in work.feature[k : k + 1] if rate]
    begun: list[set[int]] = [set() for _ in range(plan.ranks)]
    for phase in tasks.phases:
        for task in phase.joint:
            if not isinstance(task, Factor) or task.segment in tasks.fresh:
                found += _joint(task, work, plan)
        if phase.joint and phase.exchange == Exchange("weights"):
            found.append(Round((0.0,) * plan.ranks, item * plan.offsets.weights[-1], verb="share_array"))
        if any(phase.own):
            alone = [sum(_seconds(task, work) for task in own) for own in phase.own]
            for rank, own in enumerate(phase.own):
                new = {task.segment for task in own if isinstance(task, Job)} - begun[rank]
                alone[rank] += sum(work.local[k] for k in new if work.local)
                begun[rank] |= new
            found.append(Round(tuple(alone), *_exchanged(phase, plan), verb="gather_parts"))
    return found


def _means(plan: Plan) -> list[Round]:
    """The means over sharded sample points that a preconditioner of the Z-step takes, one of each elementwise map."""
    if not plan.sharded or not plan.chain.sites or not isinstance(plan.choices.z_solver, GaussNewtonZ):
        return []
    maps = [m for segment in plan.chain.segments[1:] for m in segment.maps if "linear" not in m.capabilities]
    none = (0.0,) * plan.ranks
    return [r for m in maps for r in summed(none, m.n_out**2, 1, plan.work.summed, plan)]


def _features(k: int, rate: float, plan: Plan) -> Round:
    """The rows of what a segment's regression multiplies, and of their rounded copy, at `rate` seconds a point."""
    segment, rounded = plan.chain.segments[k], plan.choices.regressions[k].single
    row = plan.chain.inputs(segment.regressed[0]) * (plan.dtype.itemsize * (segment.core > 0) + 4 * rounded)
    return Round(_by_points(rate * plan.n_train, plan), plan.n_train * row, plan.per_node)


def _seconds(task: Gram | Job, work: Work) -> float:
    rates = work.factor if isinstance(task, Gram) else work.unit
    return rates[task.segment] * task.cost


def _exchanged(phase: Phase, plan: Plan) -> tuple[int, bool]:
    """Bytes behind a phase, and whether a node has one copy of them."""
    if phase.exchange is None:
        return 0, False
    numbers = sum(p.stop - p.start for rank in phase.exchange.parts for p in rank)
    grams = phase.exchange.what == "grams"
    return numbers * (8 if grams else plan.dtype.itemsize), grams and plan.per_node


def _joint(task: Task, work: Work, plan: Plan) -> list[Round]:
    """The rounds of a task that all ranks do jointly; none where it takes no time."""
    match task:
        case Gram():
            return _summed(_seconds(task, work), task, plan)
        case Factor():
            return _panels(work.piece, plan.offsets.gram_shapes[task.segment][1], plan) if work.piece else []
        case Job():
            return _sums(task, work, plan)
        case Tour():
            return _tour(task, work, plan)
        case _:
            return []


def _sums(job: Job, work: Work, plan: Plan) -> list[Round]:
    """The sums over points of a job that all ranks do: those of its size, and those of a number or two a unit."""
    wide, narrow = sums_of(job, plan)
    units = len(job.units) if job.units else 1
    numbers = job.place.stop - job.place.start
    each = _seconds(job, work) / (wide + narrow)
    own = tuple(each / plan.n_train * count for count in plan.work.train.row_counts)
    found = summed(own, numbers, wide, plan.work.train, plan)
    found += summed(own, 2 * units, narrow, plan.work.train, plan) if narrow else []
    none, solver = (0.0,) * plan.ranks, plan.choices.regressions[job.segment].solver
    if solver.exact:  # the weights themselves, in pieces
        return [*found, Round(none, 8 * numbers)]
    iterations, products = getattr(solver, "iterations", 1), getattr(solver, "cg_iterations", 1)
    return [*found, Round(none, 8 * units, verb="share_array", times=1 + iterations * (2 * products + 3))]


def sums_of(job: Job, plan: Plan) -> tuple[int, int]:
    """Sums over points that a job takes: with a number for each of its weights, and with one or two for each unit.

    Collective: no.
    """
    solver = plan.choices.regressions[job.segment].solver
    if solver.exact:
        return 1, 0
    iterations, products = getattr(solver, "iterations", 1), getattr(solver, "cg_iterations", 1)
    return iterations * products, 1 + 2 * iterations


def summed(own: tuple[float, ...], width: int, times: int, of: PointPartition, plan: Plan) -> list[Round]:
    """The rounds of sums of `width` numbers over points: what ranks have of their own, then what they add of all.

    Collective: no.
    """
    subtrees = subtrees_of(of, plan.ranks)
    if plan.ranks == 1 or alone(subtrees, width):
        return [Round(own, 8 * width * subtrees, plan.per_node, times=times)]
    none = (0.0,) * plan.ranks
    if plan.per_node:
        moved = Round(own, 8 * width * subtrees, True, times=times)
        return [moved, Round(none, 8 * width + moved.bytes // plan.ranks, True, times=times)]
    return [
        Round(own, 8 * width * subtrees, verb="gather_columns", times=times),
        Round(none, 8 * width, times=times),
    ]


@lru_cache(maxsize=64)
def _subtrees(leaves: int, ranks: int) -> int:
    return sum(len(tiles.nodes(leaves, run)) for run in balance.contiguous_runs(leaves, ranks))


def subtrees_of(of: PointPartition, ranks: int) -> int:
    """Count the sums that ranks exchange of a sum over the blocks of a partition.  Collective: no."""
    return _subtrees(len(of.blocks), ranks)


def _tour(tour: Tour, work: Work, plan: Plan) -> list[Round]:
    """ParMAC's ring: a leg a rank and round, in which a rank has as many jobs as its share, rounded up."""
    assert plan.choices.ring is not None
    P, M = plan.ranks, len(tour.jobs)
    legs = plan.choices.ring.iterations * P
    numbers = sum(job.place.stop - job.place.start for job in tour.jobs)
    spent = sum(_seconds(job, work) for job in tour.jobs)
    held = balance.contiguous_runs(M, P)
    each = tuple(spent / M * len(run) / legs for run in held)
    share = max(plan.work.train.row_counts) * P / plan.n_train
    own = tuple(e * share for e in each)
    moving, none = Round(own, 16 * numbers, verb="shift_to_next", times=legs), (0.0,) * P
    compared = sum(2 * len(job.units) if job.units else 2 for job in tour.jobs)
    gathered = Round(none, plan.dtype.itemsize * numbers, verb="gather_parts")
    return [moving, gathered, *summed(none, compared, 1, plan.work.train, plan)]


def _by_points(seconds: float, plan: Plan) -> tuple[float, ...]:
    """Seconds for all points, assigned by points."""
    return tuple(seconds / plan.n_train * count for count in plan.work.train.row_counts)


def _summed(seconds: float, gram: Gram, plan: Plan) -> list[Round]:
    """The rounds of a Gram that all ranks sum up: those of their own points; the adding of what all have found."""
    of = plan.work.summed
    own = tuple(seconds * count / of.n for count in of.row_counts)
    return summed(own, gram.place.stop - gram.place.start, 1, of, plan)


def _of_runs(seconds: float, ranks: int) -> tuple[float, ...]:
    """A product's seconds, assigned by its runs of rows."""
    return tuple(seconds * len(run) / ROWS for run in balance.contiguous_runs(ROWS, ranks))


def _panels(rate: float, width: int, plan: Plan) -> list[Round]:
    """The rounds of a large factor."""
    found = []
    for panel in pieces(width):
        owned = balance.assign_by_cost([size for size, _ in panel], plan.ranks)
        seconds = tuple(rate * sum(panel[i][1] for i in rank) for rank in owned)
        found.append(Round(seconds, 8 * sum(size for size, _ in panel), plan.per_node))
    return found
