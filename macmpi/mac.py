"""The method of auxiliary coordinates, section 2 of the paper: quadratic penalty (MAC/QP) or augmented Lagrangian.

    Z-step    for each point n:       min over z_n of eq. (4)           points partitioned, Allgatherv of Z
    W-step    for each unit (k, h):   min over w_kh of its regression   units assigned, Allgatherv of W

Every rank holds all weights and computes the tiles that the plan gives it.  Replicated, it holds all data and
coordinates too, or shares them with the ranks of its node: a rank writes its own rows inside of `writing` alone and
reads no others there.  Sharded, it holds its own points: only sums over points and weights are exchanged, and all ranks
do every regression together.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from macmpi.account import Account
from macmpi.half_steps.errors import errors_of
from macmpi.half_steps.first_state import start_at, start_from
from macmpi.half_steps.parts import Parts
from macmpi.half_steps.postprocessing import postprocess
from macmpi.nets.losses import times
from macmpi.parallel.blocks import commonly
from macmpi.plan.initial import RANGE, random_weights
from macmpi.state import W_STEP, Z_STEP, Errors, MacState, Pause, State, never
from macmpi.typing import Array


class Mac(Parts):
    """MAC as a Method: begin, start, sweep, move_multipliers, evaluate, finish.  Collective: where a method says so."""

    @property
    def parts(self) -> Parts:
        """Itself.  Collective: no."""
        return self

    @property
    def account(self) -> Account:
        """The W-solver of each segment.  Collective: no."""
        return Account(self.fitting.words)

    def begin(self, state: State[MacState]) -> None:
        """What the data determine: the first segment's features, and the factor that a new State lacks.

        Collective: yes.
        """
        if self.plan.chain.segments[0].core:
            self.problems.features(0, state, together=True)
        if not len(state.own.grams):
            state.own.grams = self.no_grams()
            self.fitting.regress(self.plan.first_gram, state, self.plan.w_solvers)
        state.own.grams = commonly(self.team, state.own.grams)

    def start_from(self, codes: Array, seed: int, range_: float) -> State[MacState]:
        """The given coordinates (N, sum H), and the weights of a W-step from random ones.  Collective: yes."""
        return start_from(self, codes, seed, range_)

    def start(self, range_: float, gradient_step: bool, seed: int) -> State[MacState]:
        """Random weights (range 0: of `RANGE`), one gradient step, feasible coordinates.  Collective: yes."""
        return self.start_at(random_weights(self.plan, range_ or RANGE, seed), gradient_step)

    def start_at(self, weights: Array, gradient_step: bool) -> State[MacState]:
        """The given weights (flat), one gradient step, feasible coordinates, no multipliers.  Collective: yes."""
        return start_at(self, weights, gradient_step)

    def sweep(self, state: State[MacState], pause: Pause = never) -> bool:
        """One iteration: a Z-step, then a W-step.  Collective: yes."""
        if state.position == Z_STEP:
            self.z_step(state)
            if pause():
                return False
        self.w_step(state)
        state.completed()
        return True

    def z_step(self, state: State[MacState]) -> None:
        """Eq. (4) for each point: own tiles, then Allgatherv of the coordinates.  Collective: yes."""
        plan = self.plan
        if plan.chain.sites:
            with self.clock("z"):
                self.problems.renew_metric(state)
                metrics = self.problems.metrics(state)
                sample = self.problems.z_problem(self.points.sample, state, metrics)
                shared = plan.z_solver.prepare(sample, self.points.average)
            with self.writing(state.Z), self.clock("z"):
                for tile in plan.train.tiles_of(self.team.rank):
                    problem = self.problems.z_problem(tile.rows, state, metrics)
                    state.Z[tile.rows] = plan.z_solver.solve(problem, shared).Z
        self.problems.forget()
        state.position = W_STEP

    def w_step(self, state: State[MacState]) -> None:
        """One regression a unit: own tiles of units, then Allgatherv of the weights.  Collective: yes."""
        plan = self.plan
        before = state.weights.copy() if plan.chain.quantised else state.weights
        self.fitting.train(plan.leading_layers, state)
        self.fitting.regress(plan.all_units, state, plan.w_solvers)
        self.fitting.train(plan.trailing_layers, state)
        self.fitting.keep_better(before, state)
        state.position = Z_STEP

    def notes(self) -> dict[str, Any]:
        """Further keys of an iteration's record.  Collective: no."""
        return {}

    def move_multipliers(self, state: State[MacState]) -> None:
        """lambda_k <- lambda_k - M_k (z_k - f_k(z_{k-1})), bounded: own points, then Allgatherv.  Collective: yes."""
        plan, metrics = self.plan, self.problems.metrics(state)
        with self.writing(state.own.multipliers), self.clock("z"):
            for tile in plan.train.tiles_of(self.team.rank):
                problem = self.problems.z_problem(tile.rows, state, metrics, shifted=False)
                rows = problem.sites(state.own.multipliers[tile.rows])
                outputs = zip(rows, problem.sites(problem.Z), problem.outputs(problem.Z), metrics, strict=False)
                for multipliers, z, f, form in outputs:
                    multipliers -= times(z - f, form.M)
            bound, own = plan.schedule.multiplier_max, state.own.multipliers[self.points.own]
            np.clip(own, -bound, bound, out=own)
        self.problems.forget()

    def evaluate(self, state: State[MacState], feasible: bool = False) -> Errors:
        """Errors at the present weights and coordinates.  Where Z is feasible, E_Q = E1.  Collective: yes."""
        return errors_of(self, state, feasible)

    def finish(self, state: State[MacState]) -> State[MacState]:
        """Postprocessing: Z feasible, then a refit of the last layer, kept if E1 + ridge falls.  Collective: yes."""
        return postprocess(self, state)
