"""The adding problem of Hochreiter and Schmidhuber (1997): which two numbers of a sequence to add, and their sum."""

from __future__ import annotations

import numpy as np

from macmpi import UsageError
from macmpi.config import Data
from macmpi.data.reading import Raw
from macmpi.data.scaling import ScalingRule
from macmpi.parallel.streams import stream

POINTS = 12_000
"""Sequences."""


def adding(config: Data, labels: bool, steps: int) -> Raw:
    """Sequences of `steps` pairs (number, mark), and the sum of the two numbers that are marked.

    X (POINTS, 2 steps): numbers uniform in [0, 1], marks 0 or 1, one in each half of a sequence.  Y (POINTS, 1).
    Raises UsageError where labels are asked for.
    """
    if labels:
        raise UsageError(
            f'data.source = "{config.source}" has sums to predict, and model.loss asks for labels; '
            'use model.loss = "squared"'
        )
    random, half = stream(0, "adding", steps), steps // 2
    numbers, marks = random.random((POINTS, steps)), np.zeros((POINTS, steps))
    for first, last in ((0, half), (half, steps)):
        marks[np.arange(POINTS), random.integers(first, last, POINTS)] = 1.0
    X = np.stack([numbers, marks], axis=2).reshape(POINTS, 2 * steps)
    sums, rule = (numbers * marks).sum(axis=1, keepdims=True), ScalingRule("standard")
    return Raw(X, sums, scale=rule, scale_y=rule, one_dimensional=True)
