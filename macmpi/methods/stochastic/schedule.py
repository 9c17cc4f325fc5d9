"""A stochastic run changes these along its way: minibatches, the lengths of steps, averages, the ridge, the damping.

In the long run a direction counts STRIDE / (1 - momentum) times the minimum along it: nearer minima, and greedier
momentum, keep to the minibatch at hand.  Larger minibatches fit points that they have not seen less well, and momentum
makes up for that; they are less noisy too, so that an average need not remember as many of them, and it is less late.
Yet where no ridge does so, the noise keeps an autoencoder from learning points by heart: its minibatches are smaller
while the validation error stalls.

The ridge is (lambda / 2) ||W||^2 for each point's loss, never on the biases.  It begins at RIDGE_SHARE D / N for D
columns of X, at most at RIDGE_PRIOR / N, the prior of a weight that is worth about RIDGE_PRIOR points, and falls by
RIDGE_FALL an epoch: a path from small weights to those that the points alone ask for.  Early stopping, on the
validation points, ends it where more freedom no longer helps, and the weights that are kept are the best on the way.

The damping is that at first, in inverses, in a step's length, and after a look at its success.

The numbers stand in plan/tuned.py, with what they were chosen on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal, NamedTuple

import numpy as np

from macmpi.methods.stochastic import start as opening
from macmpi.parallel.streams import stream
from macmpi.parallel.tiles import Tile
from macmpi.plan import tuned
from macmpi.plan.directions import least_part, minibatches_of
from macmpi.plan.plan import Plan
from macmpi.state import State, StochasticState
from macmpi.typing import Array

Running = State[StochasticState]
"""The State of a stochastic run."""


class Due(NamedTuple):
    """A minibatch does this besides a step, as the number of steps so far decides.  Collective: no.

    fresh: the run is so young that the inverses are made of this very minibatch.
    refresh: the inverses are made again.
    eigenvectors: those of layers that are damped in them, too.
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
        """Decides by the steps so far what the next minibatch does.  Collective: no."""
        steps = state.own.steps
        fresh = steps < tuned.FRESH
        eigenvectors = fresh or steps % tuned.REMADE_LATER == 0 or not state.own.inverses[0]
        refresh = eigenvectors or (steps < tuned.EARLY and steps % tuned.REMADE == 0)
        note, measure = fresh or steps % tuned.NOTED == 0, refresh or steps % tuned.MEASURED == 0
        return cls(fresh, refresh, eigenvectors, note, measure, adapt=(steps + 1) % tuned.ADAPTED == 0)


