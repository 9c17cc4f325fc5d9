"""Targets that a loss takes, made of any numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from macmpi.data.dataset import NUMBERS, TargetRules
from macmpi.nets.losses import LOSSES, Loss
from macmpi.typing import Array

CLASSES = TargetRules(LOSSES["cross_entropy"])
"""A classifier asks this of its data."""


def rules_of(labels: bool, **keys: Any) -> TargetRules:
    """A classifier asks this of its data, or a regression with squared errors.  keys: as of `TargetRules`."""
    return replace(CLASSES if labels else NUMBERS, **keys)


def taken_by(loss: Loss, A: Array) -> Array:
    """Numbers A (n, L) as they are; the largest as a label; those above 0 as truth; their exponentials as counts."""
    if loss.labels:
        return np.eye(A.shape[1])[A.argmax(axis=1)]
    made = {"sigmoid": np.greater(A, 0.0).astype(float), "exp": np.floor(np.exp(np.minimum(A, 3.0)))}
    found: Array = made.get(loss.link, A)
    assert loss.admits(found).all()
    return found
