"""Steps and averages of a stochastic run, as they change with its minibatches.

In the long run a direction counts STRIDE / (1 - momentum) times the minimum along it: nearer minima, and greedier
momentum, keep to the minibatch at hand.  Larger minibatches fit points that they have not seen less well, and momentum
makes up for that; they are less noisy too, so that an average need not remember as many of them, and it is less late.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from macmpi.methods.stochastic.minibatches import Minibatches
from macmpi.state import State, StochasticState

STRIDE, MOMENTUM, LONGER, LONGEST = 0.7, 0.6, 0.7, 0.82
"""Shares of the minimum along the direction and of the last step that a step takes.  LONGER: of autoencoders of dense
layers, whose model is the best (plan/directions.py), at first, and LONGEST once minibatches have twice their first
size."""

SHORTEST = 14
"""Minibatches that an average of the weights remembers at least."""

WINDOW = 8.0
"""The first averages are over about the WINDOW-th part of all steps."""


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

    def rate(self, state: State[StochasticState]) -> float:
        """The share that the next average takes of the weights."""
        steps = state.own.steps
        return max(1.0 - self.averaging(state.iteration), WINDOW / (steps - 1 + WINDOW)) if steps else 0.0

    def words(self, iterations: int) -> str:
        """The share for the log, in the first and in the last of some iterations."""
        shares = [f"{self.averaging(iteration):.3g}" for iteration in (0, max(iterations - 1, 0))]
        return f"averaging {' to '.join(dict.fromkeys(shares))}"
