"""The scaling of rows at hand by a rule, or by the name of one."""

from __future__ import annotations

from macmpi.data.dataset import NUMBERS
from macmpi.data.parts import DataPart
from macmpi.data.reader import Reader
from macmpi.data.scaling import Scaling, ScalingRule
from macmpi.parallel.points import partition_points
from macmpi.parallel.team import Team
from macmpi.typing import Array


def fit_scaling(X: Array, rule: ScalingRule | str, weights: Array | None = None) -> Scaling:
    """The scaling of training rows X (N, D), in which numbers of targets may be missing.  weights: theirs, (N,)."""
    rule = ScalingRule(rule) if isinstance(rule, str) else rule
    points = partition_points(len(X), 1)
    reader = Reader({}, (points, points), Team(), NUMBERS, "")
    reader.weights = weights
    return reader.statistics(DataPart(X, range(len(X)), "X", missing=True), rule).scaling(rule)
