"""Targets are numbers or classes, which the data decide where the config does not say, and are what the loss asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from macmpi import UsageError
from macmpi.config import Config
from macmpi.config.auto import AUTO, IN_THE_PAPER, Decision
from macmpi.data.checks import columns
from macmpi.data.gathered import check_whole, gathered
from macmpi.data.named_sets import NAMED_SETS
from macmpi.data.reading import read_file, read_headers
from macmpi.data.scaling import Scaling
from macmpi.files import DAMAGE
from macmpi.nets.losses import loss_of
from macmpi.typing import Array

FEW = 50
"""One column of whole numbers, of any type, with at most this many different ones may be classes."""


def with_loss(config: Config) -> tuple[Config, list[Decision]]:
    """The config with a loss in the place of "auto", and that decision: classes for truth values, numbers else.

    Raises UsageError where whole numbers may be either.  Cost: whole numbers are read.  Collective: no (rank 0).
    """
    if config.parallel.data == "sharded":
        check_whole(config.data.source)
    if config.model.loss != AUTO:
        return config, []  # and Y is not read
    found = gathered(config.data, config.loss.missing)
    if found is None:
        return loss_for(config, _targets(config.data.source), config.data.source)
    names = f" (target {', '.join(config.data.targets)})" if config.data.targets else ""
    return loss_for(config, found.arrays.get("Y"), f"{config.data.source}{names}")


def loss_for(config: Config, Y: Any, source: str) -> tuple[Config, list[Decision]]:
    """Decides as `with_loss` does, for targets Y: an array, an HDF5 dataset, or None.  source: their name."""
    if config.model.loss != AUTO:
        return config, []
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


def _targets(source: str) -> Any:
    """Y of the user's own file, or None: an array, or of HDF5 a dataset.  Mistakes are left to who reads the data."""
    path = Path(source)
    if source in NAMED_SETS or path.suffix not in (".h5", ".hdf5", ".npz"):
        return None
    try:
        return (read_file if path.suffix == ".npz" else read_headers)(path, ("Y",)).get("Y")
    except (UsageError, *DAMAGE):
        return None


# --- what they have to be ---------------------------------------------------------------------------------------------


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
        raise UsageError(f"{name}: {which} is missing, or weighs 0, at every training point; leave it out")
