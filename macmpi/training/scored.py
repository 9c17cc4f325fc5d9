"""The scores of a net at the validation points, which the ranks sum together."""

from __future__ import annotations

from typing import Any

import numpy as np

from macmpi.data.dataset import Dataset
from macmpi.half_steps.parts import Parts
from macmpi.results.scores import Labels, Numbers, label_sums, labels_of, numbers_of, numbers_sums, width_of
from macmpi.state import block_views
from macmpi.typing import Array


def scored(parts: Parts, weights: Array, data: Dataset) -> Numbers | Labels:
    """Scores of the net with these weights (flat) at the validation points; rank 0 knows their units and classes.

    Cost: one pass through the net.  Collective: yes.
    """
    plan = parts.plan
    labels, points = plan.choices.loss.labels, plan.work.validation
    blocks = block_views(weights, plan.chain.block_shapes)
    sums_of: Any = label_sums if labels else numbers_sums
    width = width_of(data.Y_val.shape[1], labels)

    def part(rows: slice) -> Array:
        found: Array = sums_of(data.Y_val[rows], plan.chain.forward(blocks, data.X_val[rows]))
        return found

    sums = parts.evaluation.total(points, part, width)
    if not labels:
        return numbers_of(sums, points.n, data.scaling_y.scale)
    return labels_of(sums, np.arange(data.Y_val.shape[1]) if data.classes is None else data.classes)
