"""Data sets in three forms: as they were read, as they are used in training, and the rules of a config for them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from macmpi import UsageError
from macmpi.config import Config
from macmpi.config.auto import Sizes
from macmpi.data.frames import Columns
from macmpi.data.scaling import AS_IS, Scaling, ScalingRule
from macmpi.nets.losses import LOSSES, Loss, loss_of
from macmpi.typing import Array

SIDES = ("", "_val")
"""The endings of the names of arrays of training and of validation points."""

WEIGHTS, GROUPS = ("weights", "weights_val"), ("groups", "groups_val")
"""The names of the arrays of the points' weights, and of their groups."""

POINTS = ("X", "Y", "X_val", "Y_val", *WEIGHTS)
"""The names of the arrays that training uses."""


@dataclass(frozen=True)
class Points:
    """The points of a source, as arrays of numbers or text, or as datasets of an HDF5 file that are not read yet.

    arrays: {name: array} for X (N, ...), targets Y (N,) or (N, L) if there are some, weights of the points (N,) or of
        their targets (N, L), and for pictures groups (N,), whole numbers, and order (N,), the place of each point on
        the closed curve of its group.  Arrays of validation points, if the source has some, have names with "_val".
    columns: how the columns of a table became X; None for other sources.
    classes: whether Y can only be classes; such a Y is left out if the loss is not one of classes.
    named: whether they are a named set, which needs no further checks and no scaling unless data.scale asks for it.
    """

    arrays: dict[str, Any]
    columns: Columns | None = None
    classes: bool = False
    named: bool = False


@dataclass(frozen=True)
class Raw:
    """The arrays of a data set, checked but not converted, and how they are to be converted.

    arrays: as in `Points`, with numbers in place of text; an autoencoder has no Y.
    scale, scale_y: the rules by which inputs and targets are scaled.
    labels: whether Y holds class labels, (N,) or (N, 1).
    names: where labels are text, the texts of the labels 0, 1, ...; otherwise None.
    one_dimensional: whether the targets (Y, or X of an autoencoder) are numbers that the file has as (N,).
    columns: how the columns of a table became X; None for other sources.
    shape: height, width and perhaps channels of a row that is an image; otherwise None.
    steps: the number of steps of a row that is a sequence; otherwise 0.
    """

    arrays: dict[str, Any]
    scale: ScalingRule = AS_IS
    scale_y: ScalingRule = AS_IS
    labels: bool = False
    names: Array | None = None
    one_dimensional: bool = False
    columns: Columns | None = None
    shape: tuple[int, ...] | None = None
    steps: int = 0


@dataclass(frozen=True)
class Dataset:
    """Scaled training and validation points, rows of float64 or float32.  An autoencoder's Y is X itself, not a copy.

    scaling_x, scaling_y: the scalings of inputs and targets.
    sha256: the SHA-256 of all numbers.
    classes: the label of each column of a classifier's one-hot Y; None for other data.
    one_dimensional: whether the targets are numbers that their file has as (N,).
    weights, weights_val (N,): the weights of the points, float64; None if all are 1.
    outputs: the number L of outputs if each output of a point has its own weight; Y is then [targets, weights],
        (N, 2 L).  Otherwise 0.
    drawn: whether the validation points were drawn from X.
    groups: whole numbers of the training and of the validation points; order: their places on closed curves (`Points`).
    shape, columns, steps: as in `Raw`.
    span: the Span (wide.py) in which X has its coordinates; scaling_x is then that of the columns.  Otherwise None.
    Only rank 0 has groups, order and span.  If each rank reads its own rows, drawn, shape and steps are not set.
    """

    X: Array
    Y: Array
    X_val: Array
    Y_val: Array
    scaling_x: Scaling
    scaling_y: Scaling
    sha256: str
    classes: Array | None = None
    one_dimensional: bool = False
    drawn: bool = False
    groups: tuple[Array, Array] | None = None
    order: tuple[Array, Array] | None = None
    shape: tuple[int, ...] | None = None
    columns: Columns | None = None
    steps: int = 0
    weights: Array | None = None
    weights_val: Array | None = None
    outputs: int = 0
    span: Any = None

    @property
    def autoencoder(self) -> bool:
        return self.Y is self.X

    @property
    def arrays(self) -> list[str]:
        """The names of the arrays of points that the data set has, without Y if Y is X itself."""
        names = ("X", "X_val", *WEIGHTS) if self.autoencoder else ("X", "X_val", "Y", "Y_val", *WEIGHTS)
        return [name for name in names if getattr(self, name) is not None]

    @property
    def sizes(self) -> Sizes:
        counts = self.X.shape[1], self.outputs or self.Y.shape[1], len(self.X), len(self.X_val)
        weights = self.outputs or int(self.weights is not None)
        return Sizes(*counts, self.autoencoder, self.classes, self.shape, weights, self.drawn)


