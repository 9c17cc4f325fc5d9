"""The W-step carries out a work list: each rank does its tasks in every phase, and an exchange ends the phase.

The tasks are layers that trainers fit, regressions, and the Grams and factors that the units of a layer share.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from typing import Any, cast

import numpy as np

from macmpi import many
from macmpi.half_steps.context import HalfStepContext
from macmpi.half_steps.problems import WInputs, layer_gram, measured, prepare_w, targets, w_problem
from macmpi.half_steps.ring import travel
from macmpi.nets.design import at, total_of
from macmpi.parallel import tiles
from macmpi.parallel.team import Team
from macmpi.plan.plan import Plan
from macmpi.plan.work_lists import Exchange, Factor, Gram, Job, Layer, Task, Tour, WorkList
from macmpi.reductions import ALONE, LazyRows, OverPoints, Partial, SharedMatrix
from macmpi.solvers.grams import by_row
from macmpi.solvers.w_problem import SegmentProblem
from macmpi.state import MacState, State, block_views
from macmpi.typing import Array


def words(plan: Plan) -> str:
    """Says for the console which W-solvers fit the segments: "gauss_newton (2), closed_form (1)".  Collective: no."""
    led = [plan.resolved.regressions[k].name for k, group in enumerate(plan.chain.groups) if group]
    names = [(name, len(list(same))) for name, same in groupby(led)]
    ring = f"; sgd round a ring of {many(len(plan.work.train.blocks), 'block')} of points" if plan.resolved.ring else ""
    return f"W-step of the segments: {', '.join(f'{name} ({count})' for name, count in names)}{ring}"


def fit(parts: HalfStepContext, segments: Sequence[int], state: State[MacState]) -> None:
    """Does the W-step of some segments, their trainers' layers and their regressions, without over-relaxation.

    segments: the numbers of the segments.  Collective: yes.
    """
    work = parts.plan.work
    solve(parts, work.leading(segments), state)
    if 0 in segments:
        parts.begin_first(state)
    solve(parts, work.regressions(segments), state, plain=True)
    solve(parts, work.trailing(segments), state)


def solve(
    parts: HalfStepContext,
    work: WorkList,
    state: State[MacState],
    plain: bool = False,
    minibatch: int | None = None,
) -> None:
    """Carries out a work list: trainers fit layers, or regressions are solved and Grams computed again.

    plain: whether the solvers use no over-relaxation.
    minibatch: the number of the only minibatch whose points have other coordinates since the last W-step; None: all.
    Collective: yes.
    """
    if not work.phases:
        return
    with parts.team.clock("w"):
        given = prepare_w(parts, work, state)
    by_rows = [k for k in sorted(work.segments) if parts.plan.resolved.regressions[k].by_rows]
    before = state.weights.copy() if by_rows else state.weights
    ridge, first = parts.plan.unit_ridge(0, state.mu), 0 in work.features
    known = first and 0 not in work.fresh and ridge in parts.first_factors
    factors = {0: parts.first_factors[ridge]} if known else {}
    if minibatch is None or not parts.plan.resolved.running:
        tasks = Solving(given, plain, factors)
    else:
        tasks = RunningSums(minibatch, given, plain, factors)
    carry_out(work, tasks)
    if first and 0 in tasks.factors:
        parts.first_factors = {ridge: tasks.factors[0]}
    keep_better(parts, before, state, by_rows)


class Solving:
    """Does the tasks of a W-step: each kind of task has a method, which changes weights or Grams in the State.

    A selection, which keeps other results, is a subclass.

    factors: for each segment the prepared factor of its Gram.  Collective: methods that say so.
    """

    def __init__(self, given: WInputs, plain: bool, factors: dict[int, Any]) -> None:
        self.given, self.plain, self.factors = given, plain, factors

    def summed(self, what: str, place: slice, over_points: OverPoints) -> OverPoints:
        """Returns the function that sums over points for Grams or weights at a place; here it is `over_points`.

        what: "grams" or "weights".  Collective: if `over_points` is.
        """
        return over_points

    def gram(self, gram: Gram, over_points: OverPoints) -> None:
        """Sums a Gram of inputs, or some rows of it, and puts it in its place.  Collective: if `over_points` is."""
        plan, team, k, grams = self.given.parts.plan, self.given.parts.team, gram.segment, self.given.state.own.grams
        rows, system = None if gram.rows is None else gram.rows.rows, plan.resolved.regressions[k].system
        assert system is not None
        view = plan.chain.views[k]
        weights = by_row(self.given.parts.data.weights, view.rows_per_point * self.given.parts.points.count)
        over_rows = view.over_rows(self.summed("grams", gram.place, over_points))
        G = system.sum(view.by_row(self.given.inputs[k].rounded), over_rows, view.bias, rows, weights)
        if rows is None and team.common(grams):
            ours = tiles.contiguous_runs(len(G), team.size)[team.rank].rows
            grams[gram.place].reshape(G.shape)[ours] = G[ours]
        else:
            grams[gram.place] = G.ravel()

    def factor(self, segment: int) -> None:
        """Makes a large factor, some pieces on each rank, and keeps it for the segment's jobs.  Collective: yes."""
        self._factor(segment, self.given.parts.shared_matrix)

    def _factor(self, k: int, shared_matrix: SharedMatrix = ALONE) -> Any:
        system = self.given.parts.plan.resolved.regressions[k].system
        if system and k not in self.factors:
            self.factors[k] = system.prepare(layer_gram(self.given, k), shared_matrix)
        return self.factors.get(k)

    def solve(self, job: Job) -> None:
        """Solves a regression and puts its weights in place.  Collective: if `Points.over` is."""
        plan, points, k = self.given.parts.plan, self.given.parts.points, job.segment
        regression, over_points = plan.resolved.regressions[k], points.alone if plan.work.at_hand(k) else points.over
        with located("W", k, job.units):
            if regression.by_rows and job.units is not None:
                whole = replace(job, units=None, place=plan.offsets.block(plan.chain.regressed(k)[0]))
                W = regression.by_rows.rows(cast(SegmentProblem, w_problem(self.given, whole)), job.units.rows)
            else:
                if job.units is not None:
                    over_points = plan.chain.views[k].over_rows(self.summed("weights", job.place, over_points))
                problem = w_problem(self.given, job, self._factor(k))
                W = (regression.plain if self.plain else regression.solver).solve(problem, over_points)
        self.given.state.weights[job.place] = W.ravel()

    def tour(self, jobs: Sequence[Job]) -> None:
        """Sends regressions round the ring of ranks, each of which trains them on its points.  Collective: yes."""
        travel(self.given, jobs)

    def train(self, layer: Layer) -> None:
        """Fits a layer by its trainer to the points at hand, and then to all points if these are only some of them.

        Collective: if no rank holds all points.
        """
        parts, state, plan = self.given.parts, self.given.state, self.given.parts.plan
        before, weights = plan.chain.segments[layer.segment].part(0, layer.map), parts.weights(state)
        A = parts.inputs(layer.segment, state)
        present = state.weights[layer.place].reshape(plan.chain.block_shapes[layer.block])
        at_hand = before.forward(weights, parts.points.at_hand(A))
        centres = plan.centres(layer.block, at_hand, present if present.any() else None)
        if layer.block in plan.resolved.refined and parts.points.share < 1.0:
            inputs = LazyRows(lambda rows: before.forward(weights, A[rows]), (len(A), at_hand.shape[1]), A.dtype)
            refine: Any = plan.resolved.trainers[layer.block]
            centres = refine.by_sums(inputs, parts.points.shared_matrix.from_rank0(centres), parts.points.over)
        state.weights[layer.place] = centres.ravel()

    def exchange(self, exchange: Exchange) -> None:
        """Gives all ranks the Grams, or the weights, that each rank has computed.  Collective: yes."""
        state = self.given.state
        exchanged(state.own.grams if exchange.what == "grams" else state.weights, exchange, self.given.parts.team)


