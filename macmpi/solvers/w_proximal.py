"""W-step under restraints (l1, groups, bounds, zeros that stay): proximal Newton with the layers' Grams as metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from macmpi.demand import Demand, Demands
from macmpi.nets.design import row_dots
from macmpi.reductions import OverPoints
from macmpi.solvers import BY_SUMS, WSolver
from macmpi.solvers.grams import System
from macmpi.solvers.proximal_fits import Fit, MeasuringGram, SegmentFit, UnitFit
from macmpi.solvers.shrinkage import Form
from macmpi.solvers.w_problem import WProblem
from macmpi.typing import Array

TRIALS, TRIALS_EXACT = 10, 2
"""Curvatures that are tried in an iteration; of linear units, whose own is known, a second against rounding."""

BEARABLE = 2.0
"""A trial is the last where the curvature along it was at most so much more than was thought."""

NEARLY = 0.3
"""A first trial is the last too where the logarithm of the curvature was right within this."""

FLATTER, STEEPER = 0.1, 16.0
"""From one trial or iteration to the next a curvature changes within these factors; it at least doubles if refused."""


@dataclass(frozen=True)
class ProximalW(WSolver):
    """The objective plus l1 sum |v| + group sum_j ||V[:, j]||, least <= v <= most, lowered row by row.

    An iteration replaces the data's part by its gradient and curvature s_h G, G the Gram of the layer's inputs, and
    solves that with the restraint (`shrinkage`), so that weights become exactly 0 or reach their bounds.  s_h is 1 for
    linear units, whose quadratic is the objective and is solved to the end, once; else at first the mean of s'^2, then
    what the last trial says.  A trial that does not lower the objective, or met far more curvature, is repeated with a
    larger s_h; the lowest is taken, and the weights stay where none is lower.

    Of a segment, each block has the Gram of its own inputs, or where its map is not linear their mean square, and s is
    common to it.  Cost of an iteration: 4 N D w flops, 2 N D w a trial, and D^3 / 3 for each set of weights that are 0.
    """

    iterations: int = 3
    tolerance: float = 0.01

    takes: ClassVar[frozenset[str]] = frozenset({"units", "segment"})
    handles: ClassVar[Demands] = BY_SUMS | {Demand.RESTRAINED}
    system: ClassVar[System] = MeasuringGram()

    def effort(self, n_in: int, units: int, points: int) -> float:
        """Passes over the points, and for each unit a system of about half of its inputs."""
        return super().effort(n_in, units, points) + units * n_in**3 / 8.0 / points

    def solve(self, problem: WProblem, over_points: OverPoints) -> Array:
        fit: Fit = (UnitFit if problem.by_unit else SegmentFit)(problem)  # type: ignore[arg-type]
        theta = fit.inside(np.asarray(problem.start, dtype=np.float64))
        live, scale = np.ones(len(theta), dtype=bool), np.zeros(len(theta))
        for _ in range(1 if fit.quadratic else self.iterations):
            smooth, slope, first, forms = fit.linearised(theta, over_points)
            before = smooth + fit.penalty(theta)
            scale = np.where(scale > 0.0, np.maximum(scale, fit.least * first), first)
            theta, after, scale = self._lowered(fit, Model(theta, smooth, slope, forms), scale, live, over_points)
            live &= fit.joined(before - after) > self.tolerance * fit.joined(before)
            if not live.any():
                break
        return theta

    def _lowered(
        self, fit: Fit, model: Model, scale: Array, live: Array, over_points: OverPoints
    ) -> tuple[Array, Array, Array]:
        """Rows after trials, their objectives, and the curvatures that the last trials say.

        The second trial has the curvature that the first has met; further ones follow only where one was refused.
        """
        theta, objective = model.theta, model.smooth + fit.penalty(model.theta)
        found, least, pending = theta.copy(), objective.copy(), live.copy()
        for attempt in range(TRIALS_EXACT if fit.quadratic else TRIALS):
            if not pending.any():
                break
            tried = fit.step(theta, model.slope, scale, model.forms, pending)
            smooth = fit.smooth(tried, over_points)
            now = smooth + fit.penalty(tried)
            seen = self._seen(fit, model, tried - theta, smooth)
            likely = np.clip(seen, FLATTER * scale, STEEPER * scale)
            right = np.isfinite(now) & (fit.joined(now) < fit.joined(objective)) & (seen <= BEARABLE * scale)
            taken = pending & np.isfinite(now) & (fit.joined(now) < fit.joined(least))
            found, least = np.where(taken[:, None], tried, found), np.where(taken, now, least)
            known = (np.abs(np.log(likely / scale)) < NEARLY) | (fit.quadratic or attempt > 0)
            done = fit.joined_in((right & known) | ~(tried != theta).any(axis=1))
            scale = fit.common(np.where(pending, np.where(right, likely, np.maximum(likely, 2.0 * scale)), scale))
            pending &= ~done
        return found, least, scale

    def _seen(self, fit: Fit, model: Model, move: Array, smooth: Array) -> Array:
        """The curvature along a move, in units of the forms, that its smooth part says."""
        agreed = fit.problem.in_pieces.agreed
        curved, fall = agreed(fit.curvature(move, model.forms)), agreed(row_dots(model.slope, move))
        with np.errstate(over="ignore", invalid="ignore"):
            seen = 2.0 * (smooth - model.smooth + fall) / np.where(curved > 0.0, curved, 1.0)
        return np.where(np.isfinite(seen), seen, np.inf)


class Model(NamedTuple):
    """Rows theta, the smooth part of their objectives, minus its gradient, and the forms to measure moves in."""

    theta: Array
    smooth: Array
    slope: Array
    forms: Sequence[Form]
