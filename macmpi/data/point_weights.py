"""Weights of points: one number a point, at least 0; a point of weight 2 counts as two of it would."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from macmpi import UsageError
from macmpi.data.checks import as_rows, check_as_many, check_rows, columns
from macmpi.typing import Array


def check_weights(found: Mapping[str, Any], given: Mapping[str, Any], path: Path) -> None:
    """Raises UsageError unless weights and weights_val, arrays or datasets, are one number for each point.

    found: X and the other arrays of the same file.  Collective: no.
    """
    for name, array in given.items():
        check_rows(array, f"{path}: dataset {name}", rows=1)
        if columns(array) != 1:
            raise UsageError(
                f"{path}: dataset {name} has shape {tuple(array.shape)}; one weight a point is needed: (N,)"
            )
    if "weights_val" in given and "X_val" not in found:
        raise UsageError(
            f"{path}: weights_val goes with X_val, and there is none: the validation points are drawn from X, with "
            "their weights; leave weights_val out"
        )
    for a, b in (("X", "weights"), ("X_val", "weights_val")):
        check_as_many({**found, **given}, a, b, path)


def as_weights(array: Any, name: str) -> Array:
    """Weights as float64 (N, 1).  Raises UsageError unless they are numbers that are not negative.  Collective: no."""
    return not_negative(as_rows(array, name, rows=1), name)


def not_negative(A: Array, name: str) -> Array:
    """The weights (n, 1) themselves.  Raises UsageError at the first that is negative.  Collective: no."""
    bad = np.argwhere(A[:, 0] < 0.0)
    if len(bad):
        raise UsageError(
            f"{name}: a weight is {A[bad[0, 0], 0]:g}, and weights are at least 0; leave out points that should not "
            "count, or give them the weight 0"
        )
    return A


def check_some(weight: float, what: str, source: str) -> None:
    """Raises UsageError where the weights of the training or the validation points sum up to 0.  Collective: no."""
    if not weight > 0.0:
        raise UsageError(
            f'data.source = "{source}": all {what} points have the weight 0; give some of them more'
            + ("" if what == "training" else ", or hold out more points (data.validation)")
        )
