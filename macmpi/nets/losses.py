"""Losses by point, and the quadratic forms that measure a constraint.

All values carry the paper's 1/2 and are sums over points; a record divides them by N.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np

from macmpi.nets.design import row_dots
from macmpi.nets.layers import Tangent
from macmpi.nets.layers.softmax import softmax
from macmpi.nets.tape import compose
from macmpi.typing import Array


class Root(Protocol):
    """A factor B of a loss's Gauss-Newton Hessian, B^T B, at one set of outputs.

    residual (n, L): q with B^T q = -gradient, so that near the outputs the loss is 1/2 ||q - B dF||^2 + constant.
    """

    @property
    def residual(self) -> Array: ...

    def after(self, tangent: Tangent) -> Tangent:
        """B J for a tangent J of the outputs."""
        ...

    def normal(self, dF: Array) -> Array:
        """B^T B dF, row by row."""
        ...

    def astype(self, dtype: np.dtype | type) -> Root:
        """Round the root to a precision, or return it as it is where it has that."""
        ...


class Loss(Protocol):
    """A loss of targets Y (n, L) and outputs F (n, L).

    by_output -- it is a sum over outputs; unit_hessian -- B is the identity; labels -- targets are classes, one-hot;
    stiffness -- about the largest eigenvalue of its Hessian.
    """

    by_output: ClassVar[bool]
    labels: ClassVar[bool]

    @property
    def unit_hessian(self) -> bool: ...

    @property
    def stiffness(self) -> float: ...

    def value(self, Y: Array, F: Array) -> Array:
        """(n,)."""
        ...

    def residual(self, Y: Array, F: Array) -> Array:
        """-gradient with respect to F: (n, L)."""
        ...

    def with_residual(self, Y: Array, F: Array) -> tuple[Array, Array]:
        """Value and residual, the same numbers in one pass."""
        ...

    def root(self, Y: Array, F: Array) -> Root: ...

    def congruence(self, F: Array, M: Array) -> Array:
        """Mean over rows of B M B^T, (L, L); may be M itself."""
        ...

    def hessian(self, F: Array) -> Array:
        """Mean over rows of B^T B, (L, L)."""
        ...


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
class SquaredRoot:
    """B = M^(1/2)."""

    residual: Array
    weight: Array
    squared_weight: Array

    def astype(self, dtype: np.dtype | type) -> SquaredRoot:
        if self.residual.dtype == dtype:
            return self
        return SquaredRoot(*(A.astype(dtype) for A in (self.residual, self.weight, self.squared_weight)))

    def normal(self, dF: Array) -> Array:
        return dF if self.squared_weight.ndim == 0 and self.squared_weight == 1.0 else times(dF, self.squared_weight)

    def after(self, tangent: Tangent) -> Tangent:
        if self.weight.ndim == 0 and self.weight == 1.0:
            return tangent

        def product(dF: Array) -> Array:
            return times(dF, self.weight)

        return compose([tangent, Tangent(product, product)])


@dataclass(frozen=True)
class Squared:
    """1/2 (y - f)^T M (y - f), M the identity unless a metric is given."""

    metric: Metric = field(default_factory=lambda: metric(1.0))
    by_output: ClassVar[bool] = True
    labels: ClassVar[bool] = False

    @property
    def unit_hessian(self) -> bool:
        return self.metric.M.ndim == 0 and bool(self.metric.M == 1.0)

    @property
    def stiffness(self) -> float:
        return float(np.abs(self.metric.M).max())

    def value(self, Y: Array, F: Array) -> Array:
        R = Y - F
        return 0.5 * (row_dots(R, R) if self.unit_hessian else self.metric.square(R))

    def residual(self, Y: Array, F: Array) -> Array:
        return Y - F if self.unit_hessian else times(Y - F, self.metric.M)

    def with_residual(self, Y: Array, F: Array) -> tuple[Array, Array]:
        return self.value(Y, F), self.residual(Y, F)

    def root(self, Y: Array, F: Array) -> Root:
        R = Y - F if self.unit_hessian else times(Y - F, self.metric.root)
        return SquaredRoot(R, self.metric.root, self.metric.M)

    def congruence(self, F: Array, M: Array) -> Array:
        if self.unit_hessian:
            return M
        R = dense(self.metric.root, len(M))
        return R @ M @ R

    def hessian(self, F: Array) -> Array:
        return dense(self.metric.M, F.shape[1])


def _largest(A: Array) -> tuple[Array, Array]:
    """Gives the index in A of each row's largest number."""
    return np.arange(len(A)), A.argmax(axis=1)


