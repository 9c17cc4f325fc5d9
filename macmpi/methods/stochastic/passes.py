"""Points pass through the net and back, which gives losses, slopes and the Gauss-Newton model of the loss.

All are summed over the parts of a minibatch.  Inverses are applied to the slopes before the sum.  If the inverses must
be computed again, losses are needed first, so there are two exchanges; otherwise one exchange sums losses and slopes
together.

For layer k with inputs [a, 1] and outputs s: G_k = mean of [a, 1] [a, 1]^T, and M_k the metric of s (solvers/metrics).
The direction of the weights,

    D_k = -(M_k + a_k I)^-1 (dE1/dW_k) (G_k + b_k I)^-1,   a_k b_k = damping,

is the least-squares fit of the layer to the coordinates s - (M_k + a_k I)^-1 dE1/ds: this is MAC in the metric M_k,
with Z-step and W-step to first order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from macmpi.data.dataset import Dataset
from macmpi.methods.stochastic.curvature import RunningCurvature, Tapes
from macmpi.methods.stochastic.layers import GRAM, METRIC, Inverse
from macmpi.methods.stochastic.schedule import Running
from macmpi.nets.design import adjoint, at
from macmpi.nets.layers import is_plain
from macmpi.nets.losses import weighted
from macmpi.parallel.shared_work import Sum, TreeSum
from macmpi.parallel.tiles import contiguous_runs
from macmpi.plan import tuned
from macmpi.plan.directions import Sides
from macmpi.solvers.metrics import Seen
from macmpi.typing import Array

FACTS = 4
"""A pass sums this many numbers: losses, their squares, points that are probed, and all points."""

Drawn = Mapping[int, Any]
"""This rank's points of a minibatch, by part: their indices, or a slice where they are the whole part."""


class Passed(NamedTuple):
    """Holds the outcome of a minibatch's pass: means and counts are over the points of all ranks.

    tapes: the net at the points of each of this rank's parts.
    loss, square: the mean loss of a point, and the mean square of losses.
    probed, n: the number of points from which Grams and metrics are made, and of all points.
    slopes: the sum over points of the derivatives with respect to the weights, which must be read before the next sum;
        None if there is no sum yet.
    """

    tapes: Tapes
    loss: float
    square: float
    probed: float
    n: float
    slopes: Sum | None = None


class MinibatchPass:
    """Passes minibatches through the net; each rank passes its own parts.  Collective: methods that say so.

    gradients: computes the sums over parts, which have `FACTS` more numbers than the weights.
    point_weights (n,): of this rank's points, of a mean of 1 over all points; None if all are 1.
    """

    def __init__(
        self, data: Dataset, curvature: RunningCurvature, gradients: TreeSum, point_weights: Array | None
    ) -> None:
        self.plan, self.data, self.curvature, self.layout = curvature.plan, data, curvature, curvature.layout
        self._gradients, self.point_weights = gradients, point_weights
        self._width, self._whole = self.layout.weights[-1].stop, self.plan.resolved.whole_steps

    def losses(self, rows: Drawn, state: Running) -> Passed:
        """Passes a minibatch through the net and sums its losses over ranks; its slopes are not summed yet.

        rows: this rank's points of the minibatch, by part.  Collective: yes.
        """
        tapes: Tapes = {}

        def add(i: int, out: Array) -> None:
            out += self._at(i, rows, state, tapes, 1.0)

        total, squares, probed, n = self.curvature.sum(add, FACTS).tolist()
        return Passed(tapes, total / n, squares / n, probed, n)

    def with_slopes(self, rows: Drawn, ridge: float, state: Running) -> Passed:
        """Passes a minibatch through the net and back, and sums losses and slopes over ranks in one exchange.

        Losses are summed in the weights' precision and in units of their running mean, since squares of large targets
        would overflow single precision.

        rows: this rank's points of the minibatch, by part.
        ridge: lambda of the ridge, whose slope is added to the slope of each point's loss.  Collective: yes.
        """
        tapes: Tapes = {}
        unit, width, add_slopes = state.own.level or 1.0, self._width, self._putting(tapes, ridge, state)

        def put(i: int, out: Array) -> None:
            out[width:] = self._at(i, rows, state, tapes, unit)
            add_slopes(i, out[:width])

        slopes = self._gradients.exchanged(put, width + FACTS, self.plan.dtype, sets=True)
        total, squares, probed, n = slopes.part(slice(width, None), np.empty(FACTS, self.plan.dtype)).tolist()
        return Passed(tapes, unit * total / n, unit * unit * squares / n, probed, n, slopes)

    def slopes(self, passed: Passed, ridge: float, state: Running) -> Sum:
        """Returns the slopes of a passed minibatch; sums them over ranks unless `with_slopes` has done so.

        They must be read before the next sum, which uses their memory again.  Collective: yes.
        """
        if passed.slopes is not None:
            return passed.slopes
        put = self._putting(passed.tapes, ridge, state)
        return self._gradients.exchanged(put, self._width, self.plan.dtype, sets=True)

    def _at(self, i: int, rows: Drawn, state: Running, tapes: Tapes, unit: float) -> tuple[float, float, float, float]:
        """Passes part i through the net, puts its tape into `tapes`, and returns its `FACTS`, losses in `unit`s."""
        own, weights = rows[i], self.layout.blocks(state.weights)
        X = self.data.X[own]
        tape, Y = self.plan.chain.whole.tape(weights, X), X if self.data.autoencoder else self.data.Y[own]
        w = at(self.point_weights, own)
        losses, residual = weighted(self.plan.resolved.loss, w).with_residual(Y, tape.F)
        probed = probed_of(len(X), w, *((tuned.PROBED_WHOLE, True) if self._whole else (tuned.PROBED, False)))
        losses, tapes[i] = losses.astype(float) / unit, Seen(tape, Y, residual, probed, w)
        return float(losses.sum()), float(losses @ losses), tapes[i].count, len(X)

    def _putting(self, tapes: Tapes, ridge: float, state: Running) -> Callable[[int, Array], None]:
        """Returns put(i, out), which writes the slopes of part i, with those of the ridge, to the flat array `out`.

        Inverses are not applied to the slope of the ridge, which is no product of factors.
        """
        weights = self.layout.blocks(state.weights)
        inverses = [layer.inverses for layer in self.curvature.layers(state)]

        def put(i: int, out: Array) -> None:
            slopes = self.layout.blocks(out)
            put_slopes(tapes[i], inverses, self.curvature.sides, slopes)
            if ridge:
                for W, G in zip(weights, slopes, strict=True):
                    G[:, :-1] += np.asarray(len(tapes[i].Y) * ridge, G.dtype) * W[:, :-1]

        return put


