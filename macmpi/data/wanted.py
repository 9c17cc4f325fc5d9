"""Targets are held to what the loss asks of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from macmpi import UsageError
from macmpi.config import Config
from macmpi.data.scaling import Scaling
from macmpi.nets.losses import loss_of
from macmpi.typing import Array


@dataclass(frozen=True)
class Wanted:
    """A config asks this of its data.

    Of targets: missing: NaN stands for none.  scaled: they may be shifted and scaled.  admits: tells of each number
    whether it is one; None: every number is.  words: what they are; loss: its name.  Of inputs: sequences: an array of
    three dimensions holds steps x features, which the first layer reads one after the other.  like: the scaling of
    inputs and of targets of the model that training starts from, if it starts from one.
    """

    missing: bool = False
    scaled: bool = True
    admits: Callable[[Array], Array] | None = None
    words: str = ""
    loss: str = ""
    sequences: bool = False
    like: tuple[Scaling, Scaling] | None = None

    def check(self, Y: Array, source: str, autoencoder: bool) -> None:
        """Raises UsageError, naming the first, where targets (n, L) as they are trained on are none that it takes."""
        if self.admits is None:
            return
        bad = np.argwhere(~(self.admits(Y) | np.isnan(Y)))
        if not len(bad):
            return
        row, column = bad[0].tolist()
        of = "an input, scaled, which an autoencoder takes for its target," if autoencoder else "a target"
        remedy = 'with another data.scale, or model.loss = "squared"' if autoencoder else 'use model.loss = "squared"'
        raise UsageError(
            f'data.source = "{source}": model.loss = "{self.loss}" takes {self.words}, and {of} of column {column} is '
            f"{Y[row, column]:g}; {remedy}"
        )


NUMBERS = Wanted()
"""All numbers, but none that are missing."""


def wanted_by(config: Config, like: tuple[Scaling, Scaling] | None = None) -> Wanted:
    """Says what a config asks of its data; of labels, checked as such, nothing more.  like: as in `Wanted`."""
    loss, hidden = loss_of(config), config.model.hidden
    sequences = isinstance(hidden, list) and any(config.model.recurrences[:1])
    if loss.labels:
        return Wanted(sequences=sequences, like=like)
    admits = None if loss.scaled else loss.admits
    return Wanted(loss.missing, loss.scaled, admits, loss.targets, config.model.loss, sequences, like)


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
        raise UsageError(f"{name}: {which} is missing at every training point; leave it out")
