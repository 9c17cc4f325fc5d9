"""Weighted losses: w_n times the loss of a point, as if it were w_n points, or v_nl times the loss of an output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from macmpi.nets.losses import Loss, Root
from macmpi.nets.losses.by_output import STAND_IN, ByOutput
from macmpi.typing import Array


def weighted(loss: Any, weights: Array | None) -> Any:
    """Returns the loss of points with weights (n,), in the order of the points; without weights, the loss itself.

    Collective: no.
    """
    return loss if weights is None else Weighted(loss, weights)


@dataclass(frozen=True)
class WeightedRoot(Root):
    """sqrt(w_n) B at each point, where `root` is B and `roots` are sqrt(w_n), (n, 1)."""

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
    """w_n loss(y_n, f_n), for the n points to which the weights (n,) belong.  Collective: no."""

    loss: Loss
    weights: Array

    def _column(self, F: Array) -> Array:
        return self.weights.astype(F.dtype, copy=False)[:, None]

    def value(self, Y: Array, F: Array) -> Array:
        """Computes w_n times the loss of each point: (n,)."""
        return self._column(F)[:, 0] * self.loss.value(Y, F)

    def residual(self, Y: Array, F: Array) -> Array:
        """Computes minus the gradient with respect to F: (n, L)."""
        return self._column(F) * self.loss.residual(Y, F)

    def with_residual(self, Y: Array, F: Array) -> tuple[Array, Array]:
        """Computes `value` and `residual` in one pass; each has the same bits as by itself."""
        value, residual = self.loss.with_residual(Y, F)
        column = self._column(F)
        return column[:, 0] * value, column * residual

    def root(self, Y: Array, F: Array) -> Root:
        """Computes sqrt(w_n) B."""
        return WeightedRoot(self.loss.root(Y, F), np.sqrt(self._column(F)))

    def hessian(self, Y: Array, F: Array) -> Array:
        """Computes the mean over rows of w_n B^T B: (L, L).

        Cost: a product with B^T B for each output; a single one where the loss is a sum over outputs.
        """
        normal, L, n = self.root(Y, F).normal, F.shape[1], max(len(F), 1)
        if self.loss.by_output:
            return np.diag(normal(np.ones_like(F)).sum(axis=0) / n)
        axes = np.eye(L, dtype=F.dtype)
        return np.stack([normal(np.broadcast_to(axis, F.shape)).sum(axis=0) / n for axis in axes])


# --- outputs ----------------------------------------------------------------------------------------------------------


def for_weights(loss: Any, weights: int) -> Loss:
    """Returns the loss for data whose points have `weights` weights each.  Collective: no.

    If each output has its own weight, it is the loss of targets [Y, V] (`WeightedOutputs`).
    """
    return WeightedOutputs(loss, missing=loss.missing) if weights > 1 and loss.by_output else loss


@dataclass(frozen=True)
class WeightedOutputs(ByOutput):
    """sum_l v_nl loss(y_nl, f_nl), for targets [Y, V] (n, 2 L); a target whose weight v is 0 counts as missing.

    of: the loss without weights, which must be a sum over outputs; its declarations hold here too.
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
        """Computes v of(y, F), which is 0 where the weight v is 0, whatever y is there."""
        y, v = np.split(Y, 2, axis=1)
        return v * of(np.where(v > 0.0, y, STAND_IN), F)
