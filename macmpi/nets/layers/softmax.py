"""Softmax: outputs that are positive and sum to 1.  Its units do not separate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from macmpi.nets.design import row_dots
from macmpi.nets.layers import SameSize, Tangent
from macmpi.typing import Array


def softmax(A: Array) -> Array:
    """exp(a_h) / sum_j exp(a_j), row by row: (n, H) -> (n, H)."""
    B = np.exp(A - A.max(axis=1, keepdims=True))
    B /= B.sum(axis=1, keepdims=True)
    return B


@dataclass(frozen=True)
class Softmax(SameSize):
    """b_h = exp(a_h) / sum_j exp(a_j).  J = diag(b) - b b^T, symmetric.  Cost: about 3 ns an element."""

    size: int
    kind: ClassVar[str] = "softmax"
    capabilities: ClassVar[frozenset[str]] = frozenset({"jacobian"})

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        B = softmax(A)
        if out is None:
            return B
        np.copyto(out, B)
        return out

    def tangent(self, W: Any, A: Array, B: Array) -> Tangent:
        def product(dA: Array) -> Array:
            return B * (dA - row_dots(B, dA)[:, None])

        return Tangent(product, product)

    def congruence(self, W: Any, A: Array, M: Array) -> Array:
        """Mean of (b b^T) * M - b (q * b)^T - (q * b) b^T + (b^T q) b b^T, with q = M b."""
        B = softmax(A)
        Q = B @ M
        s = row_dots(B, Q)
        cross = B.T @ (Q * B)
        return ((B.T @ B) * M - cross - cross.T + B.T @ (B * s[:, None])) / len(B)
