"""Layers without a derivative: a quantiser with a codebook, and binary units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from macmpi.nets.design import squared_distances
from macmpi.nets.layers import SameSize
from macmpi.typing import Array


@dataclass(frozen=True)
class Quantiser(SameSize):
    """b = the codeword nearest to a (the first of equals), with the codebook as weights C (words, size).

    The layer before it is fitted as if it were the identity.  Cost: 2 n words size flops.
    """

    size: int
    words: int
    kind: ClassVar[str] = "quantiser"
    capabilities: ClassVar[frozenset[str]] = frozenset({"centres"})
    trained_as: ClassVar[str] = "linear"

    @property
    def parameter_shape(self) -> tuple[int, int]:
        return (self.words, self.size)

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        return W[squared_distances(A, W).argmin(axis=1)].astype(A.dtype, copy=False)


@dataclass(frozen=True)
class Binary(SameSize):
    """b_h = 1 if a_h > 0, else 0: bits.  The layer before it is fitted as if its units were sigmoids."""

    size: int
    kind: ClassVar[str] = "binary"
    capabilities: ClassVar[frozenset[str]] = frozenset({"units", "elementwise", "bits"})
    trained_as: ClassVar[str] = "sigmoid"

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        return np.greater(A, 0.0, out=np.empty_like(A) if out is None else out, casting="unsafe")
