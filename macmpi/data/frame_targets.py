"""Columns of a table as targets: their type says whether they may be classes; values are missing only where allowed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from macmpi import UsageError
from macmpi.data.checks import as_array
from macmpi.data.series import is_categorical, kind_of, numbers, text_of, values
from macmpi.data.texts import Unclear, kind_of_texts
from macmpi.typing import Array


def targets_of(
    series: dict[str, Any],
    source: str,
    missing: bool = False,
    categories: Sequence[str] = (),
    empty: Sequence[str] = (),
) -> Array:
    """One column as (N,): text, truth values, whole numbers or numbers; several as numbers (N, L).

    source: for messages.  missing: numbers may be, and become NaN.  categories: columns that are classes, whatever they
    hold; empty: texts that stand for a missing value.  Raises UsageError where a value is missing, or is no target.
    """
    found = [
        _target(one, f"{source}: column {name}, a target,", missing, name in categories, tuple(empty))
        for name, one in series.items()
    ]
    if len(found) == 1:
        return found[0]
    for name, held in zip(series, found, strict=True):
        if held.dtype.kind == "U":
            raise UsageError(f"{source}: column {name} holds text; several targets are numbers: name one column")
    return np.column_stack([held.astype(np.float64) for held in found])


def weights_of(series: Any, place: str) -> Array:
    """One column as weights, (N,) float64.  place: names the column in messages.  Raises UsageError."""
    kind = kind_of(series)
    if kind != "number":
        raise UsageError(f"{place} holds {series.dtype}; numbers from 0 on are needed")
    found = numbers(series, kind, place)
    _check_complete(np.isnan(found), place, ", or give it the weight 0")
    return found


def _target(series: Any, place: str, missing: bool, classes: bool, empty: tuple[str, ...]) -> Array:
    """A target, in the type that says whether it may be classes."""
    kind, form = "category" if classes else kind_of(series, empty), ""
    if kind in ("other", "date"):
        raise UsageError(f"{place} holds {series.dtype}; numbers, truth values or text are needed")
    if kind in ("category", "nothing"):
        held = values(series, empty)
        _check_complete(np.array([value is None for value in held]), place)
        if classes or is_categorical(series):
            return _classes(held)
        words = [text_of(value) for value in held]
        try:
            kind, form = kind_of_texts(Counter(words))
        except Unclear as error:
            raise UsageError(f"{place} {error}") from None
        if kind == "date":
            raise UsageError(f"{place} holds dates; numbers, truth values or text are needed")
        if kind == "category":
            return np.array(words, dtype=str)
    if kind == "number" and series.dtype.is_integer() and not series.is_null().any():
        return np.asarray(series.to_numpy())
    held = values(series, empty) if kind == "number" and not series.dtype.is_numeric() else []
    if held and all(isinstance(value, int) for value in held):
        return as_array(held, place)
    found = numbers(series, kind, place, form, empty)
    if missing and np.isnan(found).any():
        return found
    _check_complete(np.isnan(found), place, ", or let outputs be missing, loss.missing = true")
    return found.astype(bool) if kind == "truth" else found


def _classes(held: list[Any]) -> Array:
    """Values that are declared to be classes, (N,): as text where one of them is text, else as they are."""
    if any(isinstance(value, str) for value in held):
        return np.array([text_of(value) for value in held], dtype=str)
    return np.array(held, dtype=object)


def _check_complete(missing: Array, place: str, otherwise: str = "") -> None:
    rows = np.flatnonzero(missing)
    if len(rows) == 1:
        raise UsageError(f"{place} is missing in row {rows[0]}; take it out{otherwise}")
    if len(rows):
        first = f"the first of them row {rows[0]}"
        raise UsageError(f"{place} is missing in {len(rows):,} rows, {first}; take them out{otherwise}")
