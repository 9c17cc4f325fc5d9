"""A stochastic run changes these along its way: minibatches, the lengths of steps, averages, the ridge, the damping.

In the long run a direction counts STRIDE / (1 - momentum) times the minimum along it: nearer minima, and greedier
momentum, keep to the minibatch at hand.  Larger minibatches fit points that they have not seen less well, and momentum
makes up for that; they are less noisy too, so that an average need not remember as many of them, and it is less late.

The ridge is (lambda / 2) ||W||^2 for each point's loss, never on the biases.  It begins at SHARE D / N for D columns of
X, at most at PRIOR / N, the prior of a weight that is worth about PRIOR points, and falls by FALL an epoch: a path from
small weights to those that the points alone ask for.  Early stopping, on the validation points, ends it where more
freedom no longer helps, and the weights that are kept are the best on the way.

The damping is that at first, in inverses, in a step's length, and after a look at its success.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from macmpi.parallel.streams import stream
from macmpi.parallel.tiles import Tile
from macmpi.plan.minibatches import minibatch
from macmpi.plan.plan import Plan
from macmpi.state import State, StochasticState
from macmpi.typing import Array

Running = State[StochasticState]
"""The State of a stochastic run."""

STRIDE, MOMENTUM, LONGER, LONGEST = 0.7, 0.6, 0.7, 0.82
"""Shares of the minimum along the direction and of the last step that a step takes.  LONGER: of autoencoders of dense
layers, whose model is the best (plan/directions.py), at first, and LONGEST once minibatches have twice their first
size."""

SHORTEST = 14
"""Minibatches that an average of the weights remembers at least."""

WINDOW = 8.0
"""The first averages are over about the WINDOW-th part of all steps."""

SHARE, PRIOR, FALL = 0.5, 10.0, 0.9
"""The first ridge times the number of points, for each column of X and at most; its factor from epoch to epoch."""

CODES, DENSE, NUMBERS, LABELS = 8e-3, 1.6e-2, 0.1, 0.3
"""The first damping for activations with a slope of 1: of autoencoders, of those of dense layers, of
regressions, of labels.

A minibatch of few targets, and labels most of all, is fitted too well by a step with little damping: the next ones
undo it, the iterate is far worse than its average, and rectifiers die one by one.
"""

ENOUGH, FEWEST = 400.0, 10.0
"""Labels in minibatches of fewer points than ENOUGH are damped by as much more, by FEWEST at most: they are noisier."""

SETTLED = 0.2
"""The share of the first damping that remains at least."""

LEARNT = 0.02
"""Below this mean loss of labels a step's length is less damped too, by the loss: curvature falls with it, and damping
that stays would shorten steps more and more.  From there on minibatches differ by the few points that are not learnt,
and the length that suits one is too long for another, whose loss is higher (`of_loss`)."""

LEAST = 1e-5
"""The least share of a length's damping that remains."""

PATIENCE = 0.9
"""The damping changes by this factor for each minibatch since the last look."""

MOST = 1e6
"""The damping grows to this at most."""


