"""Speedup against processors: its figures, and a cost model that predicts the seconds of an iteration on P ranks.

    T(P) = crowding / speed [shared + sum over rounds of max_r seconds_r] + sum over messages (alpha steps + beta bytes)

A round is what ranks do between two exchanges, and a message follows each: points, then the phases of the W-step's work
list.  seconds_r: of what the plan of P ranks assigns to rank r, at the rate measured on one rank; shared: what every
rank does for itself.  A gather of b bytes takes ceil(log2 P) steps and moves b (P - 1) / P of them into each rank; rows
of points and Grams of which a node has one copy move between nodes alone.  What the model gives for more ranks than
cores is a prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, log2

from macmpi.parallel import balance, tiles
from macmpi.parallel.blocks import ROWS
from macmpi.parallel.tree_sum import alone
from macmpi.plan.plan import Plan
from macmpi.plan.work_lists import Factor, Gram, Job, Phase, Task, Tour, WorkList
from macmpi.solvers.cholesky import pieces


def efficiency(speedup: float, ranks: int) -> float:
    """S / P."""
    return speedup / ranks


def karp_flatt(speedup: float, ranks: int) -> float:
    """The serial fraction that Amdahl's law needs for this speedup, (1/S - 1/P) / (1 - 1/P); NaN on one rank."""
    return (1.0 / speedup - 1.0 / ranks) / (1.0 - 1.0 / ranks) if ranks > 1 else float("nan")


@dataclass(frozen=True)
class Machine:
    """alpha: seconds of a step of a message; beta: seconds a byte; cores: of a node; speed: of a core, that of the
    machine which the work was measured on being 1; crowding: how many times longer work takes with all cores busy."""

    alpha: float
    beta: float
    cores: int = 1
    speed: float = 1.0
    crowding: float = 1.0


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


@dataclass(frozen=True)
class Round:
    """seconds: of each rank between two exchanges; bytes: what is exchanged then; once: a node has one copy of it."""

    seconds: tuple[float, ...]
    bytes: int
    once: bool = False

    @property
    def longest(self) -> float:
        return max(self.seconds)


@dataclass(frozen=True)
class Seconds:
    """An iteration on P ranks: its even share, and what is lost to each cause.  total: their sum."""

    ideal: float
    uneven_points: float
    uneven_weights: float
    shared: float
    crowding: float
    exchange: float

    @property
    def total(self) -> float:
        return sum(vars(self).values())

    def __add__(self, other: Seconds) -> Seconds:
        return Seconds(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))


