"""Depthwise convolutions: each channel of an image has a kernel of its own."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from macmpi import UsageError
from macmpi.nets.graph import numbered
from macmpi.nets.layers import SameDerivative, Tangent
from macmpi.nets.layers.activation import Activation
from macmpi.nets.layers.patches import Patches


@dataclass(frozen=True)
class Depthwise(SameDerivative):
    """b_pc = sum_k V_ck a_pck + c_c for the pixels k of the patch around p: weights [V, c], a row a channel."""

    height: int
    width: int
    channels: int
    kernel: int = 3
    kind: ClassVar[str] = "depthwise"
    capabilities: ClassVar[frozenset[str]] = frozenset({"jacobian", "weight_jacobian", "bias"})

    @property
    def patches(self):
        return Patches(self.height, self.width, self.channels, self.kernel)

    @property
    def n_in(self):
        return self.patches.n_in

    n_out = n_in

    @property
    def parameter_shape(self):
        return (self.channels, self.kernel**2 + 1)

    def images(self, shape):
        return shape

    def cut(self, A):
        """The pixels of each patch, channel by channel: (n, positions, pixels, channels)."""
        return self.patches.cut(A).reshape(len(A), -1, self.kernel**2, self.channels)

    def forward(self, W, A, out=None):
        return (np.sum(self.cut(A) * W[:, :-1].T, axis=2) + W[:, -1]).reshape(len(A), self.n_out)

    def tangent(self, W, A, B):
        V = W[:, :-1].T
        return Tangent(
            jvp=lambda dA: np.sum(self.cut(dA) * V, axis=2).reshape(len(dA), self.n_out),
            vjp=lambda dB: self.patches.add(dB.reshape(len(dB), -1, 1, self.channels) * V),
        )

    def weight_vjp(self, W, A, dB):
        Q = dB.reshape(len(dB), -1, self.channels)
        return np.column_stack([np.einsum("npkc,npc->ck", self.cut(A), Q), Q.sum(axis=(0, 1))])

    def export(self, g, A, W):
        weighed = g.node("Mul", g.gathered(A, self.cut(numbered(self.n_in))[0]), g.constant(W[:, :-1].T))
        sums = g.node("ReduceSum", weighed, g.constant(np.array([2])), keepdims=0)
        return g.rows(g.node("Add", sums, g.constant(W[:, -1])), self.n_out)


def depthwise(inputs, units):
    if not inputs.shape or units != inputs:
        raise UsageError(f"depthwise gives as many numbers as it reads of images; use hidden = {int(inputs)} there")
    return [Depthwise(*inputs.shape), Activation("tanh", units)]
