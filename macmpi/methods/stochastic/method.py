"""Stochastic MAC approximates both half steps to first order on minibatches, whose coordinates are always feasible.

So no coordinates are kept from one minibatch to the next.  Each minibatch computes z_k = f_k(z_{k-1}).  Z-step and
W-step to first order, in the metrics of curvature.py, give a direction D, and the weights move along D and the last
step P:

    W <- W + x D + y P,   x = STRIDE times the minimum along D of the Gauss-Newton model of a minibatch, y: momentum.

Losses are multiplied by the weights of points, divided by their mean.  The damping follows the ratio of actual to
predicted decrease.  A run shows and keeps the running average of the weights.

For the same bits on any number of ranks, a minibatch is cut into fixed parts, whose sums are added up a tree.  Ranks
share the parts, the units whose directions they compute, and the inverses.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from macmpi.data.dataset import Dataset, share_arrays
from macmpi.half_steps.method import COORDINATES, FLAT, MethodText, TrainingMethod, random_weights, remember
from macmpi.methods.stochastic import moves as moving
from macmpi.methods.stochastic import start as opening
from macmpi.methods.stochastic.curvature import RunningCurvature
from macmpi.methods.stochastic.passes import FACTS, Drawn, GaussNewton, MinibatchPass, Passed, Points
from macmpi.methods.stochastic.schedule import Damping, Due, RidgeSchedule, Running, Schedule, steadied
from macmpi.parallel.clock import now
from macmpi.parallel.shared_work import TreeSum
from macmpi.parallel.team import Team
from macmpi.parallel.tiles import Tile
from macmpi.plan import tuned
from macmpi.plan.directions import forms_of
from macmpi.plan.plan import Plan
from macmpi.state import Errors, MacState, Pause, State, StochasticState, never
from macmpi.typing import Array

LEFT = ("average", "step", "grams", "inverses", "spectra")
"""The arrays of a record that the next piece of a stream goes on from."""


class Stochastic(TrainingMethod[StochasticState]):
    """Trains by stochastic MAC; an iteration is an epoch or a part of one.  Collective: methods that say so."""

    def __init__(self, plan: Plan, data: Dataset, team: Team) -> None:
        super().__init__(plan, data, team)
        keys, self.partition = plan.resolved.stochastic, plan.work.parts
        self.rows = {b: Tile(own[0].start, own[-1].stop) for b, own in self.partition.blocks_of(team.rank)}
        forms, count = forms_of(plan), plan.offsets.weights[-1]
        self.schedule = Schedule(plan, self.rows, forms.dense_autoencoder)
        widest = count + FACTS, sum(d * d for _, d in plan.chain.block_shapes)
        gradients, self.sum = (TreeSum(len(self.partition.blocks), team, plan.dtype.itemsize * w) for w in widest)
        self.curvature = RunningCurvature(plan, forms, self.rows, self.sum)
        self.layout, self.model = self.curvature.layout, GaussNewton(data, self.curvature)
        self.ridge = RidgeSchedule.of(plan)
        self.directions = moving.Directions(self.curvature, self._scaled_points(0))
        self.moves = moving.Moves(team, self.directions.places)
        classes = plan.chain.n_out if plan.resolved.loss.labels else 0
        slope = team.from_root(lambda: opening.share(plan.chain) * opening.slope(plan.chain))
        batch = self.schedule.points(0)
        self.damping = Damping(classes, slope, keys.damping, data.autoencoder, batch, forms.dense_autoencoder)
        heavy = None if data.weights is None else data.weights * (plan.n_train / self.parts.points.total_weight)
        self.passes = MinibatchPass(data, self.curvature, gradients, heavy)
        self.unridged = data.autoencoder and not self.ridge.at(0)  # an autoencoder without a ridge

    @property
    def text(self) -> MethodText:
        """Names the sizes of minibatches, the averaging and the first damping.  Collective: no."""
        iterations = self.plan.resolved.schedule.max_iterations
        first, last = (int(self.schedule.points(iteration)) for iteration in (0, max(iterations - 1, 0)))
        sizes = f"{first}" if first == last else f"{first} to {last}"
        idle, parts = sum(not rows for rows in self.plan.work.parts.row_counts), len(self.partition.blocks)
        lazy = f"; {idle} of {self.team.size} ranks mostly wait: stochastic.parts = {parts}" if idle else ""
        averaging, damping = self.schedule.words(iterations), f"damping {self.damping.first:g}"
        how = f"batch {sizes}, {averaging}, {damping}{self.ridge.words}{lazy}"
        stepped = "a minibatch's step (more stochastic.damping may help)"
        remedy = "more damping (stochastic.damping)"
        return MethodText(f"stochastic MAC: {how}", "averaged weights", FLAT, COORDINATES, stepped, remedy)

    def new_record(self, state: State[MacState]) -> StochasticState:
        """Makes a record with the first damping.  Collective: no."""
        return StochasticState(damping=self.damping.first)

    def start(self, range_: float, gradient_step: bool, seed: int) -> Running:
        """Makes a State of random weights and fits its output layer to some points.  Collective: yes.

        range_: the range of the random weights; 0: the method's own start, in which layers, or only the code, begin as
            principal components.
        gradient_step: ignored.
        seed: the seed of the random streams.
        """
        state = self.opened(range_, seed)
        began = now()
        self.curvature.begin(state, self.data.X, self.passes.point_weights)
        state.seconds += now() - began
        return state

    def opened(self, range_: float, seed: int) -> Running:
        """Makes the State that `start` makes, but without its Grams.  Collective: yes."""
        self.team.barrier("the start")
        began, chain = now(), self.plan.chain
        flat = random_weights(self.plan, 1.0, seed).astype(self.plan.dtype)
        weights, sample = self.layout.blocks(flat), self._sample()
        if not range_ and opening.carries(chain, self.data.autoencoder):
            opening.start_layers(chain, weights, sample)
        else:
            opening.scale_random(chain, weights, range_)
            remember(self.plan, flat, seed)
            if not range_ and (code := opening.code_of(chain)) is not None:
                opening.principal_code(chain, code, weights, sample)
        self.team.share_array(flat)  # all ranks take rank 0's
        state = self._started(flat, sample)
        state.seconds = now() - began
        return state

    def start_at(self, weights: Array, gradient_step: bool) -> Running:
        """Makes a State of given weights (P,), whose output layer is fitted to some points if `gradient_step` is true.

        Collective: yes.
        """
        state = self._started(weights, self._sample() if gradient_step else None)
        self.curvature.begin(state, self.data.X, self.passes.point_weights)
        return state

    def _sample(self) -> opening.Sample:
        return opening.Sample(self.data, self.rows, self.sum, self.parts.shared_matrix, self.passes.point_weights)

    def _started(self, weights: Array, sample: opening.Sample | None) -> Running:
        """Makes a State of weights (P,), which are their own average; steps of all points have no average.

        sample: the points to which the output layer is fitted by least squares; that of labels becomes 0 instead.  They
            must not have passed layers whose weights have changed since.  None: that layer stays.  Collective: yes.
        """
        state, chain, loss = super().start_at(weights, False), self.plan.chain, self.plan.resolved.loss
        if sample is not None and chain.ends_affine:
            blocks = self.layout.blocks(state.weights)
            if loss.labels:
                blocks[-1][:] = 0.0
            else:
                opening.fit_output(chain, blocks, loss, sample)
        state.own.step = np.zeros_like(state.weights)
        if not self.plan.resolved.whole_steps:
            state.own.average = state.weights.copy()
        return state

    def begin(self, state: Running) -> None:
        """Moves weights, average, last step and Grams to memory that the ranks of a node share.  Collective: yes."""
        self.moves.share(state)
        self.curvature.share(state)

    def sweep(self, state: Running, pause: Pause = never) -> bool:
        """Does an iteration, beginning with its minibatch number `state.position`.  Collective: yes.

        It may pause after a minibatch that has folded the Grams, and then returns False; each rank has the whole State.
        If the previous iteration has lost the weights (`is_lost`), it begins at the best weights, with more damping.
        """
        if self.unridged:
            self.schedule.watch(state.history.errors)
        places = self.schedule.of_iteration(state.iteration)
        self.directions.assign(self._scaled_points(state.iteration))
        self.moves.places = self.directions.places
        if state.position == 0 and moving.is_lost(self.parts, state):
            moving.begin_again(self.moves, state)
        while state.position < len(places):
            whole = self.step(self.schedule.drawn(state.iteration, places[state.position]), state)
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
        """Gives all ranks the whole average, last step and Grams, of which each had a part.  Collective: yes."""
        self.moves.complete(state)
        self.curvature.complete(state)

    def step(self, rows: Drawn, state: Running) -> bool:
        """Does one minibatch: passes it, notes and inverts curvature, finds direction and length, moves, and adapts.

        rows: this rank's points of the minibatch, by part.
        Returns True if the Grams were folded, so that the State can be made whole.  Collective: yes.
        """
        own, due, ridge = state.own, Due.at(state), self._ridge(state.iteration)
        passed = self._look(rows, due, ridge, state)
        if not passed.probed:
            return False  # all of its points weigh 0
        if own.steps and moving.gone_wrong(passed.loss, passed.square, passed.n, own.level):
            moving.take_back(self.moves, state)
            return False
        own.level = moving.running_loss(passed.loss, state)
        if due.note:
            self.curvature.note(passed.tapes, passed.probed, state)
        if due.refresh:
            damping = self.damping.of_inverses(own.damping, own.level) + ridge
            self.curvature.refresh(passed.tapes, passed.probed, damping, state, due.eigenvectors)
        points = self._points(rows, passed, due, ridge, state)
        direction = self._direction(passed, points, due, state)
        self._move(direction, passed.loss, due, state)
        if due.adapt:
            self._adapt(points, state)
        own.steps += 1
        return due.refresh

    def _ridge(self, iteration: int) -> float:
        return self.ridge.at(self.schedule.epoch(iteration))

    def _scaled_points(self, iteration: int) -> float:
        """Returns the points of a minibatch, by which `Directions.assign` chooses where inverses are applied.

        inf, with a ridge, whose slope is no product of factors, and for steps of all points: inverses are then applied
        to whole gradients.
        """
        whole = self.plan.resolved.whole_steps or self._ridge(iteration)
        return np.inf if whole else self.schedule.points(iteration)

    def _look(self, rows: Drawn, due: Due, ridge: float, state: Running) -> Passed:
        """Passes a minibatch through the net; computes slopes too unless inverses are due.  Collective: yes."""
        with self.team.clock("z"):
            return self.passes.losses(rows, state) if due.refresh else self.passes.with_slopes(rows, ridge, state)

    def _points(self, rows: Drawn, passed: Passed, due: Due, ridge: float, state: Running) -> Points:
        """Returns the points on which a step's length and decrease are measured, with their damping.  Collective: no.

        These are the points probed for an autoencoder without a ridge, otherwise the whole minibatch: where a ridge
        balances the mean slope of all points, the direction may lead uphill for some of them.
        """
        damping = self.damping.of_length(state.own.damping, state.own.level) + ridge
        if not self.unridged or not (due.measure or due.adapt):
            return Points(rows, passed.tapes, passed.n, ridge, damping)
        probed = {i: own[passed.tapes[i].probed] for i, own in rows.items()}
        return Points(probed, {i: seen.few for i, seen in passed.tapes.items()}, passed.probed, ridge, damping)

    def _direction(self, passed: Passed, points: Points, due: Due, state: Running) -> Iterable[moving.Run]:
        """Returns the direction D of each group of this rank's units, and measures the length of the step if it is due.

        The length is b / h of `GaussNewton.along`, kept in the state; to measure it all ranks need the whole D.
        Collective: yes.
        """
        with self.team.clock("z"):
            slopes = self.passes.slopes(passed, points.ridge, state)
        of = (slopes, passed.n, points.damping, state)
        if not due.measure:
            return self.directions.runs(*of)
        D = self.directions.whole(*of)
        slope, curvature = self.model.along(D, points, state)
        length = slope / curvature if curvature > 0.0 else 0.0
        steady = self.unridged and self.schedule.dense_autoencoder and not due.fresh
        state.own.length = steadied(state.own.length, length) if steady else length
        state.own.measured = passed.loss
        return [(place, D[place]) for place in self.moves.places[self.team.rank]]

    def _move(self, direction: Iterable[moving.Run], loss: float, due: Due, state: Running) -> None:
        """Averages the weights, makes the new step P from direction and momentum, and adds it to the weights.

        If the damping is to be adapted, the weights do not move yet: `_adapt` moves them.  Collective: yes.
        """
        own = state.own
        length = tuned.STRIDE * own.length * self.damping.of_loss(loss, own.measured, own.level)
        rate, kept = self.schedule.rate(state), self.schedule.momentum(state.iteration)
        self.moves.step(state, rate, kept, direction, length, go=not due.adapt)
        if not due.adapt:
            self.moves.show(state.weights)

    def _adapt(self, points: Points, state: Running) -> None:
        """Moves the weights by the last step, and adapts the damping to the ratio of actual to predicted decrease.

        points: with tapes at the weights before the step.  Collective: yes.
        """
        self.moves.show(state.own.step)
        slope, curvature = self.model.along(state.own.step, points, state)
        self.moves.go(state)
        self.moves.show(state.weights)
        predicted, fallen = slope - 0.5 * curvature, self.model.decrease(points, state)
        ratio = fallen / predicted if predicted > 0.0 else 0.0
        state.own.damping = self.damping.adapted(state.own.damping, ratio, tuned.ADAPTED)


class Stream(Stochastic):
    """Trains by stochastic MAC on a piece of a stream; an iteration is a pass over the piece.

    It continues from the numbers that the previous piece has kept in its model.  The number of points to come is
    unknown, so the first ridge, the size of minibatches and the mean Gram of the inputs are those of all points so far,
    and the average of the weights is over the last part of all steps.  Inverses are used from piece to piece, since
    inverses from the steps of a short piece would fit only its points.  They are computed again only if the scaling has
    changed much.  Collective: methods that say so.
    """

    def evaluate(self, state: Running, feasible: bool = False) -> Errors:
        """Computes the errors at the validation points, and returns them as training errors, too.  Collective: yes."""
        found = self.parts.nested(self.layout.blocks(state.result), validation=True)
        wrong = (found.wrong, found.wrong) if self.plan.resolved.loss.labels else (None, None)
        return Errors(found.error, found.error, found.error, 0.0, wrong_train=wrong[0], wrong_validation=wrong[1])

    def go_on(self, state: Running, last: dict[str, Array] | None) -> None:
        """Puts the numbers that the last piece has kept into the first State of this piece.  Collective: yes.

        The new points may have larger losses than earlier points.  So that this does not look like a failed step, the
        running loss becomes at least the loss of the averaged weights at the first minibatch.

        last: on rank 0, what `kept` returned, in this piece's scaling; None: nothing was kept, or another rank.
        Cost: a pass of a minibatch.
        """
        *arrays, numbers = share_arrays(self.team, [last[name] for name in (*LEFT, "numbers")] if last else [])
        own, new = state.own, self.curvature.settled
        own.average, own.step, grams, inverses, spectra = (np.array(A, self.plan.dtype) for A in arrays)
        if (inverses.size, spectra.size) == (own.inverses.size, own.spectra.size):
            own.inverses, own.spectra = inverses, spectra
        before, n = self.plan.resolved.before, self.plan.n_train
        own.grams[new:] = grams[new:]
        own.grams[:new] += (grams[:new] - own.grams[:new]) * (before / (before + n))
        own.damping, own.length, own.measured, own.level, steps = numbers.tolist()
        own.steps = int(steps)
        first = self.passes.losses(self.schedule.drawn(0, 0), replace(state, weights=own.average))
        own.level = max(own.level, first.loss)


def kept(weights: Array, own: StochasticState, points: int) -> dict[str, Array]:
    """Copies the numbers from which the next piece of a stream continues, by name.  Collective: no.

    points: the number of points of the stream so far.
    """
    arrays = {"weights": weights} | {name: vars(own)[name] for name in LEFT}
    numbers = np.array([own.damping, own.length, own.measured, own.level, own.steps], float)
    return {name: A.copy() for name, A in arrays.items()} | {"numbers": numbers, "points": np.array([points])}
