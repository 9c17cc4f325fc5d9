"""Inverse links: elementwise but for softmax, they turn the outputs of a net into what it predicts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from macmpi.nets.layers.activation import function
from macmpi.nets.layers.softmax import softmax
from macmpi.typing import Array


def _sigmoid(F: Array) -> Array:
    return function("sigmoid").value(F, np.empty_like(F))


def _exp(F: Array) -> Array:
    with np.errstate(over="ignore"):  # infinite where the number is too large
        return np.exp(F)


LINKS: dict[str, Callable[[Array], Array]] = {
    "identity": lambda F: F,
    "softmax": softmax,
    "sigmoid": _sigmoid,
    "exp": _exp,
}