class RunningSums(Solving):
    """Solves regressions in closed form after the Z-step of one minibatch, and sums only over its points again.

    Such a regression reads only G = [A, 1]^T [A, 1] and T^T [A, 1].  The State keeps the share of each minibatch in
    these sums.  As long as the coordinates of the other minibatches stay, all shares together are the sums over all
    points.  The first W-step computes all shares.  Collective: methods that say so.
    """

    def __init__(self, minibatch: int, given: WInputs, plain: bool, factors: dict[int, Any]) -> None:
        super().__init__(given, plain, factors)
        plan, record, self._parts = given.parts.plan, given.state.own, given.parts.plan.resolved.minibatches
        self._again, weights = range(minibatch, minibatch + 1), plan.offsets.weights[-1]
        if not len(record.sums):
            self._again = range(self._parts)
            record.sums = np.zeros(self._parts * (weights + plan.offsets.grams[-1]))
        sums = record.sums.reshape(self._parts, -1)
        self._sums = {"weights": sums[:, :weights], "grams": sums[:, weights:]}

    def summed(self, what: str, place: slice, over_points: OverPoints) -> OverPoints:
        """Returns a function that sums over the present minibatch again, and adds the kept sums of the others.

        what, place: "grams" or "weights", and the place among them.  Collective: if `over_points` is.
        """
        kept = self._sums[what][:, place]

        def total(partial: Partial) -> tuple[Array, ...]:
            for i in self._again:
                some = self.given.parts.points.minibatch(i, self._parts)
                (sums,) = over_points(lambda rows, some=some: partial(some(rows)))  # type: ignore[misc]
                kept[i] = sums.ravel()
            return (kept.sum(axis=0).reshape(sums.shape),)

        return total

    def exchange(self, exchange: Exchange) -> None:
        """Gives all ranks the Grams or the weights of each rank, and the sums behind them.  Collective: yes."""
        super().exchange(exchange)
        if exchange.parts:
            for i in self._again:
                exchanged(self._sums[exchange.what][i], exchange, self.given.parts.team)


