"""Softmax: outputs that are positive and sum to 1.  Its units do not separate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from macmpi.nets.design import row_dots
from macmpi.nets.layers import Built, Graph, Place, SameSize, Tangent
from macmpi.nets.layers.affine import dense
from macmpi.typing import Array


def softmax(A: Array) -> Array:
    """exp(a_h) / sum_j exp(a_j), row by row: (n, H) -> (n, H)."""
    B = np.exp(A - A.max(axis=1, keepdims=True))
    B /= B.sum(axis=1, keepdims=True)
    return B


@dataclass(frozen=True)
class Softmax(SameSize):
    """b_h = exp(a_h) / sum_j exp(a_j), over each of `groups` runs of size / groups numbers by itself.

    Behind a dense layer there is one group; behind a convolution each pixel is one, and B are the shares that the words
    of a codebook have in it.  J = diag(b) - E, symmetric, with E = sum_g b_g b_g^T and b_g the numbers of group g.
    Cost: about 3 ns an element.
    """

    size: int
    groups: int = 1
    kind: ClassVar[str] = "softmax"
    capabilities: ClassVar[frozenset[str]] = frozenset({"jacobian"})

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        B = softmax(self._by_group(A)).reshape(A.shape)
        if out is None:
            return B
        np.copyto(out, B)
        return out

    def tangent(self, W: Any, A: Array, B: Array) -> Tangent:
        B = self._by_group(B)

        def product(dA: Array) -> Array:
            dA = self._by_group(dA)
            return (B * (dA - row_dots(B, dA)[:, None])).reshape(-1, self.size)

        return Tangent(product, product)

    def congruence(self, W: Any, A: Array, M: Array) -> Array:
        """Mean of (b b^T) * M - diag(b) M E - (diag(b) M E)^T + E M E.

        Cost: 6 n size^2 flops.
        """
        B = self.forward(W, A)
        total = B.T @ B
        total *= M
        for own in self._runs:
            cross, both = self._columns(B, M, own)
            total[:, own] += both - cross
            total[own] -= cross.T
        return total / len(B)

    def _columns(self, B: Array, M: Array, own: slice) -> tuple[Array, Array]:
        """diag(b) M E and E M E, summed over points, in the columns of a group: (size, size / groups) each."""
        b = B[:, own]
        weighted = B * (b @ M[own])
        of_groups = weighted.reshape(len(B), self.groups, -1).sum(axis=2)
        return weighted.T @ b, (B * np.repeat(of_groups, self.size // self.groups, axis=1)).T @ b

    @property
    def _runs(self) -> list[slice]:
        """The columns of each group."""
        words = self.size // self.groups
        return [slice(first, first + words) for first in range(0, self.size, words)]

    def _by_group(self, A: Array) -> Array:
        """A row for each group: (n groups, size / groups)."""
        return A.reshape(-1, self.size // self.groups)

    def export(self, g: Graph, A: str, W: Any) -> str:
        if self.groups == 1:
            return g.node("Softmax", A, axis=1)
        return g.rows(g.node("Softmax", g.rows(A, self.n_in // self.groups), axis=1), self.n_out)


def layer(place: Place) -> Built:
    """A dense layer whose units share 1."""
    return dense(place, Softmax(place.units))
