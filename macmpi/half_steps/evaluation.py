"""Errors of a state: E1 on both sets, E_Q and the constraint; sums by blocks of points, added in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from macmpi.data.dataset import Dataset
from macmpi.nets.losses import times
from macmpi.parallel import tiles
from macmpi.parallel.partition import PointPartition
from macmpi.parallel.team import Team
from macmpi.parallel.tree_sum import TreeSum
from macmpi.plan.plan import Plan
from macmpi.solvers.descent import parabola_minimum
from macmpi.solvers.z_problem import ZProblem, misclassified
from macmpi.state import block_views
from macmpi.typing import Array


class NetErrors(NamedTuple):
    """E1 per point, and the share of misclassified points."""

    error: float
    wrong: float


class Evaluation:
    """Sums over all points, the same bits on any number of ranks.  Collective: yes."""

    def __init__(self, plan: Plan, data: Dataset, team: Team) -> None:
        self.plan, self.data, self.team = plan, data, team
        self._trees: dict[int, TreeSum] = {}

    def total(self, points: PointPartition, part: Callable[[slice], list[float] | Array], width: int) -> Array:
        """part(rows) (width,) over all points: tile by tile in each block, then block by block; of more blocks than
        `tiles.BLOCKS` up a tree, so that no rank needs all of them.  Collective: yes.
        """
        if (count := len(points.blocks)) > tiles.BLOCKS:
            own = dict(points.blocks_of(self.team.rank))

            def add(b: int, out: Array) -> None:
                for tile in own[b]:
                    out += part(tile.rows)

            if count not in self._trees:
                self._trees[count] = TreeSum(count, self.team)
            return self._trees[count](add, width)
        sums = np.zeros((count, width))
        for b, block in points.blocks_of(self.team.rank):
            for tile in block:
                sums[b] += part(tile.rows)
        self.team.gather_rows(sums, points.block_counts)
        return sums.sum(axis=0)

    def nested(self, weights: Sequence[Array], validation: bool = False) -> NetErrors:
        """E1 (eq. 1) per point on either set.  Cost: one pass through the net.  Collective: yes."""
        data, chain, loss = self.data, self.plan.chain, self.plan.choices.loss
        points = self.plan.work.validation if validation else self.plan.work.train
        X, Y = (data.X_val, data.Y_val) if validation else (data.X, data.Y)

        def part(rows: slice) -> list[float]:
            F = chain.forward(weights, X[rows])
            wrong = misclassified(Y[rows], F) if loss.labels else 0
            return [loss.value(Y[rows], F).sum(dtype=float), wrong]

        error, wrong = (self.total(points, part, 2) / points.n).tolist()
        return NetErrors(error, wrong)

    def gradient_step(self, weights: Array, gradient: Array) -> None:
        """Moves flat weights against the gradient of E1 (a sum over points), in place.  Collective: yes.

        The step begins at 1/N, is halved until E1 falls, and ends at the minimum of the parabola through E1, its slope
        and that value if E1 is lower there.
        """
        N, shapes = self.plan.n_train, self.plan.chain.block_shapes
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

        Collective: yes.

        problem(rows): the Z-problem of some points, without a shift.  Cost: one pass through the net.
        """

        def part(rows: slice) -> list[float]:
            p = problem(rows)
            F = p.outputs(p.Z)
            missed = p.missed(p.Z, F)
            C = np.hstack(missed)
            work, move = 0.0, 0.0
            if len(multipliers):
                work = -np.einsum("nh,nh->", multipliers[rows], C, dtype=float)
                move = sum(np.square(times(c, m.M)).sum(dtype=float) for c, m in zip(missed, p.metrics, strict=True))
            return [p.weigh(missed, F[-1]).sum(dtype=float), np.einsum("nh,nh->", C, C, dtype=float), work, move]

        N = self.plan.n_train
        E_Q, constraint, work, move = (self.total(self.plan.work.train, part, 4) / N).tolist()
        width = sum(self.plan.chain.site_sizes)
        return E_Q, constraint / width, work, move / width