def probed_of(n: int, weights: Array | None, most: int, ordered: bool = False) -> slice | Array:
    """Chooses at most `most` of n points: the first ones of random points, or evenly spaced ones of ordered points.

    With weights (n,) it chooses exactly `most`, spaced evenly along the running sum of the weights: heavy points
    several times, and no points if all weights are 0.  Collective: no.
    """
    if weights is None:
        return slice(0, None, max(-(-n // most), 1)) if ordered else slice(0, most)
    sums = np.cumsum(weights)
    count = most if n and sums[-1] > 0.0 else 0
    marks = (np.arange(count) + 0.5) / most
    return np.minimum(np.searchsorted(sums, marks * (sums[-1] if n else 0.0)), n - 1)


def put_slopes(seen: Seen, inverses: Sequence[Sequence[Inverse]], sides: Sides, out: Sequence[Array]) -> None:
    """Puts the sum over points of M_k^-1 (dE1/dW_k) G_k^-1 into `out`, with only the inverses that `sides` names.

    dE1/dW_k = Q^T [A, 1], for the derivatives Q (n, h) of the losses with respect to the layer's outputs, and its
    inputs A:

        M^-1 (Q^T [A, 1]) G^-1 = (Q M^-1)^T ([A, 1] G^-1).

    inverses: the inverses of G and M for each layer.
    sides: for each layer, whether M^-1 and whether G^-1 is applied; other factors count as the identity.
    Cost: 4 n d h flops for each layer, and 2 n h^2, 2 n d^2 for its inverses.  Collective: no.
    """
    put = set[int]()
    for step, Q in seen.tape.backwards(-seen.residual):
        assert step.block is not None
        k = step.block
        outputs, inputs = sides[k]
        if k in put:
            out[k] += step.map.weight_vjp(step.W, step.A, Q)
            continue
        put.add(k)
        if not is_plain(step.map):
            out[k][:] = step.map.weight_vjp(step.W, step.A, Q)
            continue
        if outputs:
            Q = inverses[k][METRIC].of_rows(Q)
        if inputs:
            np.matmul(Q.T, inverses[k][GRAM].of_rows(step.A), out=out[k])
        else:
            adjoint(Q, step.A, out=out[k])


# --- the Gauss-Newton model -------------------------------------------------------------------------------------------


class Points(NamedTuple):
    """Holds the points that a Gauss-Newton model sums over: n on all ranks.

    rows, tapes: this rank's points by part, and the net at these points.
    ridge: the ridge of the weights.
    damping: the damping of the length of a step.
    """

    rows: Drawn
    tapes: Tapes
    n: float
    ridge: float
    damping: float


class GaussNewton:
    """Models a loss along a step by damped Gauss-Newton, and measures how much the loss falls.

        -b t + 1/2 h t^2,   h = mean of (J w)^T B^T B (J w) + damping w^T w,   b = mean of r^T J w - ridge W^T w

    along a direction w of the weights W, with J = dF/dW, B^T B the loss's curvature with respect to the outputs F, and
    r minus its slope.  A step's length is b / h, and the damping follows the ratio of actual to predicted decrease.
    Collective: methods that say so.
    """

    def __init__(self, data: Dataset, curvature: RunningCurvature) -> None:
        self.plan, self.data, self.layout = curvature.plan, data, curvature.layout
        self.sum = curvature.sum
        count = self.layout.weights[-1].stop
        self._shares = [run.rows for run in contiguous_runs(count, self.sum.leaves)]
        self._held = np.ones(count, bool)  # the ridge holds all weights but biases
        for held in self.layout.blocks(self._held):
            held[:, -1] = False

    def along(self, way: Array, points: Points, state: Running) -> tuple[float, float]:
        """Computes b and h along a direction `way` (P,) of the weights.  Collective: yes."""
        slopes, curvatures = self.within([way], points, state)
        return float(slopes[0]), float(curvatures[0, 0])

    def within(self, ways: Sequence[Array], points: Points, state: Running) -> tuple[Array, Array]:
        """Computes b (c,) of c directions `ways` of the weights, and h (c, c) of every two.  Collective: yes."""
        blocks, c = [self.layout.blocks(way) for way in ways], len(ways)

        def add(i: int, out: Array) -> None:
            seen, own = points.tapes[i], self._shares[i]
            changes = [seen.tape.weight_jvp(block) for block in blocks]
            loss = weighted(self.plan.resolved.loss, seen.weights)
            root, rows = loss.root(seen.Y, seen.tape.F), out.reshape(c, 2 * c + 2)
            for row, way, change in zip(rows, ways, changes, strict=True):
                curved = root.normal(change)
                row[:c] += [np.vdot(other, curved) for other in changes]
                row[c : 2 * c] += [np.vdot(other[own], way[own]) for other in ways]
                pull = self._pull(state.weights[own], way, own) if points.ridge else 0.0
                row[2 * c :] += np.vdot(change, seen.residual), pull

        with self.sum.team.clock("z"):
            found = self.sum(add, c * (2 * c + 2)).reshape(c, 2 * c + 2)
        curved, square, (falls, pull) = found[:, :c], found[:, c : 2 * c], found[:, 2 * c :].T
        return falls / points.n - points.ridge * pull, curved / points.n + points.damping * square

    def product(self, way: Array, points: Points) -> Array:
        """Computes H w for a direction w = `way` (P,), with damping and ridge, in the precision of w.  Collective: yes.

        Cost: two forward and two backward passes of the points.
        """
        blocks = self.layout.blocks(way)

        def put(i: int, out: Array) -> None:
            seen = points.tapes[i]
            root = weighted(self.plan.resolved.loss, seen.weights).root(seen.Y, seen.tape.F)
            curved = seen.tape.weight_vjp(root.normal(seen.tape.weight_jvp(blocks)))
            np.concatenate([own.ravel() for own in curved], out=out)

        with self.sum.team.clock("z"):
            found = self.sum(put, len(way), way.dtype, sets=True)
        found /= points.n
        found += (points.damping + points.ridge * self._held).astype(way.dtype) * way
        return found

    def decrease(self, points: Points, state: Running) -> float:
        """Computes how much the last step, which the weights have taken, lowered loss plus ridge.  Collective: yes.

        The ridge has grown by (lambda / 2) (||W||^2 - ||W - P||^2) = lambda (W - P / 2) . P, for the weights W after a
        step P.

        points: points whose tapes are at the weights before the step.
        """
        weights, step = self.layout.blocks(state.weights), state.own.step

        def add(i: int, out: Array) -> None:
            seen, own = points.tapes[i], self._shares[i]
            loss = weighted(self.plan.resolved.loss, seen.weights)
            moved = self.plan.chain.forward(weights, self.data.X[points.rows[i]])
            before, after = (loss.value(seen.Y, F).sum(dtype=float) for F in (seen.tape.F, moved))
            grown = self._pull(state.weights[own] - 0.5 * step[own], step, own) if points.ridge else 0.0
            out += before - after, grown

        with self.sum.team.clock("z"):
            fallen, grown = self.sum(add, 2).tolist()
        return fallen / points.n - points.ridge * grown

    def ridge_value(self, W: Array) -> float:
        """Computes ||W||^2 / 2 over all weights but biases, from weights (P,).  Collective: no."""
        return 0.5 * self._pull(W, W, slice(None))

    def _pull(self, W: Array, way: Array, own: slice) -> float:
        """Computes W . P without biases, the slope of ||W||^2 / 2 along a direction P, over a share of the weights.

        Processors round it differently, so each share is computed once and the ranks add them up.  Collective: no.
        """
        return float(np.vdot(W * self._held[own], way[own]))
