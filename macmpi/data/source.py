"""A run's points come from a source, which says its sizes before anything is allocated, and then loads the points.

Rank 0 reads the data set and shares it (`Whole`), or each rank reads its own rows alone (`Sharded`); `data/checks.py`
has the checks of both.  This module is light: rank 0 can refuse data before the other ranks import NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from macmpi import caution, many

if TYPE_CHECKING:
    from macmpi.config import Config
    from macmpi.config.auto import Sizes
    from macmpi.data.dataset import Dataset
    from macmpi.data.gathered import Points
    from macmpi.data.scaling import Scaling
    from macmpi.data.targets import Wanted
    from macmpi.parallel.points import Partitions
    from macmpi.parallel.team import Team


SLOW = 1.0
"""Seconds of reading from which on a run says how many there were."""


class _Named:
    """The data set that a config names.

    like: the scaling of the model that training starts from, if it starts from one.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.like: tuple[Scaling, Scaling] | None = None

    @property
    def wanted(self) -> Wanted:
        """The config asks this of its data."""
        from macmpi.data.targets import wanted_by

        return wanted_by(self.config, self.like)

    def warn(self) -> None:
        """Warns of what was left out of the data, or may be read otherwise than it was meant.  Collective: no."""


class Whole(_Named):
    """A data set that rank 0 reads whole, and shares with all ranks.

    points: those that the caller has as arrays, on rank 0, in the place of a data set that the config names.
    """

    def __init__(self, config: Config, points: Points | None = None) -> None:
        super().__init__(config)
        self.points = points
        self._data: Dataset | None = None

    def sizes(self) -> Sizes:
        """Points, inputs, outputs and classes.  Raises UsageError where data are wrong.  Collective: no (rank 0)."""
        return self.outline().sizes

    def outline(self) -> Dataset:
        """A data set of these sizes, with its classes and scaling: here the data themselves.  Raises UsageError.

        Collective: no (rank 0).
        """
        if self._data is None:
            from macmpi.data.loading import load

            self._data = load(self.config.data, self.wanted, self.config.model.precision, self.points)
        return self._data

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

        columns = self._data.columns if self._data else None
        for note in filter(None, (*(columns.notes if columns else ()), unread_in(self.config.data.source))):
            caution(note)

    def load(self, team: Team, points: Partitions) -> Dataset:
        """The points that this rank holds, checked and scaled.  Raises UsageError on all ranks.  Collective: yes.

        points: the partitions of the training and of the validation points.
        """
        from macmpi.data.dataset import share

        data, self._data = self._data, None
        return share(team, data)


class Sharded(_Named):
    """A data set of which each rank reads its own rows alone; of a classifier rank 0 reads all labels, too."""

    def sizes(self) -> Sizes:
        from macmpi.data.loading import survey

        self._sizes = survey(self.config.data, self.wanted)
        return self._sizes

    def notes(self, seconds: float) -> list[str]:
        """Nothing: the points are still to be read."""
        return []

    def outline(self) -> Dataset:
        """The outline has no points and is not scaled."""
        from macmpi.data.loading import blank

        return blank(self._sizes)

    def load(self, team: Team, points: Partitions) -> Dataset:
        """The rows that this rank holds, checked and scaled.  Raises UsageError on all ranks.  Collective: yes."""
        from macmpi.data.loading import load_rows

        classes = team.from_root(lambda: self._sizes.classes)
        return load_rows(self.config.data, classes, self.config.model.precision, points, team, self.wanted)


Source = Whole | Sharded


def source_of(config: Config, points: Points | None = None) -> Source:
    """The data set that a config names, or the points that the caller has on rank 0."""
    return Sharded(config) if config.parallel.data == "sharded" else Whole(config, points)
