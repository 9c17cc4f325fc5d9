"""Cross-entropy, the loss of labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from macmpi.nets.design import row_dots
from macmpi.nets.layers.activation import softmax
from macmpi.nets.losses import Loss, Root
from macmpi.typing import Array


def _largest(A: Array) -> Array:
    """Returns the flat index in A of the largest number of each row."""
    return np.arange(0, A.size, A.shape[1]) + A.argmax(axis=1)


@dataclass(frozen=True)
class CrossEntropyRoot(Root):
    """The factor B = (I - s s^T) diag(s) with s = sqrt(p), so that the curvature is B^T B = diag(p) - p p^T."""

    residual: Array
    s: Array

    def normal(self, dF: Array) -> Array:
        P = self.s * self.s
        dF = dF - dF.take(_largest(P))[:, None]  # an equal change of all outputs has no effect
        return P * (dF - row_dots(P, dF)[:, None])

    def times(self, dF: Array) -> Array:
        U = self.s * dF
        return U - self.s * row_dots(self.s, U)[:, None]

    def transposed(self, dF: Array) -> Array:
        return self.s * (dF - self.s * row_dots(self.s, dF)[:, None])


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """-sum_l y_l log p_l with p = softmax(f), for one-hot targets y.

    The gradient is p - y, the Hessian diag(p) - p p^T.  1 - max p is computed as the sum of the other p, so that losses
    far below the rounding error of 1 keep their digits.
    """

    by_output: ClassVar[bool] = False
    unit_hessian: ClassVar[bool] = False
    labels: ClassVar[bool] = True
    link: ClassVar[str] = "softmax"
    scaled: ClassVar[bool] = False
    targets: ClassVar[str] = "one label a point"
    missing: ClassVar[bool] = False
    stiffness: ClassVar[float] = 1.0
    SMALLEST: ClassVar[float] = 1e-12
    """The smallest probability that is used in B, so that q = (y - p) / s is finite."""

    def admits(self, Y: Array) -> Array:
        return (Y == 0.0) | (Y == 1.0)

    def value(self, Y: Array, F: Array) -> Array:
        largest = _largest(F)
        shifted = F - F.take(largest)[:, None]
        others = np.exp(shifted)
        others.put(largest, 0.0)
        return np.log1p(others.sum(axis=1)) - row_dots(Y, shifted)

    def residual(self, Y: Array, F: Array) -> Array:
        return self.with_residual(Y, F)[1]

    def with_residual(self, Y: Array, F: Array) -> tuple[Array, Array]:
        largest = _largest(F)
        shifted = F - F.take(largest)[:, None]
        P = np.exp(shifted)
        sums = P.sum(axis=1, keepdims=True)
        P.put(largest, 0.0)
        value = np.log1p(P.sum(axis=1)) - row_dots(Y, shifted)
        P.put(largest, 1.0)
        R, own = Y - P / sums, _largest(Y)
        R.put(own, 0.0)
        R.put(own, -R.sum(axis=1))
        return value, R

    def _probabilities(self, F: Array) -> Array:
        P = np.maximum(softmax(F), self.SMALLEST)
        return P / P.sum(axis=1, keepdims=True)

    def root(self, Y: Array, F: Array) -> Root:
        s = np.sqrt(self._probabilities(F))
        return CrossEntropyRoot(self.residual(Y, F) / s, s)

    def congruence(self, Y: Array, F: Array, M: Array) -> Array:
        """Computes the mean of S A S with A = diag(s) M diag(s) and S = I - s s^T."""
        s = np.sqrt(self._probabilities(F))
        T = s * ((s * s) @ M)
        q = row_dots(s * s, (s * s) @ M)
        cross = s.T @ T
        return ((s.T @ s) * M - cross - cross.T + s.T @ (s * q[:, None])) / len(s)

    def hessian(self, Y: Array, F: Array) -> Array:
        P = self._probabilities(F)
        largest, others = _largest(P), P.copy()
        others.put(largest, 0.0)
        rest = 1.0 - P
        rest.put(largest, others.sum(axis=1))
        H: Array = P.T @ P / -len(P)
        H[np.diag_indices_from(H)] = (P * rest).mean(axis=0)
        return H
