"""The damped Gauss-Newton model of a loss along a step, and how much the loss has really fallen.

    -b t + 1/2 h t^2,   h = mean of (J w)^T B^T B (J w) + damping w^T w,   b = mean of r^T J w - ridge W^T w

along a way w of the weights W, for J = dF/dW, B^T B the loss's curvature by the outputs F and r minus its slope.  A
step's length is b / h, and the damping follows the actual decrease against the predicted one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from macmpi.data.dataset import Dataset
from macmpi.methods.stochastic.curvature import RunningCurvature, Tapes
from macmpi.methods.stochastic.minibatch_pass import Drawn
from macmpi.methods.stochastic.schedule import Running
from macmpi.nets.losses import weighted
from macmpi.parallel.balance import contiguous_runs
from macmpi.typing import Array


class Points(NamedTuple):
    """The n points of all ranks that a model is of: this rank's rows by part, and the net at them.

    ridge: of the weights; damping: of the length of a step.
    """

    rows: Drawn
    tapes: Tapes
    n: float
    ridge: float
    damping: float


class GaussNewton:
    """Models of a minibatch's loss, summed over parts.  Collective: where a method says so."""

    def __init__(self, data: Dataset, curvature: RunningCurvature) -> None:
        self.plan, self.data, self.layout = curvature.plan, data, curvature.layout
        self.sum, self.clock = curvature.sum, curvature.clock
        count = self.layout.weights[-1].stop
        self._shares = [run.rows for run in contiguous_runs(count, self.sum.leaves)]
        self._held = np.ones(count, bool)  # by the ridge: all but biases
        for held in self.layout.blocks(self._held):
            held[:, -1] = False

    def along(self, way: Array, points: Points, state: Running) -> tuple[float, float]:
        """b and h along a way of the weights (flat).  Collective: yes."""
        slopes, curvatures = self.within([way], points, state)
        return float(slopes[0]), float(curvatures[0, 0])

    def within(self, ways: Sequence[Array], points: Points, state: Running) -> tuple[Array, Array]:
        """b (c,) and h (c, c) of c ways of the weights (flat), each by itself and every two.  Collective: yes."""
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

        with self.clock("z"):
            found = self.sum(add, c * (2 * c + 2)).reshape(c, 2 * c + 2)
        curved, square, (falls, pull) = found[:, :c], found[:, c : 2 * c], found[:, 2 * c :].T
        return falls / points.n - points.ridge * pull, curved / points.n + points.damping * square

    def product(self, way: Array, points: Points) -> Array:
        """H w along a way w (flat), with damping and ridge, in the precision of the weights.  Collective: yes.

        Cost: two passes of the points forth and two back.
        """
        blocks = self.layout.blocks(way)

        def put(i: int, out: Array) -> None:
            seen = points.tapes[i]
            root = weighted(self.plan.resolved.loss, seen.weights).root(seen.Y, seen.tape.F)
            curved = seen.tape.weight_vjp(root.normal(seen.tape.weight_jvp(blocks)))
            np.concatenate([own.ravel() for own in curved], out=out)

        with self.clock("z"):
            found = self.sum(put, len(way), way.dtype, sets=True)
        found /= points.n
        found += (points.damping + points.ridge * self._held).astype(way.dtype) * way
        return found

    def decrease(self, points: Points, state: Running) -> float:
        """The decrease of the loss, and of the ridge, by the last step, which the weights have taken.  Collective: yes.

        That of the ridge is (lambda / 2) (||W||^2 - ||W - P||^2) = lambda (W - P / 2) . P, for the weights W after a
        step P.  The tapes of the points are of the weights before it.
        """
        weights, step = self.layout.blocks(state.weights), state.own.step

        def add(i: int, out: Array) -> None:
            seen, own = points.tapes[i], self._shares[i]
            loss = weighted(self.plan.resolved.loss, seen.weights)
            moved = self.plan.chain.forward(weights, self.data.X[points.rows[i]])
            before, after = (loss.value(seen.Y, F).sum(dtype=float) for F in (seen.tape.F, moved))
            grown = self._pull(state.weights[own] - 0.5 * step[own], step, own) if points.ridge else 0.0
            out += before - after, grown

        with self.clock("z"):
            fallen, grown = self.sum(add, 2).tolist()
        return fallen / points.n - points.ridge * grown

    def ridge_value(self, W: Array) -> float:
        """||W||^2 / 2 of all weights but biases (flat).  Collective: no."""
        return 0.5 * self._pull(W, W, slice(None))

    def _pull(self, W: Array, way: Array, own: slice) -> float:
        """W . P for a share of the weights and a way P of theirs, without biases: the slope of ||W||^2 / 2 along it.

        Ranks add up what each makes of its share, for processors round it in different ways.  Collective: no.
        """
        return float(np.vdot(W * self._held[own], way[own]))
