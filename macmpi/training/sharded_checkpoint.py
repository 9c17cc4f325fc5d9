"""Checkpoints of sharded runs: what all ranks share as ever, and behind it the coordinates, each rank's in its turn.

The file is that of checkpoint.py, the coordinates in plain datasets whose place in the file is known: ranks write their
rows there.  Rank 0 makes it under a temporary name, seals it and renames it when all have written.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from macmpi import StorageError, UsageError, files
from macmpi.data.dataset import share_arrays
from macmpi.parallel.partition import PointPartition
from macmpi.parallel.team import Team
from macmpi.parallel.texts import check_alike
from macmpi.plan.plan import Plan
from macmpi.plan.resolved import Resolved
from macmpi.state import State
from macmpi.training import checkpoint
from macmpi.training.checkpoint import by_point, rows_of_points, with_rows
from macmpi.training.run_directory import RunDirectory
from macmpi.typing import Array


def save_sharded(
    directory: RunDirectory,
    state: State[Any],
    of: Resolved,
    sha256: str,
    points: PointPartition,
    team: Team,
    last: bool,
) -> bool:
    """RunDirectory.save, where each rank holds the coordinates of its own points.  Collective: yes."""

    def guarded(step: Any) -> Any:
        try:
            return step()
        except OSError as error:
            raise StorageError(error.strerror or files.first_line(error)) from None

    def write() -> None:
        guarded(lambda: _write(places, state, points, team.rank))

    labels = directory.labels(of, sha256)
    try:
        places = team.from_root(lambda: guarded(lambda: _begin(directory.checkpoints, state, labels, points)))
        for rank in range(team.size):  # the others wait
            team.all_or_raise(write if rank == team.rank else lambda: None)
        team.from_root(lambda: guarded(lambda: _end(places[0], state, of.run.keep_checkpoints, directory.run)))
    except StorageError as error:
        why = str(error)
        if team.rank == 0:
            with suppress(OSError):
                _partial(directory.checkpoints, directory.run).unlink(missing_ok=True)
        return team.all_or_raise(lambda: directory.failed(state, why, last, team.rank))
    return True


def _partial(folder: Path, run: str) -> Path:
    return files.partial_of(folder / "sharded", run)


def _begin(
    folder: Path, state: State[Any], labels: dict[str, Any], points: PointPartition
) -> tuple[Path, dict[str, int]]:
    """The file with all but the rows of the points; where those belong in it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = _partial(folder, labels[files.RUN])
    wide = rows_of_points(state)
    rows = {name: A for name, A in wide.items() if A.ndim == 2 and A.shape[1]}
    arrays, labels = checkpoint.written(state, labels)
    for name, A in wide.items():
        if name in rows:
            arrays.pop(name)
        elif A.ndim == 2:
            arrays[name] = np.zeros((points.n, 0), A.dtype)
    with open(os.memfd_create("checkpoint"), "w+b") as memory, path.open("xb") as file:
        places = _laid_out(memory, arrays, labels, rows, points.n)
        size, at = memory.seek(0, os.SEEK_END), 0
        os.posix_fallocate(file.fileno(), 0, size)
        sizes = {name: points.n * A.shape[1] * A.itemsize for name, A in rows.items()}
        for start, length in [*sorted((places[name], sizes[name]) for name in rows), (size, 0)]:
            memory.seek(at)
            file.seek(at)
            file.write(memory.read(start - at))
            at = start + length
    return path, places


def _laid_out(
    memory: Any, arrays: dict[str, Any], labels: dict[str, Any], rows: dict[str, Array], points: int
) -> dict[str, int]:
    """An HDF5 file in memory, where what is not written takes none; the places that it keeps for rows of points.

    On a full disk HDF5 would end the process, so it never meets one.
    """
    import h5py

    places = {}
    with h5py.File(memory, "w") as file:
        files.fill(file, arrays, labels)
        space = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        space.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        space.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        space.set_obj_track_times(False)
        for name, A in rows.items():
            kind, shape = h5py.h5t.py_create(A.dtype), h5py.h5s.create_simple((points, A.shape[1]))
            dataset = h5py.h5d.create(file.id, name.encode(), kind, shape, dcpl=space)
            places[name] = int(dataset.get_offset())
    return places


