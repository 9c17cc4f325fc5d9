"""Radial basis functions: a layer of Gaussians around centres, which a trainer of their own finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from macmpi.nets.design import row_dots, squared_distances
from macmpi.nets.layers import Built, Graph, Map, Place, Tangent
from macmpi.typing import Array


@dataclass(frozen=True)
class GaussianBasis(Map):
    """b_h = exp(-||(a - c_h) / width||^2), with the centres c_h as weights C (n_out, n_in).

    J = -2/width^2 diag(b) (1 a^T - C).  A forward, a jvp and a vjp cost 2 n n_in n_out flops each, and a forward
    n n_out exponentials.

    At its own centre b is 1 up to (D + 6) u ((2 ||c - s|| + 4 r) / width)^2, and never above 1, with s the mean of the
    centres, r the root mean square of ||c - s||, D = n_in and u the unit roundoff: squared distances come from a
    product of points and centres, not from their differences.
    """

    n_in: int
    n_out: int
    width: float
    kind: ClassVar[str] = "rbf"
    capabilities: ClassVar[frozenset[str]] = frozenset({"jacobian", "centres"})

    @property
    def parameter_shape(self) -> tuple[int, int]:
        return (self.n_out, self.n_in)

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        B = squared_distances(A, W)
        B *= -1.0 / self.width**2
        return np.exp(B, out=B)

    def tangent(self, W: Any, A: Array, B: Array) -> Tangent:
        scale = -2.0 / self.width**2

        def jvp(dA: Array) -> Array:
            dB = row_dots(dA, A)[:, None] - dA @ W.T
            dB *= B
            dB *= scale
            return dB

        def vjp(dB: Array) -> Array:
            Q = dB * B
            return scale * (Q.sum(axis=1)[:, None] * A - Q @ W)

        return Tangent(jvp, vjp)

    def congruence(self, W: Any, A: Array, M: Array) -> Array:
        """Mean of 4/width^4 (b b^T) * (a^T M a - C M a - (C M a)^T + C M C^T).  Cost: three products N H^2."""
        B = self.forward(W, A)
        AM = A @ M
        cross = B.T @ (B * (AM @ W.T))
        total = B.T @ (B * row_dots(AM, A)[:, None]) - cross - cross.T + (B.T @ B) * (W @ M @ W.T)
        return total * (4.0 / self.width**4 / len(A))

    def pullback(self, W: Any, A: Array, M: Array) -> Array:
        """Mean of 4/width^4 (a 1^T - C^T) Q (1 a^T - C), with Q = (b b^T) * M."""
        B = self.forward(W, A)
        Q = (B @ M) * B
        cross = A.T @ (Q @ W)
        total = A.T @ (A * Q.sum(axis=1)[:, None]) - cross - cross.T + W.T @ ((B.T @ B) * M) @ W
        return total * (4.0 / self.width**4 / len(A))

    def export(self, g: Graph, A: str, W: Any) -> str:
        A, near = g.nearness(A, W)
        own = g.node("ReduceSum", g.node("Mul", A, A), g.constant(np.array([1])), keepdims=1)
        distances = g.node("Max", g.node("Add", near, own), g.constant(0.0))
        return g.node("Exp", g.node("Mul", distances, g.constant(-1.0 / self.width**2)))


def layer(place: Place) -> Built:
    """Radial basis functions, which need no activation."""
    return Built([GaussianBasis(place.n_in, place.units, place.model.of_layer("width", place.number))])
