"""A run's points come from a source, which says its sizes before anything is allocated, and then loads the points.

Rank 0 reads the data set and shares it (`Whole`), or each rank reads its own rows alone (`Sharded`); `data/checks.py`
has the checks of both.  This module is light: rank 0 can refuse data before the other ranks import NumPy.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from macmpi import caution, many

if TYPE_CHECKING:
    from macmpi.config import Config
    from macmpi.config.auto import Sizes
    from macmpi.data.dataset import Dataset
    from macmpi.data.frames import Columns
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


class Whole(_Named):
    """A data set that rank 0 reads whole, or has as arrays, and shares with all ranks."""

    _data: Dataset | None = None

    def sizes(self) -> Sizes:
        """Points, inputs, outputs and classes.  Raises UsageError where data are wrong.  Collective: no (rank 0)."""
        return self.outline().sizes

    def outline(self) -> Dataset:
        """A data set of these sizes, with its classes and scaling: here the data themselves.  Raises UsageError.

        Collective: no (rank 0).
        """
        if self._data is None:
            self._data = self._read()
        return self._data

    def _read(self) -> Dataset:
        from macmpi.data.whole import load

        return load(self.config.data, has_labels(self.config), self.config.model.precision, self.wanted)

    def notes(self, seconds: float) -> list[str]:
        """Lines for the head of the table, on rank 0, once the data are read.  seconds: that took so long.

        Warns of what was left out of a table or a file, or may be read otherwise than it was meant.
        """
        from macmpi.data.named_sets import NAMED_SETS
        from macmpi.data.user_file import unread_in

        columns = None if self._data is None else self._data.columns
        lines = [f"read {self.config.data.source} in {seconds:.1f} s"] if seconds > SLOW else []
        for note in filter(None, (*(columns.notes if columns else ()), unread_in(self.config.data.source))):
            caution(note)
        lines += [columns.said] if columns else []
        if self._data is not None and (steps := self._data.steps):
            features = self._data.X.shape[1] // steps
            lines.append(
                f"inputs are {many(steps, 'step')} of {many(features, 'feature')}, each scaled alike in all steps"
            )
        elif self._data is not None and (shape := self._data.shape) and self.config.data.source not in NAMED_SETS:
            channels = f" and {many(shape[2], 'channel')}" if len(shape) == 3 else ""
            how = ", all scaled alike" if self.config.data.scale == "auto" else ""
            lines.append(f"inputs are images of {shape[0]} x {shape[1]} pixels{channels}{how}")
        return [line for line in lines if line]

    def load(self, team: Team, points: Partitions) -> Dataset:
        """The points that this rank holds, checked and scaled.  Raises UsageError on all ranks.  Collective: yes.

        points: the partitions of the training and of the validation points.
        """
        from macmpi.data.dataset import share

        data, self._data = self._data, None
        return share(team, data)


class Arrays(Whole):
    """Arrays X and optionally Y, X_val, Y_val that the caller has on rank 0.  name: theirs, for messages.

    columns: of the table that X was made of.
    """

    def __init__(self, config: Config, held: dict[str, Any], name: str, columns: Columns | None = None) -> None:
        super().__init__(config)
        self.held, self.name, self.columns = held, name, columns

    def notes(self, seconds: float) -> list[str]:
        """`Whole.notes`, but that nothing was read."""
        return super().notes(0.0)

    def _read(self) -> Dataset:
        from macmpi.data.parts import scaled_as
        from macmpi.data.user_file import of_table, raw_arrays
        from macmpi.data.whole import made_of

        config, wanted = self.config, self.wanted
        raw = of_table(raw_arrays(self.held, Path(self.name), has_labels(config), missing=wanted.missing), self.columns)
        return made_of(scaled_as(raw, config.data, wanted), config.data, config.model.precision, wanted)


class Sharded(_Named):
    """A data set of which each rank reads its own rows alone; of a classifier rank 0 reads all labels, too."""

    def sizes(self) -> Sizes:
        from macmpi.data.shards import survey

        self._sizes = survey(self.config.data, has_labels(self.config), self.wanted)
        return self._sizes

    def notes(self, seconds: float) -> list[str]:
        """Nothing: the points are still to be read."""
        return []

    def outline(self) -> Dataset:
        """The outline has no points and is not scaled."""
        from macmpi.data.shards import blank

        return blank(self._sizes)

    def load(self, team: Team, points: Partitions) -> Dataset:
        from macmpi.data.shards import load

        classes = team.from_root(lambda: self._sizes.classes)
        return load(self.config.data, classes, self.config.model.precision, points, team, self.wanted)


Source = Whole | Sharded


def source_of(config: Config) -> Source:
    """The data set that a config names."""
    return Sharded(config) if config.parallel.data == "sharded" else Whole(config)


def has_labels(config: Config) -> bool:
    """The targets are classes."""
    from macmpi.nets.losses import loss_of

    return loss_of(config).labels
