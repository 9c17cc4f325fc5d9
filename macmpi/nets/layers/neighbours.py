"""Nearest neighbours: the mean over the examples that are nearest to a point, without a derivative."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from macmpi.nets.design import squared_distances
from macmpi.nets.layers import Built, Graph, Map, Place
from macmpi.typing import Array


@dataclass(frozen=True)
class Neighbours(Map):
    """b = the mean of v_m over the k examples c_m nearest to a, with the weights [c_m, v_m] (examples, n_in + n_out).

    A forward costs 2 n n_in examples flops.
    """

    n_in: int
    n_out: int
    examples: int
    k: int = 5
    fitter: str = "nearest_neighbours"
    kind: ClassVar[str] = "nearest_neighbours"
    capabilities: ClassVar[frozenset[str]] = frozenset()

    @property
    def parameter_shape(self) -> tuple[int, int]:
        return (self.examples, self.n_in + self.n_out)

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        k = min(self.k, self.examples)
        nearest = np.argpartition(squared_distances(A, W[:, : self.n_in]), k - 1, axis=1)[:, :k]
        found: Array = W[:, self.n_in :][np.sort(nearest, axis=1)].mean(axis=1)
        return found.astype(A.dtype, copy=False)

    def export(self, g: Graph, A: str, W: Any) -> str:
        """TopK gives the distances of the nearest examples, and behind these which they are."""
        _, near = g.nearness(A, W[:, : self.n_in])
        count, names = g.constant(np.array([min(self.k, self.examples)])), [f"{near}_nearest", f"{near}_which"]
        g.nodes.append(g.onnx.helper.make_node("TopK", [near, count], names, names[0], largest=0))
        values = g.node("Gather", g.constant(W[:, self.n_in :]), names[1], axis=0)
        return g.node("ReduceMean", values, axes=[1], keepdims=0)


def layer(place: Place) -> Built:
    """Means over the nearest examples, as many outputs as units."""
    return Built([Neighbours(place.n_in, place.units, place.model.examples)])
