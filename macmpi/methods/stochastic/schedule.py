"""A stochastic run schedules minibatches, the lengths of steps, averages of the weights, the ridge and the damping.

Over all later steps a direction moves the weights by STRIDE / (1 - momentum) times the minimum along it.  With larger
minibatches new points are fitted less well, and more momentum makes up for this.  Larger minibatches are also less
noisy, so an average over fewer of them is enough, and lags less.  But the noise keeps an autoencoder without a ridge
from learning its points by heart, so its minibatches are smaller while the validation error stalls.

The ridge is (lambda / 2) ||W||^2 for each point's loss, never on the biases.  It begins at RIDGE_SHARE D / N for D
columns of X, at most at RIDGE_PRIOR / N, a prior on a weight that is worth about RIDGE_PRIOR points, and is multiplied
by RIDGE_FALL in each epoch: the weights go from small ones to those that fit the points without a ridge.  Early
stopping on the validation points ends this when more freedom no longer helps, and a run keeps the best weights.

The damping has a first value, is adapted to the success of steps, and enters inverses and lengths in different ways.

The numbers are in plan/tuned.py, with the data on which they were chosen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from macmpi.methods.stochastic import start as opening
from macmpi.parallel.streams import stream
from macmpi.parallel.tiles import Tile
from macmpi.plan import tuned
from macmpi.plan.directions import minibatches_of
from macmpi.plan.plan import Plan
from macmpi.state import State, StochasticState
from macmpi.typing import Array

Running = State[StochasticState]
"""The State of a stochastic run."""


class Due(NamedTuple):
    """Says what a minibatch does besides a step, depending on the number of steps so far.  Collective: no.

    fresh: the run is so young that each minibatch computes the inverses again.
    refresh: the inverses are computed again.
    eigenvectors: layers that are damped in eigenvectors compute these again, too.
    note: the minibatch is added to the running Grams.
    measure: the length of a step is measured.
    adapt: the damping is adapted.
    """

    fresh: bool
    refresh: bool
    eigenvectors: bool
    note: bool
    measure: bool
    adapt: bool

    @classmethod
    def at(cls, state: Running) -> Due:
        """Decides what the next minibatch does.  Collective: no."""
        steps = state.own.steps
        fresh = steps < tuned.FRESH
        eigenvectors = fresh or steps % tuned.REMADE_LATER == 0 or not state.own.inverses[0]
        refresh = eigenvectors or (steps < tuned.EARLY and steps % tuned.REMADE == 0)
        note, measure = fresh or steps % tuned.NOTED == 0, refresh or steps % tuned.MEASURED == 0
        return cls(fresh, refresh, eigenvectors, note, measure, adapt=(steps + 1) % tuned.ADAPTED == 0)


class Schedule:
    """Schedules minibatches: how many each epoch has, this rank's points of each, and their momentum and averaging.

    An iteration takes one of `records` equal shares of an epoch's minibatches.
    own: the points of each of this rank's parts.
    dense_autoencoder: the net is an autoencoder of dense layers; momentum is then larger, since the model of such nets
        is the best.
    Collective: no.
    """

    def __init__(self, plan: Plan, own: Mapping[int, Tile], dense_autoencoder: bool) -> None:
        self.plan, self.keys, self.own = plan, plan.resolved.stochastic, own
        self.dense_autoencoder, self._of_epoch = dense_autoencoder, cache(partial(minibatches_of, plan))
        self._smaller = math.inf, math.inf
        self.iterations = min(self.keys.records, self.of_epoch(0))
        self._orders: tuple[int, dict[int, Array]] = (-1, {})

    def epoch(self, iteration: int) -> int:
        """Returns the epoch of an iteration; both are counted from 0."""
        return iteration // self.iterations

    def of_epoch(self, epoch: int) -> int:
        """Returns the number of minibatches of an epoch; each has at least a point of every part."""
        first, last = self._smaller
        return self._of_epoch(min(epoch, self.keys.grow_every) if first <= epoch < last else epoch)

    def watch(self, errors: Array) -> None:
        """Limits minibatches to twice their first size once the validation error stalls, until it stalls for longer.

        `tuned.STALLED` holds the numbers of epochs without a lower error after which it stalls, and stalls for longer.

        errors: the validation error of the start and of each iteration so far.
        """
        wait, good = tuned.STALLED
        first = self._stall(errors, wait, 0)
        self._smaller = first, self._stall(errors, good, first)

    def _stall(self, errors: Array, epochs: int, begin: float) -> float:
        """Finds the first epoch, from begin + epochs on, that comes after this number of epochs without a lower error.

        Returns inf if there is none.
        """
        wait, lowest = epochs * self.iterations, np.minimum.accumulate(errors)
        stalls = np.flatnonzero(lowest[wait:] == lowest[:-wait]) + wait
        later = stalls[stalls >= begin * self.iterations + wait]
        return -(-int(later[0]) // self.iterations) if len(later) else math.inf

    def points(self, iteration: int) -> float:
        """Returns the mean number of points of a minibatch."""
        return self.plan.n_train / self.of_epoch(self.epoch(iteration))

    def of_iteration(self, iteration: int) -> range:
        """Returns the numbers of an iteration's minibatches, counted within their epoch."""
        count, share = self.of_epoch(self.epoch(iteration)), iteration % self.iterations
        return range(count * share // self.iterations, count * (share + 1) // self.iterations)

    def drawn(self, iteration: int, place: int) -> dict[int, Any]:
        """Returns this rank's points, by part, of minibatch number `place` of the iteration's epoch.

        Each epoch shuffles the points within each part, and each minibatch takes its share of every part, so points
        stay on the rank that holds them.
        """
        if self.plan.resolved.whole_steps:
            return {part: own.rows for part, own in self.own.items()}
        epoch, before = self.epoch(iteration), self.plan.resolved.before
        if self._orders[0] != epoch:
            at = (before, epoch) if before else (epoch,)
            random = {part: stream(self.plan.seed, "epoch", *at, part) for part in self.own}
            self._orders = epoch, {i: own.start + random[i].permutation(len(own)) for i, own in self.own.items()}
        count, orders = self.of_epoch(epoch), self._orders[1].items()
        return {part: own[len(own) * place // count : len(own) * (place + 1) // count] for part, own in orders}

    def momentum(self, iteration: int) -> float:
        """Returns the share of the last step that is added to a step of an iteration."""
        if not self.dense_autoencoder:
            return tuned.MOMENTUM
        grown = self.points(iteration) / self.points(0) - 1.0
        first = tuned.MOMENTUM_DENSE_AUTOENCODER
        return first + (tuned.MOMENTUM_GROWN - first) * min(grown, 1.0)

    def averaging(self, iteration: int) -> float:
        """Returns the largest share of the old average that stays after a minibatch: 1 - 1 / m if it is "auto".

        m is half of the number of minibatches in the first epoch, or in the present epoch for autoencoders of dense
        layers, and at least AVERAGE_LEAST.  For a stream, whose number of epochs is unknown, the share is 1, and `rate`
        alone decides.
        """
        if self.keys.averaging != "auto":
            return self.keys.averaging
        if self.keys.stream:
            return 1.0
        of_epoch = self.of_epoch(self.epoch(iteration) if self.dense_autoencoder else 0)
        return 1.0 - 1.0 / max(of_epoch / 2, tuned.AVERAGE_LEAST)

    def rate(self, state: Running) -> float:
        """Returns the share of the weights in the next average: at least 1 - `averaging`, and more at first.

        The first averages are over about the AVERAGE_WINDOW-th part of all steps so far; for streams over twice this
        part, except for autoencoders of dense layers.  Before the first step the share is 0.
        """
        steps = state.own.steps
        longer = self.keys.stream and not self.dense_autoencoder
        window = tuned.AVERAGE_WINDOW / (2.0 if longer else 1.0)
        return max(1.0 - self.averaging(state.iteration), window / (steps - 1 + window)) if steps else 0.0

    def words(self, iterations: int) -> str:
        """Writes the averaging in the first and in the last of some iterations, for the log."""
        shares = [f"{self.averaging(iteration):.3g}" for iteration in (0, max(iterations - 1, 0))]
        return f"averaging {' to '.join(dict.fromkeys(shares))}"


def steadied(last: float, found: float) -> float:
    """Returns the geometric mean of the last length and a new one, since a length from few points is noisy.

    If one of the two is not positive, it returns the new one.  Collective: no.
    """
    return math.sqrt(last * found) if last > 0.0 and found > 0.0 else found


@dataclass(frozen=True)
class RidgeSchedule:
    """Computes the ridge of each epoch: `first` times `fall` to the power of the epoch."""

    first: float
    fall: float = 1.0

    def at(self, epoch: int) -> float:
        """Returns lambda of an epoch, counted from 0."""
        return self.first * self.fall**epoch

    @property
    def words(self) -> str:
        """The first ridge as the log says it; "" without one."""
        falling = self.fall < 1.0
        return f", ridge {self.first:.2g} falling" if falling else f", ridge {self.first:g}" if self.first else ""

    @classmethod
    def of(cls, plan: Plan) -> RidgeSchedule:
        """Makes the schedule from stochastic.ridge, a number or "auto", and the number of points so far.

        With "auto" an autoencoder has no ridge on minibatches, since its code and the noise of minibatches limit its
        weights; it has a ridge if each step takes all points.  Deep nets without skips have no ridge, since a small
        loss in each of many layers would leave next to nothing.
        """
        of, asked = plan.resolved, plan.resolved.stochastic.ridge
        if asked != "auto":
            return cls(float(asked))
        n = of.before + plan.n_train
        deep = opening.carries(plan.chain, False) and (not of.autoencoder or opening.share(plan.chain) < 1.0)
        if deep and not plan.chain.added:
            return cls(0.0)
        if of.autoencoder:
            return cls(tuned.RIDGE_WHOLE / n, tuned.RIDGE_FALL_WHOLE) if of.whole_steps else cls(0.0)
        return cls(min(tuned.RIDGE_SHARE * plan.chain.n_in, tuned.RIDGE_PRIOR) / n, tuned.RIDGE_FALL)


@dataclass(frozen=True)
class Damping:
    """Computes the damping of curvature: at first, in inverses, in the length of a step, and after steps.

    classes: the number of classes; 0 without labels.
    slope: the steepest slope of the activations.
    first_asked: the first damping in the config; 0 for the usual one.
    code: whether the net is an autoencoder.
    batch: the number of points of the first minibatches.
    dense_autoencoder: whether the net is an autoencoder of dense layers.  Collective: no.
    """

    classes: int
    slope: float
    first_asked: float = 0.0
    code: bool = False
    batch: float = tuned.LABELS_ENOUGH
    dense_autoencoder: bool = False

    @property
    def first(self) -> float:
        """The damping at the start: the config's, or slope^2 times a constant for the kind of targets.

        The curvature is proportional to squares of slopes.
        """
        noise = min(max(tuned.LABELS_ENOUGH / self.batch, 1.0), tuned.LABELS_NOISIEST)
        codes = tuned.DAMPING_DENSE_AUTOENCODER if self.dense_autoencoder else tuned.DAMPING_AUTOENCODER
        numbers = codes if self.code else tuned.DAMPING_NUMBERS
        usual = tuned.DAMPING_LABELS * noise if self.classes else numbers
        return self.first_asked or usual * self.slope**2

    @property
    def least(self) -> float:
        """The least damping that `adapted` returns: a share of the first damping."""
        return tuned.DAMPING_SETTLED * self.first

    def of_inverses(self, damping: float, loss: float) -> float:
        """Returns the damping of the inverses: damping min(loss / log(classes), 1) with labels, else damping.

        The curvature of the loss of labels falls with the loss, which begins at log(classes).
        """
        return damping * min(loss / math.log(self.classes), 1.0) if self.classes else damping

    def of_length(self, damping: float, loss: float) -> float:
        """Returns the damping of a step's length: with labels damping times loss / LEARNT, else damping.

        loss / LEARNT is taken as LEARNT_LEAST if it is less, and as 1 if it is more.
        """
        return damping * max(min(loss / tuned.LEARNT, 1.0), tuned.LEARNT_LEAST) if self.classes else damping

    def of_loss(self, loss: float, measured: float, level: float) -> float:
        """Returns the share of a length that a minibatch takes: with labels measured / loss, at most 1, else 1.

        Direction and curvature both grow with the loss, so the minimum along the direction is nearer by the ratio of
        losses.  While the running mean `level` is above LEARNT, measured / loss is multiplied by level / LEARNT.

        loss: the loss of the minibatch.
        measured: the loss of the minibatch with which the length was measured.
        """
        return min(max(level / tuned.LEARNT, 1.0) * measured / loss, 1.0) if self.classes and loss > 0.0 else 1.0

    def adapted(self, damping: float, ratio: float, minibatches: int) -> float:
        """Adapts the damping after some minibatches, by the ratio of actual to predicted decrease.

        It falls, down to the least damping, if the ratio was good, and grows if the ratio was poor.
        """
        if ratio > tuned.DECREASE_GOOD:
            return max(damping * tuned.DAMPING_CHANGE**minibatches, min(self.least, damping))
        if ratio >= tuned.DECREASE_POOR:
            return damping
        return min(damping / tuned.DAMPING_CHANGE**minibatches, tuned.DAMPING_MOST)
