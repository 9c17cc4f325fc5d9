"""The method of auxiliary coordinates, section 2 of the paper: quadratic penalty (MAC/QP) or augmented Lagrangian.

    Z-step    for each point n:       min over z_n of eq. (4)           points partitioned, Allgatherv of Z
    W-step    for each unit (k, h):   min over w_kh of its regression   units assigned, Allgatherv of W

Every rank holds all weights and computes the tiles that the plan gives it.  Replicated, it holds all data and
coordinates too, or shares them with the ranks of its node: a rank writes its own rows inside of `writing` alone and
reads no others there.  Sharded, it holds its own points: only sums over points and weights are exchanged, and all ranks
do every regression jointly.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from macmpi.half_steps.method import FLAT, SETTLED, STILL, MethodText, TrainingMethod
from macmpi.half_steps.problems import prepare_z, renew_metric, z_inputs, z_problem
from macmpi.half_steps.w_step import fit, keep_better, located, solve, words
from macmpi.nets.losses import times
from macmpi.parallel.shared_work import share_on_node
from macmpi.state import W_STEP, Z_STEP, MacState, Pause, State, never

REFITS = 5
"""An inexact refit is made at most this number of times."""

REFIT = 1e-4
"""The relative fall of E1 + ridge below which an inexact refit is not repeated."""


class Mac(TrainingMethod[MacState]):
    """MAC as a Method: begin, start, sweep, move_multipliers, evaluate, finish.  Collective: where a method says so."""

    @property
    def text(self) -> MethodText:
        """Says of the run: the W-solver of each segment, and when full MAC has settled.  Collective: no."""
        schedule = self.plan.resolved.schedule
        settled = FLAT if schedule.patience else STILL if schedule.discrete else SETTLED
        return MethodText(words(self.plan), settled=settled)

    def new_record(self, state: State[MacState]) -> MacState:
        """Gives the record that a first State has already.  Collective: no."""
        return state.own

    def begin(self, state: State[MacState]) -> None:
        """Computes the first segment's features, and its Gram where a new State lacks it.  Collective: yes."""
        self.parts.begin_first(state)
        if not len(state.own.grams):
            state.own.grams = self.team.array((self.plan.offsets.grams[-1],), np.float64)
            solve(self.parts, self.plan.work.first_gram, state)
        state.own.grams = share_on_node(self.team, state.own.grams)

    def sweep(self, state: State[MacState], pause: Pause = never) -> bool:
        """Does one iteration: a Z-step, then a W-step, of each minibatch of coordinates in turn; usually there is one.

        It may pause behind a Z-step, and then gives False.  Collective: yes.
        """
        last = self.plan.resolved.minibatches - 1
        for minibatch in range(state.position // 2, last + 1):
            if state.position % 2 == Z_STEP:
                self.z_step(state)
                if state.position == W_STEP and pause():
                    return False
            (self.last_w_step if minibatch == last else self.w_step)(state)
        state.completed()
        return True

    def last_w_step(self, state: State[MacState]) -> None:
        """Ends an iteration with a W-step, or with what a method does in its place.  Collective: yes."""
        self.w_step(state)

    def z_step(self, state: State[MacState]) -> None:
        """Solves eq. (4) for each point: own tiles, then Allgatherv of the coordinates, at the end of `writing`.

        Points of other minibatches keep the coordinates that they have.  What all points share, a preconditioner, is
        made from a sample of them.  Collective: yes.
        """
        parts, solver = self.parts, self.plan.resolved.z_solver
        minibatch = state.position // 2, self.plan.resolved.minibatches
        if self.plan.chain.sites:
            with self.team.clock("z"), located("Z", parts.points.sample):
                given = prepare_z(parts, state)
                shared = solver.prepare(z_problem(given, parts.points.sample), parts.points.average)
            with parts.points.writing(state.Z), self.team.clock("z"):
                for rows in self.plan.work.train.minibatch(self.team.rank, *minibatch):
                    with located("Z", rows):
                        state.Z[rows] = solver.solve(z_problem(given, rows), shared).Z
        state.position |= W_STEP

    def w_step(self, state: State[MacState]) -> None:
        """Solves one regression a unit: own tiles of units, then Allgatherv of the weights.  Collective: yes.

        Each `solve` carries out a work list, the exchange included; leading and trailing layers are those that trainers
        fit before and after the regressions.  A segment with a quantiser keeps its weights where they were better.
        """
        parts, plan = self.parts, self.plan
        before = state.weights.copy() if plan.chain.quantised else state.weights
        solve(parts, plan.work.leading_layers, state)
        minibatch = state.position // 2
        solve(parts, plan.work.w_step, state, minibatch=minibatch)
        solve(parts, plan.work.trailing_layers, state)
        keep_better(parts, before, state)
        state.position = (minibatch + 1) % plan.resolved.minibatches * 2

    def move_multipliers(self, state: State[MacState]) -> None:
        """lambda_k <- lambda_k - M_k (z_k - f_k(z_{k-1})), bounded: own points, then Allgatherv.  Collective: yes.

        The Lagrangian has -lambda_k^T (z_k - f_k): in a `ZProblem` it is the shift u_k = M_k^-1 lambda_k.
        """
        given, multipliers = z_inputs(self.parts, state), state.own.multipliers
        bound = self.plan.resolved.schedule.multiplier_max
        with self.parts.points.writing(multipliers), self.team.clock("z"):
            for tile in self.plan.work.train.tiles_of(self.team.rank):
                problem = z_problem(given, tile.rows, shifted=False)
                rows, z = problem.sites(multipliers[tile.rows]), problem.sites(problem.Z)
                for lambda_k, z_k, f, form in zip(rows, z, problem.outputs(problem.Z), given.metrics, strict=False):
                    lambda_k -= times(z_k - f, form.M)
            own = multipliers[self.parts.points.own]
            np.clip(own, -bound, bound, out=own)

    def finish(self, state: State[MacState]) -> State[MacState]:
        """Postprocessing: Z feasible, then a refit of the last layer, kept if E1 + ridge falls.  Collective: yes.

        Without coordinates there is nothing to do.  Those of many points that ranks hold apart are overwritten: memory
        may not hold them twice.  The refit is repeated while it lowers E1 + ridge by more than `REFIT`, unless one is
        exact.
        """
        parts, plan = self.parts, self.plan
        Z, moved = parts.points.spare(state.Z), state.own.multipliers
        own = replace(state.own, grams=state.own.grams.copy(), multipliers=np.zeros(moved.shape, moved.dtype))
        after = replace(state, weights=state.weights.copy(), Z=Z, own=own, mu=state.mu_done or state.mu)
        if not plan.chain.sites:
            return after
        renew_metric(parts, after)  # before the first Z-step there is none
        parts.feasible(after)
        before, last = self._last_objective(after), len(plan.chain.sites)
        for _ in range(1 if plan.resolved.regressions[last].solver.exact else REFITS):
            kept = after.weights.copy()
            fit(parts, [last], after)
            now = self._last_objective(after)
            if not now < before:
                after.weights[:] = kept
                break
            if before - now < REFIT * before:
                break
            before = now
        return after

    def _last_objective(self, state: State[MacState]) -> float:
        """E1, and the last layer's ridge and other penalties, per point.  Collective: yes."""
        last = len(self.plan.chain.segments) - 1
        shaping = self.team.from_root(lambda: self.parts.shaping_of(state, [last]))
        return self.parts.nested(self.parts.weights(state)).error + shaping / self.parts.points.total_weight
