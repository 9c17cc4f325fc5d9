"""A State as named values: what a checkpoint holds, and what ranks exchange when a run goes on."""

from __future__ import annotations

import hashlib
from dataclasses import fields
from typing import Any

import numpy as np

from macmpi.state import (
    BY_POINT,
    AcceleratedState,
    AdamState,
    History,
    LineSearchState,
    MacState,
    Own,
    Record,
    SgdState,
    State,
    StochasticState,
)
from macmpi.typing import Array

KINDS = (MacState, AcceleratedState, StochasticState, SgdState, AdamState, LineSearchState)

RECORDS: dict[str, type[Record]] = {kind.__name__: kind for kind in KINDS}
"""The records by name, as a checkpoint names the one that it holds."""


def contents(state: State[Any]) -> dict[str, Any]:
    """Everything that a State holds, flat, by the names of the fields; `assembled` makes a State of it."""
    parts = (state, state.history, state.own)
    return {f.name: getattr(part, f.name) for part in parts for f in fields(part) if f.name not in ("history", "own")}


def assembled(values: dict[str, Any], record: type[Own]) -> State[Own]:
    """The State whose `contents` are the values.  Raises KeyError."""

    def made(kind: Any, **more: Any) -> Any:
        return kind(**{f.name: values[f.name] for f in fields(kind) if f.name not in more}, **more)

    whole: State[Own] = made(State, history=made(History), own=made(record))
    return whole


def by_point(record: type[Record]) -> list[str]:
    """The names of the arrays with a row a point among the `contents` of a State with this record."""
    return [f.name for kind in (State, record) for f in fields(kind) if f.metadata == BY_POINT]


def rows_of_points(state: State[Any]) -> dict[str, Array]:
    """The arrays of a State that have a row a point, by name."""
    values = contents(state)
    return {name: values[name] for name in by_point(type(state.own))}


def digest(state: State[Any], *more: Array) -> str:
    """SHA-256 of all that every rank holds of a State, and of more arrays: all but rows of points, and times."""
    apart = {"seconds", *by_point(type(state.own))}
    found = hashlib.sha256()
    for name, value in contents(state).items():
        if name not in apart:
            found.update(np.ascontiguousarray(value).data if isinstance(value, np.ndarray) else str(value).encode())
    for A in more:
        found.update(np.ascontiguousarray(A).data)
    return found.hexdigest()


def with_rows(state: State[Own], rows: dict[str, Any]) -> State[Own]:
    """The State with other rows of its points."""
    return assembled(contents(state) | rows, type(state.own))
