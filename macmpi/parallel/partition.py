"""The partition of the points: whole blocks of tiles, a contiguous run of blocks a rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from macmpi.parallel import balance, tiles
from macmpi.parallel.tiles import Blocks, Cut, Tile


@dataclass(frozen=True)
class PointPartition:
    """Tiles of points assigned to ranks: whole blocks, contiguous, so that one in-place gather exchanges their rows.

    sharded: a rank holds the rows of its own blocks alone; rows are then counted from the first of these.
    """

    blocks: Blocks
    runs: tuple[Tile, ...]
    sharded: bool = False

    @property
    def n(self) -> int:
        return self.blocks.tiles.n

    def own(self, rank: int) -> Tile:
        """The points of a rank, counted over all of them."""
        run = self.runs[rank]
        return self.blocks.points(run.start, run.stop)

    def held(self, rank: int) -> Tile:
        """The points whose rows a rank holds."""
        return self.own(rank) if self.sharded else Tile(0, self.n)

    def blocks_of(self, rank: int) -> list[tuple[int, tuple[Tile, ...]]]:
        """Number and tiles of each block of a rank, the tiles as rows of what it holds."""
        run, first = self.runs[rank], self.held(rank).start
        return [(b, tuple(tile.after(first) for tile in self.blocks[b])) for b in range(run.start, run.stop)]

    def tiles_of(self, rank: int) -> list[Tile]:
        return [tile for _, block in self.blocks_of(rank) for tile in block]

    @cached_property
    def block_counts(self) -> tuple[int, ...]:
        return tuple(len(run) for run in self.runs)

    @cached_property
    def row_counts(self) -> tuple[int, ...]:
        return tuple(len(self.own(r)) for r in range(len(self.runs)))


Partitions = tuple[PointPartition, PointPartition]
"""The partitions of the training and of the validation points."""


def partition_points(
    n: int,
    ranks: int,
    blocks: int | None = None,
    sharded: bool = False,
    tiled: Callable[[int], Cut] = tiles.point_tiles,
) -> PointPartition:
    """Points in at most `blocks` blocks, those of `tiles.block_count` unless it is given."""
    cut = tiles.blocks(tiled(n), tiles.block_count(n) if blocks is None else blocks)
    return PointPartition(cut, balance.contiguous_runs(len(cut), ranks), sharded)