def _write(begun: tuple[Path, dict[str, int]], state: State[Any], points: PointPartition, rank: int) -> None:
    (path, places), rows = begun, rows_of_points(state)
    with os.fdopen(os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC), "r+b") as file:
        for name, place in places.items():
            A = np.ascontiguousarray(rows[name])
            file.seek(place + points.own(rank).start * A.shape[1] * A.itemsize)
            file.write(A.data)
        file.flush()
        files.to_the_disk(file.fileno())


def _end(partial: Path, state: State[Any], keep: int, run: str) -> None:
    path = checkpoint.path_of(partial.parent, state.iteration)
    with partial.open("r+b") as file:
        files.seal(file)
        file.flush()
        files.to_the_disk(file.fileno())
    files.rename(partial, path)
    checkpoint.prune(path.parent, path, keep, run)


def check_same_folder(folder: Path, team: Team) -> None:
    """Raises UsageError, naming ranks and hosts, where some do not see rank 0's folder, which need not be there yet.

    In the nearest folder that is there, that of the checkpoints first, rank 0 makes a file for a moment, and the others
    look for it.  Collective: yes.
    """
    places = [folder / "checkpoints", folder, *folder.absolute().parents]

    def mark() -> tuple[int, str]:
        number, there = next(pair for pair in enumerate(places) if os.path.isdir(pair[1]))
        try:
            file, path = tempfile.mkstemp(".tmp", ".macmpi-", there)
        except OSError as error:
            raise UsageError(f"cannot write to {there}: {error.strerror}; name another folder with --output") from None
        os.close(file)
        return number, os.path.basename(path)

    def refused(who: str, _: str) -> UsageError:
        return UsageError(
            f'{folder}: rank 0 and {who} do not write to one folder there; with parallel.data = "sharded" all ranks '
            "write checkpoints: name a folder that all see with --output"
        )

    number, name = team.from_root(mark)
    path = places[number] / name
    seen = os.path.exists(path) and os.access(path.parent, os.W_OK)
    team.barrier("the folder")  # all have looked
    team.from_root(lambda: path.unlink(missing_ok=True))
    check_alike(team, str(seen), refused)


def check_same_checkpoint(path: Path, team: Team) -> None:
    """Raises UsageError, naming ranks and hosts, where some have no such file, or another one than rank 0.

    The seals are compared, once that of a copy has been verified.  Collective: yes.
    """
    first = team.from_root(lambda: files.identity(path))

    def seal() -> str:
        try:
            with path.open("rb") as file:
                if files.identity(path) != first:
                    files.verify(file)
                file.seek(-32, os.SEEK_END)
                return file.read().hex()
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror or files.first_line(error)}") from None

    own = team.all_or_raise(seal)
    check_alike(team, own, lambda who, _: UsageError(f"{path}: {who} found another checkpoint there than rank 0"))


def rows_of(path: Path, state: State[Any], points: PointPartition, rank: int) -> State[Any]:
    """The state of a checkpoint, read without what belongs to points, with this rank's rows of that.

    Raises UsageError.  Collective: no.
    """
    held = points.held(rank)
    try:
        with files.opened(path) as file:
            wide = {name: files.dataset(file, name) for name in by_point(type(state.own))}
            rows = {name: A[held.rows] if A.ndim == 2 else A[()] for name, A in wide.items()}
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    except files.DAMAGE as error:
        raise UsageError(f"{path} cannot be read: {files.first_line(error)}") from None
    return with_rows(state, rows)


def state_of(found: tuple[Path, State[Any], Any] | None, plan: Plan, team: Team) -> State[Any] | None:
    """Rank 0's checkpoint on every rank, with the coordinates of the points that it holds.  Collective: yes."""
    path, state, _ = found or (None, None, None)
    rows = []
    if state is not None and not plan.sharded:
        own = rows_of_points(state)
        rows, state = list(own.values()), with_rows(state, dict.fromkeys(own))
    path, state = team.from_root(lambda: (path, state))
    if path is None or state is None:
        return None
    if plan.sharded:
        return team.all_or_raise(lambda: rows_of(path, state, plan.work.train, team.rank))
    return with_rows(state, dict(zip(rows_of_points(state), share_arrays(team, rows), strict=True)))