def share(team: Any, data: Dataset | None) -> Dataset:
    """Gives every rank the data set of rank 0.  Collective: yes."""
    if team.size == 1:
        assert data is not None
        return data
    without: dict[str, Any] = dict.fromkeys((*POINTS, "groups", "order", "span"))
    names, told = team.from_root(lambda: data and (data.arrays, replace(data, **without)))
    held = [getattr(data, name) for name in names] if data else []
    arrays: dict[str, Any] = dict(zip(names, share_arrays(team, held), strict=True))
    return replace(data or told, **{"Y": arrays["X"], "Y_val": arrays["X_val"], **arrays})


def share_arrays(team: Any, arrays: list[Array]) -> list[Array]:
    """Gives every rank the arrays of rank 0, in one copy on each node whose ranks share memory.  Collective: yes.

    It empties the list meanwhile, so that the memory of rank 0's own copies becomes free.
    """
    found = []
    for shape, dtype in team.from_root(lambda: [(A.shape, A.dtype.str) for A in arrays]):
        own = arrays.pop(0) if arrays else None
        if team.shares:
            array = team.array(shape, dtype)
            if own is not None:
                array[...] = own
        else:
            array = np.empty(shape, dtype) if own is None else own
        team.share_array(array)
        found.append(array)
    return found


# --- the rules of a config for its data -------------------------------------------------------------------------------


@dataclass(frozen=True)
class TargetRules:
    """The rules of a config for its data, above all for the targets.

    loss, name: the loss, which says what targets can be, and its name.
    sequences: the number of steps of a first layer that is recurrent, where X is (N, steps, features); otherwise 0.
    stream: whether the points are a piece of a stream.
    precision: the precision of the numbers that are kept.
    in_file: whether rows that each rank reads for itself stay in their file, to be read each time they are used.
    output: the activation of the output layer.
    like: the scalings of inputs and of targets of the model from which training starts; None if there is none.
    classes: the labels that may occur, ascending; None for the labels that do occur.
    columns: the columns by which earlier pieces of a stream of tables became numbers, empty for a stream of arrays;
        None: the table decides.
    """

    loss: Loss = LOSSES["squared"]
    name: str = "squared"
    sequences: int = 0
    stream: bool = False
    precision: str = "float64"
    in_file: bool = False
    output: str = "linear"
    like: tuple[Scaling, Scaling] | None = None
    classes: Any = None
    columns: Columns | None = None

    def check(self, Y: Array, source: str, autoencoder: bool) -> None:
        """Raises UsageError if the loss does not admit a target of (n, L), and names the first such target.

        Y: as training uses them; source: the name of the data, for the message.
        """
        bad = [] if self.loss.scaled else np.argwhere(~(self.loss.admits(Y) | np.isnan(Y))).tolist()
        if not bad:
            return
        row, column = bad[0]
        of = "an input, scaled, which an autoencoder takes for its target," if autoencoder else "a target"
        remedy = 'with another data.scale, or model.loss = "squared"' if autoencoder else 'use model.loss = "squared"'
        raise UsageError(
            f'data.source = "{source}": model.loss = "{self.name}" takes {self.loss.targets}, and {of} of column '
            f"{column} is {Y[row, column]:g}; {remedy}"
        )


NUMBERS = TargetRules()
"""The rules that accept any numbers as targets, but no missing ones."""


def target_rules_of(config: Config) -> TargetRules:
    """Returns the rules of a config for its data; the fields like, classes and columns stay at their defaults."""
    model, stream, in_file = config.model, config.stochastic.stream, config.parallel.rows == "file"
    return TargetRules(loss_of(config), model.loss, model.sequence, stream, model.precision, in_file, model.output)
