"""Scales inputs and targets by statistics of the training points; columns with long tails are compressed first.

A column has long tails where a number is further than FAR robust deviations from the median.  The squares of such
numbers would dominate Grams, gradients and step lengths.  A column that has numbers beyond FAR even after the
compression, because its tails grow exponentially, is compressed twice; then no float64 is beyond 7.5.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from macmpi.typing import Array

FAR = 20.0
"""The furthest number of a column without long tails, in robust deviations from the median; 5 in a normal column."""

FARTHEST = 5.0
"""The furthest number of a scaled input, in deviations from the mean; about 4 in a normal column."""

BEYOND = 2.0
"""Later inputs are cut off at this multiple of FARTHEST.  Otherwise a slip in one number, such as 318 for 3.18, would
give a prediction beyond all targets."""

QUARTILES = 1.349
"""The distance of the first and the third quartile of a normal column, in its standard deviations."""

SAMPLE = 2000
"""The largest number of rows, evenly spaced, from which medians and quartiles are computed."""

ROUNDING = 1e-12
"""A column counts as constant where its deviation is at most this share of its largest number."""


SLIGHTLY = 0.1
"""Two scalings are near where they differ by at most this share of each column's scale."""

NARROW = 1e-200
"""A column with a smaller robust deviation is not compressed, because numbers divided by it might overflow."""


@dataclass(frozen=True)
class Tails:
    """g(x) = h(x) = asinh((x - centre) / width) in the columns with long tails, g(x) = x in the others.

    centre, width (D,): width is 0 in the columns without long tails.
    again (D,): 1 in the columns that are compressed twice, g(x) = asinh(h(x)), 0 in the others; None if there are none.
    """

    centre: Array
    width: Array
    again: Array | None = None

    @property
    def long(self) -> Array:
        """The columns with long tails: (D,) bool."""
        return self.width > 0.0

    @property
    def twice(self) -> Array | None:
        """The columns that are compressed twice: (D,) bool; None if there are none."""
        return None if self.again is None else self.again > 0.0

    def apply(self, X: Array) -> Array:
        width = np.where(self.long, self.width, 1.0)
        once = np.where(self.long, np.arcsinh((X - self.centre) / width), X)
        return once if self.twice is None else np.where(self.twice, np.arcsinh(once), once)

    def undo(self, X: Array) -> Array:
        """Computes the inverse of `apply`; it is infinite where the number is too large for float64."""
        with np.errstate(over="ignore"):
            once = X if self.twice is None else np.where(self.twice, np.sinh(np.where(self.twice, X, 0.0)), X)
            return np.where(self.long, np.sinh(np.where(self.long, once, 0.0)) * self.width + self.centre, once)


@dataclass(frozen=True)
class Seen:
    """The statistics of each column of a stream so far, by which the scaling of further pieces is adapted.

    They describe the numbers whose long tails are compressed.  All have the shape (D,).
    count: the number of rows, each times its weight.
    deviation: the standard deviation of the numbers.
    low, high: the least and the largest number.
    """

    count: Array
    deviation: Array
    low: Array
    high: Array


TAILS, SEEN = tuple(Tails.__dataclass_fields__), tuple(Seen.__dataclass_fields__)


@dataclass(frozen=True)
class Scaling:
    """x -> (g(x) - shift) / scale, by column, where g compresses long tails.

    shift, scale: (D,).
    tails: g; None for the identity.
    limit: scaled numbers are cut off at +-limit.
    seen: the statistics of a stream so far, for the scaling of its next piece; None for other data.
    """

    shift: Array
    scale: Array
    tails: Tails | None = None
    limit: float = np.inf
    seen: Seen | None = None

    def apply(self, X: Array) -> Array:
        scaled = (X if self.tails is None else self.tails.apply(X)) - self.shift
        scaled /= self.scale
        return scaled if self.limit == np.inf else np.clip(scaled, -self.limit, self.limit, out=scaled)

    def undo(self, X: Array) -> Array:
        linear = X * self.scale + self.shift
        return linear if self.tails is None else self.tails.undo(linear)

    @property
    def arrays(self) -> dict[str, Array]:
        """All arrays of the scaling, (D,) each, by name, as a file holds them; `of` makes the scaling of them again."""
        held = {"shift": self.shift, "scale": self.scale}
        for part in (self.tails, self.seen):
            held |= {name: array for name, array in vars(part).items() if array is not None} if part else {}
        return held if self.limit == np.inf else held | {"limit": np.full(len(self.shift), self.limit)}

    @classmethod
    def of(cls, arrays: dict[str, Array]) -> Scaling:
        """Makes a scaling again from its `arrays`."""
        tails = {name: arrays[name] for name in TAILS if name in arrays}
        seen = Seen(*(arrays[name] for name in SEEN)) if SEEN[0] in arrays else None
        limit = float(arrays["limit"].min()) if "limit" in arrays else np.inf
        return cls(arrays["shift"], arrays["scale"], Tails(**tails) if tails else None, limit, seen)

    def within(self, A: Array) -> Array:
        """Cuts off compressed numbers A at the limit of this scaling, except in columns that were constant so far."""
        assert self.seen is not None
        bound = np.where(self.seen.deviation > 0.0, self.limit * self.scale, np.inf)
        return np.clip(A, self.shift - bound, self.shift + bound)

    def repeated(self, times: int) -> Scaling:
        """Returns the scaling of rows in which these columns stand `times` times, one group after the other."""
        return Scaling.of({name: np.tile(array, times) for name, array in self.arrays.items()})

    def of_first(self, columns: int) -> Scaling:
        """Returns the scaling of the first columns alone.  columns: the number of columns."""
        return Scaling.of({name: array[:columns] for name, array in self.arrays.items()})

    def is_near(self, other: Scaling) -> bool:
        """Tells whether scale and shift of every column differ by at most the share SLIGHTLY of its scale."""
        scales, shifts = self.scale / other.scale - 1.0, (self.shift - other.shift) / other.scale
        return bool(np.abs([scales, shifts]).max() <= SLIGHTLY)

    def compresses_as(self, other: Scaling) -> bool:
        """Tells whether both scalings compress the same columns in the same way."""
        ours, theirs = ([s.arrays[name].tolist() for name in TAILS if name in s.arrays] for s in (self, other))
        return ours == theirs


