"""What the units of a layer share: nothing, or the eigen-decomposition of its Gram, which preconditions them all."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from macmpi.layers import Array
from macmpi.layers.design import gram
from macmpi.regression import InPieces, OverPoints, Rows, alone

JITTER = 1e-8
"""Added to the Gram's eigenvalues, relative to the largest: no step along what the inputs do not span."""


ELEMENTWISE = 700.0
"""What activations, residuals and line search of an iteration cost a unit and point, in flops of matrix products."""

PASS = 26
"""What a product with all inputs costs beside its units, in units: the inputs are read and put in order for it."""

GRAM, DECOMPOSITION = 1.8, 14.0
"""What a Gram costs a point, in units of its columns squared, and its eigen-decomposition, of its columns cubed."""


def spectrum(inputs: Rows, over_points: OverPoints) -> Array:
    """Row 0: eigenvalues of [A, 1]^T [A, 1]; the other rows: its eigenvectors, in columns.  (D + 2, D + 1).

    Cost: N D^2 flops, and about 9 (D + 1)^3 for the decomposition.
    """
    (G,) = over_points(lambda rows: (gram(inputs[rows]),))
    values, vectors = np.linalg.eigh(G)
    return np.vstack([np.maximum(values, 0.0), vectors])


def spectrum_shape(n_in: int) -> tuple[int, int]:
    return (n_in + 2, n_in + 1)


class Unshared:
    """A W-solver whose units have nothing in common."""

    by_rows: ClassVar[bool] = False
    by_sums: ClassVar[bool] = True

    def prepare(self, inputs: Rows, over_points: OverPoints, bias: bool = True, rows: slice | None = None) -> Array:
        return np.zeros((0, 0))

    def shared_shape(self, n_in: int, bias: bool = True) -> tuple[int, int]:
        return (0, 0)

    def effort(self, n_in: int, units: int) -> float:
        """As of three gradients with their activations."""
        return 14.0 * n_in * (units + PASS) + 3.0 * ELEMENTWISE * units

    def share_effort(self, width: int, points: int, rows: slice | None = None) -> float:
        return 0.0

    def local(
        self, shared: Array, ridge: float, dtype: np.dtype, bias: bool = True, in_pieces: InPieces = alone
    ) -> Any:
        return None


class SharedSpectrum(Unshared):
    """A W-solver preconditioned by the spectrum of its layer's Gram."""

    def prepare(self, inputs: Rows, over_points: OverPoints, bias: bool = True, rows: slice | None = None) -> Array:
        return spectrum(inputs, over_points)

    def shared_shape(self, n_in: int, bias: bool = True) -> tuple[int, int]:
        return spectrum_shape(n_in)

    def share_effort(self, width: int, points: int, rows: slice | None = None) -> float:
        return GRAM * width**2 + DECOMPOSITION * width**3 / points


class Whitening:
    """theta = phi S^-1 V^T and back, with V S^2 V^T the layer's Gram plus ridge; the identity without a Gram."""

    def __init__(self, shared: Array, ridge: float) -> None:
        self._vectors = shared[1:]
        values = shared[0] if shared.size else np.ones(1)
        self._scale = np.sqrt(values + ridge + JITTER * values.max())

    def into(self, theta: Array) -> Array:
        return (theta @ self._vectors) * self._scale if self._vectors.size else theta

    def back(self, phi: Array) -> Array:
        return (phi / self._scale) @ self._vectors.T if self._vectors.size else phi

    def pull(self, G: Array) -> Array:
        """The gradient with respect to phi from that with respect to theta."""
        return (G @ self._vectors) / self._scale if self._vectors.size else G

    def features(self, A: Array) -> Array:
        """What phi multiplies, [A, 1] V S^-1, so that [A, 1] theta^T is these times phi^T: (n, D + 1), float64."""
        return (A @ self._vectors[:-1] + self._vectors[-1]) / self._scale

    def shrink(self, phi: Array) -> Array:
        """The gradient with respect to phi of 1/2 ||v||^2, theta = [v, c]: the biases c are left alone."""
        bias = self._vectors[-1] / self._scale
        return phi / np.square(self._scale) - (phi @ bias)[:, None] * bias
