"""Checkpoints: a State written down so that a crash at any moment leaves a good one behind."""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, BinaryIO

import h5py
import numpy as np

from macmpi import UsageError, __version__, untrusted
from macmpi.console import warn
from macmpi.state import State

FORMAT = 5
SHARDED = "sharded.tmp"
"""The name under which ranks write a checkpoint together."""

SEAL = b"macmpi sha256 "
PIECE = 1 << 24
"""Bytes of a file that are read at a time."""

ARRAYS = (
    "weights",
    "Z",
    "best_weights",
    "multipliers",
    "metric",
    "grams",
    "sizes",
    "average",
    "momentum",
    "statistics",
    "inverses",
)
DAMAGE = (OSError, KeyError, TypeError, ValueError, AttributeError, RuntimeError, MemoryError)
"""What reading a file that is no checkpoint may raise, beside UsageError."""

SCALARS = tuple(f.name for f in fields(State) if f.name not in ARRAYS)


def first_line(error: Exception) -> str:
    """What an error says, in a line."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def image(arrays: dict[str, Any], attributes: dict[str, Any]) -> bytes:
    """An HDF5 file in memory, every dataset with a checksum (fletcher32)."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        fill(file, arrays, attributes)
    return buffer.getvalue()


def fill(file: h5py.File, arrays: dict[str, Any], attributes: dict[str, Any]) -> None:
    """Write arrays and attributes into an open file."""
    for name, array in arrays.items():
        array = np.asarray(array)
        checked = {"fletcher32": True, "chunks": True} if array.size else {}
        file.create_dataset(name, data=array, **checked)
    file.attrs.update(attributes)


UNFIT = "its checksum does not fit: damaged, cut short, or no checkpoint"


def seal(content: bytes) -> bytes:
    """The content with its SHA-256 behind it, where HDF5 does not look: no flipped bit goes unnoticed."""
    return content + SEAL + hashlib.sha256(content).digest()


def unseal(content: bytes) -> bytes:
    """What was sealed.  Raises OSError if a byte of it has changed."""
    body, mark, digest = content[: -len(SEAL) - 32], content[-len(SEAL) - 32 : -32], content[-32:]
    if mark != SEAL or hashlib.sha256(body).digest() != digest:
        raise OSError(UNFIT)
    return body


def _digest(path: Path, size: int) -> bytes:
    """SHA-256 of the first bytes of a file."""
    whole = hashlib.sha256()
    with path.open("rb") as file:
        while size > 0 and (piece := file.read(min(size, PIECE))):
            whole.update(piece)
            size -= len(piece)
    return whole.digest()


def seal_file(path: Path) -> None:
    """`seal` for a file that no memory need hold."""
    digest = _digest(path, path.stat().st_size)
    with path.open("ab") as file:
        file.write(SEAL + digest)
        file.flush()
        os.fsync(file.fileno())


def verify(path: Path) -> None:
    """Raises OSError if a byte of a sealed file has changed."""
    size = path.stat().st_size - len(SEAL) - 32
    with path.open("rb") as file:
        file.seek(max(size, 0))
        end = file.read()
    if size < 0 or end != SEAL + _digest(path, size):
        raise OSError(UNFIT)


def replace_file(path: Path, content: bytes) -> None:
    """Write beside `path`, flush to the disk, rename over it: the old file or the new one, never a mixture."""
    partial = partial_of(path)
    try:
        write_through(partial, content)
        rename(partial, path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def partial_of(path: Path) -> Path:
    """The name under which a file is written before it is complete."""
    return path.with_name(path.name + ".tmp")


def created(path: Path) -> BinaryIO:
    """A new file, open to be written.  One of that name is removed first, and no link is followed.  Raises OSError."""
    path.unlink(missing_ok=True)
    return path.open("xb")


def write_through(path: Path, content: bytes) -> None:
    """Write a new file down to the disk."""
    with created(path) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def rename(old: Path, new: Path) -> None:
    """Rename a file within its folder, down to the disk."""
    os.replace(old, new)
    folder = os.open(new.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def save(folder: Path, state: State, attributes: dict[str, Any], keep: int) -> Path:
    """Write the state as folder/iteration-NNNNNN.h5 and keep it with the `keep` - 1 before it.  Raises OSError.

    Checkpoints of later iterations, damaged or of a future that is being computed again, are removed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = path_of(folder, state.iteration)
    replace_file(path, seal(image(*written(state, attributes))))
    prune(folder, path, keep)
    return path


def path_of(folder: Path, iteration: int) -> Path:
    """The file of a checkpoint."""
    return folder / f"iteration-{iteration:06d}.h5"


def written(state: State, attributes: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays and the attributes of a checkpoint."""
    scalars = {name: getattr(state, name) for name in SCALARS}
    labels = {"format": FORMAT, "macmpi": __version__, **attributes, **scalars}
    return {name: getattr(state, name) for name in ARRAYS}, labels


def prune(folder: Path, path: Path, keep: int) -> None:
    """Remove all checkpoints but `path` and the `keep` - 1 before it."""
    paths = saved(folder)
    at = paths.index(path)
    for other in [*paths[:at], *paths[at + keep :]]:
        other.unlink(missing_ok=True)


def saved(folder: Path) -> list[Path]:
    """The checkpoints of a folder, newest first."""
    there = folder.glob("iteration-*.h5") if os.path.isdir(folder) else ()  # glob raises at a name too long
    numbered = [(p.stem.removeprefix("iteration-"), p) for p in there]
    return [p for _, p in sorted(((int(n), p) for n, p in numbered if n.isdecimal()), reverse=True)]


def remove_partial(folder: Path) -> None:
    """Remove what launches that were killed have left of checkpoints, and nothing else.  Raises OSError."""
    for path in folder.glob("*.tmp"):
        if path.name == SHARDED or re.fullmatch(r"iteration-\d{6,}\.h5\.tmp", path.name):
            path.unlink()


def read(path: Path, without: Sequence[str] = ()) -> tuple[State, dict[str, Any]]:
    """The state and the attributes of a checkpoint, every byte verified.  Raises UsageError or one of `DAMAGE`.

    without: arrays that are left on the disk, as too large for one rank; they are then empty.
    """
    if without:
        verify(path)
    with untrusted.opened(path if without else io.BytesIO(unseal(path.read_bytes()))) as file:
        labels = {k: v.item() if isinstance(v, np.generic) else v for k, v in file.attrs.items()}
        if labels["format"] != FORMAT:
            which = "newer" if labels["format"] > FORMAT else "older"
            raise UsageError(
                f"{path} was written by macmpi {labels['macmpi']} in format {labels['format']}; this one reads "
                f"format {FORMAT}: use the {which} version"
            )
        arrays: dict[str, Any] = {
            name: np.empty(0) if name in without else untrusted.array(file, name) for name in ARRAYS
        }
    scalars = {name: labels.pop(name) for name in SCALARS}
    return State(**arrays, **scalars), labels


def newest(folder: Path, without: Sequence[str] = ()) -> tuple[Path, State, dict[str, Any]] | None:
    """The newest good checkpoint; warns of each bad one.  Raises UsageError when there are some and none is good."""
    paths = saved(folder)
    for path in paths:
        try:
            return (path, *read(path, without))
        except DAMAGE as error:
            warn(f"{path} is damaged ({first_line(error)}); trying the one before")
    if paths:
        raise UsageError(f"no good checkpoint in {folder}; start again with --resume no and another --output")
    return None
