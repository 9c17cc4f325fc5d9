"""The method of auxiliary coordinates, section 2 of the paper: quadratic penalty (MAC/QP) or augmented Lagrangian.

    Z-step    for each point n:       min over z_n of eq. (4)           points partitioned, Allgatherv of Z
    W-step    for each unit (k, h):   min over w_kh of its regression   units assigned, Allgatherv of W

Every rank holds all weights and computes the tiles that the plan gives it.  Replicated, it holds all data and
coordinates too, or shares them with the ranks of its node: a rank then writes its own rows between `Team.fence` and the
exchange and reads no others meanwhile.  Sharded, it holds its own points: only sums over points and weights are
exchanged, and all ranks do every regression together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from macmpi.data.dataset import Dataset
from macmpi.half_steps.evaluation import Evaluation
from macmpi.half_steps.subproblems import Subproblems
from macmpi.half_steps.w_step import Fitting
from macmpi.method import Account
from macmpi.nets.losses import times
from macmpi.parallel.blocks import commonly
from macmpi.parallel.clock import Clock
from macmpi.parallel.points import Points
from macmpi.parallel.team import Team
from macmpi.plan.initial import random_weights
from macmpi.plan.plan import Plan
from macmpi.solvers.w_problem import SegmentProblem, gradients
from macmpi.state import Errors, Pause, State, never
from macmpi.typing import Array

RANGE = 2.0
"""Twice the paper's range of random weights: where start.range is 0."""

REFITS, REFIT = 5, 1e-4
"""How often an inexact refit is repeated, and the relative fall below which it is not."""


