"""Columns of a table as targets: their type says whether they may be classes; values are missing only where allowed."""

from __future__ import annotations

from typing import Any

import numpy as np

from macmpi import UsageError
from macmpi.data.series import is_whole, kind_of, numbers, texts
from macmpi.typing import Array


def targets_of(series: dict[str, Any], source: str, missing: bool = False) -> Array:
    """One column as (N,): text, truth values, whole numbers or numbers; several as numbers (N, L).

    source: for messages.  missing: numbers may be, and become NaN.  Raises UsageError where a value is missing, or is
    no target.
    """
    found = [_target(one, f"{source}: column {name}, a target,", missing) for name, one in series.items()]
    if len(found) == 1:
        return found[0]
    for name, values in zip(series, found, strict=True):
        if values.dtype.kind == "U":
            raise UsageError(f"{source}: column {name} holds text; several targets are numbers: name one column")
    return np.column_stack([values.astype(np.float64) for values in found])


def weights_of(series: Any, place: str) -> Array:
    """One column as weights, (N,) float64.  place: names the column in messages.  Raises UsageError."""
    kind = kind_of(series)
    if kind != "number":
        raise UsageError(f"{place} holds {series.dtype}; numbers from 0 on are needed")
    values = numbers(series, kind, place)
    _check_complete(np.isnan(values), place, ", or give it the weight 0")
    return values


def _target(series: Any, place: str, missing: bool) -> Array:
    """A target, in the type that says whether it may be classes."""
    kind = kind_of(series)
    if kind in ("other", "date"):
        raise UsageError(f"{place} holds {series.dtype}; numbers, truth values or text are needed")
    if kind in ("category", "nothing"):
        words = texts(series)
        _check_complete(np.array([word is None for word in words]), place)
        return np.array(words, dtype=str)
    if kind == "number" and is_whole(series):
        return np.asarray(series.to_numpy())
    values = numbers(series, kind, place)
    if missing and np.isnan(values).any():
        return values
    _check_complete(np.isnan(values), place, ", or let outputs be missing, loss.missing = true")
    return values.astype(bool) if kind == "truth" else values


def _check_complete(missing: Array, place: str, otherwise: str = "") -> None:
    rows = np.flatnonzero(missing)
    if len(rows) == 1:
        raise UsageError(f"{place} is missing in row {rows[0]}; take it out{otherwise}")
    if len(rows):
        first = f"the first of them row {rows[0]}"
        raise UsageError(f"{place} is missing in {len(rows):,} rows, {first}; take them out{otherwise}")
