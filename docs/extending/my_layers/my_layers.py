"""Layers of low rank."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from macmpi.nets.layers import Map, Tangent
from macmpi.nets.layers.activation import Activation


@dataclass(frozen=True)
class LowRank(Map):
    """b = U V^T [a, 1]: weights (units + inputs + 1, rank), the rows of U, then those of V."""

    n_in: int
    n_out: int
    rank: int
    kind: ClassVar[str] = "low_rank"
    capabilities: ClassVar[frozenset[str]] = frozenset({"jacobian", "weight_jacobian"})

    @property
    def parameter_shape(self):
        return (self.n_out + self.n_in + 1, self.rank)

    @property
    def fan_in(self):
        return max(self.n_in * self.rank // 3, 1)

    def parts(self, W):
        return W[: self.n_out], W[self.n_out : -1], W[-1]

    def forward(self, W, A, out=None):
        U, V, c = self.parts(W)
        return np.matmul(A @ V + c, U.T, out=out)

    def tangent(self, W, A, B):
        U, V, _ = self.parts(W)
        return Tangent(jvp=lambda dA: (dA @ V) @ U.T, vjp=lambda dB: (dB @ U) @ V.T)

    def weight_jvp(self, W, A, dW):
        (U, V, c), (dU, dV, dc) = self.parts(W), self.parts(dW)
        return (A @ V + c) @ dU.T + (A @ dV + dc) @ U.T

    def weight_vjp(self, W, A, dB):
        U, V, c = self.parts(W)
        Q = dB @ U
        return np.vstack([dB.T @ (A @ V + c), A.T @ Q, Q.sum(axis=0)])

    def congruence(self, W, A, M):
        U, V, _ = self.parts(W)
        return U @ (V.T @ M @ V) @ U.T

    def pullback(self, W, A, M):
        U, V, _ = self.parts(W)
        return V @ (U.T @ M @ U) @ V.T

    def export(self, g, A, W):
        U, V, c = self.parts(W)
        return g.node("MatMul", g.node("Gemm", A, g.constant(V), g.constant(c)), g.constant(U.T))


def low_rank(inputs, units):
    return [LowRank(inputs, units, 8), Activation("tanh", units)]
