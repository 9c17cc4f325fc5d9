"""The squared error, of targets and of constraints, and the quadratic forms that measure it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from macmpi.nets.design import row_dots
from macmpi.nets.layers import Tangent
from macmpi.nets.losses import Root
from macmpi.nets.losses.by_output import ByOutput, DiagonalRoot
from macmpi.typing import Array


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
    """M c for each row c of C (n, H)."""
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
        R = self._off(Y, F)
        if self.missing:
            return DiagonalRoot(R, _seen(Y, F))
        return SquaredRoot(R if self._plain else times(R, self.metric.root), self.metric.root, self.metric.M)

    def congruence(self, Y: Array, F: Array, M: Array) -> Array:
        if self.missing:
            seen = _seen(Y, F)
            return (seen.T @ seen) * (M / len(seen))
        if self._plain:
            return M
        R = dense(self.metric.root, len(M))
        return R @ M @ R

    def hessian(self, Y: Array, F: Array) -> Array:
        return np.diag(_seen(Y, F).mean(axis=0)) if self.missing else dense(self.metric.M, F.shape[1])

    def _off(self, Y: Array, F: Array) -> Array:
        """y - f, 0 where y is missing."""
        R = Y - F
        if self.missing:
            R[np.isnan(R)] = 0.0
        return R


def _seen(Y: Array, F: Array) -> Array:
    """1 where there is a target, else 0, in the precision of the outputs."""
    return (~np.isnan(Y)).astype(F.dtype)
