"""A net's scores have names that people know, and its errors are compared with those of simple predictions.

The scores are RMSE, MAE and R^2, or accuracy, log loss and a confusion matrix.  They follow from sums over points,
which ranks can add: `sums_of` computes those of some points, `scores_of` the scores.  Levels are the errors of the best
constant and, for an autoencoder, of principal components.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from macmpi import listed, many
from macmpi.console import decimals
from macmpi.data.dataset import Dataset
from macmpi.nets.chain import Chain
from macmpi.nets.design import at, gram, total_of
from macmpi.nets.losses import LOSSES, Loss, weighted
from macmpi.nets.losses.constant import best_constant, constant_error
from macmpi.reductions import OverPoints, sum_over
from macmpi.typing import Array

MOST_CLASSES = 100
"""The most classes for which a confusion matrix is counted."""

SHOWN_CLASSES, SHOWN_OUTPUTS = 6, 8
"""The most classes whose confusion matrix the console shows, and the most outputs with a line for each."""

WORST = 3
"""This number of pairs of classes is named as most often confused if the matrix is not shown."""

AT_ONCE = 4096
"""Points whose sums are taken at a time, since a large data set may not fit in memory in double precision."""

EPS = float(np.finfo(float).eps)
"""A mean of n numbers is rounded by up to n times this share of it; targets no further from their mean are constant."""

PCA_LIMIT = 2048
"""The most columns for which principal components are computed."""

UNKNOWN = "no target is known"


@dataclass(frozen=True)
class Numbers:
    """Holds scores of numbers as outputs, in the data's units.

    rmse, mae, r2 (L,): by output; R^2 is NaN for constant targets, and all three are NaN without known targets.
    total: R^2 over all outputs, 1 - sum of squared errors / sum of squared deviations from the mean, in scaled units.
    """

    rmse: Array
    mae: Array
    r2: Array
    total: float

    def lines(self) -> list[str]:
        """Writes a line of scores, and one for each output if these are few; names outputs without known targets."""
        L, unknown = len(self.rmse), np.flatnonzero(np.isnan(self.rmse)) + 1
        if L == 1:
            return [_numbers(self.rmse[0], self.mae[0], self.r2[0])]
        found = [f"{_r2(self.total)} of {L:,} outputs together"]
        if L <= SHOWN_OUTPUTS:
            rows = zip(self.rmse, self.mae, self.r2, strict=True)
            found += [f"output {i}: {_numbers(*row)}" for i, row in enumerate(rows, start=1)]
        elif len(unknown):
            found.append(f"{UNKNOWN} of {many(len(unknown), 'output')}: {listed(unknown.astype(str).tolist())}")
        return found


@dataclass(frozen=True)
class Labels:
    """Holds scores of classes.

    counts, right (C,): the number of points of each class, and how many of them the net classifies correctly.
    log_loss: the mean of -log p of the true class.
    confusion (C, C): a row for each true class; None if there are too many classes.
    """

    classes: Array
    counts: Array
    right: Array
    log_loss: float
    confusion: Array | None

    @property
    def accuracy(self) -> float:
        return float(self.right.sum() / self.counts.sum())

    @property
    def balanced(self) -> float:
        """The mean, over the classes that occur, of the share of points that are classified correctly."""
        seen = self.counts > 0
        return float(np.mean(self.right[seen] / self.counts[seen]))

    def lines(self) -> list[str]:
        """Writes a line of scores, and the confusion matrix of a few classes, or the pairs that are confused most."""
        found = [f"accuracy {self.accuracy:.2%}   balanced {self.balanced:.2%}   log loss {self.log_loss:.4f}"]
        if self.confusion is None:
            return found
        if len(self.classes) > SHOWN_CLASSES:
            return [*found, *([", ".join(self._worst())] if self.accuracy < 1.0 else [])]
        names = [str(c) for c in self.classes.tolist()]
        width = max(len(text) for text in (*names, str(int(self.confusion.max()))))
        corner = "true \\ named"
        first = max(len(text) for text in (corner, *names))
        found.append(f"{corner.rjust(first)}  {'  '.join(name.rjust(width) for name in names)}")
        for name, row in zip(names, np.rint(self.confusion).astype(int).tolist(), strict=True):
            found.append(f"{name.rjust(first)}  {'  '.join(str(n).rjust(width) for n in row)}")
        return found

    def _worst(self) -> list[str]:
        assert self.confusion is not None
        wrong = self.confusion * (1 - np.eye(len(self.classes)))
        order = np.argsort(-wrong, axis=None, kind="stable")[:WORST]
        return [
            f"{self.classes[a]} named {self.classes[b]}: {round(wrong[a, b])} of {round(self.counts[a])}"
            for a, b in zip(*np.unravel_index(order, wrong.shape), strict=True)
            if wrong[a, b]
        ]


def _numbers(rmse: float, mae: float, r2: float) -> str:
    return UNKNOWN if np.isnan(rmse) else f"RMSE {rmse:.5g}   MAE {mae:.5g}   {_r2(r2)}"


def _r2(value: float) -> str:
    return "R^2 undefined" if np.isnan(value) else f"R^2 {value:.4f}"


def numbers_sums(Y: Array, F: Array, weights: Array | None = None) -> Array:
    """Sums e^2, |e|, y, y^2 and 1 with e = f - y over points, by output: (5 L,).

    Y, F: (n, L), scaled.  A missing target, NaN, adds to no sum.  Y may be [Y, V], (n, 2 L); the weight of each target
        is then the weight of its point times its own V.
    weights: the weights of the points, (n,).
    """
    Y, V = Y[:, : F.shape[1]].astype(np.float64, copy=False), Y[:, F.shape[1] :]
    E, seen = np.asarray(F - Y, np.float64), ~np.isnan(Y)
    if not seen.all():
        Y, E = np.where(seen, Y, 0.0), np.where(seen, E, 0.0)
    every: list[Array] = [np.square(E), np.abs(E), Y, np.square(Y), seen]
    if V.size:
        every = [V * array for array in every]
    return np.concatenate([array.sum(axis=0) if weights is None else weights @ array for array in every])


def numbers_of(sums: Array, scale: Array) -> Numbers:
    """Computes scores of numbers from `numbers_sums`.  scale (L,): the data's units for one scaled unit."""
    squares, sizes, total, spread, n = sums.reshape(5, -1)
    known, n = n > 0.0, np.where(n > 0.0, n, 1.0)
    deviations = np.maximum(spread - np.square(total) / n, 0.0)
    varied = deviations > n * np.finfo(float).eps * spread
    r2 = np.where(varied, 1.0 - squares / np.where(varied, deviations, 1.0), np.nan)
    whole = deviations[varied].sum()
    together = float(1.0 - squares.sum() / whole) if varied.any() else float("nan")
    rmse, mae = (np.where(known, scale * found, np.nan) for found in (np.sqrt(squares / n), sizes / n))
    return Numbers(rmse, mae, r2, together)