class Minibatches:
    """The minibatches of a run: their number in each epoch, and which of this rank's points are in each.

    An iteration takes one of `records` equal shares of an epoch's minibatches.
    own: the points of each of this rank's parts.  Collective: no.
    """

    def __init__(self, plan: Plan, own: Mapping[int, Tile]) -> None:
        self.plan, self.keys, self.own = plan, plan.resolved.stochastic, own
        self._of_epoch = cache(partial(minibatches_of, plan, least=least_part(plan)))
        self._smaller = math.inf, math.inf
        self.iterations = min(self.keys.records, self.of_epoch(0))
        self._orders: tuple[int, dict[int, Array]] = (-1, {})

    def epoch(self, iteration: int) -> int:
        """The epoch of an iteration; both are counted from 0."""
        return iteration // self.iterations

    def of_epoch(self, epoch: int) -> int:
        """The number of minibatches of an epoch; every part gives at least a point to each."""
        first, last = self._smaller
        return self._of_epoch(min(epoch, self.keys.grow_every) if first <= epoch < last else epoch)

    def watch(self, errors: Array) -> None:
        """Limits minibatches to twice their first size from when the validation error stalls until it stalls for good.

        errors: that of the start and of each iteration so far.
        """
        wait, good = tuned.STALLED
        first = self._stall(errors, wait, 0)
        self._smaller = first, self._stall(errors, good, first)

    def _stall(self, errors: Array, epochs: int, begin: float) -> float:
        """The first epoch from begin + epochs on before which this number of epochs has not lowered the error."""
        wait, lowest = epochs * self.iterations, np.minimum.accumulate(errors)
        stalls = np.flatnonzero(lowest[wait:] == lowest[:-wait]) + wait
        later = stalls[stalls >= begin * self.iterations + wait]
        return -(-int(later[0]) // self.iterations) if len(later) else math.inf

    def points(self, iteration: int) -> float:
        """Points of a minibatch, on average."""
        return self.plan.n_train / self.of_epoch(self.epoch(iteration))

    def of_iteration(self, iteration: int) -> range:
        """The numbers, within their epoch, of the minibatches of an iteration."""
        count, share = self.of_epoch(self.epoch(iteration)), iteration % self.iterations
        return range(count * share // self.iterations, count * (share + 1) // self.iterations)

    def drawn(self, iteration: int, place: int) -> dict[int, Any]:
        """This rank's points, by part, of the minibatch number `place` of the iteration's epoch.

        In each epoch the points of a part are drawn in another order, of which a minibatch takes its share: so points
        stay with the rank that holds them.
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


def steadied(last: float, found: float) -> float:
    """The geometric mean of the last length and of one that has been found: that of few points is noisy.

    One that is not positive is taken as it is, and so is the first one.  Collective: no.
    """
    return math.sqrt(last * found) if last > 0.0 and found > 0.0 else found


@dataclass(frozen=True)
class Schedule:
    """Momentum and averages of each iteration.  Collective: no.

    asked: the share of an average that a minibatch leaves, or "auto".
    dense_autoencoder: the net is an autoencoder of dense layers, whose model is the best: momentum is larger.
    """

    minibatches: Minibatches
    asked: float | Literal["auto"]
    dense_autoencoder: bool

    def momentum(self, iteration: int) -> float:
        """The share of the last step that a step of an iteration takes."""
        if not self.dense_autoencoder:
            return tuned.MOMENTUM
        grown = self.minibatches.points(iteration) / self.minibatches.points(0) - 1.0
        first = tuned.MOMENTUM_DENSE_AUTOENCODER
        return first + (tuned.MOMENTUM_GROWN - first) * min(grown, 1.0)

    def averaging(self, iteration: int) -> float:
        """The share of the average that a minibatch of an iteration leaves, at most: 1 - 1 / m, unless it is asked for.

        m: half of the first epoch's minibatches, of autoencoders of dense layers half of the present epoch's, and at
        least AVERAGE_LEAST.  Of a stream, whose epochs nobody knows, 1: `rate` alone decides.
        """
        if self.asked != "auto":
            return self.asked
        if self.minibatches.keys.stream:
            return 1.0
        of_epoch = self.minibatches.of_epoch(self.minibatches.epoch(iteration) if self.dense_autoencoder else 0)
        return 1.0 - 1.0 / max(of_epoch / 2, tuned.AVERAGE_LEAST)

    def rate(self, state: Running) -> float:
        """The share that the next average takes of the weights: 1 - `averaging` at least, and more at first.

        The first averages are over about the AVERAGE_WINDOW-th part of all steps, those of a stream over twice that
        part, but for autoencoders of dense layers.  0 before the first step.
        """
        steps = state.own.steps
        longer = self.minibatches.keys.stream and not self.dense_autoencoder
        window = tuned.AVERAGE_WINDOW / (2.0 if longer else 1.0)
        return max(1.0 - self.averaging(state.iteration), window / (steps - 1 + window)) if steps else 0.0

    def words(self, iterations: int) -> str:
        """The share for the log, in the first and in the last of some iterations."""
        shares = [f"{self.averaging(iteration):.3g}" for iteration in (0, max(iterations - 1, 0))]
        return f"averaging {' to '.join(dict.fromkeys(shares))}"


@dataclass(frozen=True)
class RidgeSchedule:
    """The ridge of each epoch: it falls from `first` by the factor `fall`, or stays (1)."""

    first: float
    fall: float = 1.0

    def at(self, epoch: int) -> float:
        """lambda of an epoch, counted from 0."""
        return self.first * self.fall**epoch

    @property
    def words(self) -> str:
        """The first ridge for the log, nothing without one."""
        falling = self.fall < 1.0
        return f", ridge {self.first:.2g} falling" if falling else f", ridge {self.first:g}" if self.first else ""

    @classmethod
    def of(cls, plan: Plan) -> RidgeSchedule:
        """The ridge of a config, a number or "auto", for all points so far.

        An autoencoder has none, for its code holds its weights back, unless each step is of all points, whose noise
        would do so too.  Nor have deep nets: a little less of each layer is nothing of all.
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
    """The damping of curvature: at first, in inverses, in the length of a step, and as steps succeed.

    classes: of labels, 0 without.  slope: the activations' steepest.  first_asked: the first damping, 0 for the usual.
    code: the targets are the inputs.  batch: points of a minibatch at first.
    dense_autoencoder: the net is an autoencoder of dense layers.  Collective: no.
    """

    classes: int
    slope: float
    first_asked: float = 0.0
    code: bool = False
    batch: float = tuned.LABELS_ENOUGH
    dense_autoencoder: bool = False

    @property
    def first(self) -> float:
        """The damping at the start: what is asked for, or a constant of the kind of targets times slope^2.

        The curvature goes by squares of slopes.
        """
        noise = min(max(tuned.LABELS_ENOUGH / self.batch, 1.0), tuned.LABELS_NOISIEST)
        codes = tuned.DAMPING_DENSE_AUTOENCODER if self.dense_autoencoder else tuned.DAMPING_AUTOENCODER
        numbers = codes if self.code else tuned.DAMPING_NUMBERS
        usual = tuned.DAMPING_LABELS * noise if self.classes else numbers
        return self.first_asked or usual * self.slope**2

    @property
    def least(self) -> float:
        """The damping below which none is adapted: a share of the first."""
        return tuned.DAMPING_SETTLED * self.first

    def of_inverses(self, damping: float, loss: float) -> float:
        """The damping of the inverses: damping min(loss / log(classes), 1) for labels, else damping.

        The curvature of labels falls with the loss, which begins at log(classes).
        """
        return damping * min(loss / math.log(self.classes), 1.0) if self.classes else damping

    def of_length(self, damping: float, loss: float) -> float:
        """The damping of a step's length: for labels that are learnt a share of damping, else damping.

        The share is loss / LEARNT, between LEARNT_LEAST and 1.
        """
        return damping * max(min(loss / tuned.LEARNT, 1.0), tuned.LEARNT_LEAST) if self.classes else damping

    def of_loss(self, loss: float, measured: float, level: float) -> float:
        """The share of a length that a minibatch takes: of labels that are learnt measured / loss, at most 1.

        loss: of the minibatch; measured: of that whose length it was; level: the running mean of losses.  Directions
        grow with the loss, and curvature does, so that the minimum along them comes sooner by their ratio.
        """
        return min(max(level / tuned.LEARNT, 1.0) * measured / loss, 1.0) if self.classes and loss > 0.0 else 1.0

    def adapted(self, damping: float, ratio: float, minibatches: int) -> float:
        """The damping after some minibatches, by the ratio of the actual to the predicted decrease.

        Less where the decrease was near the predicted one, down to the least; more where it was poor.
        """
        if ratio > tuned.DECREASE_GOOD:
            return max(damping * tuned.DAMPING_CHANGE**minibatches, min(self.least, damping))
        if ratio >= tuned.DECREASE_POOR:
            return damping
        return min(damping / tuned.DAMPING_CHANGE**minibatches, tuned.DAMPING_MOST)
