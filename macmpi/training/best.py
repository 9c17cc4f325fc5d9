"""The weights that a model predicts with: of the lowest validation error, never worse than a constant; their scores."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from macmpi.data.dataset import Dataset
from macmpi.half_steps.errors import errors_of
from macmpi.half_steps.evaluation import at
from macmpi.half_steps.parts import Parts
from macmpi.methods.choose import Method
from macmpi.methods.starts import constant_weights
from macmpi.nets.losses import LINKS
from macmpi.results.scores import Labels, Numbers, scores_of, sums_of, width_of
from macmpi.state import Errors, State, block_views
from macmpi.training.finite import SAME
from macmpi.typing import Array


def is_poor(error: float, constant: float) -> bool:
    """A training error is above that of the best constant, or no number."""
    return not error <= constant * (1.0 + SAME)


@dataclass(frozen=True)
class Best:
    """Weights (flat), the iteration that they are of, their errors.

    last: they are those that the run ended with; constant: they give the best constant, since no others were better.
    """

    weights: Array
    iteration: int
    errors: Errors
    last: bool = False
    constant: bool = False

    def is_worse_than(self, constant: float) -> bool:
        """Their error on the training points, without a ridge, is above that of the best constant.  Collective: no."""
        return is_poor(self.errors.E_Q, constant)


def best_of(method: Method, state: State[Any], after: State[Any], errors: Errors, constant: float) -> Best:
    """The weights of the lowest validation error: of an iteration, or those after the end.  Collective: yes.

    Those that are poor, with a training error above that of the best constant, only where all are.  after, errors: the
    state after postprocessing, and its errors.  Cost: an evaluation.
    """
    history, last = state.history, (is_poor(errors.E_Q, constant), errors.validation)
    if not len(history.best_weights) or last <= (history.best_poor, history.best_e1_val):
        return Best(after.weights, after.iteration, errors, last=True)
    of = errors_of(method.parts, replace(after, weights=history.best_weights), feasible=True)
    return Best(history.best_weights, history.best_iteration, of)


def or_constant(best: Best, method: Method, after: State[Any], data: Dataset) -> Best:
    """The net that gives the best constant where that is better than the best weights.  Collective: yes.

    An output layer without biases gives none, one of convolutions perhaps none that is better.
    """
    parts, plan = method.parts, method.plan
    points = parts.over_points, parts.points.weight, data.weights
    flat = constant_weights(plan.chain, after.weights, plan.resolved.loss, data.Y, *points)
    if flat is None:
        return best
    of = errors_of(parts, replace(after, weights=flat), feasible=True)
    return best if best.errors.E_Q <= of.E_Q else Best(flat, 0, of, constant=True)


def scored(parts: Parts, weights: Array, data: Dataset) -> Numbers | Labels:
    """Scores of the net with these weights (flat) at the validation points; rank 0 knows their units and classes.

    Cost: one pass through the net.  Collective: yes.
    """
    plan, L = parts.plan, parts.plan.chain.n_out
    loss, points = plan.resolved.loss, plan.work.validation
    labels = loss.labels
    blocks = block_views(weights, plan.chain.block_shapes)

    def part(rows: slice) -> Array:
        F = plan.chain.forward(blocks, data.X_val[rows])
        return sums_of(data.Y_val[rows], F if labels else LINKS[loss.link](F), labels, at(data.weights_val, rows))

    sums = parts.evaluation.total(points, part, width_of(L, labels))
    classes = np.arange(L) if labels and data.classes is None else data.classes
    return scores_of(sums, data.scaling_y.scale, classes)
