"""A minibatch passes through the net and back: losses at its points and slopes of the weights, summed over parts.

Slopes need the inverses that are applied to them, and where these are made again, they need the losses: two exchanges.
In all other steps losses and slopes are summed together, in one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from macmpi.data.dataset import Dataset
from macmpi.methods.stochastic import factors
from macmpi.methods.stochastic.curvature import RunningCurvature, Tapes
from macmpi.methods.stochastic.factors import probed_of
from macmpi.methods.stochastic.schedule import Running
from macmpi.nets.design import at
from macmpi.nets.losses import weighted
from macmpi.parallel.shared_work import Sum, TreeSum
from macmpi.plan import tuned
from macmpi.solvers.metrics import Seen
from macmpi.typing import Array

FACTS = 4
"""Numbers of a pass: the sums of losses and of their squares, points that are probed, and all points."""

Drawn = Mapping[int, Any]
"""This rank's points of a minibatch, by part: their numbers, or a slice where they are all of it."""


class Passed(NamedTuple):
    """The mean loss of a minibatch and the mean square of losses, points probed and all points, of all ranks.

    tapes: of this rank's parts.  slopes: summed over points, to be read until the next are; None: not summed yet.
    """

    tapes: Tapes
    loss: float
    square: float
    probed: float
    n: float
    slopes: Sum | None = None


class MinibatchPass:
    """Passes minibatches of some parts through the net.  Collective: where a method says so.

    gradients: sums over parts, as wide as the weights and FACTS more.  point_weights: of the points, of a mean of 1.
    """

    def __init__(
        self, data: Dataset, curvature: RunningCurvature, gradients: TreeSum, point_weights: Array | None
    ) -> None:
        self.plan, self.data, self.curvature, self.layout = curvature.plan, data, curvature, curvature.layout
        self._gradients, self.point_weights = gradients, point_weights
        self._width, self._whole = self.layout.weights[-1].stop, self.plan.resolved.whole_steps

    def losses(self, rows: Drawn, state: Running) -> Passed:
        """Passes this rank's rows by part, without slopes.  Collective: yes."""
        tapes: Tapes = {}

        def add(i: int, out: Array) -> None:
            out += self._at(i, rows, state, tapes, 1.0)

        total, squares, probed, n = self.curvature.sum(add, FACTS).tolist()
        return Passed(tapes, total / n, squares / n, probed, n)

    def with_slopes(self, rows: Drawn, ridge: float, state: Running) -> Passed:
        """Passes them with slopes, in one exchange.  Collective: yes.

        Losses come in the weights' precision and in units of their running mean: their squares would overflow single
        precision where targets are large.
        """
        tapes: Tapes = {}
        unit, width, put_slopes = state.own.level or 1.0, self._width, self._putting(tapes, ridge, state)

        def put(i: int, out: Array) -> None:
            out[width:] = self._at(i, rows, state, tapes, unit)
            put_slopes(i, out[:width])

        slopes = self._gradients.exchanged(put, width + FACTS, self.plan.dtype, sets=True)
        total, squares, probed, n = slopes.part(slice(width, None), np.empty(FACTS, self.plan.dtype)).tolist()
        return Passed(tapes, unit * total / n, unit * unit * squares / n, probed, n, slopes)

    def slopes(self, passed: Passed, ridge: float, state: Running) -> Sum:
        """The slopes of a pass, summed now if they are not there yet.

        They are to be read until the next ones are summed.  Collective: yes.
        """
        if passed.slopes is not None:
            return passed.slopes
        put = self._putting(passed.tapes, ridge, state)
        return self._gradients.exchanged(put, self._width, self.plan.dtype, sets=True)

    def _at(self, i: int, rows: Drawn, state: Running, tapes: Tapes, unit: float) -> tuple[float, float, float, float]:
        """FACTS of part i, losses in a unit; keeps what it has seen."""
        own, weights = rows[i], self.layout.blocks(state.weights)
        X = self.data.X[own]
        tape, Y = self.plan.chain.whole.tape(weights, X), X if self.data.autoencoder else self.data.Y[own]
        w = at(self.point_weights, own)
        losses, residual = weighted(self.plan.resolved.loss, w).with_residual(Y, tape.F)
        probed = probed_of(len(X), w, *((tuned.PROBED_WHOLE, True) if self._whole else (tuned.PROBED, False)))
        losses, tapes[i] = losses.astype(float) / unit, Seen(tape, Y, residual, probed, w)
        return float(losses.sum()), float(losses @ losses), tapes[i].count, len(X)

    def _putting(self, tapes: Tapes, ridge: float, state: Running) -> Callable[[int, Array], None]:
        """Gives what puts a part's slopes into an array; those of the ridge, which have no factors, are added whole."""
        weights = self.layout.blocks(state.weights)
        inverses = [layer.inverses for layer in self.curvature.layers(state)]

        def put(i: int, out: Array) -> None:
            slopes = self.layout.blocks(out)
            factors.put_slopes(tapes[i], inverses, self.curvature.sides, slopes)
            if ridge:
                for W, G in zip(weights, slopes, strict=True):
                    G[:, :-1] += np.asarray(len(tapes[i].Y) * ridge, G.dtype) * W[:, :-1]

        return put