def sum_of(scalings: tuple[Scaling, Scaling]) -> str:
    """Computes the SHA-256 of the scalings of inputs and of targets, as text."""
    digest = hashlib.sha256()
    for scaling in scalings:
        for name, array in scaling.arrays.items():
            digest.update(name.encode() + np.ascontiguousarray(array, float).tobytes())
    return digest.hexdigest()


def unscaled(columns: int) -> Scaling:
    """Returns the scaling that changes nothing.  columns: the number of columns."""
    return Scaling(np.zeros(columns), np.ones(columns))


@dataclass(frozen=True)
class ScalingRule:
    """The rule by which the inputs or the targets of a data set are scaled.

    kind: "none"; "range", one shift and scale for all columns, to [0, 1]; "standard", mean 0 and deviation 1 of each
        column; "robust", the same once columns with long tails are compressed; "auto", "range" for images and otherwise
        "robust".
    images: whether the rows are images.
    targets: whether they are targets of a regression; these are not compressed, because errors are in their own unit.
    flags: whether columns that hold only 0 and 1 are moved to mean 0 but not rescaled, since a rescaled rare category
        would outweigh numbers.
    features: for sequences, the number of columns of a step, each of which has the same scaling in all steps; otherwise
        0.
    like: the scaling of the model from which training starts; its compression of long tails is used again.
    running: whether the rows are a piece of a stream.  Then the scaling follows from their statistics together with
        those of earlier pieces, `like.seen`; if `like.seen` is None, `like` stays as it is.
    """

    kind: str
    images: bool = False
    targets: bool = False
    flags: bool = False
    features: int = 0
    like: Scaling | None = None
    running: bool = False

    def tails(self, sample: Array, low: Array, high: Array, flags: Array) -> Tails | None:
        """Returns the long tails of the model from which training starts, or else the tails that `tails_of` finds.

        sample, low, high, flags: as in `tails_of`.
        """
        if self.settled != "robust":
            return None
        like = self.like and self.like.of_first(self.features or len(self.like.shift))
        return like.tails if like and len(like.shift) == len(low) else tails_of(sample, low, high, flags)

    @property
    def ranged(self) -> bool | None:
        """True where earlier pieces of a stream were scaled by "range", which keeps no deviation; None if unknown."""
        seen = self.like.seen if self.running and self.like else None
        return None if seen is None or not (seen.high > seen.low).any() else not seen.deviation.any()

    @property
    def settled(self) -> str:
        """The kind without "auto"; for targets, "standard" in place of "robust"."""
        ranged = self.images if self.ranged is None else self.ranged
        kind = ("range" if ranged else "robust") if self.kind == "auto" else self.kind
        return "standard" if kind == "robust" and self.targets else kind


AS_IS = ScalingRule("none")

BOUNDED = {"sigmoid": "none", "softmax": "none", "tanh": "none", "relu": "range"}
"""The scaling of targets for "auto" where the activation of the output layer is bounded.  The inputs of an autoencoder,
which are its targets, are then scaled by "range"."""


def spread_rows(n: int) -> Array:
    """Returns at most SAMPLE evenly spaced numbers of n rows."""
    count = min(SAMPLE, n)
    return np.arange(count) * n // count


