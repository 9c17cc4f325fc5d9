"""Data that one process reads whole: checked, split and scaled."""

from __future__ import annotations

from typing import Any

import numpy as np

from macmpi import UsageError
from macmpi.config import Data
from macmpi.data.checks import check_single, check_varied, classes_of, largest
from macmpi.data.dataset import Dataset
from macmpi.data.parts import Parts, drawn_of, parts_of, raw_of, two_parts, weight_parts
from macmpi.data.point_weights import settled
from macmpi.data.reading import Raw
from macmpi.data.scaling import AS_IS, Scaling, ScalingRule, fit_scaling, unscaled
from macmpi.data.sums import SIDES, Sum
from macmpi.data.wanted import NUMBERS, Wanted, check_known, check_seen
from macmpi.typing import Array


def load(config: Data, labels: bool = False, dtype: Any = np.float64, wanted: Wanted = NUMBERS) -> Dataset:
    """The data set of a config, checked, split and scaled; labels: with the class of each point as its target.

    wanted: what the loss asks of targets.  Raises UsageError.  Collective: no (rank 0).
    """
    return made_of(raw_of(config, labels, wanted=wanted), config, dtype, wanted)


def made_of(raw: Raw, config: Data, dtype: Any = np.float64, wanted: Wanted = NUMBERS) -> Dataset:
    """The arrays of a data set, checked, split and scaled.  Raises UsageError.  Collective: no (rank 0)."""
    classes = None
    inputs, targets = parts_of(raw, config, drawn_of, wanted.missing)
    sides = zip(weight_parts(raw, inputs, config.source), ("training", "validation"), strict=True)
    w, w_val = (None if part is None else settled(part.whole(), what, config.source) for part, what in sides)
    X, X_val, scaling_x = Y, Y_val, scaling_y = _scaled(inputs, raw.scale, config, targets is None, w)
    if targets and raw.labels:
        labels_, labels_val = (part.whole() for part in targets)
        of = raw.names, raw.label_type, raw.X_val is None
        numbers = classes_of(labels_, labels_val, config.source, *of)
        if w is not None and not np.ptp(labels_[w > 0.0]):
            raise UsageError(f"{config.source}: all training points with a weight above 0 are of one class")
        Y, Y_val = (np.equal(y, numbers).astype(np.float64) for y in (labels_, labels_val))
        classes = numbers if raw.names is None else raw.names[numbers]
        scaling_y = unscaled(Y.shape[1])
    elif targets:
        Y, Y_val, scaling_y = _scaled(targets, raw.scale_y if wanted.scaled else AS_IS, config, True, w)
    if not raw.labels:
        for rows in (Y, Y_val):
            wanted.check(rows, config.source, autoencoder=targets is None)
    if np.dtype(dtype) == np.float32:
        check_single(max(largest(A) for A in (X, X_val, Y, Y_val, w, w_val) if A is not None), config.source)
    whole = Sum()
    for name, pair in (("X", inputs), ("Y", targets)):
        for side, part in zip(SIDES, pair or (), strict=False):
            whole.add_whole(name + side, part.whole())
    for side, array in zip(SIDES, (w, w_val), strict=True):
        if array is not None:
            whole.add_whole(f"weights{side}", array)
    if raw.names is not None and classes is not None:
        whole.add_names(classes)
    x, x_val = np.asarray(X, dtype), np.asarray(X_val, dtype)
    y, y_val = (np.asarray(Y, dtype), np.asarray(Y_val, dtype)) if targets else (x, x_val)
    return Dataset(
        *(x, y, x_val, y_val, scaling_x, scaling_y),
        sha256=whole.hex,
        classes=classes,
        one_dimensional=raw.one_dimensional,
        drawn=raw.X_val is None,
        groups=_divided(raw.groups, raw, inputs),
        order=_divided(raw.order, raw, inputs),
        shape=raw.shape,
        columns=raw.columns,
        steps=raw.steps,
        weights=w,
        weights_val=w_val,
    )


def _scaled(
    parts: Parts, rule: ScalingRule, config: Data, varied: bool, weights: Array | None
) -> tuple[Array, Array, Scaling]:
    """Training and validation rows, and the scaling, which the training rows determine.

    varied: raise UsageError if all columns are constant.  weights: of the training rows.
    """
    X, X_val = (part.whole() for part in parts)
    if parts[0].missing:
        check_seen(np.count_nonzero(~np.isnan(X), axis=0), parts[0].name)
        check_known(int(np.count_nonzero(~np.isnan(X_val))), parts[1].name)
    if varied:
        check_varied(np.fmin.reduce(X), np.fmax.reduce(X), parts[0].name, config.source)
    scaling = fit_scaling(X, rule, weights)
    if scaling.changes_nothing:
        return np.ascontiguousarray(X), np.ascontiguousarray(X_val), scaling
    return np.ascontiguousarray(scaling.apply(X)), np.ascontiguousarray(scaling.apply(X_val)), scaling


def _divided(pair: tuple[Array, Array] | None, raw: Raw, inputs: Parts) -> tuple[Array, Array] | None:
    """Numbers of the points, such as their groups, for training and for validation."""
    if pair is None:
        return None
    train, held = two_parts(pair[0], None if raw.X_val is None else pair[1], [part.rows for part in inputs])
    return train.whole(), held.whole()
