"""Checkpoints: a State as named values, and written down so that a crash at any moment leaves a good one behind."""

from __future__ import annotations

import hashlib
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from macmpi import UsageError, __version__, files
from macmpi.console import warn
from macmpi.files import DAMAGE, RUN, first_line, image, replace_file, run_of
from macmpi.state import BY_POINT, KINDS, History, Own, Record, State
from macmpi.typing import Array

FORMAT = 13
RECORD = "record"
"""The attribute that names the record of the method."""


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


def save(folder: Path, state: State[Any], attributes: dict[str, Any], keep: int) -> Path:
    """Write the state as folder/iteration-NNNNNN.h5 and keep it with the `keep` - 1 before it.  Raises OSError.

    attributes: the id of the run among them.  Checkpoints of later iterations, damaged or of a future that is being
    computed again, are removed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, run = path_of(folder, state.iteration), attributes.get(RUN, "")
    replace_file(path, image(*written(state, attributes), sealed=True), run)
    prune(folder, path, keep, run)
    return path


def path_of(folder: Path, iteration: int) -> Path:
    """The file of a checkpoint."""
    return folder / f"iteration-{iteration:06d}.h5"


def iteration_of(path: Path) -> int:
    """The name of a checkpoint holds its iteration.  Raises ValueError for other names."""
    return int(path.stem.removeprefix("iteration-"))


def written(state: State[Any], attributes: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays and the attributes of a checkpoint."""
    arrays, scalars = split(contents(state))
    labels = {"format": FORMAT, "macmpi": __version__, **attributes, RECORD: type(state.own).__name__, **scalars}
    return arrays, labels


def split(values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays among some values, and the others."""
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    return arrays, {name: value for name, value in values.items() if name not in arrays}


def prune(folder: Path, path: Path, keep: int, run: str) -> None:
    """Remove all checkpoints of a run but `path` and the `keep` - 1 before it."""
    paths = saved(folder)
    at = paths.index(path)
    for other in [*paths[:at], *paths[at + keep :]]:
        if run_of(other) == run or not other.stat().st_size:
            other.unlink(missing_ok=True)


def saved(folder: Path) -> list[Path]:
    """Lists what lies in a folder under a name that a checkpoint may have, newest first."""
    there = folder.glob("iteration-*.h5") if os.path.isdir(folder) else ()  # glob raises at a name too long
    numbered = [p for p in there if p.stem.removeprefix("iteration-").isdecimal()]
    own = [p for p in numbered if p == path_of(folder, iteration_of(p))]
    return sorted(own, key=iteration_of, reverse=True)


def read(path: Path, without_points: bool = False) -> tuple[State[Any], dict[str, Any]]:
    """The state and the attributes of a checkpoint, every byte verified.  Raises UsageError or one of `DAMAGE`.

    without_points: arrays with a row a point are left on the disk, as too large for one rank; they are then empty.
    """
    with path.open("rb") as content, files.unsealed(content) as file:
        labels = {k: v.item() if isinstance(v, np.generic) else v for k, v in file.attrs.items()}
        if labels["format"] != FORMAT:
            which = "newer" if labels["format"] > FORMAT else "older"
            raise UsageError(
                f"{path} was written by macmpi {labels['macmpi']} in format {labels['format']}; this one reads "
                f"format {FORMAT}: use the {which} version"
            )
        if RUN in labels:
            labels[RUN] = labels[RUN].decode()
        record = {kind.__name__: kind for kind in KINDS}[labels.pop(RECORD)]
        arrays, scalars = split(contents(State(np.empty(0), np.empty(0), 0.0, record())))
        left = by_point(record) if without_points else []
        values = {name: nothing if name in left else files.array(file, name) for name, nothing in arrays.items()}
    return assembled(values | {name: labels.pop(name) for name in scalars}, record), labels


def newest(folder: Path, without_points: bool = False) -> tuple[Path, State[Any], dict[str, Any]] | None:
    """The newest good checkpoint; warns of each bad one.  Raises UsageError when there are some and none is good."""
    paths = saved(folder)
    for path in paths:
        try:
            return (path, *read(path, without_points))
        except DAMAGE as error:
            warn(f"{path} is damaged ({first_line(error)}); trying the one before")
    if paths:
        raise UsageError(f"no good checkpoint in {folder}; start again with --resume no and another --output")
    return None
