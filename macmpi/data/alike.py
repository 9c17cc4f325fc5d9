"""Data are known again by SHA-256, so that ranks that read rows for themselves read what rank 0 would.

The sum of a data set is that of its raw points: not scaled, as float64, in blocks that depend on N alone.  So one data
set has one sum in whatever type, file and place, held by one rank or by many.

A node may have another file of that name.  Ranks that reach rank 0's own file, or whose arrays are rank 0's, read the
same.  Where others do not, as of copies on the disks of nodes, those read the others' rows once more, from rank 0's
file, and the sums of blocks are compared: copies that are alike pass.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from macmpi import UsageError, files
from macmpi.config import Data
from macmpi.data.dataset import POINTS, Raw
from macmpi.data.parts import DataPart
from macmpi.parallel.points import PointPartition
from macmpi.parallel.team import Team, check_alike, texts
from macmpi.parallel.tiles import contiguous_runs
from macmpi.typing import Array

Placed = tuple[DataPart, PointPartition, Array]
"""Rows, which rank reads which blocks of them, and the sum of each block as that rank read it, (blocks, 32)."""


def sum_of_blocks(arrays: Mapping[str, tuple[int, Array]], names: Array | None) -> str:
    """The sum of a data set, of each array its points and the sums of its blocks (blocks, 32), those of `block_sum`.

    names: of classes, where they have some.
    """
    found = hashlib.sha256()
    for name, (points, blocks) in arrays.items():
        found.update(f"{name} {points} ".encode() + blocks.tobytes())
    if names is not None:
        found.update("\0".join(map(str, names)).encode())
    return found.hexdigest()


def block_sum(pieces: Iterable[Array]) -> Array:
    """SHA-256 of rows that come in pieces, (32,) bytes; -0 counts as 0."""
    found = hashlib.sha256()
    for rows in pieces:
        found.update(np.add(rows, 0.0, dtype=np.float64).reshape(len(rows), -1).data)
    return np.frombuffer(found.digest(), np.uint8)


def opened_alike(read: Callable[[], Raw], config: Data, team: Team) -> Raw:
    """Opens data with `read`, which must find the same shapes on all ranks.

    Raises UsageError on all ranks, naming those where it does not.  Collective: yes.
    """
    found: Raw | UsageError
    try:
        found = read()
        said = ", ".join(f"{name} {A.shape}" for name, A in _held(found).items())
    except UsageError as error:
        found, said = error, str(error)
    check_alike(team, said, partial(_refused, config))
    if isinstance(found, UsageError):
        found.agreed = True
        raise found
    return found


def check_same_data(raw: Raw, read: Sequence[Placed], config: Data, team: Team) -> None:
    """Raises UsageError on all ranks, naming ranks and hosts, where a rank's rows are not those of rank 0's data.

    Cost: nothing where all ranks reach one file; else the ranks with rank 0's file read the rows of the others, too.
    Collective: yes.
    """
    places = texts(team, _place(raw, config.source)) if team.size > 1 else [""]
    near = [rank for rank, place in enumerate(places) if place == places[0]]
    if len(near) == team.size:
        return
    again = [_read_by(near, part, among, team) for part, among, _ in read]
    own = [among.runs[team.rank].rows for _, among, _ in read]
    alike = (np.array_equal(A[rows], sums[rows]) for A, rows, (_, _, sums) in zip(again, own, read, strict=True))
    same = team.rank in near or all(alike)
    check_alike(team, "its rows" if same else "other rows", partial(_refused, config))


def _refused(config: Data, who: str, said: str) -> UsageError:
    return UsageError(
        f"{config.source}: {who} found other data there than rank 0 ({said}); all ranks need one file, or equal copies"
    )


def _held(raw: Raw) -> dict[str, Any]:
    """The arrays or HDF5 datasets of a data set that are there, by name."""
    return {name: raw.arrays[name] for name in POINTS if name in raw.arrays}


def _place(raw: Raw, source: str) -> str:
    """A text that tells the data's place from all others: a file's identity, or a sum of arrays in memory."""
    if not isinstance(raw.arrays["X"], np.ndarray):
        return files.identity(Path(source))
    digest = hashlib.sha256()
    for A in _held(raw).values():
        digest.update(np.ascontiguousarray(A).data)
    return digest.hexdigest()


def _read_by(near: Sequence[int], part: DataPart, among: PointPartition, team: Team) -> Array:
    """Sums each block (blocks, 32) of the ranks that are not `near`, as the ranks that are near read it.

    near: the ranks that reach rank 0's file, which share the work.
    part, among: what is read, and its partition.  Collective: yes.
    """
    every = np.zeros((len(among.blocks), 32), np.uint8)
    others = [b for rank, run in enumerate(among.runs) if rank not in near for b in range(run.start, run.stop)]
    shares = dict(zip(near, contiguous_runs(len(others), len(near)), strict=True))
    read = [others[shares[rank].rows] if rank in near else [] for rank in range(team.size)]

    def fill() -> None:
        for b in read[team.rank]:
            every[b] = block_sum(map(part.read, among.tiles_in(b)))

    team.all_or_raise(fill)
    team.gather_parts(every.reshape(-1), [[slice(32 * b, 32 * b + 32) for b in blocks] for blocks in read])
    return every
