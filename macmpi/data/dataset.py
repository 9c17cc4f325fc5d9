"""A data set as it was read, as it is trained on, and as a config asks for it: split, scaled, shared by the ranks."""

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
"""The names of arrays of training and of validation points end so."""

WEIGHTS, GROUPS = ("weights", "weights_val"), ("groups", "groups_val")
"""The names of the points' weights, and of their groups."""

POINTS = ("X", "Y", "X_val", "Y_val", *WEIGHTS)
"""The names of the arrays that are trained on."""


@dataclass(frozen=True)
class Points:
    """The points of a source of any kind, as arrays of numbers or text, or datasets of an HDF5 file, by name.

    arrays: X (N, ...); targets Y (N,) or (N, L), where there are some; weights of the points (N,) or of their targets
        (N, L); and for pictures groups (N,), whole numbers, and order (N,), the places of the points on their group's
        closed curve.  By these names and "_val" those of validation points, where these are not to be drawn.
    columns: of the table that X was; None of other sources.
    classes: Y can be nothing but classes, and is there for those who want them.
    named: they are those of a named set, checked before, and are to be learnt as they are unless data.scale says
        otherwise.
    """

    arrays: dict[str, Any]
    columns: Columns | None = None
    classes: bool = False
    named: bool = False


@dataclass(frozen=True)
class Raw:
    """The arrays of a data set, checked but not converted, and what is to become of them.

    arrays: as in `Points`, with numbers in the place of text; an autoencoder has no Y.
    scale, scale_y: the rules by which inputs and targets are scaled.
    labels: Y holds class labels, (N,) or (N, 1).
    names: where labels are text, the text of label 0, 1, ...
    one_dimensional: the targets, Y or X, are numbers that the file has as (N,).
    columns: of the table that X was.
    shape: height, width and perhaps channels of a row that is an image; else None.
    steps: of rows that are sequences; else 0.
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

    scaling_x, scaling_y: those of inputs and targets.
    classes: the label of each column of a classifier's one-hot Y; None for other data.
    one_dimensional: the targets are numbers that their file has as (N,).
    weights, weights_val (N,): of the points, float64; None where all are 1.
    outputs: the number of outputs where each has a weight of its own, and Y is [Y, V] (N, 2 outputs); else 0.
    drawn: the validation points were drawn from X.
    groups: a whole number of each training and of each validation point.
    order: the place of each on its group's closed curve.
    shape: height, width and perhaps channels of a row that is an image; else None.
    columns: of the table that X was.
    steps: of rows that are sequences; else 0.
    span: the Span (wide.py) in which X holds coordinates, and scaling_x is that of the columns; else None.
    groups, order and span are rank 0's alone; of rows that ranks read for themselves drawn, shape and steps are not
    told.
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
        """The names of the arrays of points that there are, each once."""
        names = ("X", "X_val", *WEIGHTS) if self.autoencoder else ("X", "X_val", "Y", "Y_val", *WEIGHTS)
        return [name for name in names if getattr(self, name) is not None]

    @property
    def sizes(self) -> Sizes:
        counts = self.X.shape[1], self.outputs or self.Y.shape[1], len(self.X), len(self.X_val)
        weights = self.outputs or int(self.weights is not None)
        return Sizes(*counts, self.autoencoder, self.classes, self.shape, weights, self.drawn)


def share(team: Any, data: Dataset | None) -> Dataset:
    """Rank 0's data set on every rank.  Collective: yes."""
    if team.size == 1:
        assert data is not None
        return data
    without: dict[str, Any] = dict.fromkeys((*POINTS, "groups", "order", "span"))
    names, told = team.from_root(lambda: data and (data.arrays, replace(data, **without)))
    held = [getattr(data, name) for name in names] if data else []
    arrays: dict[str, Any] = dict(zip(names, share_arrays(team, held), strict=True))
    return replace(data or told, **{"Y": arrays["X"], "Y_val": arrays["X_val"], **arrays})


def share_arrays(team: Any, arrays: list[Array]) -> list[Array]:
    """Rank 0's arrays on every rank, one copy for the ranks of a node if they share memory.  Collective: yes.

    The list is emptied on the way, so that rank 0's own copies can go.
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


# --- what a config asks of its data -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class TargetRules:
    """A config's rules for its data, above all for the targets.

    loss, name: the loss, which says what targets have to be, and its name.
    sequences: an array of three dimensions holds this many steps x features, which the first layer reads one after the
        other; 0: none.
    stream: the points are a piece of a stream.
    precision: of the numbers that are kept.
    in_file: rows that each rank reads for itself stay in their file, and are read again whenever they are used.
    output: the activation of the output layer.
    like: the scaling of inputs and of targets of the model that training starts from; None: it starts from none.
    classes: the labels that there may be, ascending; None: those that occur are all.
    columns: those of the tables before, of a stream that goes on, none of arrays; None: a table decides its own.
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
        """Raises UsageError, naming the first, where targets (n, L), as they are trained on, do not suit the loss."""
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
"""All numbers, but none that are missing."""


def target_rules_of(config: Config) -> TargetRules:
    """The rules of a config for its data; like, classes and columns are not its own."""
    model, stream, in_file = config.model, config.stochastic.stream, config.parallel.rows == "file"
    return TargetRules(loss_of(config), model.loss, model.sequence, stream, model.precision, in_file, model.output)
