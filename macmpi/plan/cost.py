"""The cost model predicts the seconds of an iteration on P ranks of a machine from the plan's work lists.

    T(P) = crowding / speed [shared + sum over rounds of max_r seconds_r] + sum over messages (alpha steps + beta bytes)

A round is the work of the ranks between two exchanges: the Z-step, each phase of the W-step's work list, or passes
through the net.  Its seconds follow from rates measured on one rank (run/bench/workload.py) or from counted flops.  A
gather of b bytes takes ceil(log2 P) steps and moves b (P - 1) / P of them into each rank (columns:
parallel/exchange.py); the meeting before it takes as many steps.  Exchanges of pieces of factors, of the ring's
comparison, and of stochastic MAC's Grams and lengths are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, log2

from macmpi.parallel import tiles
from macmpi.parallel.exchange import group_size, messages
from macmpi.parallel.placement import EVERYWHERE, Placement
from macmpi.parallel.shared_work import alone
from macmpi.plan import tuned
from macmpi.plan.directions import DirectionWork, assign_inverses, forms_of, inverse_flops, sides_of
from macmpi.plan.estimate import subtrees
from macmpi.plan.plan import SHARED, Plan
from macmpi.plan.work_lists import Exchange, Gram, Job, Task, Tour, WorkList
from macmpi.solvers.z_gauss_newton import GaussNewtonZ, flops_a_point

PASSES_Z, PASSES_DIRECTIONS, PASSES_OTHERS = 2.0, 12.0, 10.0
PASSES_W = {"closed_form": 2.0, "gauss_newton": 4.0, "hessian_free": 4.0}
"""A Z-step passes the segments after the first site PASSES_Z times, and PASSES_DIRECTIONS times for directions whose
flops are not counted.  A W-step passes a segment PASSES_W times without its CG, or PASSES_OTHERS with other solvers."""

PASSES, GRADIENTS = {"stochastic": 3.7, "feasible": 2.0, "momentum": 4.0, "joint": 270.0}, 3
WHOLE_STEP, WHOLE_CG = 7.5, 4.0
BLAS_SHARE, SECONDS_A_TILE, SECONDS_A_BYTE = 0.65, 5e-4, 1.5e-9
"""PASSES through the net for a gradient (3 unless named) or an acceleration; GRADIENTS of an iteration of all points;
WHOLE_STEP and WHOLE_CG passes for a step of stochastic MAC on all points and each of its CG iterations; BLAS_SHARE of
dgemm's rate that products reach; SECONDS_A_TILE besides; SECONDS_A_BYTE of the weights for a step of sgd or adam."""


@dataclass(frozen=True)
class Machine:
    """Describes a cluster to the cost model.

    alpha, beta: the seconds of a step of a message, and of a byte (for 100 Gb/s).
    cores: the number of cores of a node.
    speed: the speed of a core, as a multiple of the speed of the measured core.
    crowding: how many times longer work takes while all cores of a node are busy.
    handshake: seconds that a message of more than `eager` bytes waits for its receiver.
    meeting: seconds of a step of the barrier before an exchange; None: alpha.
    """

    alpha: float = 2e-6
    beta: float = 8e-11
    cores: int = 1
    speed: float = 1.0
    crowding: float = 1.0
    handshake: float = 0.0
    eager: int = 16_384
    meeting: float | None = None


@dataclass(frozen=True)
class Rates:
    """Says how many seconds the parts of an iteration take on one rank.

    point: seconds for a point in the Z-step, with its features.
    factor: by segment, seconds for each unit of the cost that the plan gives its Gram (with the factor of a large
        Gram).
    unit: by segment, seconds for each unit of the cost that the plan gives its jobs.
    shared: seconds for the work that every rank does by itself.
    again: whether each iteration makes the first segment's Gram again, too.
    """

    point: float
    factor: tuple[float, ...]
    unit: tuple[float, ...]
    shared: float
    again: bool = False

    def tasks(self, plan: Plan) -> WorkList:
        """Returns the W-step's work list."""
        return plan.work.regressions(range(len(plan.chain.segments))) if self.again else plan.work.w_step

    def of(self, task: Gram | Job) -> float:
        """Computes the seconds of a task on one rank."""
        return (self.factor if isinstance(task, Gram) else self.unit)[task.segment] * task.cost


