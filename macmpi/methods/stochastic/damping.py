"""Stochastic MAC is damped: at first, in its inverses, in a step's length, after a look at its success."""

from __future__ import annotations

import math
from dataclasses import dataclass

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
