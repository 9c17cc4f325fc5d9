"""The scaling of rows at hand by a rule, or by the name of one."""

from __future__ import annotations

from macmpi.data.scaling import Rows, Scaling, ScalingRule
from macmpi.typing import Array


def fit_scaling(X: Array, rule: ScalingRule | str, weights: Array | None = None) -> Scaling:
    """The scaling of training rows X (N, D), in which numbers of targets may be missing.  weights: theirs, (N,)."""
    rule = ScalingRule(rule) if isinstance(rule, str) else rule
    return Rows.of(X, weights, rule.features).scaling(rule)