@dataclass(frozen=True)
class Seconds:
    """Splits the seconds of an iteration on P ranks into an even share and what each cause adds.

    ideal: the seconds on one rank, divided by P.
    uneven_points, uneven_weights: added because the busiest rank has more than its share.
    shared: added because every rank does some work by itself.
    crowding: added because work is slower while all cores of a node are busy.
    exchange: the seconds of messages.
    total: the sum of all.
    """

    ideal: float
    uneven_points: float
    uneven_weights: float
    shared: float
    crowding: float
    exchange: float

    @property
    def total(self) -> float:
        return sum(vars(self).values())


@dataclass(frozen=True)
class Round:
    """Is the work of all ranks up to an exchange, and that exchange.

    seconds: the seconds of each rank's work.
    bytes: the bytes that all ranks together exchange.
    place: says how many copies of these bytes there are.
    verb: "gather", "columns", or "shift" to the next rank.
    times: how often the round comes.
    """

    seconds: Sequence[float]
    bytes: int
    place: Placement = EVERYWHERE
    verb: str = "gather"
    times: int = 1

    @property
    def longest(self) -> float:
        return self.times * max(self.seconds)


def gather(machine: Machine, count: int, ranks: int, place: Placement = EVERYWHERE) -> float:
    """Predicts the seconds until every rank, or every node, has all of `count` bytes; each rank has made a part.

    machine: the cluster.
    place: where the bytes live, and so how many copies of them there are.
    """
    copies = place.copies(ranks, machine.cores)
    ready = machine.handshake if copies > 1 and count > machine.eager else 0.0
    return machine.alpha * ceil(log2(ranks)) + machine.beta * count * (copies - 1) / copies + ready


def exchange(machine: Machine, round_: Round, ranks: int) -> float:
    """Predicts the seconds of all exchanges of a round, each with the meeting before it.  machine: the cluster."""
    if ranks == 1 or not round_.bytes:
        return 0.0
    group = group_size(ranks)
    steps, levels = (messages(ranks, group), 1 + (group > 1)) if round_.verb == "columns" else (1, 1)
    scattered = machine.alpha * steps + machine.beta * levels * round_.bytes / ranks
    each = gather(machine, round_.bytes, ranks, round_.place) if round_.verb == "gather" else scattered
    meeting = machine.alpha if machine.meeting is None else machine.meeting
    return round_.times * (each + meeting * ceil(log2(ranks)))


def _summed(own: Sequence[float], width: int, times: int, leaves: int, plan: Plan) -> list[Round]:
    """Makes the rounds of a sum over points of `width` numbers, which ranks share as `TreeSum` does.

    own: the seconds that each rank needs for its own blocks.
    times: how often the sum is taken.
    leaves: the number of blocks of points.
    """
    rows, place = subtrees(leaves, plan.ranks), plan.placement
    if plan.ranks == 1 or alone(rows, width):
        return [Round(own, 8 * width * rows, place, times=times)]
    first = Round(own, 8 * width * rows, place, "gather" if place.one_copy else "columns", times)
    return [first, Round((0.0,) * plan.ranks, 8 * width, place, times=times)]


def rounds(work: Rates, plan: Plan) -> list[Round]:
    """Makes the round of the Z-step, and the rounds of each phase of the W-step's work list.

    Cost: the cost of assigning the work.
    """
    item, place, coordinates = plan.dtype.itemsize, plan.placement, plan.n_train * sum(plan.chain.site_sizes)
    if plan.resolved.running:  # a W-step sums over the points of one minibatch
        factor, unit = (tuple(s / plan.resolved.minibatches for s in of) for of in (work.factor, work.unit))
        work = replace(work, factor=factor, unit=unit)
    none, maps = (0.0,) * plan.ranks, [m for s in plan.chain.segments[1:] for m in s.maps]
    shares = [work.point * n for n in plan.work.train.row_counts]
    in_turn = [Round(shares, item * coordinates * place.all_rows, place)]
    means = isinstance(plan.resolved.z_solver, GaussNewtonZ) and not place.all_rows  # for the preconditioner
    for m in (m for m in maps if means and "linear" not in m.capabilities):
        in_turn += _summed(none, m.n_out**2, 1, len(plan.work.summed.blocks), plan)
    for phase in work.tasks(plan).phases * plan.resolved.minibatches:
        for task in phase.joint:
            in_turn += _joint(task, work, plan)
        if phase.joint and phase.exchange == Exchange("weights"):
            in_turn.append(Round(none, item * plan.offsets.weights[-1]))
        if any(phase.own):
            what, parts = phase.exchange or Exchange("nothing")
            count = sum(p.stop - p.start for rank in parts for p in rank) * (8 if what == "grams" else item)
            each = [sum(map(work.of, own)) for own in phase.own]
            in_turn.append(Round(each, count, place if what == "grams" else EVERYWHERE))
    return in_turn


