"""A checkpoint is a State in a file, as named values; a crash at any moment leaves a good checkpoint behind.

If no rank has the rows of all points, each writes its own rows, one rank after the other, into plain datasets whose
places in the file are known.  Rank 0 makes the file under a temporary name, with everything else, and seals and renames
it when all have written.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from macmpi import StorageError, UsageError, __version__, files
from macmpi.console import warn
from macmpi.data.dataset import share_arrays
from macmpi.parallel.points import PointPartition
from macmpi.parallel.team import Team, check_alike
from macmpi.plan.plan import Plan
from macmpi.state import BY_POINT, KINDS, History, Record, RecordT, State
from macmpi.typing import Array

FORMAT = 14
RECORD = "record"
"""The attribute that names the record of the method."""


def contents(state: State[Any]) -> dict[str, Any]:
    """Collects the values of a State, its history and its record by the names of their fields; see `assembled`."""
    parts = (state, state.history, state.own)
    return {f.name: getattr(part, f.name) for part in parts for f in fields(part) if f.name not in ("history", "own")}


def assembled(values: dict[str, Any], record: type[RecordT]) -> State[RecordT]:
    """Makes the State whose `contents` are these values.  Raises KeyError."""

    def made(kind: Any, **more: Any) -> Any:
        return kind(**{f.name: values[f.name] for f in fields(kind) if f.name not in more}, **more)

    return made(State, history=made(History), own=made(record))


def by_point(record: type[Record]) -> list[str]:
    """Names those arrays in the `contents` of a State with this record that have a row for each point."""
    return [f.name for kind in (State, record) for f in fields(kind) if f.metadata == BY_POINT]


def rows_of_points(state: State[Any]) -> dict[str, Array]:
    """Returns the arrays of a State that have a row for each point, by name."""
    values = contents(state)
    return {name: values[name] for name in by_point(type(state.own))}


def digest(state: State[Any], *more: Array) -> str:
    """Computes SHA-256 of the values of a State that are the same on all ranks, and of more arrays.

    These are all values but the rows of points and the times.
    """
    apart, sha256 = {"seconds", *by_point(type(state.own))}, hashlib.sha256()
    for value in (*(value for name, value in contents(state).items() if name not in apart), *more):
        sha256.update(np.ascontiguousarray(value).data if isinstance(value, np.ndarray) else str(value).encode())
    return sha256.hexdigest()


def with_rows(state: State[RecordT], rows: dict[str, Any]) -> State[RecordT]:
    """Copies a State with other rows of its points, by name."""
    return assembled(contents(state) | rows, type(state.own))


def save(folder: Path, state: State[Any], attributes: dict[str, Any], keep: int) -> Path:
    """Writes the state as folder/iteration-NNNNNN.h5 and keeps it and the `keep` - 1 before it.  Raises OSError.

    Checkpoints of later iterations are removed, since they are damaged or their iterations are computed again.

    attributes: attributes of the file, among them the id of the run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, run = path_of(folder, state.iteration), attributes.get(files.RUN, "")
    files.replace_file(path, files.image(*written(state, attributes), sealed=True), run)
    prune(folder, path, keep, run)
    return path


def path_of(folder: Path, iteration: int) -> Path:
    """Returns the path of the checkpoint of an iteration in a folder."""
    return folder / f"iteration-{iteration:06d}.h5"


def iteration_of(path: Path) -> int:
    """Reads the iteration from the name of a checkpoint.  Raises ValueError for other names."""
    return int(path.stem.removeprefix("iteration-"))