def label_sums(Y: Array, F: Array, weights: Array | None = None) -> Array:
    """Sums log loss, each class's points and correct points, and the confusion matrix over points: (1 + 2 C + C^2,).

    With more than MOST_CLASSES classes there is no confusion matrix.

    Y (n, C): one-hot.
    F (n, C): the outputs before the softmax.
    weights (n,): the weights of the points.
    """
    C = Y.shape[1]
    true, named = Y.argmax(axis=1), F.argmax(axis=1)
    hits = true == named
    counts = np.bincount(true, weights, minlength=C)
    right = np.bincount(true[hits], at(weights, hits), minlength=C)
    loss = float(weighted(LOSSES["cross_entropy"], weights).value(Y, F).sum(dtype=float))
    pairs = np.bincount(true * C + named, weights, minlength=C * C) if C <= MOST_CLASSES else np.empty(0)
    return np.concatenate([[loss], counts, right, pairs])


def labels_of(sums: Array, classes: Array) -> Labels:
    """Computes scores of labels from `label_sums`.  classes (C,): their names."""
    C = len(classes)
    pairs = sums[1 + 2 * C :]
    confusion = pairs.reshape(C, C) if len(pairs) else None
    n = float(sums[1 : 1 + C].sum())
    return Labels(classes, sums[1 : 1 + C], sums[1 + C : 1 + 2 * C], float(sums[0]) / n, confusion)


