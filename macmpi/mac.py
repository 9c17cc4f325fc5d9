"""The method of auxiliary coordinates, section 2 of the paper: quadratic penalty (MAC/QP) or augmented Lagrangian.

    Z-step    for each point n:       min over z_n of eq. (4)           points partitioned, Allgatherv of Z
    W-step    for each unit (k, h):   min over w_kh of its regression   units assigned, Allgatherv of W

Every rank holds all weights, and computes the tiles of points and units that the plan assigns to it.  With replicated
points it also holds all data and coordinates, or shares one copy with the ranks of its node; it writes its own rows
inside `with points.writing(...)`, and reads no other rows there.  If points are spread over the ranks it holds only
its own: then ranks exchange sums over points and weights alone, and work on every regression together.
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
"""An inexact refit of the last layer is repeated until it was made this number of times."""

REFIT = 1e-4
"""An inexact refit is not repeated where it lowered E1 + ridge by less than this share."""


class Mac(TrainingMethod[MacState]):
    """Trains by full MAC: the training loop calls begin, sweep, move_multipliers and finish.

    Collective: methods that say so.
    """

    @property
    def text(self) -> MethodText:
        """Describes the run for messages: the W-solver of each segment, when full MAC has settled.  Collective: no."""
        schedule = self.plan.resolved.schedule
        settled = FLAT if schedule.patience else STILL if schedule.discrete else SETTLED
        return MethodText(words(self.plan), settled=settled)

    def new_record(self, state: State[MacState]) -> MacState:
        """Returns the record of the first State, which was made with it.  Collective: no."""
        return state.own

    def begin(self, state: State[MacState]) -> None:
        """Computes the features of the first segment, and their Gram where a new State lacks it.  Collective: yes."""
        self.parts.begin_first(state)
        if not len(state.own.grams):
            state.own.grams = self.team.array((self.plan.offsets.grams[-1],), np.float64)
            solve(self.parts, self.plan.work.first_gram, state)
        state.own.grams = share_on_node(self.team, state.own.grams)

    def sweep(self, state: State[MacState], pause: Pause = never) -> bool:
        """Does one iteration: for each minibatch of coordinates, usually one, a Z-step and then a W-step.

        pause: is asked after each Z-step whether to stop there; sweep then returns False, otherwise True.
        Collective: yes.
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
        """Ends an iteration with a W-step; methods built on MAC do something else in its place.  Collective: yes."""
        self.w_step(state)

    def z_step(self, state: State[MacState]) -> None:
        """Solves eq. (4) for each point of the present minibatch; other points keep their coordinates.

        Each rank solves its own tiles, and the end of `writing` exchanges the coordinates (Allgatherv).  The
        preconditioner, which all points share, is made first, from a sample of them.  Collective: yes.
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
        """Solves the regression of each unit: each rank solves its own tiles; an Allgatherv of the weights follows.

        Each `solve` carries out a work list, the exchange included.  Trainers fit the leading layers before, and the
        trailing layers after the regressions.  A segment with a quantiser keeps its old weights if these were better.
        Collective: yes.
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
        """lambda_k <- lambda_k - mu M_k (z_k - f_k(z_{k-1})), clipped to +-multiplier_max.

        The sign follows from the Lagrangian, which has -lambda_k^T (z_k - f_k).  Each rank moves the multipliers of its
        own points; an Allgatherv follows.  Collective: yes.
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
        """Postprocesses: sets Z = f, then refits the last layer, and keeps the refit where E1 + ridge falls.

        It returns a new State and leaves the old one as it is, except for the coordinates of many points that are
        spread over the ranks: these it overwrites, because memory may not hold them twice.  An inexact refit is
        repeated while it lowers E1 + ridge by a share of at least `REFIT`.  Without coordinates nothing is done.
        Collective: yes.
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
        """Computes E1 and the penalties of the last layer's weights (ridge, l1), per point.  Collective: yes."""
        last = len(self.plan.chain.segments) - 1
        shaping = self.team.from_root(lambda: self.parts.shaping_of(state, [last]))
        return self.parts.nested(self.parts.weights(state)).error + shaping / self.parts.points.total_weight
