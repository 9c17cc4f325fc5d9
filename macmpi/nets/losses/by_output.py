"""Losses that are sums over outputs: value, slope and curvature of each output by itself; some outputs may be missing.

loss(y, f) = sum_l v(y_l, f_l), and B = diag(sqrt(c(y_l, f_l))) for curvatures c.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from macmpi.nets.layers import Tangent
from macmpi.nets.losses import EveryNumber, Root
from macmpi.nets.tape import compose
from macmpi.typing import Array

SMALLEST = 1e-12
"""Curvatures are kept above this, so that q = -slope / sqrt(curvature) stays finite."""

STAND_IN = 1.0
"""A missing target is taken for this number, which changes nothing: what comes of it is replaced by 0."""


@dataclass(frozen=True)
class DiagonalRoot:
    """B = diag(s), s (n, L)."""

    residual: Array
    s: Array

    def astype(self, dtype: np.dtype | type) -> DiagonalRoot:
        return self if self.s.dtype == dtype else DiagonalRoot(self.residual.astype(dtype), self.s.astype(dtype))

    def normal(self, dF: Array) -> Array:
        return self.s * self.s * dF

    def after(self, tangent: Tangent) -> Tangent:
        def product(dF: Array) -> Array:
            return self.s * dF

        return compose([tangent, Tangent(product, product)])


@dataclass(frozen=True)
class ByOutput(EveryNumber):
    """sum_l v(y_l, f_l).  A subclass has `values`, `slopes` and `curvatures`, (n, L) each, and says what it declares.

    missing: NaN among the targets stands for none.  Fields of a subclass that are keys of [loss] are taken from there.
    """

    missing: bool = field(default=False, kw_only=True)
    by_output: ClassVar[bool] = True
    labels: ClassVar[bool] = False
    curvature: ClassVar[str] = "hessian"
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

    def with_residual(self, Y: Array, F: Array) -> tuple[Array, Array]:
        return self.value(Y, F), self.residual(Y, F)

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
