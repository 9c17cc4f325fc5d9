"""The beginning of a recurrent layer: its first state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from macmpi.nets.layers import Map, Tangent
from macmpi.typing import Array


@dataclass(frozen=True)
class FirstState(Map):
    """b = [0, a]: `units` zeros, the state before the first step, and the inputs of that step.

    memory: the weights that multiply the state begin as this share of a matrix: the identity or an orthogonal one.
    """

    n_in: int
    units: int
    memory: float = 0.0
    identity: bool = False
    kind: ClassVar[str] = "first_state"
    capabilities: ClassVar[frozenset[str]] = frozenset({"jacobian"})

    @property
    def n_out(self) -> int:
        return self.units + self.n_in

    def remembered(self, random: Any) -> Array:
        """`memory` times the identity, as Le, Jaitly and Hinton (2015) have it, or a random orthogonal matrix."""
        Q, R = np.linalg.qr(random.standard_normal((self.units, self.units)))
        return self.memory * (np.eye(self.units) if self.identity else Q * np.sign(np.diag(R)))

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        B = np.zeros((len(A), self.n_out), A.dtype)
        B[:, self.units :] = A
        return B

    def tangent(self, W: Any, A: Array, B: Array) -> Tangent:
        return Tangent(jvp=lambda dA: self.forward(W, dA), vjp=lambda dB: dB[:, self.units :])

    def congruence(self, W: Any, A: Array, M: Array) -> Array:
        found = np.zeros((self.n_out, self.n_out), M.dtype)
        found[self.units :, self.units :] = M
        return found

    def pullback(self, W: Any, A: Array, M: Array) -> Array:
        return M[self.units :, self.units :]
