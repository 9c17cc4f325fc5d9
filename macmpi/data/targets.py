"""Targets are numbers or classes, which the data decide where the config does not say, and are what the loss asks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from macmpi import UsageError
from macmpi.config import Config
from macmpi.config.auto import AUTO, IN_THE_PAPER, Decision
from macmpi.data.checks import OF_TRAINING, columns
from macmpi.data.dataset import Points
from macmpi.data.gathered import ARGUMENTS, points_of
from macmpi.data.scaling import Scaling
from macmpi.nets.losses import LOSSES, Loss, loss_of
from macmpi.typing import Array

FEW = 50
"""One column of whole numbers, of any type, with at most this many different ones may be classes."""


def with_loss(config: Config, points: Points | None = None) -> tuple[Config, list[Decision]]:
    """The config with a loss in the place of "auto", and that decision: classes for truth values, numbers else.

    points: those that the caller has, or has read.  Raises UsageError where whole numbers may be either.  Cost: whole
    numbers are read.  Collective: no (rank 0).
    """
    if config.model.loss != AUTO:
        return config, []  # and Y is not read
    points, named = points or points_of(config), config.data.targets
    names = f" (target {', '.join(named)})" if named and config.data.source else ""
    return loss_for(config, points and points.arrays.get("Y"), f"{config.data.source or ARGUMENTS}{names}")


def loss_for(config: Config, Y: Any, source: str) -> tuple[Config, list[Decision]]:
    """Decides as `with_loss` does, for targets Y: an array, an HDF5 dataset, or None.  source: their name."""
    kind = "" if Y is None or not Y.shape or not len(Y) or columns(Y) != 1 else Y.dtype.kind
    loss: Any = "cross_entropy" if kind in ("b", "S", "U", "O") else "squared"
    why = "the targets are numbers" if Y is not None else IN_THE_PAPER
    if kind in ("i", "u", "f"):
        why = _amounts(np.unique(np.asarray(Y)), len(Y), source)
    elif loss == "cross_entropy":
        why = f"the targets are {'truth values' if kind == 'b' else 'text'}"
    return replace(config, model=replace(config.model, loss=loss)), [Decision("model.loss", loss, why)]


def _amounts(found: Array, rows: int, source: str) -> str:
    """Says why the targets, of which `found` has the different ones, are amounts, whatever their type.

    Raises UsageError where they may be classes as well: a few whole numbers that repeat, two of them, or most of those
    in their range.
    """
    known = found[~np.isnan(found)] if found.dtype.kind == "f" else found
    whole = len(known) > 0 and bool(np.isfinite(known).all() and (known == np.round(known)).all())
    if not whole or len(known) > FEW or len(known) == 1 or 2 * len(known) > rows:
        return "the targets are numbers"
    least, most = int(known[0]), int(known[-1])
    if len(known) > 2 and 2 * len(known) <= most - least + 1:
        return f"the targets are {len(known)} whole numbers from {least} to {most}, too far apart for classes"
    raise UsageError(
        f"{source}: Y holds whole numbers, {len(known)} different ones from {least} to {most}: "
        'say what they are, model.loss = "cross_entropy" if classes, "squared" if amounts'
    )


# --- what they have to be ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wanted:
    """A config asks this of its data.

    loss, name: the loss, which says what targets have to be, and its name.  sequences: an array of three dimensions
    holds this many steps x features, which the first layer reads one after the other; 0: none.  like: the scaling of
    inputs and of targets of the model that training starts from, if it starts from one.  stream: the points are a piece
    of a stream; classes: the labels that there may be, ascending, None where those that occur are all.
    """

    loss: Loss = LOSSES["squared"]
    name: str = "squared"
    sequences: int = 0
    like: tuple[Scaling, Scaling] | None = None
    stream: bool = False
    classes: Any = None

    @property
    def goes_on(self) -> bool:
        """A running scaling has seen points already."""
        return self.stream and self.like is not None

    def check(self, Y: Array, source: str, autoencoder: bool) -> None:
        """Raises UsageError, naming the first, where targets (n, L) as they are trained on are none that it takes."""
        if self.loss.scaled:
            return
        bad = np.argwhere(~(self.loss.admits(Y) | np.isnan(Y)))
        if not len(bad):
            return
        row, column = bad[0].tolist()
        of = "an input, scaled, which an autoencoder takes for its target," if autoencoder else "a target"
        remedy = 'with another data.scale, or model.loss = "squared"' if autoencoder else 'use model.loss = "squared"'
        raise UsageError(
            f'data.source = "{source}": model.loss = "{self.name}" takes {self.loss.targets}, and {of} of column '
            f"{column} is {Y[row, column]:g}; {remedy}"
        )


NUMBERS = Wanted()
"""All numbers, but none that are missing."""


def wanted_by(config: Config, like: tuple[Scaling, Scaling] | None = None, classes: Any = None) -> Wanted:
    """Says what a config asks of its data.  like, classes: as in `Wanted`."""
    return Wanted(loss_of(config), config.model.loss, config.model.sequence, like, config.stochastic.stream, classes)


def check_known(known: bool, name: str) -> None:
    """Raises UsageError where no target of any validation point is known."""
    if not known:
        raise UsageError(
            f"{name} is missing at every validation point, so that no error can be watched; give a Y_val with numbers, "
            "or a larger data.validation"
        )


def check_seen(counts: Array, name: str) -> None:
    """Raises UsageError where a column of targets has no number in any training point.  counts: those it has, (L,)."""
    none = np.flatnonzero(counts == 0)
    if len(none):
        which = f"column {none[0]}" + (f" and {len(none) - 1} more" if len(none) > 1 else "")
        raise UsageError(f"{name}: {which} is missing, or weighs 0, {OF_TRAINING}; leave it out")
