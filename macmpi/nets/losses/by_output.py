"""Losses that are sums over outputs: value, slope and curvature of each output by itself; some outputs may be missing.

loss(y, f) = sum_l v(y_l, f_l), and B = diag(sqrt(c(y_l, f_l))) for curvatures c.  Robust ones grow as |y - f|, so that
a few targets far off decide little.  Their curvature is the majoriser slope / r of iteratively reweighted least
squares: the Hessian is 0 or nearly so where |r| is large, q = -slope / sqrt(0) would not exist, and a Gauss-Newton step
would be far too long; the loss lies below the majoriser's parabola, so that whatever lowers this lowers the loss.

Those of truth values and of counts are half deviances, whose outputs are the logarithms of odds and of means; inverse
links turn these into what the net predicts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from macmpi.nets.design import row_dots
from macmpi.nets.layers import Tangent
from macmpi.nets.layers.activation import function, softmax
from macmpi.nets.losses import Loss, Root
from macmpi.typing import Array

SMALLEST = 1e-12
"""Curvatures are kept above this, so that q = -slope / sqrt(curvature) stays finite."""

STAND_IN = 1.0
"""A missing target is taken for this number, which changes nothing: what comes of it is replaced by 0."""


@dataclass(frozen=True)
class DiagonalRoot(Root):
    """B = diag(s), s (n, L)."""

    residual: Array
    s: Array

    def times(self, dF: Array) -> Array:
        return self.s * dF

    def normal(self, dF: Array) -> Array:
        return self.s * self.s * dF


@dataclass(frozen=True)
class ByOutput(Loss):
    """sum_l v(y_l, f_l).  A subclass has `values`, `slopes` and `curvatures`, (n, L) each, and says what it declares.

    missing: NaN among the targets stands for none.  Fields of a subclass that are keys of [loss] are taken from there.
    """

    missing: bool = field(default=False, kw_only=True)
    by_output: ClassVar[bool] = True
    stiffness: ClassVar[float] = 1.0

    @property
    def unit_hessian(self) -> bool:
        return False

    def values(self, Y: Array, F: Array) -> Array:
        """v(y, f), at least 0."""
        raise NotImplementedError

    def slopes(self, Y: Array, F: Array) -> Array:
        """dv/df."""
        raise NotImplementedError

    def curvatures(self, Y: Array, F: Array) -> Array:
        """c(y, f) >= 0."""
        raise NotImplementedError

    def value(self, Y: Array, F: Array) -> Array:
        found: Array = self._where_seen(self.values, Y, F).sum(axis=1)
        return found

    def residual(self, Y: Array, F: Array) -> Array:
        return -self._where_seen(self.slopes, Y, F)

    def root(self, Y: Array, F: Array) -> Root:
        s = self._roots(Y, F)
        return DiagonalRoot(self.residual(Y, F) / np.where(s > 0.0, s, 1.0), s)

    def congruence(self, Y: Array, F: Array, M: Array) -> Array:
        s = self._roots(Y, F)
        return (s.T @ s) * (M / len(s))

    def hessian(self, Y: Array, F: Array) -> Array:
        return np.diag(np.square(self._roots(Y, F)).mean(axis=0))

    def _roots(self, Y: Array, F: Array) -> Array:
        return np.sqrt(self._where_seen(lambda Y, F: np.maximum(self.curvatures(Y, F), SMALLEST), Y, F))

    def _where_seen(self, of: Callable[[Array, Array], Array], Y: Array, F: Array) -> Array:
        """of(Y, F) where there are targets, 0 elsewhere."""
        if not self.missing:
            return of(Y, F)
        seen = ~np.isnan(Y)
        return np.where(seen, of(np.where(seen, Y, STAND_IN), F), 0.0)


# --- the squared error, of targets and of constraints -----------------------------------------------------------------


@dataclass(frozen=True)
class Metric:
    """A positive definite form c^T M c: M a number (), a diagonal (H,), or a symmetric matrix (H, H), as arrays.

    inverse = M^-1 and root = M^(1/2) are of the same kind.
    """

    M: Array
    inverse: Array
    root: Array

    def square(self, C: Array) -> Array:
        """c^T M c, row by row: (n,)."""
        return self.M * row_dots(C, C) if self.M.ndim == 0 else row_dots(times(C, self.M), C)


def metric(M: float | Array, dtype: np.dtype | type = np.float64) -> Metric:
    """The metric of M in `dtype`.  Cost for a matrix: an eigen-decomposition, about 9 H^3 flops."""
    form = np.asarray(M, dtype=np.float64)
    if form.ndim < 2:
        inverse, root = 1.0 / form, np.sqrt(form)
    else:
        values, vectors = np.linalg.eigh(form)
        inverse, root = (vectors / values) @ vectors.T, (vectors * np.sqrt(values)) @ vectors.T
    return Metric(*(np.asarray(A, dtype) for A in (form, inverse, root)))


def times(C: Array, M: Array, out: Array | None = None) -> Array:
    """M c for each row c of C (n, H), or of (n, L, H)."""
    return np.matmul(C, M, out=out) if M.ndim == 2 else np.multiply(C, M, out=out)


def dense(M: Array, size: int) -> Array:
    """M as a matrix (size, size), in float64."""
    return np.array(M, float) if M.ndim == 2 else np.diag(np.broadcast_to(M.astype(float), size))


@dataclass(frozen=True)
class SquaredRoot(Root):
    """B = M^(1/2)."""

    residual: Array
    weight: Array
    squared_weight: Array

    def times(self, dF: Array) -> Array:
        return times(dF, self.weight)

    def normal(self, dF: Array) -> Array:
        return dF if self.squared_weight.ndim == 0 and self.squared_weight == 1.0 else times(dF, self.squared_weight)

    def after(self, tangent: Tangent) -> Tangent:
        return tangent if self.weight.ndim == 0 and self.weight == 1.0 else super().after(tangent)


@dataclass(frozen=True)
class Squared(ByOutput):
    """1/2 (y - f)^T M (y - f), M the identity unless a metric is given.

    missing: of the identity alone, NaN among the targets stands for none.  `values`, `slopes` and `curvatures` are of
    each output under the identity.
    """

    metric: Metric = field(default_factory=lambda: metric(1.0))

    @property
    def unit_hessian(self) -> bool:
        return self._plain and not self.missing

    @property
    def _plain(self) -> bool:
        return self.metric.M.ndim == 0 and bool(self.metric.M == 1.0)

    @property
    def stiffness(self) -> float:  # type: ignore[override]
        return float(np.abs(self.metric.M).max())

    def values(self, Y: Array, F: Array) -> Array:
        return 0.5 * np.square(Y - F)

    def slopes(self, Y: Array, F: Array) -> Array:
        return F - Y

    def curvatures(self, Y: Array, F: Array) -> Array:
        return np.ones_like(F)

    def value(self, Y: Array, F: Array) -> Array:
        return self._value(self._off(Y, F))

    def _value(self, R: Array) -> Array:
        return 0.5 * (row_dots(R, R) if self._plain else self.metric.square(R))

    def residual(self, Y: Array, F: Array) -> Array:
        R = self._off(Y, F)
        return R if self._plain else times(R, self.metric.M)

    def with_residual(self, Y: Array, F: Array) -> tuple[Array, Array]:
        R = self._off(Y, F)
        return self._value(R), R if self._plain else times(R, self.metric.M)

    def root(self, Y: Array, F: Array) -> Root:
        if self.missing:
            return super().root(Y, F)
        R = self._off(Y, F)
        return SquaredRoot(R if self._plain else times(R, self.metric.root), self.metric.root, self.metric.M)

    def congruence(self, Y: Array, F: Array, M: Array) -> Array:
        if self.missing:
            return super().congruence(Y, F, M)
        if self._plain:
            return M
        R = dense(self.metric.root, len(M))
        return R @ M @ R

    def hessian(self, Y: Array, F: Array) -> Array:
        return super().hessian(Y, F) if self.missing else dense(self.metric.M, F.shape[1])

    def _off(self, Y: Array, F: Array) -> Array:
        """y - f, 0 where y is missing."""
        R = Y - F
        if self.missing:
            R[np.isnan(R)] = 0.0
        return R


# --- robust losses, truth values and counts ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Huber(ByOutput):
    """r^2 / 2 for |r| <= threshold, else threshold (|r| - threshold / 2), r = y - f.

    Curvature min(1, threshold / |r|).  threshold: in units of the scaled targets.
    """

    threshold: float = 1.0
    curvature: ClassVar[str] = "majoriser"

    def values(self, Y: Array, F: Array) -> Array:
        size = np.abs(Y - F)
        near = np.minimum(size, self.threshold)
        return near * (size - 0.5 * near)

    def slopes(self, Y: Array, F: Array) -> Array:
        return np.clip(F - Y, -self.threshold, self.threshold)

    def curvatures(self, Y: Array, F: Array) -> Array:
        return self.threshold / np.maximum(np.abs(Y - F), self.threshold)


@dataclass(frozen=True)
class Absolute(ByOutput):
    """sqrt(r^2 + smoothing^2) - smoothing, r = y - f: |r| but near 0.  Curvature 1 / sqrt(r^2 + smoothing^2).

    smoothing: in units of the scaled targets.
    """

    smoothing: float = 0.05
    curvature: ClassVar[str] = "majoriser"

    @property
    def stiffness(self) -> float:  # type: ignore[override]
        return 1.0 / self.smoothing

    def values(self, Y: Array, F: Array) -> Array:
        """r^2 / (sqrt(r^2 + smoothing^2) + smoothing), so that no digits cancel."""
        R = Y - F
        return R * R / (np.hypot(R, self.smoothing) + self.smoothing)

    def slopes(self, Y: Array, F: Array) -> Array:
        return (F - Y) / np.hypot(Y - F, self.smoothing)

    def curvatures(self, Y: Array, F: Array) -> Array:
        return 1.0 / np.hypot(Y - F, self.smoothing)


def _sigmoid(F: Array) -> Array:
    return function("sigmoid").value(F, np.empty_like(F))


def _exp(F: Array) -> Array:
    with np.errstate(over="ignore"):  # infinite where the number is too large
        return np.exp(F)


LINKS: dict[str, Callable[[Array], Array]] = {
    "identity": lambda F: F,
    "softmax": softmax,
    "sigmoid": _sigmoid,
    "exp": _exp,
}


@dataclass(frozen=True)
class Logistic(ByOutput):
    """log(1 + exp f) - y f for each output, y in [0, 1]: several labels a point, or shares.  p = 1 / (1 + exp(-f)).

    Slope p - y, curvature p (1 - p).
    """

    link: ClassVar[str] = "sigmoid"
    scaled: ClassVar[bool] = False
    targets: ClassVar[str] = "0 and 1, or shares between them"
    stiffness: ClassVar[float] = 0.25

    def admits(self, Y: Array) -> Array:
        return (Y >= 0.0) & (Y <= 1.0)

    def values(self, Y: Array, F: Array) -> Array:
        """max(f, 0) - y f + log(1 + exp(-|f|)), its first part as (1 - y) f or -y f, so that no digits cancel."""
        return np.where(F > 0.0, 1.0 - Y, -Y) * F + np.log1p(np.exp(-np.abs(F)))

    def slopes(self, Y: Array, F: Array) -> Array:
        """p - y as (1 - y) - (1 - p) where f > 0, so that what is left of 1 has digits."""
        small = LINKS["sigmoid"](-np.abs(F))
        return np.where(F > 0.0, (1.0 - Y) - small, small - Y)

    def curvatures(self, Y: Array, F: Array) -> Array:
        small = LINKS["sigmoid"](-np.abs(F))
        return small * (1.0 - small)


LARGEST = 30.0
"""Logarithms of means beyond this, 1e13, are no counts: exp goes on as its parabola there, and overflows nowhere."""


@dataclass(frozen=True)
class Poisson(ByOutput):
    """exp f - y f + y log y - y for each output, y >= 0: half the deviance of counts of mean exp f.

    The slope is exp f - y and the curvature max(exp f, y).  With exp f alone, the Hessian, a Newton step from far below
    log y would be exponentially too long; with the maximum no step is longer than 1.
    """

    link: ClassVar[str] = "exp"
    scaled: ClassVar[bool] = False
    targets: ClassVar[str] = "counts, numbers from 0 to 1e12"
    curvature: ClassVar[str] = "bound"
    stiffness: ClassVar[float] = float("inf")

    def admits(self, Y: Array) -> Array:
        return (Y >= 0.0) & (Y <= 1e12)

    def values(self, Y: Array, F: Array) -> Array:
        mean, beyond = _exp_within(F)
        whole = mean * (1.0 + beyond * (1.0 + 0.5 * beyond))
        return np.maximum(whole - Y - Y * (F - np.log(np.where(Y > 0.0, Y, 1.0))), 0.0)

    def slopes(self, Y: Array, F: Array) -> Array:
        mean, beyond = _exp_within(F)
        return mean * (1.0 + beyond) - Y

    def curvatures(self, Y: Array, F: Array) -> Array:
        return np.maximum(_exp_within(F)[0], Y)


def _exp_within(F: Array) -> tuple[Array, Array]:
    """exp of f, at most of LARGEST, and how far f is beyond that."""
    return np.exp(np.minimum(F, LARGEST)), np.maximum(F - LARGEST, 0.0)
