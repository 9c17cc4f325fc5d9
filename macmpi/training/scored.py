"""The scores of a net at the validation points, which the ranks sum together."""

from __future__ import annotations

import numpy as np

from macmpi.data.dataset import Dataset
from macmpi.half_steps.evaluation import at
from macmpi.half_steps.parts import Parts
from macmpi.nets.losses import LINKS
from macmpi.results.scores import Labels, Numbers, scores_of, sums_of, width_of
from macmpi.state import block_views
from macmpi.typing import Array


def scored(parts: Parts, weights: Array, data: Dataset) -> Numbers | Labels:
    """Scores of the net with these weights (flat) at the validation points; rank 0 knows their units and classes.

    Cost: one pass through the net.  Collective: yes.
    """
    plan, L = parts.plan, data.Y_val.shape[1]
    loss, points = plan.resolved.loss, plan.work.validation
    labels = loss.labels
    blocks = block_views(weights, plan.chain.block_shapes)

    def part(rows: slice) -> Array:
        F = plan.chain.forward(blocks, data.X_val[rows])
        return sums_of(data.Y_val[rows], F if labels else LINKS[loss.link](F), labels, at(data.weights_val, rows))

    sums = parts.evaluation.total(points, part, width_of(L, labels))
    classes = np.arange(L) if labels and data.classes is None else data.classes
    return scores_of(sums, data.scaling_y.scale, classes)