class Minibatches:
    """Every iteration takes its share of an epoch's minibatches, a `records`-th part.  Collective: no.

    own: this rank's points of each of its parts; least_part: the points of the smallest part of all.
    """

    def __init__(self, plan: Plan, own: Mapping[int, Tile], least_part: int) -> None:
        self.plan, self.keys, self.own, self.least_part = plan, plan.resolved.stochastic, own, least_part
        self.iterations = min(self.keys.records, self.of_epoch(0))
        self._orders: tuple[int, dict[int, Array]] = (-1, {})

    def epoch(self, iteration: int) -> int:
        """The epoch of an iteration; both are counted from 0."""
        return iteration // self.iterations

    def of_epoch(self, epoch: int) -> int:
        """Minibatches of an epoch.  Every part gives at least a point to each."""
        n = self.plan.n_train
        return max(min(n // minibatch(self.keys, n, epoch, self.plan.resolved.loss.labels), self.least_part), 1)

    def points(self, iteration: int) -> float:
        """Points of a minibatch, on average."""
        return self.plan.n_train / self.of_epoch(self.epoch(iteration))

    def of_iteration(self, iteration: int) -> range:
        """Places in their epoch of the minibatches of an iteration."""
        count, share = self.of_epoch(self.epoch(iteration)), iteration % self.iterations
        return range(count * share // self.iterations, count * (share + 1) // self.iterations)

    def drawn(self, iteration: int, place: int) -> dict[int, Array]:
        """This rank's points, by part, of the minibatch at a place of the iteration's epoch.

        Each epoch draws an order of each part again, of which a minibatch takes its share: points stay with the rank
        that holds them, and each part has its place in every minibatch.
        """
        epoch = self.epoch(iteration)
        if self._orders[0] != epoch:
            random = {part: stream(self.plan.seed, "epoch", epoch, part) for part in self.own}
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

    asked: the share of an average that a minibatch leaves, or "auto"; dense: an autoencoder of dense layers.
    """

    minibatches: Minibatches
    asked: float | Literal["auto"]
    dense: bool

    def momentum(self, iteration: int) -> float:
        """The share of the last step that a step of an iteration takes."""
        if not self.dense:
            return MOMENTUM
        grown = self.minibatches.points(iteration) / self.minibatches.points(0) - 1.0
        return LONGER + (LONGEST - LONGER) * min(grown, 1.0)

    def averaging(self, iteration: int) -> float:
        """The share of the average that a minibatch of an iteration leaves.

        "auto": an average remembers half of the first epoch's minibatches, of autoencoders of dense layers half of the
        present epoch's.
        """
        if self.asked != "auto":
            return self.asked
        of_epoch = self.minibatches.of_epoch(self.minibatches.epoch(iteration) if self.dense else 0)
        return 1.0 - 1.0 / max(of_epoch / 2, SHORTEST)

    def rate(self, state: Running) -> float:
        """The share that the next average takes of the weights."""
        steps = state.own.steps
        return max(1.0 - self.averaging(state.iteration), WINDOW / (steps - 1 + WINDOW)) if steps else 0.0

    def words(self, iterations: int) -> str:
        """The share for the log, in the first and in the last of some iterations."""
        shares = [f"{self.averaging(iteration):.3g}" for iteration in (0, max(iterations - 1, 0))]
        return f"averaging {' to '.join(dict.fromkeys(shares))}"


@dataclass(frozen=True)
class RidgeSchedule:
    """The ridge of each epoch: `asked`, or where nothing is (None) one that falls from `first`."""

    first: float
    asked: float | None = None

    def at(self, epoch: int) -> float:
        """lambda of an epoch, counted from 0."""
        return self.first * FALL**epoch if self.asked is None else self.asked

    @property
    def words(self) -> str:
        if self.asked is None:
            return f", ridge {self.first:.2g} falling"
        return f", ridge {self.asked:g}" if self.asked else ""


def schedule_of(asked: float | str, n: int, columns: int, autoencoder: bool) -> RidgeSchedule:
    """The ridge of a config, a number or "auto", for n points (columns,).

    An autoencoder has none: its code holds its weights back.
    """
    first = min(SHARE * columns, PRIOR) / n
    if asked == "auto":
        return RidgeSchedule(first, 0.0 if autoencoder else None)
    return RidgeSchedule(first, float(asked))


@dataclass(frozen=True)
class Damping:
    """classes: of labels, 0 without; slope: the activations' steepest; first: as asked for, or 0; code: the targets
    are the inputs; batch: points of a minibatch at first; dense: an autoencoder of dense layers (plan/directions.py).
    """

    classes: int
    slope: float
    first_asked: float = 0.0
    code: bool = False
    batch: float = ENOUGH
    dense: bool = False

    @property
    def first(self) -> float:
        """The curvature goes by squares of slopes: so does this, unless it is asked for."""
        noise = min(max(ENOUGH / self.batch, 1.0), FEWEST)
        codes = DENSE if self.dense else CODES
        usual = LABELS * noise if self.classes else codes if self.code else NUMBERS
        return self.first_asked or usual * self.slope**2

    @property
    def least(self) -> float:
        return SETTLED * self.first

    def of_inverses(self, damping: float, loss: float) -> float:
        """The curvature of labels falls with the loss, which begins at log(classes): so does this."""
        return damping * min(loss / math.log(self.classes), 1.0) if self.classes else damping

    def of_length(self, damping: float, loss: float) -> float:
        """Less once the labels are learnt."""
        return damping * max(min(loss / LEARNT, 1.0), LEAST) if self.classes else damping

    def of_loss(self, loss: float, measured: float, level: float) -> float:
        """The share of a length that a minibatch takes: of labels that are learnt measured / loss, at most 1.

        loss: of the minibatch; measured: of that whose length it was; level: the running mean of losses.  Directions
        grow with the loss, and curvature does, so that the minimum along them comes sooner by their ratio.
        """
        return min(max(level / LEARNT, 1.0) * measured / loss, 1.0) if self.classes and loss > 0.0 else 1.0

    def adapted(self, damping: float, ratio: float, minibatches: int) -> float:
        """Less where the decrease was near the predicted one (ratio), down to the least; more where it was not."""
        if ratio > 0.75:
            return max(damping * PATIENCE**minibatches, min(self.least, damping))
        return damping if ratio >= 0.25 else min(damping / PATIENCE**minibatches, MOST)