class Mac:
    """MAC as a Method: begin, start, sweep, move_multipliers, evaluate, finish.  Collective: where a method says so."""

    def __init__(self, plan: Plan, data: Dataset, team: Team, clock: Clock) -> None:
        self.plan, self.data, self.team, self.clock = plan, data, team, clock
        self.points = Points(plan.train, plan.summed, team, max(plan.all_units.widest, plan.first_gram.widest))
        self.over_points = self.points.over
        self.evaluation = Evaluation(plan, data, team)
        self.problems = Subproblems(plan, data, self.points)
        self.fitting = Fitting(plan, team, clock, self.problems, self.evaluation)

    @property
    def own_range(self) -> float:
        """The range of random weights where start.range is 0.  Collective: no."""
        return RANGE

    @property
    def mac(self) -> Mac:
        """Itself: a method around MAC gives the MAC inside.  Collective: no."""
        return self

    @property
    def account(self) -> Account:
        """The W-solver of each segment.  Collective: no."""
        return Account(self.fitting.words)

    def weights(self, state: State) -> tuple[Array, ...]:
        """W_1, ..., W_{K+1} as views of the state's flat buffer.  Collective: no."""
        return self.problems.weights(state)

    def begin(self, state: State) -> None:
        """What the data determine: the first segment's features, and the factor that a new State lacks.

        Collective: yes.
        """
        if self.plan.chain.segments[0].core:
            self.problems.features(0, state, together=True)
        if not len(state.grams):
            state.grams = self._no_grams()
            self.fitting.regress(self.plan.first_gram, state, self.plan.w_solvers)
        state.grams = commonly(self.team, state.grams)

    def _no_grams(self) -> Array:
        """Collective: yes."""
        grams: Array = self.team.array((self.plan.shared_bounds[-1],), np.float64)
        return grams

    def start_from(self, codes: Array, seed: int, range_: float) -> State:
        """The given coordinates (N, sum H), and the weights of a W-step from random ones.  Collective: yes."""
        state = self._new(random_weights(self.plan, range_, seed))
        state.Z[self.points.own] = codes[self.points.own]
        self._exchange(state.Z)
        state.grams = self._no_grams()
        self.problems.renew_metric(state)
        self.fit(range(len(self.plan.chain.segments)), state)
        state.metric_mu = 0.0
        self.problems.renew_metric(state)
        return state

    def start(self, range_: float, gradient_step: bool, seed: int) -> State:
        """Random weights, one gradient step, feasible coordinates.  Collective: yes.

        w_kh ~ U[-range/sqrt(f_k), range/sqrt(f_k)] with fan-in f_k (section 4.2), biases and output layer alike.
        """
        return self.start_at(random_weights(self.plan, range_, seed), gradient_step)

    def start_at(self, weights: Array, gradient_step: bool) -> State:
        """The given weights (flat), one gradient step, feasible coordinates, no multipliers.  Collective: yes.

        Where a layer has no derivative there is no gradient step.  Unless points are sharded, rank 0 alone computes the
        gradient.
        """
        plan, team = self.plan, self.team
        state = self._new(weights)
        for k, segment in enumerate(plan.chain.segments):
            if segment.trailing:
                self._feasible(state)
                self.fitting.train(plan.untrained(k, state.weights), state)
        if gradient_step and plan.chain.differentiable:
            gradient = np.zeros(len(weights))
            if team.rank == 0 or plan.sharded:
                chain, data = plan.chain, self.data
                nested = SegmentProblem(chain.whole, plan.loss, data.X, data.Y, chain.block_shapes, 0.0, state.weights)
                gradient[:] = gradients(nested, nested.start, self.over_points)[1][0]
            if not plan.sharded:
                team.share_array(gradient)
            self.evaluation.gradient_step(state.weights, gradient)
        self._feasible(state)
        return state

    def _new(self, weights: Array) -> State:
        """The given weights (flat); coordinates and multipliers, if there are any, 0.  Collective: yes."""
        plan = self.plan
        shape = self.points.count, sum(plan.chain.site_sizes)
        state = State(weights.astype(plan.dtype), self.team.array(shape, plan.dtype), plan.schedule.mu0)
        if plan.schedule.multipliers:
            state.multipliers = self.team.array(shape, plan.dtype)
        return state

    def sweep(self, state: State, pause: Pause = never) -> bool:
        """One iteration: a Z-step, then a W-step.  Collective: yes."""
        if state.next_half == "z":
            self.z_step(state)
            if pause():
                return False
        self.w_step(state)
        state.iteration += 1
        state.mu_done = state.mu
        return True

    def z_step(self, state: State) -> None:
        """Eq. (4) for each point: own tiles, then Allgatherv of the coordinates.  Collective: yes."""
        plan, team = self.plan, self.team
        if plan.chain.sites:
            with self.clock("z"):
                self.problems.renew_metric(state)
                metrics = self.problems.metrics(state)
                sample = self.problems.z_problem(self.points.sample, state, metrics)
                shared = plan.z_solver.prepare(sample, self.points.average)
                team.fence(state.Z)
                for tile in plan.train.tiles_of(team.rank):
                    problem = self.problems.z_problem(tile.rows, state, metrics)
                    state.Z[tile.rows] = plan.z_solver.solve(problem, shared).Z
            self._exchange(state.Z)
        self.problems.forget()
        state.next_half = "w"

    def w_step(self, state: State) -> None:
        """One regression a unit: own tiles of units, then Allgatherv of the weights.  Collective: yes."""
        plan = self.plan
        before = state.weights.copy() if plan.chain.quantised else state.weights
        renew = state.iteration % plan.factor_every == 0
        self.fitting.train(plan.leading_layers, state)
        self.fitting.regress(plan.all_units if renew else plan.exact_units, state, plan.w_solvers)
        self.fitting.train(plan.trailing_layers, state)
        self.fitting.keep_better(before, state)
        state.next_half = "z"

    def fit(self, segments: Sequence[int], state: State) -> None:
        """The W-step of some segments alone, not over-relaxed.  Collective: yes."""
        plan = self.plan
        self.fitting.train(plan.leading(segments), state)
        if 0 in segments:
            self.problems.forget_all()
        self.fitting.regress(plan.deal(segments), state, plan.plain_solvers)
        self.fitting.train(plan.trailing(segments), state)

    def notes(self) -> dict[str, Any]:
        """Further keys of an iteration's record.  Collective: no."""
        return {}

    def move_multipliers(self, state: State) -> None:
        """lambda_k <- lambda_k - M_k (z_k - f_k(z_{k-1})), bounded: own points, then Allgatherv.  Collective: yes."""
        plan, team, metrics = self.plan, self.team, self.problems.metrics(state)
        team.fence(state.multipliers)
        with self.clock("z"):
            for tile in plan.train.tiles_of(team.rank):
                problem = self.problems.z_problem(tile.rows, state, metrics, shifted=False)
                rows = problem.sites(state.multipliers[tile.rows])
                outputs = zip(rows, problem.sites(problem.Z), problem.outputs(problem.Z), metrics, strict=False)
                for multipliers, z, f, form in outputs:
                    multipliers -= times(z - f, form.M)
            bound, own = plan.schedule.multiplier_max, state.multipliers[self.points.own]
            np.clip(own, -bound, bound, out=own)
        self._exchange(state.multipliers)
        self.problems.forget()

    def _exchange(self, rows: Array) -> None:
        """Each rank has computed its own points' rows; on return every rank has those that it holds."""
        if not self.plan.sharded:
            self.team.gather_rows(rows, self.plan.train.row_counts)

    def _feasible(self, state: State) -> None:
        """z_k = f_k(z_{k-1}) for all k and points.  Collective: yes."""
        chain, weights = self.plan.chain, self.weights(state)
        if chain.sites:
            self.team.fence(state.Z)
            for tile in self.plan.train.tiles_of(self.team.rank):
                state.Z[tile.rows] = np.hstack(chain.coordinates(weights, self.data.X[tile.rows]))
            self._exchange(state.Z)
        self.problems.forget()

    def evaluate(self, state: State, feasible: bool = False) -> Errors:
        """Errors at the present weights and coordinates.  Where Z is feasible, E_Q = E1.  Collective: yes.

        The training error of a net of radial basis functions holds the ridge, as in eq. (6).
        """
        train = self.evaluation.nested(self.weights(state))
        validation = self.evaluation.nested(self.weights(state), validation=True)
        ridge = self.ridge_of(state, range(len(self.plan.chain.segments))) if self.plan.has_basis else 0.0
        errors = Errors(train.error + ridge / self.plan.n_train, validation.error, train.error, 0.0)
        if not feasible and self.plan.chain.sites:
            metrics = self.problems.metrics(state)
            E_Q, constraint, work = self.evaluation.penalised(
                lambda rows: self.problems.z_problem(rows, state, metrics, shifted=False), state.multipliers
            )
            errors = errors._replace(E_Q=E_Q, constraint=constraint)
            if self.plan.schedule.multipliers:
                errors = errors._replace(lagrangian=E_Q - work)
        if self.plan.schedule.multipliers:
            lagrangian = errors.E_Q if errors.lagrangian is None else errors.lagrangian
            own = np.abs(state.multipliers[self.points.own])
            largest = self.team.max_over_ranks({"multiplier": float(own.max(initial=0.0))})
            errors = errors._replace(lagrangian=lagrangian, **largest)
        if self.plan.loss.labels:
            errors = errors._replace(wrong_train=train.wrong, wrong_validation=validation.wrong)
        return errors

    def finish(self, state: State) -> State:
        """Postprocessing: Z feasible, then a refit of the last layer, kept if E1 + ridge falls.  Collective: yes.

        Without coordinates there is nothing to do.  Sharded coordinates are overwritten: there may be no room for two.
        The refit is repeated while it lowers E1 + ridge by more than `REFIT`, unless one is exact.
        """
        plan = self.plan
        Z = state.Z if plan.sharded else self.team.array(state.Z.shape, state.Z.dtype)
        after = replace(state, weights=state.weights.copy(), Z=Z, grams=state.grams.copy())
        moved = state.multipliers
        after.mu, after.multipliers = state.mu_done or state.mu, np.zeros(moved.shape, moved.dtype)
        if not plan.chain.sites:
            return after
        self._feasible(after)
        before, last = self._last_objective(after), len(plan.chain.sites)
        for _ in range(1 if plan.w_solvers[-1].exact else REFITS):
            kept = after.weights.copy()
            self.fit([last], after)
            now = self._last_objective(after)
            if not now < before:
                after.weights[:] = kept
                break
            if before - now < REFIT * before:
                break
            before = now
        return after

    def _last_objective(self, state: State) -> float:
        last = len(self.plan.chain.segments) - 1
        ridge = self.team.from_root(lambda: self.ridge_of(state, [last]))
        return self.evaluation.nested(self.weights(state)).error + ridge / self.plan.n_train

    def ridge_of(self, state: State, segments: Sequence[int]) -> float:
        """sum lambda/2 ||V||^2 over the weights of some segments' regressions.  Collective: no."""
        plan, weights, total = self.plan, self.weights(state), 0.0
        for k in segments:
            ridge = plan.unit_ridge(k, state.mu) * plan.weight_of(k, state.mu)
            for b in plan.chain.segments[k].regressed:
                total += 0.5 * ridge * float(np.sum(np.square(weights[b][:, : plan.chain.fan_in(b)], dtype=float)))
        return total