def sums_of(Y: Array, F: Array, labels: bool, weights: Array | None = None) -> Array:
    """Computes the sums from which `scores_of` makes scores: `label_sums` or `numbers_sums`.

    Y, F: (n, L); Y may be [Y, V], (n, 2 L).
    labels: whether Y has labels.
    weights (n,): the weights of the points.
    """
    return (label_sums if labels else numbers_sums)(Y, F, weights)


def scores_of(sums: Array, scale: Array, classes: Array | None) -> Numbers | Labels:
    """Computes scores from `sums_of`.

    scale (L,): the data's units for one scaled unit.
    classes (C,): the classes of labels; None: the outputs are numbers.
    """
    return numbers_of(sums, scale) if classes is None else labels_of(sums, classes)


# --- errors to compare with -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Level:
    """Holds E1 per training point of a simple prediction, or the share of misclassified points."""

    name: str
    value: float
    share: bool = False

    def __str__(self) -> str:
        value = f"wrong train {self.value:6.2%}" if self.share else f"E1 train {decimals(self.value):>9}"
        return f"{self.name:28s} {value}"


def all_at_hand(n: int) -> OverPoints:
    """Makes sums over n points that one process holds.  Collective: no."""
    return sum_over([slice(start, start + AT_ONCE) for start in range(0, n, AT_ONCE)])


def levels(chain: Chain, data: Dataset, loss: Loss, over: OverPoints | None = None, n: float = 0) -> list[Level]:
    """Computes the errors of the best constant and, for an autoencoder with squared errors, of PCA.

    PCA has as many components as the code has units, or bits.

    over: sums over all points, if `data` holds only some of them.
    n: the number of all points, or the sum of their weights.
    Cost: n L^2 flops for PCA.  Collective: if `over` is.
    """
    Y, w, over = data.Y, data.weights, over or all_at_hand(len(data.Y))
    n = n or (len(Y) if w is None else float(w.sum()))
    if not (loss.labels or loss.unit_hessian):
        error = constant_error(loss, Y, best_constant(loss, Y, over, n, w), over, n, w)
        return [Level("predict the best constant", error)]
    (total,) = over(lambda rows: (total_of(Y[rows], at(w, rows)),))
    mean = total / n
    if loss.labels:
        return [
            Level("predict the shares", 0.0 - float(np.sum(mean * np.log(np.maximum(mean, 1e-300))))),
            Level("predict the largest class", float(1.0 - mean.max()), share=True),
        ]
    (squares,) = over(lambda rows: (total_of(np.square(Y[rows] - mean), at(w, rows)),))
    spread_out = float(squares.sum()) > n * ((n if w is None else len(Y)) * EPS) ** 2 * float(np.square(mean).sum())
    found = [Level("predict the mean", 0.5 * float(squares.sum()) / n if spread_out else 0.0)]
    if data.autoencoder and len(mean) <= PCA_LIMIT:
        code = min([*chain.layer_sizes[1:-1], *(code.n_bits for code in chain.codes), len(mean)])
        (spread,) = over(lambda rows: (gram(Y[rows] - mean, False, at(w, rows)),))
        values = np.linalg.eigvalsh(spread)
        lost = max(float(values[: len(values) - code].sum()), 0.0)
        found.append(Level(f"PCA with {code} component{'s' if code > 1 else ''}", 0.5 * lost / n))
    return found
