"""The parts that the half steps, starts, errors and postprocessing of a method are made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from macmpi.data.dataset import Dataset
from macmpi.half_steps.evaluation import Evaluation
from macmpi.half_steps.subproblems import Subproblems
from macmpi.half_steps.w_step import Fitting
from macmpi.parallel.clock import Clock
from macmpi.parallel.points import Points
from macmpi.parallel.team import Team
from macmpi.plan.plan import Plan
from macmpi.state import MacState, State
from macmpi.typing import Array


class Parts:
    """A plan, its data and ranks, and what works on a State in place.  Collective: where a method says so.

    points: sums over the training points; evaluation: errors; problems: the subproblems of a State; fitting: the parts
    of a W-step.
    """

    def __init__(self, plan: Plan, data: Dataset, team: Team, clock: Clock) -> None:
        self.plan, self.data, self.team, self.clock = plan, data, team, clock
        self.points = Points(plan.train, plan.summed, team, max(plan.all_units.widest, plan.first_gram.widest))
        self.over_points = self.points.over
        self.evaluation = Evaluation(plan, data, team)
        self.problems = Subproblems(plan, data, self.points)
        self.fitting = Fitting(plan, team, clock, self.problems, self.evaluation)

    def weights(self, state: State[MacState]) -> tuple[Array, ...]:
        """W_1, ..., W_{K+1} as views of the state's flat buffer.  Collective: no."""
        return self.problems.weights(state)

    def new_state(self, weights: Array) -> State[MacState]:
        """The given weights (flat); coordinates and multipliers, if there are any, 0.  Collective: yes."""
        plan = self.plan
        shape = self.points.count, sum(plan.chain.site_sizes)
        state = State(weights.astype(plan.dtype), self.team.array(shape, plan.dtype), plan.schedule.mu0, MacState())
        if plan.schedule.multipliers:
            state.own.multipliers = self.team.array(shape, plan.dtype)
        return state

    def no_grams(self) -> Array:
        """Grams of the layers' inputs, 0, of which the ranks of a node may have one copy.  Collective: yes."""
        grams: Array = self.team.array((self.plan.shared_bounds[-1],), np.float64)
        return grams

    @contextmanager
    def writing(self, rows: Array) -> Iterator[None]:
        """Inside, each rank writes the rows of its own points and reads no others; then it has all that it holds.

        Collective: yes.
        """
        self.team.fence(rows)
        yield
        if not self.plan.sharded:
            self.team.gather_rows(rows, self.plan.train.row_counts)

    def feasible(self, state: State[MacState]) -> None:
        """z_k = f_k(z_{k-1}) for all k and points.  Collective: yes."""
        chain, weights = self.plan.chain, self.weights(state)
        if chain.sites:
            with self.writing(state.Z):
                for tile in self.plan.train.tiles_of(self.team.rank):
                    state.Z[tile.rows] = np.hstack(chain.coordinates(weights, self.data.X[tile.rows]))
        self.problems.forget()

    def fit(self, segments: Sequence[int], state: State[MacState]) -> None:
        """The W-step of some segments alone, not over-relaxed.  Collective: yes."""
        plan = self.plan
        self.fitting.train(plan.leading(segments), state)
        if 0 in segments:
            self.problems.forget_all()
        self.fitting.regress(plan.deal(segments), state, plan.plain_solvers)
        self.fitting.train(plan.trailing(segments), state)

    def ridge_of(self, state: State[MacState], segments: Sequence[int]) -> float:
        """sum lambda/2 ||V||^2 over the weights of some segments' regressions.  Collective: no."""
        plan, weights, total = self.plan, self.weights(state), 0.0
        for k in segments:
            ridge = plan.unit_ridge(k, state.mu) * plan.weight_of(k, state.mu)
            for b in plan.chain.segments[k].regressed:
                total += 0.5 * ridge * float(np.sum(np.square(weights[b][:, : plan.chain.fan_in(b)], dtype=float)))
        return total
