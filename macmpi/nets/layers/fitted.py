"""Layers whose weights no regression fits: radial basis functions, whose centres a trainer finds, and fitted layers.

Fitters find the weights of the latter: sums of kernels, means over nearest neighbours, and trees.
"""

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

    At its own centre b is 1 up to an error of (D + 6) u ((2 ||c - s|| + 4 r) / width)^2, and never above 1, where s is
    the mean of the centres, r the root mean square of ||c - s||, D = n_in, and u the unit roundoff.  The error is not 0
    because squared distances come from a product of points and centres (`squared_distances`).
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
        """Computes the mean of 4/width^4 (b b^T) * (a^T M a - C M a - (C M a)^T + C M C^T).  Cost: 3 products N H^2."""
        B = self.forward(W, A)
        AM = A @ M
        cross = B.T @ (B * (AM @ W.T))
        total = B.T @ (B * row_dots(AM, A)[:, None]) - cross - cross.T + (B.T @ B) * (W @ M @ W.T)
        return total * (4.0 / self.width**4 / len(A))

    def pullback(self, W: Any, A: Array, M: Array) -> Array:
        """Computes the mean of 4/width^4 (a 1^T - C^T) Q (1 a^T - C), with Q = (b b^T) * M."""
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


@dataclass(frozen=True)
class Kernels(Map):
    """b = sum_m v_m exp(-||(a - c_m) / width||^2), with the weights [c_m, v_m] (examples, n_in + n_out).

    Radial basis functions and a linear map of them form one map, because a fitter finds both together.
    """

    n_in: int
    n_out: int
    examples: int
    width: float
    fitter: str = "kernel_ridge"
    kind: ClassVar[str] = "kernels"
    capabilities: ClassVar[frozenset[str]] = frozenset({"jacobian"})

    @property
    def parameter_shape(self) -> tuple[int, int]:
        return (self.examples, self.n_in + self.n_out)

    @property
    def basis(self) -> GaussianBasis:
        """The radial basis functions alone, without the linear map."""
        return GaussianBasis(self.n_in, self.examples, self.width)

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        return self.basis.forward(W[:, : self.n_in], A) @ W[:, self.n_in :]

    def tangent(self, W: Any, A: Array, B: Array) -> Tangent:
        C, V = W[:, : self.n_in], W[:, self.n_in :]
        inner = self.basis.tangent(C, A, self.basis.forward(C, A))
        return Tangent(jvp=lambda dA: inner.jvp(dA) @ V, vjp=lambda dB: inner.vjp(dB @ V.T))

    def congruence(self, W: Any, A: Array, M: Array) -> Array:
        V = W[:, self.n_in :]
        return V.T @ self.basis.congruence(W[:, : self.n_in], A, M) @ V

    def pullback(self, W: Any, A: Array, M: Array) -> Array:
        V = W[:, self.n_in :]
        return self.basis.pullback(W[:, : self.n_in], A, V @ M @ V.T)

    def export(self, g: Graph, A: str, W: Any) -> str:
        return g.node("Gemm", self.basis.export(g, A, W[:, : self.n_in]), g.constant(W[:, self.n_in :]))


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
        return W[:, self.n_in :][np.sort(nearest, axis=1)].mean(axis=1).astype(A.dtype, copy=False)

    def export(self, g: Graph, A: str, W: Any) -> str:
        """Adds a TopK, which finds the nearest examples, and the mean of their values."""
        _, near = g.nearness(A, W[:, : self.n_in])
        count, names = g.constant(np.array([min(self.k, self.examples)])), [f"{near}_nearest", f"{near}_which"]
        g.nodes.append(g.onnx.helper.make_node("TopK", [near, count], names, names[0], largest=0))
        values = g.node("Gather", g.constant(W[:, self.n_in :]), names[1], axis=0)
        return g.node("ReduceMean", values, axes=[1], keepdims=0)


@dataclass(frozen=True)
class Trees(Map):
    """b = sum_t v_t(a), where v_t(a) are the values in the leaf of tree t that the point a reaches.

    A tree is a row of the weights: for its 2^depth - 1 nodes the column that each compares, then their thresholds, then
    the values (n_out) of its 2^depth leaves.  From node i a point goes to node 2 i + 1, or to 2 i + 2 if its column is
    above the threshold.  So all trees have one shape, and any numbers are valid weights; a branch that ends early
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
        """The number of nodes of a tree that are not leaves."""
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
        """Adds all trees at once: the node of each point in each tree, (n, trees), level by level from the roots."""
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
    """Builds a layer of one map, a row of outputs: Gaussians, sums of them, means over nearest examples, or trees."""
    model, sizes = place.model, (place.n_in, place.units)
    if place.kind == "rbf":
        return Built([GaussianBasis(*sizes, model.by_layer("width")[place.number])])
    if place.kind == "kernel_ridge":
        return Built([Kernels(*sizes, model.examples, model.by_layer("width")[place.number])])
    if place.kind == "nearest_neighbours":
        return Built([Neighbours(*sizes, model.examples)])
    return Built([Trees(*sizes, model.trees, model.depth, place.kind)])
