"""Losses that are sums over outputs: loss(y, f) = sum_l v(y_l, f_l), where targets y_l may be missing.

Their factor is B = diag(sqrt(c(y_l, f_l))), for curvatures c.

Robust losses grow like |r|, r = y - f, so that a few outlying targets have little influence.  Their Hessian is 0 or
nearly so for large |r|; with it q = -slope / sqrt(0) would not exist, and Gauss-Newton steps would be far too long.
Therefore c is the majoriser |slope / r| of iteratively reweighted least squares: the loss is below its parabola, so
that a step which lowers the parabola lowers the loss.

The losses of truth values and of counts are half deviances.  Their outputs are logarithms of odds and of means, and
their links turn these into predictions.
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
"""The smallest curvature that is used, so that q = -slope / sqrt(curvature) is finite."""

STAND_IN = 1.0
"""The number that is computed with in place of a missing target, before the result is replaced by 0."""


@dataclass(frozen=True)
class DiagonalRoot(Root):
    """The factor B = diag(s) of the curvature at each point, with s (n, L)."""

    residual: Array
    s: Array

    def times(self, dF: Array) -> Array:
        return self.s * dF

    def normal(self, dF: Array) -> Array:
        return self.s * self.s * dF


@dataclass(frozen=True)
class ByOutput(Loss):
    """sum_l v(y_l, f_l).  A subclass defines `values`, `slopes` and `curvatures`, (n, L) each, and its declarations.

    missing: whether NaN among the targets stands for a missing one.
    Fields of a subclass with the name of a key of [loss] get the value of that key.
    """

    missing: bool = field(default=False, kw_only=True)
    by_output: ClassVar[bool] = True
    stiffness: ClassVar[float] = 1.0

    @property
    def unit_hessian(self) -> bool:
        return False

    def values(self, Y: Array, F: Array) -> Array:
        """Computes v(y, f) >= 0 for each output."""
        raise NotImplementedError

    def slopes(self, Y: Array, F: Array) -> Array:
        """Computes the slope dv/df for each output."""
        raise NotImplementedError

    def curvatures(self, Y: Array, F: Array) -> Array:
        """Computes the curvature c(y, f) >= 0 for each output."""
        raise NotImplementedError

    def value(self, Y: Array, F: Array) -> Array:
        return self._where_seen(self.values, Y, F).sum(axis=1)

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
        """Computes of(Y, F), (n, L), and replaces it by 0 where a target is missing."""
        if not self.missing:
            return of(Y, F)
        seen = ~np.isnan(Y)
        return np.where(seen, of(np.where(seen, Y, STAND_IN), F), 0.0)


# --- the squared error, of targets and of constraints -----------------------------------------------------------------


@dataclass(frozen=True)
class Metric:
    """A positive definite form c^T M c.

    M: an array, a number (), a diagonal (H,), or a symmetric matrix (H, H).
    inverse, root: M^-1 and M^(1/2), of the same shape.
    """

    M: Array
    inverse: Array
    root: Array

    def square(self, C: Array) -> Array:
        """Computes c^T M c for each row c of C: (n,)."""
        return self.M * row_dots(C, C) if self.M.ndim == 0 else row_dots(times(C, self.M), C)


def metric(M: float | Array, dtype: np.dtype | type = np.float64) -> Metric:
    """Makes the metric of M, with arrays of `dtype`.  Cost for a matrix: about 9 H^3 flops (eigenvectors)."""
    form = np.asarray(M, dtype=np.float64)
    if form.ndim < 2:
        inverse, root = 1.0 / form, np.sqrt(form)
    else:
        values, vectors = np.linalg.eigh(form)
        inverse, root = (vectors / values) @ vectors.T, (vectors * np.sqrt(values)) @ vectors.T
    return Metric(*(np.asarray(A, dtype) for A in (form, inverse, root)))


def times(C: Array, M: Array, out: Array | None = None) -> Array:
    """M c for each row c of C (n, H) or (n, L, H), where M is a number (), a diagonal (H,) or a matrix (H, H)."""
    return np.matmul(C, M, out=out) if M.ndim == 2 else np.multiply(C, M, out=out)


def dense(M: Array, size: int) -> Array:
    """Returns M, a number (), a diagonal (size,) or a matrix, as a matrix (size, size) in float64."""
    return np.array(M, float) if M.ndim == 2 else np.diag(np.broadcast_to(M.astype(float), size))


@dataclass(frozen=True)
class SquaredRoot(Root):
    """The factor B = M^(1/2) of the curvature at each point; weight is M^(1/2), squared_weight is M."""

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
    """1/2 (y - f)^T M (y - f), where M is the identity unless a metric is given.

    missing: whether NaN among the targets stands for a missing one; only with the identity.
    `values`, `slopes` and `curvatures` are those of the identity.
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
        """Computes y - f, which is 0 where y is missing."""
        R = Y - F
        if self.missing:
            R[np.isnan(R)] = 0.0
        return R


# --- robust losses, truth values and counts ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Huber(ByOutput):
    """r^2 / 2 for |r| <= threshold, otherwise threshold (|r| - threshold / 2), where r = y - f.

    The curvature is min(1, threshold / |r|).  The unit of threshold is that of the scaled targets.
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
    """sqrt(r^2 + smoothing^2) - smoothing, where r = y - f, which is about |r| for large r.

    The curvature is 1 / sqrt(r^2 + smoothing^2).  The unit of smoothing is that of the scaled targets.
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
    """log(1 + exp f) - y f for each output, where y in [0, 1]: several labels of a point, or shares.

    The slope is p - y and the curvature p (1 - p), with p = 1 / (1 + exp(-f)).
    """

    link: ClassVar[str] = "sigmoid"
    scaled: ClassVar[bool] = False
    targets: ClassVar[str] = "0 and 1, or shares between them"
    stiffness: ClassVar[float] = 0.25

    def admits(self, Y: Array) -> Array:
        return (Y >= 0.0) & (Y <= 1.0)

    def values(self, Y: Array, F: Array) -> Array:
        """max(f, 0) - y f + log(1 + exp(-|f|)), with max(f, 0) - y f as (1 - y) f or -y f, so that no digits cancel."""
        return np.where(F > 0.0, 1.0 - Y, -Y) * F + np.log1p(np.exp(-np.abs(F)))

    def slopes(self, Y: Array, F: Array) -> Array:
        """p - y, computed as (1 - y) - (1 - p) where f > 0, so that small 1 - p keep their digits."""
        small = LINKS["sigmoid"](-np.abs(F))
        return np.where(F > 0.0, (1.0 - Y) - small, small - Y)

    def curvatures(self, Y: Array, F: Array) -> Array:
        small = LINKS["sigmoid"](-np.abs(F))
        return small * (1.0 - small)


LARGEST = 30.0
"""Beyond this output, a mean of 1e13, exp is continued by its parabola, so that it does not overflow."""


@dataclass(frozen=True)
class Poisson(ByOutput):
    """exp f - y f + y log y - y for each output, y >= 0: half the deviance of counts with mean exp f.

    The slope is exp f - y, and the curvature max(exp f, y).  With the Hessian exp f alone, a Newton step from far below
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
    """Computes exp(min(f, LARGEST)), and max(f - LARGEST, 0)."""
    return np.exp(np.minimum(F, LARGEST)), np.maximum(F - LARGEST, 0.0)
