"""What a W-step is made of, each part assigned to ranks: layers that trainers fit, what units share, regressions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from macmpi.half_steps.carry_out import carry_out, exchanged
from macmpi.half_steps.evaluation import Evaluation
from macmpi.half_steps.ring.parmac import ParMAC
from macmpi.half_steps.subproblems import Subproblems
from macmpi.parallel import balance
from macmpi.parallel.blocks import Pieces
from macmpi.parallel.clock import Clock
from macmpi.parallel.team import Team
from macmpi.plan.plan import Plan
from macmpi.plan.work_lists import Exchange, Gram, Job, LayerWork, WorkList
from macmpi.reductions import OverPoints
from macmpi.state import State, block_views
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
        names = [(name, len(list(same))) for name, same in groupby(r.name for r in self.plan.choices.regressions)]
        ring = (
            f"; sgd round a ring of {len(self.plan.work.train.blocks)} blocks of points"
            if self.plan.choices.ring
            else ""
        )
        return f"W-step of the segments: {', '.join(f'{name} ({count})' for name, count in names)}{ring}"

    def regress(self, work: WorkList, state: State, plain: bool = False) -> None:
        """A regression a unit, and the Grams that the units of a layer share, made again where the work list says so.

        plain: nothing is over-relaxed.  Collective: yes.
        """
        carry_out(work, Regressing(self, state, plain), self.problems.points, self.team, self.clock)

    def train(self, work: LayerWork, state: State) -> None:
        """Layers that no regression fits, each by its trainer, then Allgatherv of their weights.  Collective: yes."""
        plan, team = self.plan, self.team
        with self.clock("w"):
            for layer in (*work.copied, *work.fitted[team.rank]):
                inputs, shape = self.problems.layer_inputs(layer, state), plan.chain.block_shapes[layer.block]
                present = state.weights[layer.place].reshape(shape)
                found = plan.centres(layer.block, inputs, present if present.any() else None)
                state.weights[layer.place] = found.ravel()
        team.gather_parts(state.weights, work.parts)
        if work.copied or any(work.fitted):
            self.problems.forget()

    def keep_better(self, before: Array, state: State) -> None:
        """Segments with a quantiser keep their weights where their own error would rise.  Collective: yes."""
        for k, segment in enumerate(self.plan.chain.segments):
            if segment.trailing:
                old, new = (self._segment_error(k, flat, state) for flat in (before, state.weights))
                if not new <= old:
                    for b in segment.weighted:
                        place = self.plan.offsets.block(b)
                        state.weights[place] = before[place]

    def _segment_error(self, k: int, flat: Array, state: State) -> float:
        """1/2 sum r^T M_k r over all points, r = t - f_k, for a hidden segment and flat weights.  Collective: yes."""
        weights, segment = block_views(flat, self.plan.chain.block_shapes), self.plan.chain.segments[k]
        A, T, form = self.problems.inputs(k, state), self.problems.targets(k, state), self.problems.metrics(state)[k]

        def part(rows: slice) -> list[float]:
            return [0.5 * form.square(T[rows] - segment.forward(weights, A[rows])).sum(dtype=float)]

        return float(self.evaluation.total(self.plan.work.train, part, 1)[0])


class Regressing:
    """The tasks of a W-step, in place in a State.  Collective: where a method says so."""

    def __init__(self, fitting: Fitting, state: State, plain: bool) -> None:
        self._of, self._state, self._plain = fitting, state, plain

    def features(self, segment: int) -> None:
        """What a regression multiplies: own points, then Allgatherv.  Collective: yes."""
        self._of.problems.rounded(segment, self._state, together=True)

    def factor(self, segment: int) -> None:
        """A large factor, in pieces.  Collective: yes."""
        self._of.problems.local(segment, self._state, self._of.in_pieces)

    def gram(self, gram: Gram, over_points: OverPoints) -> None:
        """A Gram of inputs, or some rows of it.  Collective: where `over_points` is."""
        of, state, k, rows = self._of, self._state, gram.segment, None if gram.rows is None else gram.rows.rows
        inputs, solver = of.problems.rounded(k, state), of.plan.choices.regressions[k].solver
        found = solver.prepare(inputs, over_points, of.plan.chain.has_bias(k), rows)
        if rows is None and of.team.common(state.grams):
            own = balance.contiguous_runs(len(found), of.team.size)[of.team.rank].rows
            place = state.grams[gram.place].reshape(found.shape)
            place[own] = found[own]
        else:
            state.grams[gram.place] = found.ravel()

    def solve(self, job: Job) -> None:
        """A regression.  Collective: where points are sharded."""
        of, state, regression = self._of, self._state, self._of.plan.choices.regressions[job.segment]
        solver = regression.plain if self._plain else regression.solver
        state.weights[job.place] = solver.solve(of.problems.w_problem(job, state), of.problems.points.over).ravel()

    def tour(self, jobs: Sequence[Job]) -> None:
        """Regressions on their way round the ring.  Collective: yes."""
        self._of.parmac.solve(jobs, self._state)

    def exchange(self, exchange: Exchange) -> None:
        """Grams or weights.  Collective: yes."""
        exchanged(self._state.grams if exchange.what == "grams" else self._state.weights, exchange, self._of.team)
