"""Inputs and targets are scaled by what the training points hold; columns with long tails are compressed first.

A column has long tails where a number lies further than FAR robust deviations from the median.  Squares of such numbers
would decide alone over Grams, gradients and the length of a step.  What still lies further than FAR once it is
compressed, as of tails that grow exponentially, is compressed twice: no number of float64 lies beyond 7.5 then.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from macmpi.typing import Array

FAR = 20.0
"""Robust deviations from the median to the furthest number of a column without long tails: of a normal column 5."""

FARTHEST = 5.0
"""Scaled deviations from the mean of the furthest number of an input: of a normal column about 4."""

BEYOND = 2.0
"""Later inputs count as at most this many times FARTHEST: of a slip in one number, as 318 for 3.18, a net would make a
prediction beyond all targets."""

QUARTILES = 1.349
"""From the first to the third quartile of a normal column, in its standard deviations."""

SAMPLE = 2000
"""Rows, evenly spaced, that medians and quartiles are taken from."""

ROUNDING = 1e-12
"""A column that deviates from its mean by less than this share of its largest number is constant."""


SLIGHTLY = 0.1
"""The share of a column's scale by which the scaling of another piece of a stream may differ and still be near."""

NARROW = 1e-200
"""A column of a smaller robust deviation is not compressed: numbers divided by it might be too large for float64."""


@dataclass(frozen=True)
class Tails:
    """g(x) = h(x) = asinh((x - centre) / width) in the columns whose width is above 0, g(x) = x in the others.

    again: 1 in the columns where g(x) = asinh(h(x)), 0 in the others; None where there is no such column.  All (D,).
    """

    centre: Array
    width: Array
    again: Array | None = None

    @property
    def long(self) -> Array:
        """Tells which columns have long tails, (D,)."""
        return self.width > 0.0

    @property
    def twice(self) -> Array | None:
        """Tells which columns are compressed twice, (D,), if any is."""
        return None if self.again is None else self.again > 0.0

    def apply(self, X: Array) -> Array:
        width = np.where(self.long, self.width, 1.0)
        once = np.where(self.long, np.arcsinh((X - self.centre) / width), X)
        return once if self.twice is None else np.where(self.twice, np.arcsinh(once), once)

    def undo(self, X: Array) -> Array:
        """The inverse of `apply`; infinite where the number is too large for float64."""
        with np.errstate(over="ignore"):
            once = X if self.twice is None else np.where(self.twice, np.sinh(np.where(self.twice, X, 0.0)), X)
            return np.where(self.long, np.sinh(np.where(self.long, once, 0.0)) * self.width + self.centre, once)


@dataclass(frozen=True)
class Seen:
    """A running scaling remembers this of each column of a stream, after long tails are compressed; all are (D,).

    count: rows of all pieces so far, each as it weighs.
    deviation: the standard deviation of the numbers of these rows.
    low, high: the least and the largest number.
    """

    count: Array
    deviation: Array
    low: Array
    high: Array


TAILS, SEEN = tuple(Tails.__dataclass_fields__), tuple(Seen.__dataclass_fields__)


@dataclass(frozen=True)
class Scaling:
    """x -> (g(x) - shift) / scale, by column, for the `g` of tails (None: the identity).  shift, scale: (D,).

    limit: what is farther from 0 counts as this far.  seen: of a running scaling, which goes on from there.
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
        """The arrays by name, (D,), those of long tails, the limit and what it has seen where there are any."""
        held = {"shift": self.shift, "scale": self.scale}
        for part in (self.tails, self.seen):
            held |= {name: array for name, array in vars(part).items() if array is not None} if part else {}
        return held if self.limit == np.inf else held | {"limit": np.full(len(self.shift), self.limit)}

    @classmethod
    def of(cls, arrays: dict[str, Array]) -> Scaling:
        """The scaling of `arrays`."""
        tails = {name: arrays[name] for name in TAILS if name in arrays}
        seen = Seen(*(arrays[name] for name in SEEN)) if SEEN[0] in arrays else None
        limit = float(arrays["limit"].min()) if "limit" in arrays else np.inf
        return cls(arrays["shift"], arrays["scale"], Tails(**tails) if tails else None, limit, seen)

    def within(self, A: Array) -> Array:
        """g(x) no farther from the mean than the limit, but of columns that have been constant so far."""
        assert self.seen is not None
        bound = np.where(self.seen.deviation > 0.0, self.limit * self.scale, np.inf)
        return np.clip(A, self.shift - bound, self.shift + bound)

    def repeated(self, times: int) -> Scaling:
        """The scaling of rows that hold these columns a number of times, one after the other."""
        return Scaling.of({name: np.tile(array, times) for name, array in self.arrays.items()})

    def of_first(self, columns: int) -> Scaling:
        """The scaling of the first few columns.  columns: their number."""
        return Scaling.of({name: array[:columns] for name, array in self.arrays.items()})

    def is_near(self, other: Scaling) -> bool:
        """Tells whether no column's scale, and no shift in this scale, is another one by more than SLIGHTLY."""
        scales, shifts = self.scale / other.scale - 1.0, (self.shift - other.shift) / other.scale
        return bool(np.abs([scales, shifts]).max() <= SLIGHTLY)

    def compresses_as(self, other: Scaling) -> bool:
        """Tells whether both compress long tails in one way, or neither does."""
        ours, theirs = ([s.arrays[name].tolist() for name in TAILS if name in s.arrays] for s in (self, other))
        return ours == theirs