def _joint(task: Task, work: Rates, plan: Plan) -> list[Round]:
    """Makes the rounds of a task that all ranks do jointly.

    A Gram or a job consists of sums over points.  If jobs go round a ring, a rank has its share, rounded up, in each
    leg.
    """
    none, of = (0.0,) * plan.ranks, plan.work.summed if isinstance(task, Gram) else plan.work.train
    shares, blocks = [count / of.n for count in of.row_counts], len(of.blocks)
    match task:
        case Gram():
            own = [work.of(task) * share for share in shares]
            return _summed(own, task.place.stop - task.place.start, 1, blocks, plan)
        case Job():
            solver, numbers = plan.resolved.regressions[task.segment].solver, task.place.stop - task.place.start
            each, products = getattr(solver, "iterations", 1), getattr(solver, "cg_iterations", 1)
            wide, narrow = (1, 0) if solver.exact else (each * products, 1 + 2 * each)
            own = [work.of(task) / (wide + narrow) * share for share in shares]
            units, tests = len(task.units or (0,)), 1 + each * (2 * products + 3)
            sums = _summed(own, numbers, wide, blocks, plan) + _summed(own, 2 * units, narrow, blocks, plan)
            return [*sums, Round(none, 8 * numbers) if solver.exact else Round(none, 8 * units, times=tests)]
        case Tour(jobs) if plan.resolved.ring is not None:
            legs, numbers = plan.resolved.ring.iterations * plan.ranks, sum(j.place.stop - j.place.start for j in jobs)
            one = sum(map(work.of, jobs)) / len(jobs) * max(shares) * plan.ranks / legs
            own = [one * len(run) for run in tiles.contiguous_runs(len(jobs), plan.ranks)]
            return [Round(own, 16 * numbers, verb="shift", times=legs), Round(none, 8 * numbers)]
    return []


def predict(work: Rates, plan: Plan, machine: Machine) -> Seconds:
    """Predicts the seconds of an iteration on the plan's ranks.

    work: the seconds that the iteration's parts take on one rank.
    machine: the cluster.
    """
    return seconds_of(rounds(work, plan), rounds(work, replace(plan, ranks=1)), work.shared, machine)


def seconds_of(several: Sequence[Round], single: Sequence[Round], shared: float, machine: Machine) -> Seconds:
    """Predicts the seconds of an iteration from its rounds: `several` on some ranks, and `single` on one.

    The first round of each is the round of the points.

    shared: seconds of the work that every rank does by itself.
    machine: the cluster.
    """
    points, weights, ranks = several[0].longest, sum(r.longest for r in several[1:]), len(several[0].seconds)
    even = [r.longest / ranks for r in single]
    return Seconds(
        ideal=(sum(even) + shared / ranks) / machine.speed,
        uneven_points=(points - even[0]) / machine.speed,
        uneven_weights=(weights - sum(even[1:])) / machine.speed,
        shared=shared * (1.0 - 1.0 / ranks) / machine.speed,
        crowding=(ranks > 1) * (machine.crowding - 1.0) * (points + weights + shared) / machine.speed,
        exchange=sum(exchange(machine, r, ranks) for r in several),
    )


def predicted(plan: Plan, rate: float, machine: Machine) -> Seconds:
    """Predicts the seconds of an iteration on a plan's ranks, without its evaluation.

    rate: flop/s of a core in large products of float64.  Collective: no.
    """
    if not plan.resolved.method.nested:
        return predict(counted(plan, rate), plan, machine)
    several, single = (_passes(p, rate) for p in (plan, replace(plan, ranks=1)))
    return seconds_of(several, single, 0.0, machine)


