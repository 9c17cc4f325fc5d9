"""Segments that share weights, as one: they are applied next to each other, and one regression fits them all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from macmpi.nets.design import split_columns
from macmpi.nets.layers import Map
from macmpi.nets.losses import Loss
from macmpi.nets.segment import Segment
from macmpi.nets.tape import Step, Tape, by_block
from macmpi.typing import Array


@dataclass(frozen=True)
class Joint:
    """[A_1, A_2, ...] -> [f_1(A_1), f_2(A_2), ...]; widths: the columns of each A.

    Their blocks are numbered from 0, in all of them alike.
    """

    segments: tuple[Segment, ...]
    widths: tuple[int, ...]

    @property
    def fitted(self) -> tuple[Map, ...]:
        """The first map of each block."""
        first: dict[int, Map] = {}
        for segment in self.segments:
            for b, map_ in zip(segment.regressed, segment.fitted, strict=True):
                first.setdefault(b, map_)
        return tuple(first[b] for b in sorted(first))

    def forward(self, weights: Sequence[Array], A: Array) -> Array:
        """The outputs of all segments, one after the other: (n, their sum)."""
        parts = zip(self.segments, split_columns(self.widths, A), strict=True)
        return np.hstack([segment.forward(weights, own) for segment, own in parts])

    def tape(self, weights: Sequence[Array], A: Array) -> JointTape:
        """All segments, linearised in their weights as well."""
        parts = zip(self.segments, split_columns(self.widths, A), strict=True)
        tapes = tuple(segment.tape(weights, own) for segment, own in parts)
        return JointTape(
            np.hstack([tape.F for tape in tapes]), tapes, tuple(segment.parameter_blocks for segment in self.segments)
        )


@dataclass(frozen=True)
class JointTape:
    """The outputs F of segments and their derivatives; blocks: for each segment the numbers of its blocks."""

    F: Array
    tapes: tuple[Tape, ...]
    blocks: tuple[tuple[int, ...], ...]

    def _numbered(self, parts: Iterable[list[Array]]) -> list[Array]:
        pairs = zip(self.blocks, parts, strict=True)
        return by_block(pair for blocks, own in pairs for pair in zip(blocks, own, strict=True))

    def weight_vjp(self, dF: Array) -> list[Array]:
        """The sum over the segments, block by block."""
        parts = zip(self.tapes, split_columns([tape.F.shape[1] for tape in self.tapes], dF), strict=True)
        return self._numbered(tape.weight_vjp(own) for tape, own in parts)

    def weight_jvp(self, dW: Sequence[Array]) -> Array:
        """dF for changes dW of the parameter blocks."""
        pairs = zip(self.tapes, self.blocks, strict=True)
        return np.hstack([tape.weight_jvp([dW[b] for b in blocks]) for tape, blocks in pairs])

    def scales(self, of: Callable[[Step], Array]) -> list[Array]:
        """A matrix or a number (1, 1) of each map with weights, summed by parameter block."""
        return self._numbered(tape.scales(of) for tape in self.tapes)


@dataclass(frozen=True)
class JointRoot:
    """B^T B of each loss on its own outputs."""

    roots: tuple[Any, ...]
    weights: tuple[float, ...]
    widths: tuple[int, ...]

    def normal(self, dF: Array) -> Array:
        """B^T B dF, row by row."""
        parts = zip(self.roots, self.weights, split_columns(self.widths, dF), strict=True)
        return np.hstack([weight * root.normal(own) for root, weight, own in parts])


@dataclass(frozen=True)
class JointLoss:
    """sum_j weight_j loss_j on the outputs of the j-th segment; widths: of the outputs; targets: widths of theirs."""

    losses: tuple[Loss, ...]
    weights: tuple[float, ...]
    widths: tuple[int, ...]
    targets: tuple[int, ...]

    def _parts(self, Y: Array, F: Array) -> list[tuple[Loss, float, Array, Array]]:
        both = split_columns(self.targets, Y), split_columns(self.widths, F)
        return list(zip(self.losses, self.weights, *both, strict=True))

    def value(self, Y: Array, F: Array) -> Array:
        """The sum of the losses: (n,)."""
        total = np.zeros(len(F), F.dtype)
        for loss, weight, y, f in self._parts(Y, F):
            total += weight * loss.value(y, f)
        return total

    def residual(self, Y: Array, F: Array) -> Array:
        """-gradient with respect to F."""
        return np.hstack([weight * loss.residual(y, f) for loss, weight, y, f in self._parts(Y, F)])

    def root(self, Y: Array, F: Array) -> JointRoot:
        """The curvature of each loss."""
        roots = tuple(loss.root(y, f) for loss, _, y, f in self._parts(Y, F))
        return JointRoot(roots, self.weights, self.widths)