def sum_of(scalings: tuple[Scaling, Scaling]) -> str:
    """SHA-256 of the scaling of inputs and of targets."""
    digest = hashlib.sha256()
    for scaling in scalings:
        for name, array in scaling.arrays.items():
            digest.update(name.encode() + np.ascontiguousarray(array, float).tobytes())
    return digest.hexdigest()


def unscaled(columns: int) -> Scaling:
    """The identity of that many columns."""
    return Scaling(np.zeros(columns), np.ones(columns))


@dataclass(frozen=True)
class ScalingRule:
    """The rule by which the inputs or the targets of a data set are scaled.

    kind: "none"; "range": one shift and scale for all columns, to [0, 1]; "standard": mean 0, deviation 1 by column;
    "robust": that, once columns with long tails are compressed; "auto": "range" of images, else "robust".
    images: the rows are images; targets: of a regression, whose errors are measured in their own unit, so that nothing
    is compressed.  flags: columns that are nothing but 0 and 1 are moved to mean 0 and not rescaled, or a rare category
    would weigh more than any number.  features: of sequences, the columns of a step; each of them is scaled alike in
    all steps.  like: the scaling of the model that training starts from, whose long tails are compressed again.
    running: the rows are a piece of a stream, and those of the pieces before, `like.seen`, count with them; where that
    is None `like` stays.
    """

    kind: str
    images: bool = False
    targets: bool = False
    flags: bool = False
    features: int = 0
    like: Scaling | None = None
    running: bool = False

    def tails(self, sample: Array, low: Array, high: Array, flags: Array) -> Tails | None:
        """The long tails, as `tails_of` finds them or as the model has them that training starts from."""
        if self.settled != "robust":
            return None
        like = self.like and self.like.of_first(self.features or len(self.like.shift))
        return like.tails if like and len(like.shift) == len(low) else tails_of(sample, low, high, flags)

    @property
    def ranged(self) -> bool | None:
        """Tells whether the pieces before were scaled by "range", which asks for no deviation; None: nobody knows."""
        seen = self.like.seen if self.running and self.like else None
        return None if seen is None or not (seen.high > seen.low).any() else not seen.deviation.any()

    @property
    def settled(self) -> str:
        """The kind that "auto" stands for, and of targets "standard" for "robust"."""
        ranged = self.images if self.ranged is None else self.ranged
        kind = ("range" if ranged else "robust") if self.kind == "auto" else self.kind
        return "standard" if kind == "robust" and self.targets else kind


AS_IS = ScalingRule("none")

BOUNDED = {"sigmoid": "none", "softmax": "none", "tanh": "none", "relu": "range"}
"""The scaling of targets by "auto" under an activation of the output layer, which gives no others; of an autoencoder
"range", as targets are inputs."""


def spread_rows(n: int) -> Array:
    """At most SAMPLE evenly spaced row numbers of n."""
    count = min(SAMPLE, n)
    return np.arange(count) * n // count


def tails_of(sample: Array, low: Array, high: Array, flags: Array) -> Tails | None:
    """The columns with long tails, compressed round their median by their robust deviation; None where no column is.

    That is the distance of the quartiles divided by that of a normal column, or where it is 0 the standard deviation.
    Once compressed, a column has a median of 0 and, where its quartiles differ, a robust deviation of 0.8 to 1.
    sample: rows (n, D); low, high: the least and the largest number of each column (D,), over all training
    points.  flags: tells which columns have none, (D,).
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
    seen (D,): how many numbers of each column are there.
    sample (n, d): rows that are evenly spaced among all.
    mean: gives the mean over all rows, each as it weighs, of a function of rows (n, d) -> (n, d): (d,).  None stands
        for the rows themselves; a function costs a further pass over the data.
    mass (D,): the sum of the weights of the rows in which a column's number is there, 1 where it is in none.
    binary (D,): tells which columns are nothing but 0 and 1.
    d is D, but of sequences, whose steps are each a row, the number of columns of a step.
    """

    low: Array
    high: Array
    seen: Array
    sample: Array
    mean: Callable[[Callable[[Array], Array] | None], Array]
    mass: Array
    binary: Array

    def scaling(self, rule: ScalingRule) -> Scaling:
        """The scaling by a rule.  Ranges and quartiles are those of the rows, whatever these weigh.

        "standard" gives g(x) mean 0 and deviation 1, "robust" less where a number would lie farther than FARTHEST from
        0: of a column that is the same in all rows but a few these few would else decide over a step.  A constant
        column keeps its scale.  Of a piece of a stream numbers beyond the limit so far count as that far.
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
    """The scaling of sparse columns by a rule, of which none is compressed: most of their numbers are 0.

    low, high, mean, squares: the least and the largest number, the mean and the mean square of each column, (D,).
    """
    variance, ones = np.maximum(squares - mean**2, 0.0), np.ones(len(mean))

    def mean_of(function: Callable[[Array], Array] | None) -> Array:
        return mean if function is None else variance

    binary = (low >= 0.0) & (high <= 1.0) & (mean == squares)
    return ColumnStatistics(low, high, ones, mean[None], mean_of, ones, binary).scaling(replace(rule, like=None))
