"""The method of auxiliary coordinates with the quadratic penalty (MAC/QP), section 2 of the paper.

    Z-step    for each point n:       min over z_n of eq. (4)           points dealt to ranks, Allgatherv of Z
    W-step    for each unit (k, h):   min over w_kh of its regression   units dealt to ranks, Allgatherv of W

Every rank holds the data, all coordinates and all weights, and computes the tiles that the plan gives it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from macmpi.data import Dataset
from macmpi.layers import Array
from macmpi.objective import (
    Term,
    WProblem,
    ZProblem,
    nested_errors,
    nested_gradient,
    split_sites,
    sum_over,
)
from macmpi.plan import Plan, UnitDeal, UnitJob
from macmpi.record import Clock
from macmpi.state import State, block_views
from macmpi.streams import stream
from macmpi.team import AnyTeam


class Errors(NamedTuple):
    """Per point, with the 1/2: nested errors on both sets; E_Q and mean squared z - f at the end of the iteration."""

    train: float
    validation: float
    E_Q: float
    constraint: float


class MacQP:
    """MAC/QP as a Method: begin, start, sweep, evaluate, finish.  Collective: yes, where a method says so."""

    def __init__(self, plan: Plan, data: Dataset, team: AnyTeam, clock: Clock) -> None:
        self.plan, self.data, self.team, self.clock = plan, data, team, clock
        self.over_points = sum_over(plan.chunks)
        self.factors = np.zeros(plan.shared_bounds[-1])
        self.unit_errors = np.zeros(plan.unit_bounds[-1])
        self._features: dict[int, Array] = {}
        self._features_of: Array | None = None

    def weights(self, state: State) -> tuple[Array, ...]:
        """W_1, ..., W_{K+1} as views of the state's flat buffer.  Collective: no."""
        return block_views(state.weights, self.plan.chain.block_shapes)

    def begin(self, state: State) -> None:
        """What no State holds because the data determine it.  Collective: yes."""
        self._share_factors(self.plan.first_factor, state)

    def start(self, range_: float, gradient_step: bool, seed: int) -> State:
        """Random weights, one gradient step, feasible coordinates.  Collective: yes.

        w_kh ~ U[-range/sqrt(f_k), range/sqrt(f_k)] with fan-in f_k (section 4.2), biases and output layer alike.
        The gradient step begins at 1/N, is halved until E1 falls, and ends at the minimum of the parabola through
        E1, its slope and that value if E1 is lower there.  Rank 0 computes the gradient, once.
        """
        chain, team = self.plan.chain, self.team
        flat = np.concatenate(
            [
                stream(seed, "start", k).uniform(-1.0, 1.0, h * d) * (range_ / np.sqrt(d - 1))
                for k, (h, d) in enumerate(chain.block_shapes)
            ]
        )
        state = State(weights=flat, Z=np.zeros((self.plan.n_train, sum(chain.site_sizes))), mu=self.plan.schedule.mu0)
        if gradient_step:
            gradient = np.zeros_like(flat)
            if team.rank == 0:
                gradient[:] = nested_gradient(
                    chain, self.plan.loss, self.weights(state), self.data.X, self.data.Y, self.plan.chunks
                )
            team.share_array(gradient)
            self._gradient_step(state, gradient)
        self._feasible(state)
        return state

    def _gradient_step(self, state: State, gradient: Array) -> None:
        start, slope = state.weights.copy(), -float(gradient @ gradient) / self.plan.n_train

        def error_at(step: float) -> float:
            state.weights[:] = start - step * gradient
            return self._nested_error(state)

        before, step = error_at(0.0), 1.0 / self.plan.n_train
        while (after := error_at(step)) >= before and step > 1e-20:
            step *= 0.5
        curvature = after - before - slope * step
        best = -0.5 * slope * step**2 / curvature if curvature > 0.0 else step
        if not error_at(best) < after:
            error_at(step)

    def sweep(self, state: State) -> None:
        """One iteration: a Z-step, then a W-step.  Collective: yes."""
        if state.next_half == "z":
            self.z_step(state)
        self.w_step(state)
        state.iteration += 1
        state.mu_done = state.mu

    def z_step(self, state: State) -> None:
        """Eq. (4) for each point: own tiles, then Allgatherv of the coordinates.  Collective: yes."""
        plan, team = self.plan, self.team
        with self.clock("z"):
            shared = plan.z_solver.prepare(self.z_problem(plan.sample, state))
            for tile in plan.train.tiles_of(team.rank):
                state.Z[tile.rows] = plan.z_solver.solve(self.z_problem(tile.rows, state), shared).Z
        team.gather_rows(state.Z, plan.train.row_counts)
        self._features_of = None
        state.next_half = "w"

    def w_step(self, state: State) -> None:
        """One regression a unit: own tiles of units, then Allgatherv of the weights.  Collective: yes."""
        self._share_factors(self.plan.all_units, state)
        self._fit_units(self.plan.all_units, state)
        state.next_half = "z"

    def _share_factors(self, deal: UnitDeal, state: State) -> None:
        """What the units of a layer have in common: each layer's by one rank, then Allgatherv.  Collective: yes."""
        plan, team = self.plan, self.team
        with self.clock("w"):
            for k in deal.shared[team.rank]:
                self._factor(k)[:] = plan.w_solvers[k].prepare(self.features(k, state), self.over_points)
        team.gather_parts(self.factors, deal.shared_parts)

    def _fit_units(self, deal: UnitDeal, state: State) -> None:
        plan, team, weights = self.plan, self.team, self.weights(state)
        with self.clock("w"):
            parts = deal.error_parts[team.rank]
            for job, part in zip(deal.jobs[team.rank], parts, strict=True):
                fit = plan.w_solvers[job.segment].solve(self.w_problem(job, state), self.over_points)
                weights[job.block][job.tile.rows] = fit.W
                self.unit_errors[part] = fit.errors
        team.gather_parts(state.weights, deal.weight_parts)
        team.gather_parts(self.unit_errors, deal.error_parts)

    def z_problem(self, rows: slice | Array, state: State) -> ZProblem:
        """Eq. (4) for some points at the state's weights and mu.  Collective: no."""
        plan = self.plan
        mu = (state.mu,) * len(plan.chain.site_sizes)
        X, Y, Z = self.data.X[rows], self.data.Y[rows], state.Z[rows]
        return ZProblem(plan.chain, self.weights(state), plan.loss, mu, X, Y, Z)

    def w_problem(self, job: UnitJob, state: State) -> WProblem:
        """The regression of a tile of units at the state's coordinates and mu.  Collective: no."""
        k, plan = job.segment, self.plan
        targets = [*split_sites(plan.chain, state.Z), self.data.Y]
        ridge = plan.ridge.of_unit(state.mu, output=k == len(targets) - 1)
        W = self.weights(state)[job.block][job.tile.rows]
        term = Term(self.features(k, state), targets[k][:, job.tile.rows])
        return WProblem((term,), plan.activations[k], ridge, W, self._factor(k))

    def features(self, k: int, state: State) -> Array:
        """What segment k's weights multiply: z_{k-1} (z_0 = x), or its activations, once a W-step.  Collective: no."""
        segment = self.plan.chain.segments[k]
        A = self.data.X if k == 0 else split_sites(self.plan.chain, state.Z)[k - 1]
        if self._features_of is not state.Z:
            self._features, self._features_of = {}, state.Z
        if k not in self._features:
            self._features[k] = segment.features(A)
        return self._features[k]

    def _factor(self, k: int) -> Array:
        bounds = self.plan.shared_bounds
        return self.factors[bounds[k] : bounds[k + 1]].reshape(self.plan.shared_shape(k))

    def _feasible(self, state: State) -> None:
        """z_k = f_k(z_{k-1}) for all k and points.  Collective: yes."""
        chain, weights = self.plan.chain, self.weights(state)
        for tile in self.plan.train.tiles_of(self.team.rank):
            state.Z[tile.rows] = np.hstack(chain.coordinates(weights, self.data.X[tile.rows]))
        self.team.gather_rows(state.Z, self.plan.train.row_counts)
        self._features_of = None

    def _nested_error(self, state: State, validation: bool = False) -> float:
        """E1 (eq. 1) per point on either set: blocks of points, added in order.  Collective: yes."""
        data, weights = self.data, self.weights(state)
        deal = self.plan.validation if validation else self.plan.train
        X, Y = (data.X_val, data.Y_val) if validation else (data.X, data.Y)
        sums = np.zeros((len(deal.blocks), 1))
        for b, block in deal.blocks_of(self.team.rank):
            for t in block:
                sums[b] += nested_errors(self.plan.chain, self.plan.loss, weights, X[t.rows], Y[t.rows]).sum()
        self.team.gather_rows(sums, deal.block_counts)
        return float(sums.sum()) / len(X)

    def evaluate(self, state: State, feasible: bool = False) -> Errors:
        """Errors at the present weights and coordinates.  Collective: yes.

        E_Q and the constraint come from the W-step's own residuals (the splitting of eq. (3) by unit); where Z is
        feasible (at the start and after postprocessing) E_Q = E1.
        """
        train, validation = self._nested_error(state), self._nested_error(state, validation=True)
        if feasible:
            return Errors(train, validation, train, 0.0)
        N, units = self.plan.n_train, sum(self.plan.chain.site_sizes)
        output = float(self.unit_errors[units:].sum())
        hidden = float(self.unit_errors[:units].sum())
        return Errors(train, validation, 0.5 * (output + state.mu * hidden) / N, hidden / (N * units))

    def finish(self, state: State) -> State:
        """Postprocessing: Z feasible, then a refit of the last layer, kept if E1 + ridge falls.  Collective: yes."""
        mu = state.mu_done or state.mu
        after = State(
            weights=state.weights.copy(), Z=state.Z.copy(), mu=mu, iteration=state.iteration, seconds=state.seconds
        )
        before = self._last_objective(after)
        self._feasible(after)
        self._share_factors(self.plan.last_units, after)
        self._fit_units(self.plan.last_units, after)
        if not self._last_objective(after) < before:
            after.weights[:] = state.weights
        return after

    def _last_objective(self, state: State) -> float:
        V = self.weights(state)[-1][:, :-1]
        ridge = self.plan.ridge.of_objective(state.mu, output=True)
        return self._nested_error(state) + 0.5 * ridge * float(np.sum(V * V)) / self.plan.n_train
