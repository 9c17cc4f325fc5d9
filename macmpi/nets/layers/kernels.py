"""A kernel machine: a weighted sum of Gaussians around examples, with a derivative in its inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from macmpi.nets.layers import Built, Graph, Map, Place, Tangent
from macmpi.nets.layers.rbf import GaussianBasis
from macmpi.typing import Array


@dataclass(frozen=True)
class Kernels(Map):
    """b = sum_m v_m exp(-||(a - c_m) / width||^2), with the weights [c_m, v_m] (examples, n_in + n_out).

    Radial basis functions and the linear map that reads them, as one map: a fitter finds both.
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
        """The Gaussians alone."""
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
        found = self.basis.export(g, A, W[:, : self.n_in])
        return g.node("Gemm", found, g.constant(W[:, self.n_in :]))


def layer(place: Place) -> Built:
    """A kernel machine, as many outputs as units."""
    return Built([Kernels(place.n_in, place.units, place.model.examples, place.model.of_layer("width", place.number))])
