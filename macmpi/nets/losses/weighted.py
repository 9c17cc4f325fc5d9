"""Losses that weigh: w_n times that of a point, as of w_n points in its place, or v_nl times that of an output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from macmpi.nets.losses import Loss, Root
from macmpi.nets.losses.by_output import STAND_IN, ByOutput
from macmpi.typing import Array


def weighted(loss: Any, weights: Array | None) -> Any:
    """The loss of points with these weights (n,), in their order; the loss itself where there are none.

    Collective: no.
    """
    return loss if weights is None else Weighted(loss, weights)


@dataclass(frozen=True)
class WeightedRoot(Root):
    """sqrt(w_n) B of each point; roots: sqrt(w_n) as a column (n, 1)."""

    root: Root
    roots: Array

    @property
    def residual(self) -> Array:  # type: ignore[override]
        """sqrt(w_n) q."""
        return self.roots * self.root.residual

    def times(self, dF: Array) -> Array:
        return self.roots * self.root.times(dF)

    def transposed(self, dF: Array) -> Array:
        return self.root.transposed(self.roots * dF)

    def normal(self, dF: Array) -> Array:
        """w_n B^T B dF."""
        return np.square(self.roots) * self.root.normal(dF)


@dataclass(frozen=True)
class Weighted:
    """w_n loss(y_n, f_n) for weights (n,) of the very points that it is given.  Collective: no."""

    loss: Loss
    weights: Array

    def _column(self, F: Array) -> Array:
        return self.weights.astype(F.dtype, copy=False)[:, None]

    def value(self, Y: Array, F: Array) -> Array:
        """w_n times the loss: (n,)."""
        found: Array = self._column(F)[:, 0] * self.loss.value(Y, F)
        return found

    def residual(self, Y: Array, F: Array) -> Array:
        """-gradient with respect to F: (n, L)."""
        return self._column(F) * self.loss.residual(Y, F)

    def with_residual(self, Y: Array, F: Array) -> tuple[Array, Array]:
        """Value and residual, the same numbers in one pass."""
        value, residual = self.loss.with_residual(Y, F)
        column = self._column(F)
        return column[:, 0] * value, column * residual

    def root(self, Y: Array, F: Array) -> Root:
        """sqrt(w_n) B."""
        return WeightedRoot(self.loss.root(Y, F), np.sqrt(self._column(F)))

    def hessian(self, Y: Array, F: Array) -> Array:
        """Mean over rows of w_n B^T B, (L, L).

        Cost: a product with B^T B for each output; of a sum over outputs, whose B^T B is diagonal, one.
        """
        normal, L, n = self.root(Y, F).normal, F.shape[1], max(len(F), 1)
        if self.loss.by_output:
            return np.diag(normal(np.ones_like(F)).sum(axis=0) / n)
        axes = np.eye(L, dtype=F.dtype)
        return np.stack([normal(np.broadcast_to(axis, F.shape)).sum(axis=0) / n for axis in axes])


# --- outputs ----------------------------------------------------------------------------------------------------------


def for_weights(loss: Any, weights: int) -> Loss:
    """The loss of data with `weights` weights of a point: where each output has one, its targets are [Y, V].

    Collective: no.
    """
    found: Loss = WeightedOutputs(loss, missing=loss.missing) if weights > 1 and loss.by_output else loss
    return found


@dataclass(frozen=True)
class WeightedOutputs(ByOutput):
    """sum_l v_nl loss(y_nl, f_nl) of targets [Y, V], (n, 2 L): a target whose v is 0 is none.

    of: the loss, a sum over outputs; what it declares holds here too.
    """

    of: ByOutput

    @property
    def curvature(self) -> str:  # type: ignore[override]
        return self.of.curvature

    @property
    def stiffness(self) -> float:  # type: ignore[override]
        return self.of.stiffness

    @property
    def link(self) -> str:  # type: ignore[override]
        return self.of.link

    def width(self, Y: Array) -> int:
        return Y.shape[1] // 2

    def values(self, Y: Array, F: Array) -> Array:
        return self.of.values(Y, F)

    def slopes(self, Y: Array, F: Array) -> Array:
        return self.of.slopes(Y, F)

    def curvatures(self, Y: Array, F: Array) -> Array:
        return self.of.curvatures(Y, F)

    def _where_seen(self, of: Callable[[Array, Array], Array], Y: Array, F: Array) -> Array:
        """v of(y, F), which is 0 wherever the weight v is 0, whatever y is there."""
        y, v = np.split(Y, 2, axis=1)
        return v * of(np.where(v > 0.0, y, STAND_IN), F)