def tails_of(sample: Array, low: Array, high: Array, flags: Array) -> Tails | None:
    """Finds the columns with long tails, and how they are compressed; returns None if there are none.

    They are compressed around their median by their robust deviation, which is the distance of the quartiles divided by
    that of a normal column, or the standard deviation where the quartiles are equal.  A compressed column has median 0
    and, where its quartiles differ, a robust deviation of 0.8 to 1.
    sample (n, D): rows, from which medians and quartiles are computed.
    low, high (D,): the least and the largest number of each column over all training points.
    flags (D,), bool: columns that are not compressed.
    """
    first, centre, third = np.quantile(sample, [0.25, 0.5, 0.75], axis=0)
    width = (third - first) / QUARTILES
    width = np.where(width > 0.0, width, sample.std(axis=0))
    reach = np.maximum(high - centre, centre - low)
    varies = width > np.maximum(ROUNDING * np.maximum(np.abs(first), np.abs(third)), NARROW)
    long = varies & (reach > FAR * width) & ~flags
    if not long.any():
        return None
    again = long & (np.arcsinh(reach / np.where(long, width, 1.0)) > FAR)
    kept = np.where(long, centre, 0.0), np.where(long, width, 0.0)
    return Tails(*kept, again.astype(float) if again.any() else None)


@dataclass(frozen=True)
class ColumnStatistics:
    """The statistics of the training rows (N, D) by which their columns are scaled; numbers of targets may be missing.

    low, high (D,): the least and the largest number of each column.
    seen (D,): the number of values of each column that are not missing.
    sample (n, d): evenly spaced rows.
    mean: a function that computes the weighted mean (d,) over all rows of a function (n, d) -> (n, d) of them; None
        stands for the rows themselves.  Each function costs a further pass over the data.
    mass (D,): the total weight of the rows in which a column's value is not missing, 1 where there are none.
    binary (D,), bool: columns that hold only 0 and 1.
    d is D; for sequences, whose steps count as rows here, d is the number of columns of a step.
    """

    low: Array
    high: Array
    seen: Array
    sample: Array
    mean: Callable[[Callable[[Array], Array] | None], Array]
    mass: Array
    binary: Array

    def scaling(self, rule: ScalingRule) -> Scaling:
        """Computes the scaling by a rule.  Means are weighted, ranges and quartiles are not.

        "standard" scales g(x) to mean 0 and deviation 1.  "robust" makes the deviation smaller where a number would be
        farther than FARTHEST from 0, because the few rows of a column that differ from all others would dominate a
        step.  Constant columns keep their scale.  In a further piece of a stream, numbers beyond the limit so far are
        cut off there.
        """
        D, kind = len(self.low), rule.settled
        d = rule.features or D
        low, high = self.low.reshape(-1, d).min(axis=0), self.high.reshape(-1, d).max(axis=0)
        if kind == "none":
            return unscaled(D)
        like = rule.like if rule.running and rule.like and len(rule.like.shift) == D else None
        if like is not None and like.seen is None:
            return like
        like = like and like.of_first(d)
        count, before = (self.mass * (self.seen > 0)).reshape(-1, d).mean(axis=0), like and like.seen
        flags: Array = np.logical_and.reduce(self.binary.reshape(-1, d)) & rule.flags
        if like and before:  # no other column in [0, 1] has this scale
            flags &= (like.scale == 1.0) & np.isin([before.low, before.high], (0.0, 1.0)).all(axis=0)
        tails, farthest = rule.tails(self.sample, low, high, flags), FARTHEST if kind == "robust" else np.inf

        def g(A: Array) -> Array:
            found = A if tails is None else tails.apply(A)
            return found if like is None else like.within(found)

        low, high = g(low), g(high)
        if before:
            low, high = np.minimum(low, before.low), np.maximum(high, before.high)
        mean = variance = np.zeros(d)
        share = before.count / np.maximum(before.count + count, np.finfo(float).tiny) if before else 0.0
        if kind != "range":
            mean = self.mean(None if tails is None and like is None else g)
            if like:
                mean = mean + (like.shift - mean) * share
            variance = self.mean(lambda A: np.square(g(A) - mean))
            if like and before:
                rest = np.square(before.deviation) + np.square(like.shift - mean) - variance
                variance = variance + rest * share
        count, deviation = count + (before.count if before else 0.0), np.sqrt(variance)
        seen = Seen(count, deviation, low, high) if rule.running else None
        if kind == "range":
            shift, scale = np.full(d, low.min()), np.full(d, (high.max() - low.min()) or 1.0)
            return Scaling(shift, scale, seen=seen).repeated(D // d)
        constant = deviation <= ROUNDING * np.maximum(np.abs(low), np.abs(high))
        scale = np.maximum(deviation, np.maximum(high - mean, mean - low) / farthest)
        scale = np.where(constant | flags, 1.0, scale)
        return Scaling(mean, scale, tails, BEYOND * farthest, seen).repeated(D // d)


def sparse_scaling(rule: ScalingRule, low: Array, high: Array, mean: Array, squares: Array) -> Scaling:
    """Computes the scaling of sparse columns by a rule.  These are not compressed, because most of their numbers are 0.

    low, high, mean, squares (D,): the least and the largest number, the mean and the mean square of each column.
    """
    variance, ones = np.maximum(squares - mean**2, 0.0), np.ones(len(mean))

    def mean_of(function: Callable[[Array], Array] | None) -> Array:
        return mean if function is None else variance

    binary = (low >= 0.0) & (high <= 1.0) & (mean == squares)
    return ColumnStatistics(low, high, ones, mean[None], mean_of, ones, binary).scaling(replace(rule, like=None))
