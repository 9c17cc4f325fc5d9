"""Layers without a derivative: a quantiser with a codebook, and binary units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from macmpi.nets.design import squared_distances
from macmpi.nets.layers import Tangent
from macmpi.typing import Array


class Discrete:
    """Maps that are constant almost everywhere have no derivative of any kind."""

    def tangent(self, W: Any, A: Array, B: Array) -> Tangent:
        raise NotImplementedError("a discrete layer has no derivative")

    def weight_jvp(self, W: Any, A: Array, dW: Array) -> Array:
        raise NotImplementedError("a discrete layer has no derivative")

    def weight_vjp(self, W: Any, A: Array, dB: Array) -> Array:
        raise NotImplementedError("a discrete layer has no derivative")

    def congruence(self, W: Any, A: Array, M: Array) -> Array:
        raise NotImplementedError("a discrete layer has no derivative")

    def pullback(self, W: Any, A: Array, M: Array) -> Array:
        raise NotImplementedError("a discrete layer has no derivative")


@dataclass(frozen=True)
class Quantiser(Discrete):
    """b = the codeword nearest to a (the first of equals), with the codebook as weights C (words, size).

    The layer before it is fitted as if it were the identity.  Cost: 2 n words size flops.
    """

    size: int
    words: int
    capabilities: ClassVar[frozenset[str]] = frozenset({"centres"})
    trained_as: ClassVar[str] = "linear"

    @property
    def n_in(self) -> int:
        return self.size

    @property
    def n_out(self) -> int:
        return self.size

    @property
    def parameter_shape(self) -> tuple[int, int]:
        return (self.words, self.size)

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        return W[squared_distances(A, W).argmin(axis=1)].astype(A.dtype, copy=False)

    def spec(self) -> dict[str, Any]:
        return {"kind": "quantiser", "size": self.size, "words": self.words}


@dataclass(frozen=True)
class Binary(Discrete):
    """b_h = 1 if a_h > 0, else 0: bits.  The layer before it is fitted as if its units were sigmoids."""

    size: int
    capabilities: ClassVar[frozenset[str]] = frozenset({"units", "elementwise", "bits"})
    parameter_shape: ClassVar[None] = None
    trained_as: ClassVar[str] = "sigmoid"

    @property
    def n_in(self) -> int:
        return self.size

    @property
    def n_out(self) -> int:
        return self.size

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        return np.greater(A, 0.0, out=np.empty_like(A) if out is None else out, casting="unsafe")

    def spec(self) -> dict[str, Any]:
        return {"kind": "binary", "size": self.size}
