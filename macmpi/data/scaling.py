"""Inputs and targets are scaled by what the training points hold; columns with long tails are compressed first.

A column has long tails where a number lies further than FAR robust deviations from the median.  Squares of such numbers
would decide alone over Grams, gradients and the length of a step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from macmpi.typing import Array

FAR = 20.0
"""Robust deviations from the median to the furthest number of a column without long tails: of a normal column 5."""

QUARTILES = 1.349
"""From the first to the third quartile of a normal column, in its standard deviations."""

SAMPLE = 2000
"""Rows, evenly spaced, that medians and quartiles are taken from."""

ROUNDING = 1e-12
"""A column that deviates from its mean by less than this share of its largest number is constant."""


@dataclass(frozen=True)
class Tails:
    """g(x) = asinh((x - centre) / width) in the columns whose width is above 0, g(x) = x in the others.  All (D,)."""

    centre: Array
    width: Array

    @property
    def long(self) -> Array:
        """Tells which columns have long tails, (D,)."""
        return self.width > 0.0

    def apply(self, X: Array) -> Array:
        width = np.where(self.long, self.width, 1.0)
        return np.where(self.long, np.arcsinh((X - self.centre) / width), X)

    def undo(self, X: Array) -> Array:
        """The inverse of `apply`; infinite where the number is too large for float64."""
        with np.errstate(over="ignore"):
            return np.where(self.long, np.sinh(np.where(self.long, X, 0.0)) * self.width + self.centre, X)


@dataclass(frozen=True)
class Scaling:
    """x -> (g(x) - shift) / scale, by column, for the `g` of tails (None: the identity).  shift, scale: (D,)."""

    shift: Array
    scale: Array
    tails: Tails | None = None

    def apply(self, X: Array) -> Array:
        return (compressed(X, self.tails) - self.shift) / self.scale

    def undo(self, X: Array) -> Array:
        linear = X * self.scale + self.shift
        return linear if self.tails is None else self.tails.undo(linear)

    @property
    def arrays(self) -> dict[str, Array]:
        """Its arrays by name, those of long tails where there are any."""
        found = {"shift": self.shift, "scale": self.scale}
        return found if self.tails is None else found | {"centre": self.tails.centre, "width": self.tails.width}

    def compresses_as(self, other: Scaling) -> bool:
        """Tells whether both compress long tails in one way, or neither does."""
        if self.tails is None or other.tails is None:
            return self.tails is other.tails
        return all(np.array_equal(self.arrays[name], other.arrays[name]) for name in ("centre", "width"))


def compressed(X: Array, tails: Tails | None) -> Array:
    """g(X), (N, D)."""
    return X if tails is None else tails.apply(X)


def unscaled(columns: int) -> Scaling:
    """The identity."""
    return Scaling(np.zeros(columns), np.ones(columns))


@dataclass(frozen=True)
class ScalingRule:
    """The rule by which the inputs or the targets of a data set are scaled.

    kind: "none"; "range": one shift and scale for all columns, to [0, 1]; "standard": mean 0, deviation 1 by column;
    "robust": that, once columns with long tails are compressed; "auto": "range" or "robust" (see `settled`).
    images: the rows are images; whole: they hold whole numbers; targets: of a regression, whose errors are measured in
    their own unit, so that nothing is compressed.  flags: the columns of a table that stand for categories and truth
    values, none or (D,): "auto" moves them to mean 0 and leaves 0 and 1 a unit apart, or a rare category would weigh
    more than any number.
    """

    kind: str
    images: bool = False
    whole: bool = False
    targets: bool = False
    flags: tuple[bool, ...] = ()

    def settled(self, low: Array, high: Array) -> str:
        """The kind that "auto" stands for; low, high: the least and the largest number of each column (D,).

        "range" for images, and for whole numbers in one unit: several columns, of which at least half of those that
        vary span half of all there is.
        """
        kind = self.kind
        if kind == "auto":
            spans = (high - low)[high > low]
            one_unit = self.whole and len(spans) > 1 and np.mean(spans >= 0.5 * (high.max() - low.min())) >= 0.5
            kind = "range" if self.images or one_unit else "robust"
        return "standard" if kind == "robust" and self.targets else kind


AS_IS = ScalingRule("none")


def spread_rows(n: int) -> Array:
    """At most SAMPLE evenly spaced row numbers of n."""
    count = min(SAMPLE, n)
    return np.arange(count) * n // count


def tails_of(sample: Array, low: Array, high: Array) -> Tails | None:
    """The columns with long tails, compressed round their median by their robust deviation; None where no column is.

    That is the distance of the quartiles divided by that of a normal column, or where it is 0 the standard deviation.
    sample: rows (n, D); low, high: as in `ScalingRule.settled`, over all training points.
    """
    first, centre, third = np.quantile(sample, [0.25, 0.5, 0.75], axis=0)
    width = (third - first) / QUARTILES
    width = np.where(width > 0.0, width, sample.std(axis=0))
    reach = np.maximum(high - centre, centre - low)
    long = (width > ROUNDING * np.maximum(np.abs(low), np.abs(high))) & (reach > FAR * width)
    return Tails(np.where(long, centre, 0.0), np.where(long, width, 0.0)) if long.any() else None


def range_of(low: Array, high: Array) -> Scaling:
    """One shift and one scale for all columns, to [0, 1]."""
    D = len(low)
    span = (high.max() - low.min()) or 1.0
    return Scaling(np.full(D, low.min()), np.full(D, span))


def standard(mean: Array, deviation: Array, largest: Array, tails: Tails | None) -> Scaling:
    """Mean 0 and deviation 1 of g(x); a constant column keeps its scale.

    mean, deviation: of g(x); largest: the size of the largest g(x).  All (D,).
    """
    return Scaling(mean, np.where(deviation <= ROUNDING * largest, 1.0, deviation), tails)


def fit_scaling(X: Array, rule: ScalingRule | str) -> Scaling:
    """The scaling of training rows X (N, D)."""
    rule = ScalingRule(rule) if isinstance(rule, str) else rule
    if rule.kind == "none":
        return unscaled(X.shape[1])
    low, high = X.min(axis=0), X.max(axis=0)
    kind = rule.settled(low, high)
    if kind == "range":
        return range_of(low, high)
    flags = np.array(rule.flags or [False] * X.shape[1])
    tails = tails_of(X[spread_rows(len(X))], low, high) if kind == "robust" else None
    if tails is not None and (tails.long & ~flags).any():
        tails = Tails(np.where(flags, 0.0, tails.centre), np.where(flags, 0.0, tails.width))
    elif flags.any():
        tails = None
    G = compressed(X, tails)
    found = standard(G.mean(axis=0), G.std(axis=0), np.abs(G).max(axis=0), tails)
    return replace(found, scale=np.where(flags, 1.0, found.scale))