@dataclass(frozen=True)
class CrossEntropyRoot:
    """B = (I - s s^T) diag(s), with s = sqrt(p): B^T B = diag(p) - p p^T."""

    residual: Array
    s: Array

    def astype(self, dtype: np.dtype | type) -> CrossEntropyRoot:
        return self if self.s.dtype == dtype else CrossEntropyRoot(self.residual.astype(dtype), self.s.astype(dtype))

    def normal(self, dF: Array) -> Array:
        P = self.s * self.s
        dF = dF - dF[_largest(P)][:, None]  # what all outputs gain alike changes nothing
        return P * (dF - row_dots(P, dF)[:, None])

    def after(self, tangent: Tangent) -> Tangent:
        s = self.s

        def jvp(dF: Array) -> Array:
            U = s * dF
            return U - s * row_dots(s, U)[:, None]

        def vjp(V: Array) -> Array:
            return s * (V - s * row_dots(s, V)[:, None])

        return compose([tangent, Tangent(jvp, vjp)])


@dataclass(frozen=True)
class CrossEntropy:
    """-sum_l y_l log p_l with p = softmax(f), for one-hot targets y.  Gradient p - y, Hessian diag(p) - p p^T.

    The rest of 1, without the largest p, is added up, not subtracted: losses far below the rounding of 1 have digits.
    """

    by_output: ClassVar[bool] = False
    unit_hessian: ClassVar[bool] = False
    labels: ClassVar[bool] = True
    stiffness: ClassVar[float] = 1.0
    SMALLEST: ClassVar[float] = 1e-12
    """Probabilities in the Hessian's factor are kept above this, so that q = (y - p) / s stays finite."""

    def value(self, Y: Array, F: Array) -> Array:
        largest = _largest(F)
        shifted = F - F[largest][:, None]
        others = np.exp(shifted)
        others[largest] = 0.0
        return np.log1p(others.sum(axis=1)) - row_dots(Y, shifted)

    def residual(self, Y: Array, F: Array) -> Array:
        return self._residual(Y, softmax(F))

    def with_residual(self, Y: Array, F: Array) -> tuple[Array, Array]:
        largest = _largest(F)
        shifted = F - F[largest][:, None]
        P = np.exp(shifted)
        sums = P.sum(axis=1, keepdims=True)
        P[largest] = 0.0
        value = np.log1p(P.sum(axis=1)) - row_dots(Y, shifted)
        P[largest] = 1.0
        P /= sums
        return value, self._residual(Y, P)

    def _residual(self, Y: Array, P: Array) -> Array:
        R, own = Y - P, _largest(Y)
        R[own] = 0.0
        R[own] = -R.sum(axis=1)
        return R

    def _probabilities(self, F: Array) -> Array:
        P = np.maximum(softmax(F), self.SMALLEST)
        return P / P.sum(axis=1, keepdims=True)

    def root(self, Y: Array, F: Array) -> Root:
        s = np.sqrt(self._probabilities(F))
        return CrossEntropyRoot(self.residual(Y, F) / s, s)

    def congruence(self, F: Array, M: Array) -> Array:
        """Mean of S A S with A = diag(s) M diag(s) and S = I - s s^T."""
        s = np.sqrt(self._probabilities(F))
        T = s * ((s * s) @ M)
        q = row_dots(s * s, (s * s) @ M)
        cross = s.T @ T
        return ((s.T @ s) * M - cross - cross.T + s.T @ (s * q[:, None])) / len(s)

    def hessian(self, F: Array) -> Array:
        P = self._probabilities(F)
        largest, others = _largest(P), P.copy()
        others[largest] = 0.0
        rest = 1.0 - P
        rest[largest] = others.sum(axis=1)
        H: Array = P.T @ P / -len(P)
        H[np.diag_indices_from(H)] = (P * rest).mean(axis=0)
        return H


LOSSES: dict[str, Loss] = {"squared": Squared(), "cross_entropy": CrossEntropy()}