def keep_better(
    parts: HalfStepContext, before: Array, state: State[MacState], segments: Sequence[int] | None = None
) -> None:
    """Puts the weights `before` (P,) back into each segment whose own error has risen since.

    segments: the numbers of the segments to check; None: the segments that end in a quantiser.  Collective: yes.
    """
    plan = parts.plan
    for k in plan.chain.quantised if segments is None else segments:
        old, new = [_segment_error(parts, k, flat, state) for flat in (before, state.weights)]
        if not new <= old:
            for b in plan.chain.segments[k].parameter_blocks:
                state.weights[plan.offsets.block(b)] = before[plan.offsets.block(b)]


def _segment_error(parts: HalfStepContext, k: int, flat: Array, state: State[MacState]) -> float:
    """Computes the error of segment k with weights (P,): 1/2 sum w r^T M_k r over all points, r = t - f_k.

    The error of the last segment is the loss.  Collective: yes.
    """
    weights, segment = block_views(flat, parts.plan.chain.block_shapes), parts.plan.chain.segments[k]
    given = WInputs(parts, state, *measured(parts, state))
    A, T, last = parts.inputs(k, state), targets(given, k), k == len(parts.plan.chain.sites)

    def add(rows: slice, out: Array) -> None:
        F = segment.forward(weights, A[rows])
        errors = parts.plan.resolved.loss.value(T[rows], F) if last else given.metrics[k].square(T[rows] - F)
        out[0] = (1.0 if last else 0.5) * float(total_of(errors, at(parts.data.weights, rows)))

    return float(parts.total(add, 1)[0])


# --- work lists -------------------------------------------------------------------------------------------------------


def carry_out(work: WorkList, tasks: Solving) -> None:
    """Does this rank's tasks of a work list, phase by phase.  tasks: its methods do them.  Collective: yes."""
    parts = tasks.given.parts
    for phase in work.phases:
        with parts.team.clock("w"):
            for task in phase.joint:
                _do(task, tasks, parts.points.jointly)
            for task in phase.own[parts.team.rank] if phase.own else ():
                _do(task, tasks, parts.points.over)
        if phase.exchange:
            tasks.exchange(phase.exchange)


def _do(task: Task, tasks: Solving, over_points: OverPoints) -> None:
    """Calls the method of `tasks` that does a task of this type.  Collective: if that method is."""
    match task:
        case Gram():
            tasks.gram(task, over_points)
        case Factor():
            tasks.factor(task.segment)
        case Job():
            tasks.solve(task)
        case Tour():
            tasks.tour(task.jobs)
        case Layer():
            tasks.train(task)


def exchanged(array: Array, exchange: Exchange, team: Team) -> None:
    """Gives every rank the results of the others at the end of a phase, in place in a flat array.  Collective: yes."""
    if exchange.parts:
        team.gather_parts(array, exchange.parts)
    elif exchange.what == "weights":
        team.share_array(array)  # ranks round joint results differently: rank 0's count
    elif team.common(array):
        team.fence(array)  # each rank has written its part


@contextmanager
def located(half: str, *where: Any) -> Iterator[None]:
    """Sets the attribute `located` = (half, *where) of an error that its block raises.  Collective: no.

    half, where: "Z" and the rows, or "W", the segment and its tile of units.
    """
    try:
        yield
    except Exception as error:
        error.__dict__.setdefault("located", (half, *where))
        raise
