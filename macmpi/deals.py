"""What is dealt to ranks: points, tiles of units, shared factors, layers that trainers fit; and where results lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from macmpi import tiles
from macmpi.tiles import Tile


@dataclass(frozen=True)
class Job:
    """The atom of the W-step: a tile of units of a segment's parameter block, or, where `units` is None, a segment.

    place: where its weights lie in the flat buffer.
    """

    segment: int
    units: Tile | None
    place: slice
    cost: float


@dataclass(frozen=True)
class Share:
    """The factor that the units of a segment share, or some rows of it.  place: where they lie among the factors."""

    segment: int
    rows: Tile | None
    place: slice
    cost: float


@dataclass(frozen=True)
class Layer:
    """A layer that a trainer fits: map number `map` of a segment.  place: where its weights lie."""

    segment: int
    map: int
    block: int
    place: slice
    cost: float


@dataclass(frozen=True)
class Deal:
    """Jobs of the W-step dealt to ranks, and the shared factors that they need; `*_parts`: the places of each rank."""

    jobs: tuple[tuple[Job, ...], ...]
    weight_parts: tuple[tuple[slice, ...], ...]
    shares: tuple[tuple[Share, ...], ...]
    shared_parts: tuple[tuple[slice, ...], ...]


@dataclass(frozen=True)
class LayerDeal:
    """Layers that trainers fit: `copied` by every rank for itself, the others dealt to ranks."""

    copied: tuple[Layer, ...]
    fitted: tuple[tuple[Layer, ...], ...]
    parts: tuple[tuple[slice, ...], ...]


@dataclass(frozen=True)
class PointDeal:
    """Tiles of points dealt to ranks: whole blocks, contiguous, so that one in-place gather exchanges their rows."""

    blocks: tuple[tuple[Tile, ...], ...]
    runs: tuple[Tile, ...]

    def blocks_of(self, rank: int) -> list[tuple[int, tuple[Tile, ...]]]:
        run = self.runs[rank]
        return [(b, self.blocks[b]) for b in range(run.start, run.stop)]

    def tiles_of(self, rank: int) -> list[Tile]:
        return [tile for _, block in self.blocks_of(rank) for tile in block]

    @property
    def block_counts(self) -> tuple[int, ...]:
        return tuple(len(run) for run in self.runs)

    @property
    def row_counts(self) -> tuple[int, ...]:
        return tuple(sum(len(t) for t in self.tiles_of(r)) for r in range(len(self.runs)))


def deal_points(n: int, ranks: int) -> PointDeal:
    blocks = tiles.blocks(tiles.point_tiles(n))
    return PointDeal(blocks, tiles.deal_runs(len(blocks), ranks))


def places(dealt: Sequence[Sequence[Any]]) -> tuple[tuple[slice, ...], ...]:
    """Where the results of each rank lie."""
    return tuple(tuple(job.place for job in rank) for rank in dealt)
