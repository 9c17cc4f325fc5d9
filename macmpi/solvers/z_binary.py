"""Z-step of binary codes: every code is tried, or one bit after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from macmpi.demand import Demands
from macmpi.nets.design import row_dots
from macmpi.nets.losses import dense, times
from macmpi.reductions import AT_ONCE, Average
from macmpi.solvers import DISCRETE, ZSolution
from macmpi.solvers.z_problem import ZProblem
from macmpi.typing import Array


@dataclass(frozen=True)
class BinaryZ:
    """min over z in {0, 1}^H of eq. (4) for the one site of a net, whatever the decoder.

    Up to `enumerated` bits exactly: all 2^H codes are decoded once for all points.  Beyond, `iterations` sweeps over
    the bits, each set to the better of its two values, all points of a tile at once; ends once no bit has changed.
    Cost: 2^H decoded codes and 2 n 2^H L flops; or 2 passes through the decoder for each bit and sweep; 2 n H flops for
    each where the decoder is linear, and errors are squared.
    """

    iterations: int = 3
    enumerated: int = 10

    handles: ClassVar[Demands] = DISCRETE

    def prepare(self, sample: ZProblem, average: Average = AT_ONCE) -> Any:
        """All codes (2^H, H) and their outputs (2^H, L); where they are too many the constant and the slopes of a
        linear decoder of squared errors, (1, L) and (H, L), and None of others."""
        (H,), decoder, dtype = sample.sizes, sample.segments[-1], sample.Z.dtype
        if self.enumerated >= H:
            codes = ((np.arange(2**H)[:, None] >> np.arange(H)) & 1).astype(dtype)
            return codes, decoder.forward(sample.weights, codes)
        linear = all("linear" in map_.capabilities for map_ in decoder.maps) and decoder.data is None
        if not (linear and sample.loss.unit_hessian):
            return None
        constant = decoder.forward(sample.weights, np.zeros((1, H), dtype))
        return constant, decoder.forward(sample.weights, np.eye(H, dtype=dtype)) - constant

    def solve(self, problem: ZProblem, shared: Any) -> ZSolution:
        if shared is None:
            Z = self._alternating(problem)
        else:
            Z = (self._flipped if len(shared[0]) == 1 else self._enumerated)(problem, *shared)
        before, after = problem.values(problem.Z), problem.values(Z)
        better = after <= before
        return ZSolution(np.where(better[:, None], Z, problem.Z), np.where(better, after, before))

    def _enumerated(self, problem: ZProblem, codes: Array, outputs: Array) -> Array:
        """The code with the least objective, of equals the first."""
        metric, f = problem.metrics[0], problem.first
        penalty = np.stack([metric.square(f - code) for code in codes], axis=1)
        return codes[(self._losses(problem, outputs) + 0.5 * penalty).argmin(axis=1)]

    def _losses(self, problem: ZProblem, outputs: Array) -> Array:
        """loss(y_n, output of code c): (n, 2^H)."""
        Y, loss = problem.Y, problem.loss
        if loss.by_output and loss.unit_hessian:
            return 0.5 * row_dots(outputs, outputs) - Y @ outputs.T
        return np.stack([loss.value(Y, np.broadcast_to(g, Y.shape)) for g in outputs], axis=1)

    def _flipped(self, problem: ZProblem, constant: Array, D: Array) -> Array:
        """Alternates over the bits of a quadratic form, which a step s of bit h changes by s g_h + 1/2 s^2 Q_hh.

        Q = D D^T + M, and its gradient g = D (D^T z + constant - y) + M (z - f) follows each step.
        """
        Z, M, f = problem.Z, problem.metrics[0].M, problem.first
        Q = D @ D.T + dense(M, len(D)).astype(D.dtype)
        slopes = np.ascontiguousarray(((Z @ D + constant - problem.Y) @ D.T + times(Z - f, M)).T)
        bits = np.ascontiguousarray(Z.T)
        for _ in range(self.iterations):
            before = bits.copy()
            for h, own in enumerate(bits):
                step = 1.0 - 2.0 * own
                step[step * slopes[h] + 0.5 * Q[h, h] >= 0.0] = 0.0
                own += step
                slopes += np.multiply.outer(Q[h], step)
            if np.array_equal(bits, before):
                break
        return bits.T

    def _alternating(self, problem: ZProblem) -> Array:
        Z = problem.Z.copy()
        for _ in range(self.iterations):
            before = Z.copy()
            for h in range(Z.shape[1]):
                values = []
                for bit in (0.0, 1.0):
                    Z[:, h] = bit
                    values.append(problem.values(Z))
                Z[:, h] = np.where(values[1] < values[0], 1.0, np.where(values[0] < values[1], 0.0, before[:, h]))
            if np.array_equal(Z, before):
                break
        return Z
