"""A look at a minibatch: the net at its points, their losses, and the slopes of the weights, summed over parts.

Slopes need the inverses that are applied to them, and where these are made again, they need the look: two exchanges.
In all other steps losses and slopes are summed together, in one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from macmpi.data.dataset import Dataset
from macmpi.half_steps.evaluation import at
from macmpi.methods.stochastic import factors
from macmpi.methods.stochastic.curvature import RunningCurvature, Tapes
from macmpi.methods.stochastic.factors import Seen, probed_of
from macmpi.methods.stochastic.schedule import Running
from macmpi.nets.losses import weighted
from macmpi.parallel.shared_work import Sum, TreeSum
from macmpi.plan.directions import Sides
from macmpi.plan.minibatches import FACTS, PROBED
from macmpi.typing import Array

Drawn = dict[int, Array]
"""This rank's points of a minibatch, by part."""


class Look(NamedTuple):
    """The mean loss of a minibatch and the mean square of losses, points probed and all points, of all ranks.

    tapes: of this rank's parts; slopes: summed over points, to be read until the next are; None: not summed yet.
    """

    tapes: Tapes
    loss: float
    square: float
    probed: float
    n: float
    slopes: Sum | None = None


class Looks:
    """Looks at minibatches of some parts.  Collective: where a method says so.

    gradients: sums over parts, as wide as the weights and FACTS more.
    """

    def __init__(
        self, data: Dataset, curvature: RunningCurvature, gradients: TreeSum, point_weights: Array | None
    ) -> None:
        self.plan, self.data, self.curvature, self.layout = curvature.plan, data, curvature, curvature.layout
        self._gradients, self.point_weights = gradients, point_weights
        self._width = self.layout.weights[-1].stop

    def losses(self, rows: Drawn, state: Running) -> Look:
        """A look at this rank's rows by part, without slopes.  Collective: yes."""
        tapes: Tapes = {}

        def add(i: int, out: Array) -> None:
            out += self._at(i, rows, state, tapes, 1.0)

        total, squares, probed, n = self.curvature.sum(add, FACTS).tolist()
        return Look(tapes, total / n, squares / n, probed, n)

    def with_slopes(self, rows: Drawn, sides: Sides, ridge: float, state: Running) -> Look:
        """A look with slopes, in one exchange.  Losses come in the weights' precision and in units of their running
        mean: their squares would overflow single precision where targets are large.  Collective: yes.
        """
        tapes: Tapes = {}
        unit, width, put_slopes = state.own.level or 1.0, self._width, self._putting(tapes, sides, ridge, state)

        def put(i: int, out: Array) -> None:
            out[width:] = self._at(i, rows, state, tapes, unit)
            put_slopes(i, out[:width])

        slopes = self._gradients.exchanged(put, width + FACTS, self.plan.dtype, sets=True)
        total, squares, probed, n = slopes.part(slice(width, None), np.empty(FACTS, self.plan.dtype)).tolist()
        return Look(tapes, unit * total / n, unit * unit * squares / n, probed, n, slopes)

    def slopes(self, look: Look, sides: Sides, ridge: float, state: Running) -> Sum:
        """The slopes of a look, summed now if they are not there yet, with the inverses of `sides` in them.

        They are to be read until the next ones are summed.  Collective: yes.
        """
        if look.slopes is not None:
            return look.slopes
        put = self._putting(look.tapes, sides, ridge, state)
        return self._gradients.exchanged(put, self._width, self.plan.dtype, sets=True)

    def _at(self, i: int, rows: Drawn, state: Running, tapes: Tapes, unit: float) -> tuple[float, float, float, float]:
        """FACTS of part i, losses in a unit; keeps what it has seen."""
        own, weights = rows[i], self.layout.blocks(state.weights)
        X = self.data.X[own]
        tape, Y = self.plan.chain.whole.tape(weights, X), X if self.data.autoencoder else self.data.Y[own]
        w = at(self.point_weights, own)
        losses, residual = weighted(self.plan.resolved.loss, w).with_residual(Y, tape.F)
        losses, tapes[i] = losses.astype(float) / unit, Seen(tape, Y, residual, probed_of(len(own), w, PROBED), w)
        return float(losses.sum()), float(losses @ losses), tapes[i].count, len(own)

    def _putting(self, tapes: Tapes, sides: Sides, ridge: float, state: Running) -> Callable[[int, Array], None]:
        """Gives what puts a part's slopes into an array; those of the ridge, which have no factors, are added whole."""
        inverses, weights = self.curvature.inverses(state), self.layout.blocks(state.weights)

        def put(i: int, out: Array) -> None:
            slopes = self.layout.blocks(out)
            factors.put_slopes(tapes[i], inverses, sides, slopes)
            if ridge:
                for W, G in zip(weights, slopes, strict=True):
                    G[:, :-1] += np.asarray(len(tapes[i].Y) * ridge, G.dtype) * W[:, :-1]

        return put
