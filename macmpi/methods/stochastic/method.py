"""Stochastic MAC: minibatches whose coordinates stay feasible, so that none is kept from one to the next.

For each minibatch: coordinates z_k = f_k(z_{k-1}); Z-step and W-step each to first order, in the metrics of
curvature.py; then a step along that direction D and the last step P,

    W <- W + x D + y P,   x = STRIDE times the minimum along D of the Gauss-Newton model of a minibatch, y: momentum;

the weights of points, divided by their mean, multiply losses; the damping follows the ratio of actual to predicted
decrease.  What a run shows and keeps is the running average of the weights.  The points of a minibatch are assigned to
ranks and their sums added up a tree of fixed parts; directions are assigned by units, inverses one by one: the same
bits on any number of ranks.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from macmpi.account import COORDINATES, FLAT, Account
from macmpi.data.dataset import Dataset
from macmpi.half_steps.ends import random_block, remember
from macmpi.methods.choose import Nested
from macmpi.methods.stochastic import moves as moving
from macmpi.methods.stochastic import start as opening
from macmpi.methods.stochastic.curvature import RunningCurvature, Tapes
from macmpi.methods.stochastic.looks import Drawn, Looks
from macmpi.methods.stochastic.schedule import STRIDE, Damping, Minibatches, Running, Schedule, schedule_of, steadied
from macmpi.nets.losses import weighted
from macmpi.parallel.balance import contiguous_runs
from macmpi.parallel.clock import Clock, now
from macmpi.parallel.shared_work import TreeSum
from macmpi.parallel.team import Team
from macmpi.parallel.tiles import Tile
from macmpi.plan.directions import damped
from macmpi.plan.minibatches import ADAPT, EARLY, FACTS, MEASURE, REMADE, REMADE_LATER, RENEWED
from macmpi.plan.plan import Plan
from macmpi.state import Pause, StochasticState, never
from macmpi.typing import Array

LEVEL = 0.1
"""The share of a new loss in its running mean."""

FIRST = 3
"""The first minibatches have inverses of their own, each."""


class Stochastic(Nested[StochasticState]):
    """Stochastic MAC as a Method: an iteration is an epoch or a part of one.  Collective: where a method says so."""

    def __init__(self, plan: Plan, data: Dataset, team: Team, clock: Clock) -> None:
        super().__init__(plan, data, team, clock)
        keys, self.partition = plan.resolved.stochastic, plan.work.parts
        self.rows = {b: Tile(own[0].start, own[-1].stop) for b, own in self.partition.blocks_of(team.rank)}
        least_part = min(len(self.partition.points(b, b + 1)) for b in range(len(self.partition.blocks)))
        self.minibatches = Minibatches(plan, self.rows, least_part)
        batch = self.minibatches.points(0)
        layers = damped(plan.chain, plan.resolved.loss, data.autoencoder, batch)
        count = plan.offsets.weights[-1]
        widest = count + FACTS, sum(d * d for _, d in plan.chain.block_shapes)
        gradients, self.sum = (TreeSum(len(self.partition.blocks), team, plan.dtype.itemsize * w) for w in widest)
        self.curvature = RunningCurvature(plan, layers, self.rows, self.sum, clock)
        self.layout = self.curvature.layout
        self.ridge = schedule_of(keys.ridge, plan.n_train, plan.chain.n_in, data.autoencoder)
        self.directions = moving.Directions(self.curvature, self._scaled_points(0))
        self.moves = moving.Moves(team, self.directions.places)
        self._shares = [run.rows for run in contiguous_runs(count, self.sum.leaves)]
        self._held = np.ones(count, bool)  # by the ridge: all but biases
        for held in self.layout.blocks(self._held):
            held[:, -1] = False
        classes = plan.chain.n_out if plan.resolved.loss.labels else 0
        slope = team.from_root(lambda: opening.slope(plan.chain))
        self.damping = Damping(classes, slope, keys.damping, data.autoencoder, batch, layers.dense)
        self.schedule = Schedule(self.minibatches, keys.averaging, layers.dense)
        heavy = None if data.weights is None else data.weights * (plan.n_train / self.parts.points.weight)
        self.looks = Looks(data, self.curvature, gradients, heavy)
        self.few = data.autoencoder and not self.ridge.at(0)

    @property
    def account(self) -> Account:
        """Its minibatches, averages and first damping.  Collective: no."""
        iterations = self.plan.resolved.schedule.max_iterations
        first, last = (int(self.minibatches.points(iteration)) for iteration in (0, max(iterations - 1, 0)))
        sizes = f"{first}" if first == last else f"{first} to {last}"
        idle, parts = sum(not rows for rows in self.plan.work.parts.row_counts), len(self.partition.blocks)
        lazy = f"; {idle} of {self.team.size} ranks mostly wait: stochastic.parts = {parts}" if idle else ""
        averaging, damping = self.schedule.words(iterations), f"damping {self.damping.first:g}"
        how = f"batch {sizes}, {averaging}, {damping}{self.ridge.words}{lazy}"
        stepped = "a minibatch's step (more stochastic.damping may help)"
        remedy = "more damping (stochastic.damping)"
        return Account(f"stochastic MAC: {how}", "averaged weights", FLAT, COORDINATES, stepped, remedy)

    def new_record(self, weights: Array) -> StochasticState:
        """The first damping.  Collective: no."""
        return StochasticState(damping=self.damping.first)

    def start(self, range_: float, gradient_step: bool, seed: int) -> Running:
        """Random weights, and where no range is asked for a code of principal components.  Collective: yes."""
        self.team.barrier("the start")
        began, chain, empty = now(), self.plan.chain, self.directions.empty()
        draw = partial(random_block, self.plan, range_=1.0, seed=seed)
        flat = opening.random_jointly(draw, self.layout.weights, empty, self.team)
        weights, sample = self.layout.blocks(flat), self._sample()
        if not range_ and self.data.autoencoder and opening.carries(chain):
            opening.start_layers(chain, weights, sample, self.layout.blocks(empty), self.team)
        else:
            opening.scale_random(chain, weights, range_)
            remember(self.plan, flat, seed)
            if not range_ and (code := opening.code_of(chain)) is not None:
                opening.principal_code(chain, code, weights, sample)
        self.team.share_array(flat)  # rank 0's
        state = self._started(flat, sample)
        state.seconds = now() - began
        return state

    def start_at(self, weights: Array, gradient_step: bool) -> Running:
        """The given weights (flat), and with a step the output layer fitted to some points.  Collective: yes."""
        return self._started(weights, self._sample(), gradient_step)

    def _sample(self) -> opening.Sample:
        return opening.Sample(self.data, self.rows, self.sum, self.looks.point_weights)

    def _started(self, weights: Array, sample: opening.Sample, fitted: bool = True) -> Running:
        """fitted: the output layer is (of labels 0).  sample: no further through the net than the weights before have
        been seen.  Collective: yes.
        """
        state, chain, loss = super().start_at(weights, False), self.plan.chain, self.plan.resolved.loss
        found = list(self.weights(state))
        if fitted and chain.ends_affine:
            if loss.labels:
                found[-1][:] = 0.0
            else:
                empty = self.layout.blocks(self.directions.empty())[-1]
                opening.fit_output(chain, found, loss, sample, empty, self.team)
        state.own.average, state.own.step = state.weights.copy(), np.zeros_like(state.weights)
        self.curvature.begin(state, self.data.X, self.looks.point_weights)
        return state

    def begin(self, state: Running) -> None:
        """Puts what ranks move where those of a node share it.  Collective: yes."""
        self.moves.share(state)
        self.curvature.share(state)

    def sweep(self, state: Running, pause: Pause = never) -> bool:
        """An iteration from its minibatch state.position on; it may pause where Grams are folded.  Collective: yes.

        Where the iteration before has lost the weights, it begins at the best ones, with more damping.
        """
        places = self.minibatches.of_iteration(state.iteration)
        self.directions.assign(self._scaled_points(state.iteration))
        self.moves.places = self.directions.places
        if state.position == 0 and moving.is_lost(self.parts.evaluation, state):
            moving.begin_again(self.moves, state)
        while state.position < len(places):
            whole = self.step(self.minibatches.drawn(state.iteration, places[state.position]), state)
            state.position += 1
            if whole and state.position < len(places):
                self._complete(state)
                if pause():
                    return False
        self.curvature.fold(state)
        self._complete(state)
        state.completed()
        return True

    def _complete(self, state: Running) -> None:
        """All ranks have all of the State.  Collective: yes."""
        self.moves.complete(state)
        self.curvature.complete(state)

    def step(self, rows: Drawn, state: Running) -> bool:
        """One minibatch of this rank's rows by part; True if the State is whole: Grams folded.  Collective: yes."""
        ridge = self.ridge.at(self.minibatches.epoch(state.iteration))
        early = state.own.steps < FIRST
        spectra = early or state.own.steps % REMADE_LATER == 0 or not state.own.inverses[0]
        renew = spectra or (state.own.steps < EARLY and state.own.steps % REMADE == 0)
        adapt = (state.own.steps + 1) % ADAPT == 0
        sides = self.directions.sides(self._scaled_points(state.iteration))
        with self.clock("z"):
            look = self.looks.losses(rows, state) if renew else self.looks.with_slopes(rows, sides, ridge, state)
        loss, n, tapes = look.loss, look.n, look.tapes
        if state.own.steps and moving.gone_wrong(loss, look.square, n, state.own.level):
            moving.take_back(self.moves, state)
            return False
        level = state.own.level
        state.own.level = level + LEVEL * (min(loss, moving.SURGE * level) - level) if state.own.steps else loss
        if early or state.own.steps % RENEWED == 0:
            self.curvature.note(tapes, look.probed, state)
        damping = self.damping.of_inverses(state.own.damping, state.own.level) + ridge
        if renew:
            self.curvature.factor(tapes, look.probed, damping, state, spectra)
        with self.clock("z"):
            slopes = self.looks.slopes(look, sides, ridge, state)
        of = (slopes, n, damping, sides, state)
        damping = self.damping.of_length(state.own.damping, state.own.level) + ridge
        measure = renew or state.own.steps % MEASURE == 0
        few = self.few and (measure or adapt)
        some, count = ({i: seen.few for i, seen in tapes.items()}, look.probed) if few else (tapes, n)
        if measure:
            D = self.directions.whole(*of)
            slope, curvature = self._along(D, some, count, ridge, damping, state)
            found = slope / curvature if curvature > 0.0 else 0.0
            steady = few and self.schedule.dense and not early
            state.own.length = steadied(state.own.length, found) if steady else found
            state.own.measured = loss
        own = self.moves.places[self.team.rank]
        runs = ((place, D[place]) for place in own) if measure else self.directions.runs(*of)
        length = STRIDE * state.own.length * self.damping.of_loss(loss, state.own.measured, state.own.level)
        rate, kept = self.schedule.rate(state), self.schedule.momentum(state.iteration)
        self.moves.step(state, rate, kept, runs, length, go=not adapt)
        state.own.steps += 1
        if adapt:  # the tapes see the weights: before these move
            self.moves.show(state.own.step)
            slope, curvature = self._along(state.own.step, some, count, ridge, damping, state)
            self.moves.go(state)
        self.moves.show(state.weights)
        if adapt:
            points = {i: own[tapes[i].probed] for i, own in rows.items()} if few else rows
            self._adapt(points, some, count, slope - 0.5 * curvature, ridge, state)
        return renew

    def _scaled_points(self, iteration: int) -> float:
        """Points of a minibatch to whose slopes inverses may be applied: with a ridge to the whole gradient alone."""
        ridge = self.ridge.at(self.minibatches.epoch(iteration))
        return np.inf if ridge else self.minibatches.points(iteration)

    def _along(
        self, way: Array, tapes: Tapes, n: float, ridge: float, damping: float, state: Running
    ) -> tuple[float, float]:
        """b and h of the damped Gauss-Newton model -b t + 1/2 h t^2 along a way w of the weights.  Collective: yes.

        h = mean of (J w)^T B^T B (J w) + damping w^T w, b = mean of r^T J w - ridge W^T w, r: minus the loss's slope.
        """
        blocks = self.layout.blocks(way)

        def add(i: int, out: Array) -> None:
            seen, own = tapes[i], self._shares[i]
            change = seen.tape.weight_jvp(blocks)
            loss = weighted(self.plan.resolved.loss, seen.weights)
            curved = np.vdot(change, loss.root(seen.Y, seen.tape.F).normal(change))
            pull = self._pull(state.weights[own], way, own) if ridge else 0.0
            out += curved, np.vdot(change, seen.residual), np.vdot(way[own], way[own]), pull

        with self.clock("z"):
            curved, falls, square, pull = self.sum(add, 4).tolist()
        return falls / n - ridge * pull, curved / n + damping * square

    def _pull(self, W: Array, way: Array, own: slice) -> float:
        """W . P for a share of the weights and a way P of theirs, without biases: the slope of ||W||^2 / 2 along it.

        Ranks add up what each makes of its share, for processors round it in different ways.  Collective: no.
        """
        return float(np.vdot(W * self._held[own], way[own]))

    def _adapt(self, rows: Drawn, tapes: Tapes, n: float, predicted: float, ridge: float, state: Running) -> None:
        """The damping, from the decrease of the loss at n points and of the ridge against the predicted one.

        That of the ridge is (lambda / 2) (||W||^2 - ||W - P||^2) = lambda (W - P / 2) . P, for the weights W after a
        step P.  rows: this rank's of these points, by part; tapes: before the step.  Collective: yes.
        """
        weights, chain, step = self.weights(state), self.plan.chain, state.own.step

        def add(i: int, out: Array) -> None:
            seen = tapes[i]
            loss = weighted(self.plan.resolved.loss, seen.weights)
            moved = chain.forward(weights, self.data.X[rows[i]])
            before, after = (loss.value(seen.Y, F).sum(dtype=float) for F in (seen.tape.F, moved))
            own = self._shares[i]
            grown = self._pull(state.weights[own] - 0.5 * step[own], step, own) if ridge else 0.0
            out += before - after, grown

        with self.clock("z"):
            fallen, grown = self.sum(add, 2).tolist()
        fallen = fallen / n - ridge * grown
        ratio = fallen / predicted if predicted > 0.0 else 0.0
        state.own.damping = self.damping.adapted(state.own.damping, ratio, ADAPT)
