"""What a W-step is made of, each part assigned to ranks: layers that trainers fit, what units share, regressions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from macmpi.half_steps.evaluation import Evaluation
from macmpi.half_steps.ring.parmac import ParMAC
from macmpi.half_steps.subproblems import Subproblems
from macmpi.parallel import balance
from macmpi.parallel.blocks import Pieces
from macmpi.parallel.clock import Clock
from macmpi.parallel.team import Team
from macmpi.plan.plan import Plan
from macmpi.plan.work_lists import Job, LayerWork, Share, WorkList
from macmpi.reductions import OverPoints
from macmpi.solvers import WSolver
from macmpi.state import MacState, State, block_views
from macmpi.typing import Array


class Fitting:
    """The parts of a W-step, in place in a State.  Collective: where a method says so."""

    def __init__(self, plan: Plan, team: Team, clock: Clock, problems: Subproblems, evaluation: Evaluation) -> None:
        self.plan, self.team, self.clock = plan, team, clock
        self.problems, self.evaluation, self.in_pieces = problems, evaluation, Pieces(team)
        self.parmac = ParMAC(plan, team, clock, problems)

    @property
    def words(self) -> str:
        """What the console says of the W-step.  Collective: no."""
        names = [(name, len(list(same))) for name, same in groupby(self.plan.w_names)]
        ring = f"; sgd round a ring of {len(self.plan.train.blocks)} blocks of points" if self.plan.ring else ""
        return f"W-step of the segments: {', '.join(f'{name} ({count})' for name, count in names)}{ring}"

    def regress(self, deal: WorkList, state: State[MacState], solvers: Sequence[WSolver]) -> None:
        """A regression a unit, and the Grams that the units of a layer share, made again where the deal says so.

        Grams come first, and beside rows of large ones units that need not wait; the rest once these have been
        exchanged.  Collective: yes.
        """
        rank = self.team.rank
        with self.clock("w"):
            self._make_features(deal, state)
            self._make_local(deal.segments - deal.fresh, state)
            for share in deal.summed:
                self._make_gram(share, self.problems.points.together, state)
            for share in deal.shares[rank]:
                self._make_gram(share, self.problems.points.over, state)
            self._solve(deal.early[rank], state, solvers)
        self.team.gather_parts(state.own.grams, deal.shared_parts)
        if deal.summed and self.team.common(state.own.grams):
            self.team.fence(state.own.grams)  # each has written its share of them
        with self.clock("w"):
            self._make_local(deal.segments & deal.fresh, state)
            self._solve(deal.late[rank], state, solvers)
        if deal.travelling:
            self.parmac.solve(deal.travelling, state)
        if deal.apart:
            self.team.gather_parts(state.weights, deal.weight_parts)
        elif deal.segments:
            self.team.share_array(state.weights)  # what all have found together is rounded as on rank 0

    def _make_features(self, deal: WorkList, state: State[MacState]) -> None:
        """What regressions multiply: own points, then Allgatherv.  Collective: yes."""
        for k in sorted(deal.segments | deal.fresh):
            if self.plan.by_unit[k] or self.plan.chain.segments[k].leading:
                self.problems.rounded(k, state, together=True)

    def _make_local(self, segments: Iterable[int], state: State[MacState]) -> None:
        """Large factors, in pieces; a small one each rank makes that has units which need it.  Collective: yes."""
        for k in sorted(segments):
            if self.plan.large(k):
                self.problems.local(k, state, self.in_pieces)

    def _make_gram(self, share: Share, over_points: OverPoints, state: State[MacState]) -> None:
        """A Gram of inputs, or some rows of it.  Collective: where `over_points` is."""
        k, rows = share.segment, None if share.rows is None else share.rows.rows
        inputs = self.problems.rounded(k, state)
        found = self.plan.w_solvers[k].prepare(inputs, over_points, self.plan.has_bias(k), rows)
        if rows is None and self.team.common(state.own.grams):
            own = balance.contiguous_runs(len(found), self.team.size)[self.team.rank].rows
            place = state.own.grams[share.place].reshape(found.shape)
            place[own] = found[own]
        else:
            state.own.grams[share.place] = found.ravel()

    def _solve(self, jobs: Iterable[Job], state: State[MacState], solvers: Sequence[WSolver]) -> None:
        for job in jobs:
            found = solvers[job.segment].solve(self.problems.w_problem(job, state), self.problems.points.over)
            state.weights[job.place] = found.ravel()

    def train(self, deal: LayerWork, state: State[MacState]) -> None:
        """Layers that no regression fits, each by its trainer, then Allgatherv of their weights.  Collective: yes."""
        plan, team = self.plan, self.team
        with self.clock("w"):
            for layer in (*deal.copied, *deal.fitted[team.rank]):
                inputs, shape = self.problems.layer_inputs(layer, state), plan.chain.block_shapes[layer.block]
                present = state.weights[layer.place].reshape(shape)
                found = plan.centres(layer.block, inputs, present if present.any() else None)
                state.weights[layer.place] = found.ravel()
        team.gather_parts(state.weights, deal.parts)
        if deal.copied or any(deal.fitted):
            self.problems.forget()

    def keep_better(self, before: Array, state: State[MacState]) -> None:
        """Segments with a quantiser keep their weights where their own error would rise.  Collective: yes."""
        for k, segment in enumerate(self.plan.chain.segments):
            if segment.trailing:
                old, new = (self._segment_error(k, flat, state) for flat in (before, state.weights))
                if not new <= old:
                    for b in segment.weighted:
                        place = slice(self.plan.weight_bounds[b], self.plan.weight_bounds[b + 1])
                        state.weights[place] = before[place]

    def _segment_error(self, k: int, flat: Array, state: State[MacState]) -> float:
        """1/2 sum r^T M_k r over all points, r = t - f_k, for a hidden segment and flat weights.  Collective: yes."""
        weights, segment = block_views(flat, self.plan.chain.block_shapes), self.plan.chain.segments[k]
        A, T, form = self.problems.inputs(k, state), self.problems.targets(k, state), self.problems.metrics(state)[k]

        def part(rows: slice) -> list[float]:
            return [0.5 * form.square(T[rows] - segment.forward(weights, A[rows])).sum(dtype=float)]

        return float(self.evaluation.total(self.plan.train, part, 1)[0])