def written(state: State[Any], attributes: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the arrays and the attributes that a checkpoint holds."""
    arrays, scalars = split(contents(state))
    return arrays, {"format": FORMAT, "macmpi": __version__, **attributes, RECORD: type(state.own).__name__, **scalars}


def split(values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Splits values into arrays and other values."""
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    return arrays, {name: value for name, value in values.items() if name not in arrays}


def prune(folder: Path, path: Path, keep: int, run: str) -> None:
    """Removes all checkpoints of a run except `path` and the `keep` - 1 before it."""
    paths = saved(folder)
    at = paths.index(path)
    for other in [*paths[:at], *paths[at + keep :]]:
        if files.run_of(other) == run or not other.stat().st_size:
            other.unlink(missing_ok=True)


def saved(folder: Path) -> list[Path]:
    """Lists the files in a folder that have the name of a checkpoint, newest first."""
    there = folder.glob("iteration-*.h5") if os.path.isdir(folder) else ()  # glob raises for names that are too long
    named = (p for p in there if re.fullmatch(r"iteration-([0-9]{6}|[1-9][0-9]{6,})\.h5", p.name))
    return sorted(named, key=iteration_of, reverse=True)


def read(path: Path, without_points: bool = False) -> tuple[State[Any], dict[str, Any]]:
    """Reads state and attributes of a checkpoint, and verifies every byte.  Raises UsageError or one of `DAMAGE`.

    without_points: whether arrays with a row for each point are not read, since they are too large for one rank; they
        are then empty.
    """
    with path.open("rb") as content, files.unsealed(content) as file:
        labels = {k: v.item() if isinstance(v, np.generic) else v for k, v in file.attrs.items()}
        if labels["format"] != FORMAT:
            which = "newer" if labels["format"] > FORMAT else "older"
            raise UsageError(
                f"{path} was written by macmpi {labels['macmpi']} in format {labels['format']}; this one reads "
                f"format {FORMAT}: use the {which} version"
            )
        if files.RUN in labels:
            labels[files.RUN] = labels[files.RUN].decode()
        record = {kind.__name__: kind for kind in KINDS}[labels.pop(RECORD)]
        arrays, scalars = split(contents(State(np.empty(0), np.empty(0), 0.0, record())))
        left = by_point(record) if without_points else []
        values = {name: nothing if name in left else files.array(file, name) for name, nothing in arrays.items()}
    return assembled(values | {name: labels.pop(name) for name in scalars}, record), labels


def newest(folder: Path, without_points: bool = False) -> tuple[Path, State[Any], dict[str, Any]] | None:
    """Reads the newest good checkpoint and warns of bad ones; returns None if there are none.

    Raises UsageError if all are bad.
    """
    paths = saved(folder)
    for path in paths:
        try:
            return (path, *read(path, without_points))
        except files.DAMAGE as error:
            warn(f"{path} is damaged ({files.first_line(error)}); trying the one before")
    if paths:
        raise UsageError(f"no good checkpoint in {folder}; start again with --resume no and another --output")
    return None


# --- by all ranks -----------------------------------------------------------------------------------------------------


def _stored(step: Callable[..., Any], *words: Any) -> Any:
    """Calls `step` and returns its value; turns an OSError into a StorageError, which can be raised on all ranks."""
    try:
        return step(*words)
    except OSError as error:
        raise StorageError(error.strerror or files.first_line(error)) from None


def _begin(path: Path, state: State[Any], attributes: dict[str, Any], points: int) -> tuple[Path, dict[str, int]]:
    """Writes the file with all but the rows of the points; returns its path, and the place of each array of rows.

    HDF5 lays it out in a file in memory, where rows that nobody writes take no space: on a full disk HDF5 would end the
    process.

    points: the number of all points.
    """
    import h5py

    path.parent.mkdir(parents=True, exist_ok=True)
    rows = {name: A for name, A in rows_of_points(state).items() if A.ndim == 2}
    arrays, labels = written(state, attributes)
    space, places = h5py.h5p.create(h5py.h5p.DATASET_CREATE), dict[str, int]()
    space.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    space.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    with open(os.memfd_create("checkpoint"), "w+b") as memory, path.open("xb") as file:
        with h5py.File(memory, "w") as layout:
            files.fill(layout, {name: A for name, A in arrays.items() if name not in rows}, labels)
            for name, A in rows.items():
                dataset = layout.create_dataset(name, (points, A.shape[1]), A.dtype, dcpl=space)
                places[name] = dataset.id.get_offset() or 0  # a dataset without columns has no place
        size, at = memory.seek(0, os.SEEK_END), 0
        os.posix_fallocate(file.fileno(), 0, size)
        gaps = sorted((places[name], points * A.shape[1] * A.itemsize) for name, A in rows.items())
        for start, length in [*gaps, (size, 0)]:
            memory.seek(at)
            file.seek(at)
            file.write(memory.read(start - at))
            at = start + length
    return path, places


def _write(path: Path, places: dict[str, int], state: State[Any], first: int) -> None:
    """Writes this rank's rows of points into the file of a checkpoint, and to the disk.

    places: where the first row of each array lies, in bytes.
    first: the number, among all points, of the state's first row.
    """
    with os.fdopen(os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC), "r+b") as file:
        for name, place in places.items():
            A = np.ascontiguousarray(contents(state)[name])
            file.seek(place + first * A.shape[1] * A.itemsize)
            file.write(A.data)
        file.flush()
        files.to_the_disk(file.fileno())


def _end(partial: Path, iteration: int, keep: int, run: str) -> None:
    """Seals a checkpoint that all have written, gives it its name, and prunes the older ones."""
    path = path_of(partial.parent, iteration)
    with partial.open("r+b") as file:
        files.seal(file)
        file.flush()
        files.to_the_disk(file.fileno())
    files.rename(partial, path)
    prune(path.parent, path, keep, run)


def rows_of(path: Path, state: State[Any], points: PointPartition, rank: int) -> State[Any]:
    """Reads this rank's rows of points into the state of a checkpoint that was read without them.

    path: the path of the checkpoint.
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


def check_same_checkpoint(path: Path, team: Team) -> None:
    """Raises UsageError, naming ranks and hosts, if some ranks do not see this file, or see another file than rank 0.

    The seals of the files are compared; a rank that sees another file than rank 0 verifies its bytes first.
    Collective: yes.
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

    own_seal = team.all_or_raise(seal)
    check_alike(team, own_seal, lambda who, _: UsageError(f"{path}: {who} found another checkpoint there than rank 0"))


