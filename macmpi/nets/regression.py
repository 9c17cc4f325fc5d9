"""The view of a regression: which rows its weights multiply, which targets they fit, and which weights exist.

A solver sees rows.  Usually a point is one row.  If a layer's weights multiply P patches of each point, each patch
is a row; where several segments share the weights, a point is a row in each of them.

If segments share weights whose units cannot be fitted one by one, `Joint` applies these segments side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from macmpi.nets.design import split_columns
from macmpi.nets.layers import Map
from macmpi.nets.losses import Loss
from macmpi.nets.segment import Fixed, Segment, Step, Tape
from macmpi.reductions import EVERY, LazyRows, OverPoints, Partial, Rows
from macmpi.typing import Array


@dataclass(frozen=True)
class RegressionView:
    """The regression of a segment, or of a group that shares its weights: [A, 1] W^T is fitted to targets.

    segments: the segments that share the weights, usually one.
    blocks, shapes: the parameter blocks that are fitted, and the shape (h, d) of each.
    """

    segments: tuple[Segment, ...]
    blocks: tuple[int, ...]
    shapes: tuple[tuple[int, int], ...]

    @cached_property
    def map(self) -> Map:
        """The map whose weights are fitted; the first one where there are several."""
        return self.segments[0].fitted[0]

    @property
    def rows_per_point(self) -> int:
        """The number of rows of the design for each point: one for each position, in each segment."""
        return self.map.positions * len(self.segments)

    @property
    def sparse(self) -> bool:
        """Tells whether some of the weights do not exist, as in sparse layers."""
        return any(map_.connected is not None for segment in self.segments for map_ in segment.fitted)

    @property
    def bias(self) -> bool:
        """Tells whether the last column of the weights holds biases."""
        return "bias" in self.map.capabilities

    @property
    def separable(self) -> bool:
        """Tells whether units can be fitted one by one: all segments have the same maps, and each is separable."""
        first, *others = self.segments
        same = all(s.fitted == first.fitted and s.activation == first.activation and s.separable for s in others)
        return same and first.separable and (not others or self.map.positions == 1)

    @property
    def dense(self) -> bool:
        """Tells whether a point is one row, all weights exist, and the segment does not end in a quantiser."""
        return self.rows_per_point == 1 and not self.sparse and not self.segments[0].quantised

    @property
    def width(self) -> int:
        """The number of columns of `design`: the inputs that a unit's weights multiply, at all positions."""
        return self.map.positions * self.map.columns

    def design(self, A: Rows) -> Rows:
        """Returns the design (n, P d) for features A (n, D), with the rows of all P positions of a point side by side.

        Collective: no.
        """
        map_ = self.map
        inputs = A if map_.n_in == A.shape[1] else A[:, : map_.n_in]
        if map_.positions == 1:
            return inputs
        return LazyRows(lambda rows: map_.unfold(inputs[rows]).reshape(-1, self.width), (len(A), self.width), A.dtype)

    def by_row(self, A: Rows, units: slice = EVERY) -> Rows:
        """Returns numbers of points, (n, P w), as rows of the regression, with the columns of `units`: (n P, units).

        A lazy array A can then be read only by ranges of whole points.  Collective: no.
        """
        P = self.rows_per_point
        return (A if P == 1 else A.reshape(len(A) * P, A.shape[1] // P))[:, units]

    def over_rows(self, over_points: OverPoints) -> OverPoints:
        """Converts a sum over points to one over rows of the regression.  Collective: if `over_points` is."""
        P = self.rows_per_point

        def over(partial: Partial) -> tuple[Array, ...]:
            return over_points(lambda rows: partial(slice(rows.start * P, rows.stop * P)))

        return over_points if P == 1 else over

    def targets(self, T: Rows, passed: Rows | None, units: slice = EVERY) -> Rows:
        """Returns the targets of units, by row: the segments' targets, minus the skips that are added to the units.

        T: the targets of the segments, side by side.
        passed: the inputs of the map, which contain the columns of the skips; None if none is added.
        Collective: no.
        """
        T = self.by_row(T[:, : self.map.n_out * len(self.segments)], units)
        if passed is None:
            return T
        added = [self.by_row(passed[:, own], units) for own in self.segments[0].added]
        return LazyRows(lambda rows: T[rows] - sum(part[rows] for part in added), T.shape, T.dtype)


def joined(parts: Sequence[Rows]) -> Rows:
    """Puts the columns of several arrays side by side, as a lazy array: (n, sum of their columns).  Collective: no."""
    if len(parts) == 1:
        return parts[0]
    width = sum(part.shape[1] for part in parts)
    return LazyRows(lambda rows: np.hstack([part[rows] for part in parts]), (len(parts[0]), width), parts[0].dtype)


@dataclass(frozen=True)
class Joint(Segment):
    """[A_1, A_2, ...] -> [f_1(A_1), f_2(A_2), ...], for segments f_j that share parameter blocks.

    maps, blocks: those of all segments, one segment after the other; blocks are numbered from 0, alike in all segments.
    widths: the number of columns of each A_j.
    """

    segments: tuple[Segment, ...] = ()
    widths: tuple[int, ...] = ()

    def forward(self, weights: Sequence[Array], A: Array, count: int | None = None) -> Array:
        """Computes the outputs of all segments, side by side."""
        parts = zip(self.segments, split_columns(self.widths, A), strict=True)
        return np.hstack([segment.forward(weights, own) for segment, own in parts])

    def tape(self, weights: Sequence[Array], A: Array, fixed: Fixed | None = None) -> JointTape:
        """Linearises all segments in their inputs and weights."""
        parts = zip(self.segments, split_columns(self.widths, A), strict=True)
        tapes = tuple(segment.tape(weights, own) for segment, own in parts)
        steps = tuple(step for tape in tapes for step in tape.steps)
        return JointTape(np.hstack([tape.F for tape in tapes]), steps, tapes)


@dataclass(frozen=True)
class JointTape(Tape):
    """The outputs F of several segments, side by side, and their steps and tapes, one segment after the other."""

    tapes: tuple[Tape, ...]

    def backwards(self, dF: Array) -> Iterator[tuple[Step, Array]]:
        """Yields the maps with weights segment by segment, each with dF pulled back to its outputs."""
        parts = split_columns([tape.F.shape[1] for tape in self.tapes], dF)
        for tape, own in zip(self.tapes, parts, strict=True):
            yield from tape.backwards(own)

    def weight_jvp(self, dW: Sequence[Array]) -> Array:
        """Computes the change of F for changes dW of the parameter blocks."""
        return np.hstack([tape.weight_jvp(dW) for tape in self.tapes])


@dataclass(frozen=True)
class JointRoot:
    """The curvatures B^T B of several losses, each on its own outputs."""

    roots: tuple[Any, ...]
    weights: tuple[float, ...]
    widths: tuple[int, ...]

    def normal(self, dF: Array) -> Array:
        """Computes B^T B dF, row by row."""
        parts = zip(self.roots, self.weights, split_columns(self.widths, dF), strict=True)
        return np.hstack([weight * root.normal(own) for root, weight, own in parts])


@dataclass(frozen=True)
class JointLoss:
    """sum_j weight_j loss_j, where loss_j is of the outputs of the j-th segment.

    widths, targets: the numbers of columns of these outputs and of their targets.
    """

    losses: tuple[Loss, ...]
    weights: tuple[float, ...]
    widths: tuple[int, ...]
    targets: tuple[int, ...]

    def _parts(self, Y: Array, F: Array) -> list[tuple[Loss, float, Array, Array]]:
        both = split_columns(self.targets, Y), split_columns(self.widths, F)
        return list(zip(self.losses, self.weights, *both, strict=True))

    def value(self, Y: Array, F: Array) -> Array:
        """Computes the sum of the losses of each point: (n,)."""
        total = np.zeros(len(F), F.dtype)
        for loss, weight, y, f in self._parts(Y, F):
            total += weight * loss.value(y, f)
        return total

    def residual(self, Y: Array, F: Array) -> Array:
        """Computes minus the gradient with respect to F."""
        return np.hstack([weight * loss.residual(y, f) for loss, weight, y, f in self._parts(Y, F)])

    def root(self, Y: Array, F: Array) -> JointRoot:
        """Computes the curvature of each loss."""
        return JointRoot(tuple(loss.root(y, f) for loss, _, y, f in self._parts(Y, F)), self.weights, self.widths)
