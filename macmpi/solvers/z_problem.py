"""The splitting of E_Q by point: Z-problems.  The splitting by unit is in w_problem.py.

Objectives contain the paper's 1/2 and are summed over points; a record divides the sums by N.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from macmpi.nets.chain import Segment
from macmpi.nets.design import split_columns
from macmpi.nets.layers import Tangent
from macmpi.nets.losses import Loss, Metric, times
from macmpi.nets.segment import Fixed, Tape
from macmpi.reductions import EVERY
from macmpi.typing import Array

RowIndex = Array | slice


@dataclass(frozen=True)
class ZProblem:
    """Eq. (4) for some points, with a metric and a shift for each constraint:

        min over z of loss(y, f_{K+1}(z_K)) + 1/2 sum_k (z_k - f_k(z_{k-1}) - u_k)^T M_k (z_k - f_k(z_{k-1}) - u_k).

    M_k contains mu here: the quadratic penalty has M_k = mu I and no shift u_k, and the augmented Lagrangian has
    u_k = M_k^-1 lambda_k.
    segments, sizes, metrics: f_1, ..., f_{K+1}; (H_1, ..., H_K); and M_1, ..., M_K.
    X (n, D), Y (n, L), Z (n, H_1 + ... + H_K), shift (as Z): the points, and u_1, ..., u_K.
    sides: the data that each of f_2, ..., f_{K+1} reads, or None; () if none reads data.
    Points are independent: the solution for some rows is those rows of the solution.
    """

    segments: tuple[Segment, ...]
    sizes: tuple[int, ...]
    weights: Sequence[Array]
    loss: Loss
    metrics: tuple[Metric, ...]
    X: Array
    Y: Array
    Z: Array
    shift: Array | None = None
    sides: tuple[Array | None, ...] = ()

    def inputs(self, k: int, z: Array, rows: RowIndex = EVERY) -> Array:
        """Returns the inputs of segment k > 0 for coordinates z of some rows: z, and the data that it reads."""
        side = self.sides[k - 1] if self.sides else None
        return z if side is None else np.hstack([z, side[rows].astype(z.dtype, copy=False)])

    def ahead(self, Z: Array, rows: RowIndex = EVERY) -> list[Array]:
        """Returns the inputs of f_2, ..., f_{K+1} for coordinates Z of some rows."""
        return [self.inputs(k, z, rows) for k, z in enumerate(self.sites(Z), start=1)]

    def sites(self, Z: Array) -> list[Array]:
        """Returns the views z_1, ..., z_K of the columns of Z."""
        return split_columns(self.sizes, Z)

    @cached_property
    def first(self) -> Array:
        """f_1(x) + u_1, which does not depend on z: (n, H_1)."""
        F = self.segments[0].forward(self.weights, self.X)
        return F if self.shift is None else F + self.sites(self.shift)[0]

    def outputs(self, Z: Array, rows: RowIndex = EVERY) -> list[Array]:
        """Computes f_1(x) + u_1, f_2(z_1) + u_2, ..., f_{K+1}(z_K) for coordinates Z of some rows of the problem."""
        pairs = zip(self.segments[1:], self.ahead(Z, rows), strict=True)
        return self._shifted([self.first[rows], *(s.forward(self.weights, A) for s, A in pairs)], rows)

    def linearise(self, Z: Array, fixed: Fixed | None = None) -> tuple[list[Array], list[Tangent]]:
        """Computes the `outputs` at Z and the tangents J_2, ..., J_{K+1}, in the precision of `fixed` if it is given.

        Cost: one pass through the segments after the first.
        """
        F, tapes = self.taped(Z, fixed)
        return F, [tape.tangent for tape in tapes]

    def taped(self, Z: Array, fixed: Fixed | None = None) -> tuple[list[Array], list[Tape]]:
        """Computes `outputs` at Z, and linearises f_2, ..., f_{K+1} in inputs and weights.  Cost: as `linearise`."""
        pairs = zip(self.segments[1:], self.ahead(Z), strict=True)
        tapes = [segment.tape(self.weights, A, fixed) for segment, A in pairs]
        return self._shifted([self.first, *(tape.F for tape in tapes)]), tapes

    def _shifted(self, F: list[Array], rows: RowIndex = EVERY) -> list[Array]:
        if self.shift is not None:
            for f, u in zip(F[1:-1], self.sites(self.shift)[1:], strict=True):
                f += u[rows]
        return F

    def values(self, Z: Array, rows: RowIndex = EVERY) -> Array:
        """Computes the objective of eq. (4) at Z (n', sum H) for some rows of the problem: (n',)."""
        F = self.outputs(Z, rows)
        return self.weigh(Z, self.missed(Z, F), F[-1], rows)

    def gradients(self, Z: Array) -> tuple[Array, Array]:
        """Computes the objective (n,) and its gradient (n, sum H).  Cost: 2 passes through segments after the first."""
        F, tangents = self.linearise(Z)
        missed = self.missed(Z, F)
        pulls = self.pulls(missed, F[-1])
        slopes = [t.vjp(ahead) - pull for t, pull, ahead in zip(tangents, pulls[:-1], pulls[1:], strict=True)]
        return self.weigh(Z, missed, F[-1]), np.hstack(slopes)

    def missed(self, Z: Array, F: Sequence[Array]) -> list[Array]:
        """Computes c_k = f_k(z_{k-1}) + u_k - z_k for k = 1, ..., K, from the outputs F."""
        return [f - z for f, z in zip(F[:-1], self.sites(Z), strict=True)]

    def pulls(self, missed: Sequence[Array], F: Array) -> list[Array]:
        """Computes the objective's derivatives with respect to the outputs of segments: M_k c_k, and the loss's at F.

        missed: c_1, ..., c_K; F: the outputs of the net.
        """
        constraints = [times(c, form.M) for c, form in zip(missed, self.metrics, strict=True)]
        return [*constraints, -self.loss.residual(self.Y, F)]

    def weigh(self, Z: Array, missed: Sequence[Array], F: Array, rows: RowIndex = EVERY) -> Array:
        """Computes the objective of each point from c_1, ..., c_K (`missed`) and the outputs F of the net: (n',)."""
        total = self.loss.value(self.Y[rows], F)
        for metric, c in zip(self.metrics, missed, strict=True):
            total += 0.5 * metric.square(c)
        return total
