"""Trees of decisions: a layer without derivatives, whose weights are the nodes of all trees in one array."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from macmpi.nets.layers import Built, Graph, Map, Place
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

    def export(self, g: Graph, A: str, W: Any) -> str:
        """All trees at once: the node of each point and tree, (n, trees), level by level from the roots."""
        trees, nodes, whole = len(W), self.nodes, g.onnx.TensorProto.INT64
        columns = g.constant(np.clip(W[:, :nodes], 0, self.n_in - 1).astype(int).ravel())
        thresholds = g.constant(W[:, nodes : 2 * nodes].ravel())
        first = np.arange(trees)[None]
        one, two, begins = g.constant(np.array(1)), g.constant(np.array(2)), g.constant(first * nodes)
        points = g.node("Slice", g.node("Shape", A), *(g.constant(np.array([i])) for i in (0, 1)))
        at = g.node("Expand", g.constant(0 * first), g.node("Concat", points, g.constant(np.array([trees])), axis=0))
        for _ in range(self.depth):
            node = g.node("Add", at, begins)
            asked = g.node("GatherElements", A, g.node("Gather", columns, node), axis=1)
            above = g.node("Cast", g.node("Greater", asked, g.node("Gather", thresholds, node)), to=whole)
            at = g.node("Add", g.node("Add", g.node("Mul", at, two), one), above)
        leaf = g.node("Add", at, g.constant(first * (nodes + 1) - nodes))
        values = g.node("Gather", g.constant(W[:, 2 * nodes :].reshape(-1, self.n_out)), leaf, axis=0)
        return g.node("ReduceSum", values, g.constant(np.array([1])), keepdims=0)


def layer(place: Place) -> Built:
    """A sum of trees, which a forest or boosting grows."""
    return Built([Trees(place.n_in, place.units, place.model.trees, place.model.depth, place.kind)])