NOTHING = Seconds(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def work_list(work: Work, plan: Plan) -> WorkList:
    """The W-step's work list."""
    return plan.work.regressions(range(len(plan.chain.segments))) if work.again else plan.work.w_step


def rounds(work: Work, plan: Plan) -> list[Round]:
    """The Z-step's rounds, then those of each phase of the W-step's work list.  Cost: that of assigning the work."""
    tasks, item = work_list(work, plan), plan.dtype.itemsize
    coordinates = item * plan.n_train * sum(plan.chain.site_sizes)
    found = [Round(_by_points(work.point * plan.n_train, plan), coordinates, plan.per_node)]
    found += [Round(_of_runs(seconds, plan.ranks), item * side**2, plan.per_node) for seconds, side in work.products]
    found += [_features(k, rate, plan) for k in tasks.features for rate in work.feature[k : k + 1] if rate]
    begun: list[set[int]] = [set() for _ in range(plan.ranks)]
    for phase in tasks.phases:
        for task in phase.joint:
            if not isinstance(task, Factor) or task.segment in tasks.fresh:
                found += _joint(task, work, plan)
        if any(phase.own):
            alone = [sum(_seconds(task, work) for task in own) for own in phase.own]
            for rank, own in enumerate(phase.own):
                new = {task.segment for task in own if isinstance(task, Job)} - begun[rank]
                alone[rank] += sum(work.local[k] for k in new if work.local)
                begun[rank] |= new
            found.append(Round(tuple(alone), *_exchanged(phase, plan)))
    return found


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
            numbers = task.place.stop - task.place.start
            return [Round(_by_points(_seconds(task, work), plan), plan.dtype.itemsize * numbers)]
        case Tour():
            return [round_ for job in task.jobs for round_ in _joint(job, work, plan)]


def _by_points(seconds: float, plan: Plan) -> tuple[float, ...]:
    """Seconds for all points, assigned by points."""
    return tuple(seconds / plan.n_train * count for count in plan.work.train.row_counts)


def _summed(seconds: float, gram: Gram, plan: Plan) -> list[Round]:
    """The rounds of a Gram that all ranks sum up: those of their own points; the adding of what all have found."""
    of, width = plan.work.summed, gram.place.stop - gram.place.start
    subtrees = sum(len(tiles.nodes(len(of.blocks), run)) for run in of.runs)
    own = Round(tuple(seconds * count / of.n for count in of.row_counts), 8 * width * subtrees, plan.per_node)
    if plan.ranks == 1 or alone(subtrees, width):
        return [own]
    added = 8 * width + (own.bytes // plan.ranks if plan.per_node else 0)
    return [own, Round((0.0,) * plan.ranks, added)]


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


def gather(machine: Machine, count: int, ranks: int, once: bool = False) -> float:
    """Seconds in which every rank, or once each node, gets the parts of `count` bytes that the others have."""
    copies = ceil(ranks / machine.cores) if once else ranks
    return machine.alpha * ceil(log2(ranks)) + machine.beta * count * (copies - 1) / copies


def predict(work: Work, plan: Plan, machine: Machine) -> Seconds:
    """An iteration on the plan's ranks."""
    (points, *others), ranks = rounds(work, plan), plan.ranks
    even = [sum(r.seconds) / ranks for r in rounds(work, replace(plan, ranks=1))]
    weights = sum(r.longest for r in others)
    computed = points.longest + weights + work.shared
    busy = machine.crowding if ranks > 1 else 1.0
    return Seconds(
        ideal=(sum(even) + work.shared / ranks) / machine.speed,
        uneven_points=(points.longest - even[0]) / machine.speed,
        uneven_weights=(weights - sum(even[1:])) / machine.speed,
        shared=work.shared * (1.0 - 1.0 / ranks) / machine.speed,
        crowding=(busy - 1.0) * computed / machine.speed,
        exchange=sum(gather(machine, r.bytes, ranks, r.once) for r in (points, *others)),
    )


def predict_all(sweeps: Sequence[tuple[Work, Plan]], machine: Machine, ranks: int) -> Seconds:
    """Several iterations, each with the plan that it had, on a given number of ranks."""
    total = NOTHING
    for work, plan in sweeps:
        total += predict(work, replace(plan, ranks=ranks), machine)
    return total


def ceiling(work: Work, plan: Plan) -> tuple[float, float, float]:
    """The largest speedup that any number of ranks reaches: of the Z-step by its points, of the W-step by its units, of
    the whole with what is shared; exchange and crowding left out."""
    most = max(len(plan.work.train.blocks), len(work_list(work, plan).jobs), 1)
    (z, *w), (z_least, *w_least) = (
        [r.longest for r in rounds(work, replace(plan, ranks=ranks))] for ranks in (1, most)
    )
    whole, least = z + sum(w) + work.shared, z_least + sum(w_least) + work.shared
    return _ratio(z, z_least), _ratio(sum(w), sum(w_least)), _ratio(whole, least)


def _ratio(a: float, b: float) -> float:
    return a / b if b else 1.0


def parmac(ranks: int, units: int, z: float, w: float, machine: Machine, unit_bytes: float) -> float:
    """The speedup that ParMAC's model gives: points stay, units go round a ring of the ranks, one epoch.

        T(P) = M (N/P) t_Z + ceil(M/P) (N t_W + 2 P t_c),  T(1) = M N (t_Z + t_W),  t_c = alpha + beta bytes

    z, w: seconds of the half steps on one rank, M N t_Z and M N t_W.
    """
    sent = 0.0 if ranks == 1 else machine.alpha + machine.beta * unit_bytes
    return (z + w) / (z / ranks + ceil(units / ranks) * (w / units + 2.0 * ranks * sent))
