"""Trees of decisions: a layer without derivatives, whose weights are the nodes of all trees in one array."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from macmpi.nets.layers import Map
from macmpi.typing import Array


@dataclass(frozen=True)
class Trees(Map):
    """b = sum_t v_t(a), where v_t is what stands in the leaf of tree t in which the point a ends.

    A tree is a row of the weights: the columns that its 2^depth - 1 nodes ask for, their thresholds, the values (n_out)
    of its 2^depth leaves.  Node i goes on to 2 i + 1, or to 2 i + 2 where the column is above the threshold: no node
    names another, so that the shape is known beforehand and any numbers are trees.  A branch that ends sooner
    repeats its leaf.  Cost: n trees (depth + n_out) reads.
    """

    n_in: int
    n_out: int
    trees: int
    depth: int
    fitter: str = "forest"
    kind: ClassVar[str] = "trees"
    capabilities: ClassVar[frozenset[str]] = frozenset()

    @property
    def nodes(self) -> int:
        """The nodes of a tree that ask."""
        return int(2**self.depth) - 1

    @property
    def parameter_shape(self) -> tuple[int, int]:
        return (self.trees, 2 * self.nodes + (self.nodes + 1) * self.n_out)

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        B, rows = np.zeros((len(A), self.n_out), A.dtype), np.arange(len(A))
        columns = np.clip(W[:, : self.nodes], 0, self.n_in - 1).astype(np.intp)
        for own, thresholds, leaves in zip(columns, W[:, self.nodes :], W[:, 2 * self.nodes :], strict=True):
            at = np.zeros(len(A), np.intp)
            for _ in range(self.depth):
                at = 2 * at + 1 + (A[rows, own[at]] > thresholds[at])
            B += leaves.reshape(-1, self.n_out)[at - self.nodes]
        return B
