"""Loads the points of a run from a source, which gives their sizes first.

Rank 0 reads all points, or each rank reads its own rows; both use the same reader (`reader.py`).

If each rank reads its own rows, a node may have another file of that name than rank 0.  So ranks compare the
identities of their files.  A rank whose file is another one may have a copy: then ranks with rank 0's file read the
rows of that rank once more, and the checksums of blocks must be equal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from macmpi import UsageError, caution, files, many
from macmpi.config import Config, Data
from macmpi.config.auto import Sizes
from macmpi.data import checks
from macmpi.data.dataset import NUMBERS, SIDES, Dataset, Points, Raw, TargetRules, share, share_arrays, target_rules_of
from macmpi.data.gathered import unread_in
from macmpi.data.named_sets import NAMED_SETS
from macmpi.data.parts import RUN, DataPart, classes_in, parts_of, raw_of, split_of
from macmpi.data.reader import Reader, block_sum, weights_in
from macmpi.data.reading import check_there, read_file
from macmpi.data.scaling import unscaled
from macmpi.data.wide import in_span
from macmpi.parallel.points import Partitions, PointPartition, partition_points
from macmpi.parallel.rows import RowSet
from macmpi.parallel.team import Team, check_alike, on_root, texts
from macmpi.parallel.tiles import Tile, contiguous_runs, evenly
from macmpi.reductions import LazyRows, Rows
from macmpi.typing import Array

SLOW = 1.0
"""A run reports the seconds of reading where there were more than these."""


class Source:
    """The data set that a config names, or points that the caller has.

    points: on rank 0, arrays of the caller, or arrays that `points_of` has read from a file; None if they must still be
        read.
    by_rows: whether each rank reads only its own rows; rank 0 also reads all labels of a classifier.
    rules: the rules of the config, to which the caller adds the rules of a model from which training starts.
    before: the number of points in earlier pieces of the stream.
    """

    def __init__(self, config: Config, points: Points | None = None) -> None:
        self.config, self.points = config, points
        self.by_rows = config.parallel.by_rows
        self.rules = target_rules_of(config)
        self.before = 0
        self._sizes: Sizes | None = None
        self._data: Dataset | None = None

    def sizes(self) -> Sizes:
        """Returns the sizes of the data set.  Raises UsageError if data are wrong.  Collective: no (rank 0)."""
        if self.by_rows and not self.config.data.source:
            raise UsageError('parallel.data = "sharded" reads files: save the arrays, and name the file in config')
        if self._sizes is None:
            own = survey(self.config.data, self.rules, self.points) if self.by_rows else self.outline().sizes
            self._sizes = replace(own, before=self.before)
        return self._sizes

    def outline(self) -> Dataset:
        """Returns a data set with the sizes and the classes of the data.

        It is the whole data set, which is read now; but where each rank reads its own rows, it has no points and no
        scaling.  Raises UsageError.  Collective: no (rank 0).
        """
        if self.by_rows:
            return blank(self.sizes())
        if self._data is None:
            self._data = load(self.config.data, self.rules, self.points)
            self.points = None
        return self._data

    def settle(self, n: int) -> None:
        """Converts the points to the form that training uses: coordinates in the span of n points, or dense rows.

        n: 0 for dense rows.  Collective: no (rank 0, once it has read them).
        """
        if (data := self._data) is not None and n:
            self._data = in_span(data, n)
        elif data is not None and not data.autoencoder:
            self._data = replace(data, X=np.asarray(data.X), X_val=np.asarray(data.X_val))

    def whole(self) -> Dataset:
        """Reads all points in this process alone.  Raises UsageError.  Collective: no."""
        if self.by_rows:
            raise UsageError('of a sharded run (parallel.data = "sharded") they are not read here')
        return self.outline()

    def notes(self, seconds: float) -> list[str]:
        """Writes lines on the data for the head of the table.  seconds: how long reading took.

        Rank 0 calls it once the data are read.
        """
        data, named = self._data, self.config.data
        if data is None:
            return []
        lines = [f"read {named.source} in {seconds:.1f} s"] if named.source and seconds > SLOW else []
        lines += [data.columns.said] if data.columns and data.columns.said else []
        if data.steps:
            features = many(data.X.shape[1] // data.steps, "feature")
            lines.append(f"inputs are {many(data.steps, 'step')} of {features}, each scaled alike in all steps")
        elif data.shape and named.source not in NAMED_SETS:
            channels = f" and {many(data.shape[2], 'channel')}" if len(data.shape) == 3 else ""
            how = ", all scaled alike" if named.scale == "auto" else ""
            lines.append(f"inputs are images of {data.shape[0]} x {data.shape[1]} pixels{channels}{how}")
        return lines

    def warn(self) -> None:
        """Warns of columns and datasets that are left out, or read in a way that the user should know.

        Collective: no (rank 0, once the data are read).
        """
        if self._data is None:
            return
        columns = self._data.columns
        for note in filter(None, (*(columns.notes if columns else ()), unread_in(self.config.data.source))):
            caution(note)

    def load(self, team: Team, points: Partitions) -> Dataset:
        """Returns the points that this rank holds, checked and scaled.  Raises UsageError on all ranks.

        points: the partitions of the training and of the validation points.  Collective: yes.
        """
        if self.by_rows:
            classes = team.from_root(lambda: self.sizes().classes)
            return load_rows(self.config.data, self.rules, classes, points, team)
        data, self._data = self._data, None
        return share(team, data)


# --- whole, by one process --------------------------------------------------------------------------------------------


def load(config: Data, rules: TargetRules = NUMBERS, points: Points | None = None) -> Dataset:
    """Reads the data set of a config, and checks, splits and scales it.  Raises UsageError.  Collective: no (rank 0).

    rules: the rules of the config for its data; points: the caller's points, or None to read them.
    """
    raw = raw_of(config, rules, points=points)
    parts = parts_of(raw, config, split_of(raw, config, rules), rules.loss.missing)
    classes = classes_in(parts, raw, config.source, rules.classes)
    partitions = partition_points(len(parts["X"]), 1), partition_points(len(parts["X_val"]), 1)
    data = Reader(parts, partitions, Team(), rules, config.source).dataset(raw, classes)
    pictures = (name for name in ("groups", "order") if name in parts)
    more: dict[str, Any] = {name: tuple(parts[f"{name}{side}"].whole_numbers() for side in SIDES) for name in pictures}
    return replace(data, **more, shape=raw.shape, drawn="X_val" not in raw.arrays, steps=raw.steps)


# --- each rank its own rows -------------------------------------------------------------------------------------------


def survey(config: Data, rules: TargetRules = NUMBERS, points: Points | None = None) -> Sizes:
    """Finds sizes and classes of a data set without reading its points.  Cost: all labels of a classifier are read.

    rules: the rules of the config for its data; points: the caller's points, or None to open the source.
    Raises UsageError for mistakes that headers show.  Collective: no (rank 0).
    """
    raw = raw_of(config, rules, True, points)
    rows = split_of(raw, config, rules, rules.loss.labels)
    parts = parts_of(raw, config, rows, rules.loss.missing)
    X, Y, classes = parts["X"], parts.get("Y"), classes_in(parts, raw, config.source, rules.classes)
    n_out = len(classes) if classes is not None else (Y or X).width
    counts, in_file = (X.width, n_out, len(X), len(parts["X_val"])), tuple(part.raw_bytes for part in (X, Y) if part)
    drawn = "X_val" not in raw.arrays
    return Sizes(*counts, Y is None, classes, raw.shape, weights_in(parts), drawn, raw=in_file)


def blank(sizes: Sizes) -> Dataset:
    """Makes a data set of these sizes without points or scaling, to check a net before points are read."""
    X, Y = np.empty((0, sizes.n_in)), np.empty((0, sizes.n_out))
    return Dataset(X, Y, X, Y, unscaled(sizes.n_in), unscaled(sizes.n_out), sha256="", classes=sizes.classes)


def load_rows(config: Data, rules: TargetRules, classes: Array | None, points: Partitions, team: Team) -> Dataset:
    """Reads this rank's rows of a data set, and checks and scales them.

    rules: the rules of the config for its data; classes (C,): the labels of a classifier, ascending.
    points: the partitions of the training and of the validation points.
    Raises UsageError on all ranks if one of them finds something wrong.  Collective: yes.
    """
    raw = _opened_alike(config, rules, team)
    whole = "X_val" in raw.arrays or rules.stream
    rows = split_of(raw, config, rules) if whole else _drawn(raw, config, team)
    parts = team.all_or_raise(lambda: parts_of(raw, config, rows, rules.loss.missing))
    reader = Reader(parts, points, team, rules, config.source, by_rows=True)
    data = reader.dataset(raw, classes)
    _check_same_data(raw, reader, config, team)
    return data


def _opened_alike(config: Data, rules: TargetRules, team: Team) -> Raw:
    """Opens the data on each rank, and compares the shapes that the ranks find.

    Raises UsageError on all ranks, with the ranks that find other shapes than rank 0.  Collective: yes.
    """
    opened: Raw | UsageError
    try:
        opened = raw_of(config, rules, by_rows=True)
        said = ", ".join(f"{name} {A.shape}" for name, A in opened.arrays.items())
    except UsageError as error:
        opened, said = error, str(error)
    check_alike(team, said, partial(_refused, config))
    if isinstance(opened, UsageError):
        opened.agreed = True
        raise opened
    return opened


def _refused(config: Data, who: str, said: str) -> UsageError:
    return UsageError(
        f"{config.source}: {who} found other data there than rank 0 ({said}); all ranks need one file, or equal copies"
    )


def _drawn(raw: Raw, config: Data, team: Team) -> list[RowSet]:
    """Returns the rows for training and the rows for validation; rank 0 draws them for all.  Collective: yes."""
    bits = on_root(team, lambda: [rows.bits for rows in split_of(raw, config) if isinstance(rows, RowSet)])
    return [RowSet(one) for one in share_arrays(team, bits or [])]


def _check_same_data(raw: Raw, reader: Reader, config: Data, team: Team) -> None:
    """Raises UsageError on all ranks, with ranks and hosts, where the rows of a rank are not those of rank 0's data.

    reader: the Reader that has read the rows.
    Cost: none where all ranks see one file; otherwise the ranks with rank 0's file also read the rows of the others.
    Collective: yes.
    """
    places = texts(team, _place(raw, config.source)) if team.size > 1 else [""]
    near = [rank for rank, place in enumerate(places) if place == places[0]]
    if len(near) == team.size:
        return
    same = True
    for name, sums in reader.sums.items():
        among = reader.points[name.endswith("_val")]
        again, rows = _read_by(near, reader.parts[name], among, team), among.runs[team.rank].rows
        same &= np.array_equal(again[rows], sums[rows])
    same |= team.rank in near
    check_alike(team, "its rows" if same else "other rows", partial(_refused, config))


def _place(raw: Raw, source: str) -> str:
    """Returns a text that identifies the data: the identity of their file, or a checksum of arrays in memory."""
    if not isinstance(raw.arrays["X"], np.ndarray):
        return files.identity(Path(source))
    digest = hashlib.sha256()
    for A in raw.arrays.values():
        digest.update(np.ascontiguousarray(A).data)
    return digest.hexdigest()


def _read_by(near: Sequence[int], part: DataPart, among: PointPartition, team: Team) -> Array:
    """Computes the checksums of all blocks of other ranks than those in `near`: (blocks, 32) uint8, other rows 0.

    near: the ranks that see rank 0's file; they read the blocks and share the work.
    part, among: the part of the data that is read, and its partition.  Collective: yes.
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


# --- coordinates ------------------------------------------------------------------------------------------------------


def read_codes(path: Path, rows: int, columns: int) -> Rows:
    """Reads coordinates (rows, columns) of the training points: the dataset Z, codes or Y of an HDF5 or .npz file.

    They are in the order of the points.  All are checked, and then read again, some rows at a time.  Raises UsageError.
    """
    check_there(path, "start.coordinates")
    arrays = read_file(path, ("Z", "codes", "Y"), unread=path.suffix != ".npz")
    if not arrays:
        raise UsageError(f"start.coordinates = {str(path)!r}: there is no dataset Z or codes in it")
    name, array = next(iter(arrays.items()))
    part = DataPart(array, range(rows), f"{path}: dataset {name}")
    checks.check_rows(array, part.name)
    if (shape := (len(array), part.width)) != (rows, columns):
        raise UsageError(
            f"{path}: dataset {name} has shape {shape}; a code of {columns} for each of {rows} points is needed"
        )
    for run in evenly(rows, RUN // part.raw_bytes + 1):
        part.read(run)
    return LazyRows(lambda some: part.read(Tile(*some.indices(rows)[:2])), shape, np.dtype(np.float64))
