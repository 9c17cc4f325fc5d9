"""Errors of a state: E1 on both sets, E_Q and the constraint; sums by blocks of points, added in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from macmpi.data.dataset import Dataset
from macmpi.nets.design import at, total_of, weighed
from macmpi.nets.losses import Loss, times
from macmpi.parallel.points import PointPartition
from macmpi.parallel.shared_work import TreeSum
from macmpi.parallel.team import Team
from macmpi.parallel.tiles import Cut
from macmpi.plan.plan import Plan
from macmpi.solvers.descent import parabola_minimum
from macmpi.solvers.z_problem import ZProblem
from macmpi.state import block_views
from macmpi.typing import Array


class NetErrors(NamedTuple):
    """E1 per point, and the share of misclassified points."""

    error: float
    wrong: float


def net_sums(loss: Loss, Y: Array, F: Array, weights: Array | None = None) -> list[float]:
    """Sums over points, each times its weight, of losses, of misclassified points, and of 1.  Collective: no."""
    wrong = F.argmax(axis=1) != Y.argmax(axis=1) if loss.labels else np.zeros(len(Y))
    count = len(Y) if weights is None else weights.sum()
    return [float(total) for total in (total_of(loss.value(Y, F), weights), total_of(wrong, weights), count)]


class Evaluation:
    """Sums over all points, the same bits on any number of ranks.  Collective: yes.

    weight: the sum of the training points' weights, their number where all are 1.
    """

    def __init__(self, plan: Plan, data: Dataset, team: Team, weight: float) -> None:
        self.plan, self.data, self.team, self.weight = plan, data, team, weight
        self._trees: dict[tuple[Cut, Cut], TreeSum] = {}

    def total(self, points: PointPartition, part: Callable[[slice], list[float] | Array], width: int) -> Array:
        """part(rows) (width,) over all points: tile by tile, up one tree.  Collective: yes."""
        key = points.tiles, points.blocks
        if key not in self._trees:
            self._trees[key] = points.tile_sums(self.team)
        own = dict(enumerate(points.tiles_of(self.team.rank), self._trees[key].own.start))

        def put(i: int, out: Array) -> None:
            out[:] = part(own[i].rows)

        return self._trees[key](put, width, sets=True)

    def nested(self, weights: Sequence[Array], validation: bool = False) -> NetErrors:
        """E1 (eq. 1) per point on either set: sum w_n loss_n / sum w_n for weights w, and misclassified points alike.

        Cost: one pass through the net.  Collective: yes.
        """
        data, chain, loss = self.data, self.plan.chain, self.plan.resolved.loss
        points = self.plan.work.validation if validation else self.plan.work.train
        X, Y = (data.X_val, data.Y_val) if validation else (data.X, data.Y)
        w = data.weights_val if validation else data.weights

        def part(rows: slice) -> list[float]:
            return net_sums(loss, Y[rows], chain.forward(weights, X[rows]), at(w, rows))

        error, wrong, weight = self.total(points, part, 3).tolist()
        return NetErrors(error / weight, wrong / weight)

    def gradient_step(self, weights: Array, gradient: Array) -> None:
        """Moves flat weights against the gradient of E1 (a sum over points), in place.  Collective: yes.

        The step begins at 1/N, N the sum of the points' weights, is halved until E1 falls, and ends at the minimum of
        the parabola through E1, its slope and that value if E1 is lower there.
        """
        N, shapes = self.weight, self.plan.chain.block_shapes
        start, slope = weights.copy(), self.team.from_root(lambda: -float(gradient @ gradient) / N)

        def error_at(step: float) -> float:
            weights[:] = start - step * gradient
            return self.nested(block_views(weights, shapes)).error

        before, step = error_at(0.0), 1.0 / N
        while (after := error_at(step)) >= before and step > 1e-20:
            step *= 0.5
        best = float(parabola_minimum(before, slope, step, after))
        if not (best < np.inf and error_at(best) < after):
            error_at(step)

    def penalised(self, problem: Callable[[slice], ZProblem], multipliers: Array) -> tuple[float, float, float, float]:
        """E_Q (eq. 3) per point, mean squared z - f, sum lambda^T (z - f) per point, mean squared mu M (z - f).

        A point counts as it weighs.

        Collective: yes.

        problem(rows): the Z-problem of some points, without a shift.  Cost: one pass through the net.
        """

        def part(rows: slice) -> list[float]:
            p = problem(rows)
            F = p.outputs(p.Z)
            missed = p.missed(p.Z, F)
            C = np.hstack(missed)
            own = at(self.data.weights, rows)
            D = weighed(C, own)
            work, move = 0.0, 0.0
            if len(multipliers):
                work = -np.einsum("nh,nh->", multipliers[rows], D, dtype=float)
                squares = [np.square(times(c, m.M)).sum(axis=1) for c, m in zip(missed, p.metrics, strict=True)]
                move = sum(float(total_of(s, own)) for s in squares)
            whole = float(total_of(p.weigh(p.Z, missed, F[-1]), own))
            return [whole, np.einsum("nh,nh->", C, D, dtype=float), work, move]

        E_Q, constraint, work, move = (self.total(self.plan.work.train, part, 4) / self.weight).tolist()
        width = sum(self.plan.chain.site_sizes)
        return E_Q, constraint / width, work, move / width
