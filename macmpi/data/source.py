"""A run's points come from a source, which says its sizes before anything is allocated, and then loads the points.

Rank 0 reads the data set and shares it, or each rank reads its own rows alone: both by one reader, `loading.Reader`.
This module is light: rank 0 can refuse data before the other ranks import NumPy.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from macmpi import UsageError, caution, many

if TYPE_CHECKING:
    from macmpi.config import Config
    from macmpi.config.auto import Sizes
    from macmpi.data.dataset import Dataset, Points, TargetRules
    from macmpi.data.frames import Columns
    from macmpi.data.scaling import Scaling
    from macmpi.parallel.points import Partitions
    from macmpi.parallel.team import Team


SLOW = 1.0
"""Seconds of reading from which on a run says how many there were."""


class Source:
    """The data set that a config names, or points that the caller has.

    points: arrays of the caller, or what `points_of` has read of a file, on rank 0; None: they are still to be read.
    by_rows: each rank reads its own rows alone; of a classifier rank 0 reads all labels, too.  like: the scaling of the
    model that training starts from, if it starts from one.  before: points of the pieces of a stream that come before
    these.  classes, columns: as in `TargetRules`.
    """

    def __init__(self, config: Config, points: Points | None = None) -> None:
        self.config, self.points = config, points
        self.by_rows = config.parallel.by_rows
        self.like: tuple[Scaling, Scaling] | None = None
        self.columns: Columns | None = None
        self.before = 0
        self.classes = points.classes_known if points else None
        self._sizes: Sizes | None = None
        self._data: Dataset | None = None

    @property
    def rules(self) -> TargetRules:
        """The rules of the config for its data."""
        from macmpi.data.dataset import target_rules_of

        return target_rules_of(self.config, self.like, self.classes, self.columns)

    def without_points(self) -> Source:
        """The source for other ranks, without the points that rank 0 has read.  Collective: no."""
        light = copy(self)
        light.points = None
        return light

    def sizes(self) -> Sizes:
        """Points, inputs, outputs and classes.  Raises UsageError where data are wrong.  Collective: no (rank 0)."""
        from macmpi.data.loading import survey

        if self.by_rows and not self.config.data.source:
            raise UsageError('parallel.data = "sharded" reads files: save the arrays, and name the file in config')
        if self._sizes is None:
            asked = self.config.data, self.rules, self.points
            sizes = survey(*asked) if self.by_rows else self.outline().sizes
            self._sizes = replace(sizes, before=self.before)
        return self._sizes

    def outline(self) -> Dataset:
        """A data set of these sizes, with its classes and scaling: the data themselves, which are read here.

        Of ranks that read their own rows it has no points and is not scaled.  Raises UsageError.  Collective: no (rank
        0).
        """
        from macmpi.data.loading import blank, load

        if self.by_rows:
            return blank(self.sizes())
        if self._data is None:
            self._data = load(self.config.data, self.rules, self.points)
            self.points = None
        return self._data

    def settle(self, n: int) -> None:
        """Makes the points those that are trained on: in the span of n points, or (0) rows of dense columns.

        Collective: no (rank 0, once it has read them).
        """
        if self._data is not None and n:
            from macmpi.data.wide import in_span

            self._data = in_span(self._data, n)
        elif self._data is not None and not self._data.autoencoder:
            self._data = self._data.dense()

    def whole(self) -> Dataset:
        """All points, read by this process alone.  Raises UsageError.  Collective: no."""
        if self.by_rows:
            raise UsageError('of a sharded run (parallel.data = "sharded") they are not read here')
        return self.outline()

    def notes(self, seconds: float) -> list[str]:
        """Lines for the head of the table, on rank 0, once the data are read.  seconds: that took so long."""
        from macmpi.data.named_sets import NAMED_SETS

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
        """Warns of columns of a table and datasets of a file.  Collective: no (rank 0, once the data are read)."""
        from macmpi.data.gathered import unread_in

        if self._data is None:
            return
        columns = self._data.columns
        for note in filter(None, (*(columns.notes if columns else ()), unread_in(self.config.data.source))):
            caution(note)

    def load(self, team: Team, points: Partitions) -> Dataset:
        """The points that this rank holds, checked and scaled.  Raises UsageError on all ranks.  Collective: yes.

        points: the partitions of the training and of the validation points.
        """
        from macmpi.data.dataset import share
        from macmpi.data.loading import load_rows

        if self.by_rows:
            classes = team.from_root(lambda: self.sizes().classes)
            return load_rows(self.config.data, self.rules, classes, points, team)
        data, self._data = self._data, None
        return share(team, data)