# --- by whom ----------------------------------------------------------------------------------------------------------

Found = tuple[Path, State[Any], dict[str, Any]] | None
"""A checkpoint to go on from, on rank 0."""


class ByRank0:
    """Lets rank 0, which has the rows of all points, write and read whole checkpoints."""

    def check(self, folder: Path, path: Callable[[], Path | None], team: Team) -> None:
        """Raises UsageError if ranks do not see the files that they have to read and write.  Collective: yes.

        folder: the folder of the run; it need not exist yet.
        path: path() returns, on rank 0, its checkpoint.
        """

    def save(self, folder: Path, state: State[Any], attributes: dict[str, Any], keep: int, team: Team) -> None:
        """Lets rank 0 `save` the checkpoint while all wait.  Raises StorageError.  Collective: yes."""
        team.from_root(lambda: _stored(save, folder, state, attributes, keep))

    def handed_out(self, held: Found, team: Team) -> State[Any] | None:
        """Gives rank 0's checkpoint to every rank, with the rows of the points that it holds.  Collective: yes."""
        rows = rows_of_points(held[1]) if held else {}
        state = team.from_root(lambda: with_rows(held[1], dict.fromkeys(rows)) if held else None)
        if state is None:
            return None
        shared = share_arrays(team, list(rows.values()))
        return with_rows(state, dict(zip(rows_of_points(state), shared, strict=True)))

    def codes(self, state: State[Any]) -> Array | None:
        """Returns the coordinates of all points; None if no rank has them.  Collective: no."""
        return state.Z


class ByAll(ByRank0):
    """Lets each rank write and read the rows of its own points.

    place: the word of parallel.data that asks for this.
    """

    def __init__(self, points: PointPartition, place: str) -> None:
        self.points, self.place = points, place

    def check(self, folder: Path, path: Callable[[], Path | None], team: Team) -> None:
        """Raises UsageError if ranks do not all see the same folder, and the same checkpoint in it.

        Collective: yes.
        """
        self.check_folder(folder, team)
        if found := team.from_root(path):
            check_same_checkpoint(found, team)

    def save(self, folder: Path, state: State[Any], attributes: dict[str, Any], keep: int, team: Team) -> None:
        """Writes each rank's rows into one file, one rank after the other.  Raises StorageError.  Collective: yes."""
        n, first = self.points.n, self.points.own(team.rank).start
        partial = files.partial_of(folder / "rows", attributes[files.RUN])

        def write() -> None:
            _stored(_write, partial, places, state, first)

        try:
            partial, places = team.from_root(lambda: _stored(_begin, partial, state, attributes, n))
            for rank in range(team.size):  # the others wait
                team.all_or_raise(write if rank == team.rank else lambda: None)
            team.from_root(lambda: _stored(_end, partial, state.iteration, keep, attributes[files.RUN]))
        except StorageError:
            if team.rank == 0:
                with suppress(OSError):
                    partial.unlink(missing_ok=True)
            raise

    def handed_out(self, held: Found, team: Team) -> State[Any] | None:
        """Gives rank 0's checkpoint to every rank; each reads the rows of its own points.  Collective: yes."""
        begun = team.from_root(lambda: held[:2] if held else None)
        if begun is None:
            return None
        return team.all_or_raise(lambda: rows_of(*begun, self.points, team.rank))

    def codes(self, state: State[Any]) -> None:
        pass

    def check_folder(self, folder: Path, team: Team) -> None:
        """Raises UsageError, naming ranks and hosts, if some do not see rank 0's folder.

        Rank 0 makes a file for a moment, in the folder of the checkpoints or, if there is none yet, in the nearest
        folder above it; the other ranks look for the file.  Collective: yes.
        """
        places = [folder / "checkpoints", folder, *folder.absolute().parents]

        def mark() -> tuple[int, str]:
            number, there = next(pair for pair in enumerate(places) if os.path.isdir(pair[1]))
            try:
                file, path = tempfile.mkstemp(".tmp", ".macmpi-", there)
            except OSError as error:
                raise UsageError(
                    f"cannot write to {there}: {error.strerror}; name another folder with --output"
                ) from None
            os.close(file)
            return number, os.path.basename(path)

        def refused(who: str, _: str) -> UsageError:
            return UsageError(
                f"{folder}: rank 0 and {who} do not write to one folder there; with parallel.data = "
                f'"{self.place}" all ranks write checkpoints: name a folder that all see with --output'
            )

        number, name = team.from_root(mark)
        path = places[number] / name
        seen = os.path.exists(path) and os.access(path.parent, os.W_OK)
        team.barrier("the folder")  # all ranks have looked for the file
        team.from_root(lambda: path.unlink(missing_ok=True))
        check_alike(team, str(seen), refused)


def keeper_of(plan: Plan) -> ByRank0:
    """Chooses whether rank 0 or all ranks write and read the checkpoints of a run.  Collective: no."""
    return ByRank0() if plan.placement.all_rows else ByAll(plan.work.train, plan.placement.name)