def counted(plan: Plan, rate: float) -> Rates:
    """Predicts the seconds of the parts of an iteration from counted flops, for cores of `rate` flop/s.

    Collective: no.
    """
    chain, of, N, steady = plan.chain, plan.resolved, plan.n_train, BLAS_SHARE * rate
    passes, solver = [2.0 * segment.multiplications for segment in chain.segments], of.z_solver
    behind, z = sum(passes[1:]), PASSES.get(of.method.acceleration, 0.0) * sum(passes)
    if chain.sites:
        directions = PASSES_DIRECTIONS * behind
        if isinstance(solver, GaussNewtonZ):
            least = min(flops_a_point(chain.site_sizes, chain.n_out, behind, solver.cg_iterations).values())
            directions = solver.iterations * least * (0.5 if solver.cg_precision == "single" else 1.0)
        z += passes[0] + PASSES_Z * behind + directions
    (factor, unit), shared = ([0.0] * len(chain.segments) for _ in range(2)), 0.0
    for k, regression in of.regressions.items():
        steps = getattr(regression.solver, "iterations", 0) * getattr(regression.solver, "cg_iterations", 0)
        flops = passes[k] * (PASSES_W[regression.name] + 2.0 * steps if regression.name in PASSES_W else PASSES_OTHERS)
        jobs = [job for job in plan.work.w_step.jobs if job.segment == k]
        took = N * flops / steady + SECONDS_A_TILE * len(jobs) * len(tiles.point_chunks(N))
        unit[k] = took / sum(job.cost for job in jobs) if jobs else 0.0
        side, made = plan.offsets.sides[k], sum(gram.cost for gram in plan.work.grams(k))
        large, factored = plan.offsets.large(k), side**3 / 3.0 / rate
        products = chain.views[k].rows_per_point * N * side**2 / rate if made else 0.0
        factor[k] = (products + large * factored) / made if made else 0.0
        shared += 0.0 if large else factored
    return Rates(z / steady + SECONDS_A_TILE * len(tiles.point_tiles(N)) / N, tuple(factor), tuple(unit), shared)


def _passes(plan: Plan, rate: float) -> list[Round]:
    """Makes the rounds of passes through the net with their sums of slopes, and of stochastic MAC's other work.

    That other work is directions and inverses.
    """
    chain, weights, item, times = plan.chain, plan.offsets.weights[-1], plan.dtype.itemsize, GRADIENTS
    of, points, rate = plan.resolved, float(plan.n_train), rate * 8 / item
    keys, name = of.stochastic, of.method.name
    flops, blocks, other = 2.0 * PASSES.get(name, 3.0) * chain.whole.multiplications, len(plan.work.train.blocks), []
    if name == "stochastic":
        points = of.minibatch(plan.n_train)
        of_epoch = max(int(plan.n_train // points), 1)
        times, blocks = max(of_epoch // min(keys.records, of_epoch), 1), len(plan.work.parts.blocks)
        layers = forms_of(plan).layers
        work = DirectionWork(chain.block_shapes, layers, sides_of(chain, layers, inf if of.whole_steps else points))
        flops += 2.0 * work.by_point
        directions = [2.0 * work.cost(jobs) / BLAS_SHARE / rate for jobs in work.assigned(plan.ranks)]
        costs, squares = inverse_flops(chain.block_shapes, layers), sum(h * h + d * d for h, d in chain.block_shapes)
        inverses = [sum(costs[j] for j in own) / rate for own in assign_inverses(costs, plan.ranks)]
        if of.whole_steps:  # each CG iteration has a sum of slopes and a direction of its own
            times, shared = 1 + keys.cg_iterations, min(tuned.PROBED_WHOLE * blocks / points, 1.0)
            passes = WHOLE_STEP + WHOLE_CG * keys.cg_iterations
            flops = 2.0 * (passes * chain.whole.multiplications + shared * squares) / times
            other += _summed((0.0,) * plan.ranks, squares, 1, blocks, plan)
        remade = 1 if of.whole_steps else -(-times // tuned.REMADE_LATER)
        other.append(Round(directions, item * weights, plan.placement, times=times))
        other.append(Round(inverses, item * squares, plan.placement, times=remade))
    elif name in ("sgd", "adam"):
        times = -(-plan.n_train // min(of.baseline.batch, plan.n_train))
        points, blocks = points / times, min(SHARED, of.baseline.batch, plan.n_train)
        other.append(Round((SECONDS_A_BYTE * item * weights,) * plan.ranks, 0, times=times))
    each = points * flops / BLAS_SHARE / rate / blocks
    own = [each * len(run) for run in tiles.contiguous_runs(blocks, plan.ranks)]
    return [*_summed(own, weights, times, blocks, plan), *other]
