"""Work: which rank has which points, who does what in a W-step, and the sizes and parts of minibatches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np

from macmpi.config import NESTED, Stochastic
from macmpi.demand import Demand
from macmpi.nets.chain import Chain
from macmpi.parallel import tiles
from macmpi.parallel.placement import Placement
from macmpi.parallel.points import PointPartition, partition_points
from macmpi.plan import tuned
from macmpi.plan.resolved import Regression, Resolved
from macmpi.plan.work_lists import Factor, Gram, Job, Layer, Tour, WorkList, all_jointly, by_one, each_its_own


@dataclass(frozen=True)
class Work:
    """Point partitions and work lists: what sizes and the number of ranks make of a config, each made once.

    minibatch_parts: 0 without minibatches.
    """

    resolved: Resolved
    offsets: Offsets
    n_train: int
    n_val: int
    ranks: int
    minibatch_parts: int = 0

    @property
    def chain(self) -> Chain:
        return self.resolved.chain

    @property
    def placement(self) -> Placement:
        return self.resolved.placement

    def _training(self, blocks: int) -> PointPartition:
        """The training points in at most `blocks` blocks, or in the same ones always where they stay with a rank."""
        nested = self.resolved.method.name in NESTED
        only = self.minibatch_parts or (tiles.block_count if nested else tiles.sum_blocks)(self.n_train)
        blocks = only if self.resolved.ring else self.placement.blocks(blocks, only)
        return partition_points(self.n_train, self.ranks, blocks, self.placement, self._tiled)

    def _tiled(self, n: int) -> tiles.Cut:
        """Few points of a stochastic run in larger and fewer tiles: errors are summed over them, and nothing else."""
        parts = self.minibatch_parts
        return tiles.large_tiles(n, parts) if parts and n <= tiles.FEW else tiles.point_tiles(n)

    @cached_property
    def train(self) -> PointPartition:
        """The training points whose coordinates and errors are a rank's to compute."""
        return self._training(tiles.block_count(self.n_train))

    @cached_property
    def summed(self) -> PointPartition:
        """The training points as Grams are summed over them."""
        return self._training(tiles.sum_blocks(self.n_train))

    @cached_property
    def parts(self) -> PointPartition:
        """The training points as parts that a minibatch, or a step of all points, is summed over."""
        return self._training(self.minibatch_parts or tiles.sum_blocks(self.n_train))

    @cached_property
    def validation(self) -> PointPartition:
        """The validation points whose errors are a rank's to compute."""
        return partition_points(self.n_val, self.ranks, None, self.placement, self._tiled)

    @cached_property
    def w_step(self) -> WorkList:
        """All regressions in one list.  The first segment's inputs never change: no Gram to make again."""
        segments = range(len(self.chain.segments))
        return self.regressions(segments, [k for k in segments if k or self._grouped(0)])

    @cached_property
    def first_gram(self) -> WorkList:
        """The Gram of the first segment alone, computed once."""
        return self.regressions([], [] if self._grouped(0) else [0])

    def _grouped(self, segment: int) -> bool:
        """Other segments share its weights."""
        return len(self.chain.groups[segment]) > 1

    @cached_property
    def leading_layers(self) -> WorkList:
        """The layers before the regressions of a W-step that trainers fit: those whose inputs change."""
        return self.leading(range(1, len(self.chain.segments)))

    @cached_property
    def trailing_layers(self) -> WorkList:
        """The layers that trainers fit after the regressions of a W-step."""
        return self.trailing(range(len(self.chain.segments)))

    def regressions(self, segments: Sequence[int], renewed: Sequence[int] | None = None) -> WorkList:
        """The regressions of some segments; Grams are made again of those or, where given, of the `renewed` ones."""
        renewed = segments if renewed is None else renewed
        jobs = [job for k in segments for job in self.jobs(k)]
        grams = [gram for k in renewed for gram in self.grams(k)]
        fresh = {gram.segment for gram in grams}
        made = [k for k in sorted({*segments, *fresh}) if self._by_unit(k) or self.chain.segments[k].leading]
        large = [Factor(k) for k in sorted(segments) if self.offsets.large(k)]
        old, new = ([factor for factor in large if (factor.segment in fresh) == again] for again in (False, True))
        away = tuple(job for job in jobs if self.resolved.travels(job.segment))
        here, tour = [job for job in jobs if job not in away], [Tour(away)] if away else []
        if self.placement.sums_alone:
            return WorkList((*each_its_own(here, grams, old, new, self.ranks), *all_jointly(tour)), tuple(made))
        alone = [job for job in here if self.at_hand(job.segment)]
        joint = all_jointly([*(job for job in here if job not in alone), *tour], grams, old, new)
        return WorkList((*joint, *by_one(alone, self.ranks)), tuple(made))

    def at_hand(self, segment: int) -> bool:
        """Its regression is fitted to the rows of some points at hand, for its solver sums over none, and no rank has
        those of all.
        """
        sums = Demand.SHARDED in self.resolved.regressions[segment].solver.handles
        return not (self.placement.sums_alone or sums or self.resolved.travels(segment))

    def jobs(self, segment: int) -> list[Job]:
        """The segment's regressions: tiles of units, rows of a fitter, or one for all its weights."""
        blocks, bounds = self.chain.regressed(segment), self.offsets.weights
        solver, shapes = self.resolved.regressions[segment].solver, self.chain.views[segment].shapes
        if not blocks:
            return []
        if not self._by_unit(segment):
            place = slice(bounds[blocks[0]], bounds[blocks[-1] + 1])
            sizes = zip(shapes, (self.chain.blocks[b].own for b in blocks), strict=True)
            efforts = [m.multiplications / (h * d) * solver.effort(d, h, self.n_train) for (h, d), m in sizes]
            if self.resolved.regressions[segment].by_rows:
                ((rows, width),), first = shapes, place.start
                runs = ((t, slice(first + t.start * width, first + t.stop * width)) for t in tiles.evenly(rows, 1))
                return [Job(segment, tile, run, sum(efforts) / rows) for tile, run in runs]
            return [Job(segment, None, place, sum(efforts))]
        ((units, width),), start = shapes, bounds[blocks[0]]
        cut = self._unit_tiles(segment, units)
        found = [slice(start + tile.start * width, start + tile.stop * width) for tile in cut]
        P = self.chain.views[segment].rows_per_point
        efforts = [P * solver.effort(width, len(tile), P * self.n_train) for tile in cut]
        return [Job(segment, *job) for job in zip(cut, found, efforts, strict=True)]

    def _unit_tiles(self, segment: int, units: int) -> Sequence[tiles.Tile]:
        if self.resolved.travels(segment):
            return tiles.ring_tiles(units, len(self.train.blocks))
        if self.resolved.shaping.asked(self.chain.regressed(segment)[0]).joins:
            return tiles.cut(units, 1)
        solver = self.resolved.regressions[segment].solver
        if solver.exact or Demand.RESTRAINED in solver.handles:
            return tiles.evenly(units, tiles.EXACT_WIDTH)
        return tiles.unit_tiles(units)

    def grams(self, segment: int) -> list[Gram]:
        """The Gram that the segment's units share: whole, or by rows where it is large."""
        (rows, width), system = self.offsets.gram_shapes[segment], self.resolved.regressions[segment].system
        start = self.offsets.grams[segment]
        if not system:
            return []
        P = self.chain.views[segment].rows_per_point
        if not self.offsets.large(segment):
            return [Gram(segment, None, self.offsets.gram(segment), P * system.cost(width))]
        return [
            Gram(segment, t, slice(start + t.start * width, start + t.stop * width), P * system.cost(width, t.rows))
            for t in tiles.evenly(rows, tiles.GRAM_ROWS)
        ]

    def _by_unit(self, segment: int) -> bool:
        return self.resolved.regressions[segment].by_unit

    def leading(self, segments: Sequence[int]) -> WorkList:
        """The layers of some segments that trainers fit before the regressions of a W-step."""
        return self._by_trainers([layer for k in segments for layer in self._layers(k, self.chain.segments[k].leading)])

    def trailing(self, segments: Sequence[int]) -> WorkList:
        """Layers that trainers fit after the regressions."""
        maps = {k: self.chain.segments[k].trailing for k in segments}
        return self._by_trainers([layer for k, own in maps.items() for layer in self._layers(k, own)])

    def untrained(self, segment: int, weights: np.ndarray) -> WorkList:
        """A segment's trailing layers whose weights are 0: not yet found."""
        layers = self._layers(segment, self.chain.segments[segment].trailing)
        return self._by_trainers([layer for layer in layers if not weights[layer.place].any()])

    def _layers(self, segment: int, maps: Sequence[int]) -> list[Layer]:
        numbers = ((i, self.chain.segments[segment].blocks[i]) for i in maps)
        placed = [(i, b, self.offsets.block(b)) for i, b in numbers if b is not None]
        return [Layer(segment, i, b, place, float(place.stop - place.start)) for i, b, place in placed]

    def _by_trainers(self, layers: Sequence[Layer]) -> WorkList:
        if not self.placement.sums_alone:
            return WorkList(all_jointly(layers))
        copies = [self.resolved.trainers[f.block].copies and not f.map for f in layers]  # its inputs are coordinates
        copied, fitted = ([f for f, c in zip(layers, copies, strict=True) if c == which] for which in (True, False))
        return WorkList(by_one(fitted, self.ranks, copied))


@dataclass(frozen=True)
class Offsets:
    """Bounds of the parameter blocks among the weights, and of the segments' Grams among the Grams.

    gram_shapes: (0, 0) for segments whose units share none.
    """

    weights: tuple[int, ...]
    grams: tuple[int, ...]
    gram_shapes: tuple[tuple[int, int], ...]

    def block(self, block: int) -> slice:
        """Gives the place of a parameter block among the weights."""
        return slice(self.weights[block], self.weights[block + 1])

    def gram(self, segment: int) -> slice:
        """Gives the place of a segment's Gram among the Grams."""
        return slice(self.grams[segment], self.grams[segment + 1])

    def large(self, segment: int) -> bool:
        """Its units share a Gram so large that it is made by rows and factored by all ranks jointly."""
        return self.gram_shapes[segment][1] > tiles.GRAM_WHOLE


def offsets(chain: Chain, regressions: tuple[Regression, ...]) -> Offsets:
    """The places that the shapes of a chain determine.  Collective: no."""

    def shape(k: int) -> tuple[int, int]:
        system = regressions[k].system
        rows = chain.views[k].map.columns + chain.views[k].bias if system else 0
        return (rows, rows)

    shapes = tuple(shape(k) for k in range(len(chain.segments)))
    return Offsets(_bounds(chain.block_shapes), _bounds(shapes), shapes)


def _bounds(shapes: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
    return tuple(accumulate((a * b for a, b in shapes), initial=0))


# --- minibatches ------------------------------------------------------------------------------------------------------

FLOPS, LIGHT = 6.0, 2e7
"""Flops of a step for each point and weight, and those of a minibatch below which ranks would rather wait than share:
about a millisecond or two."""

SHARED = 2
"""Parts of a minibatch that ranks share."""


def minibatch(keys: Stochastic, n_train: int, epoch: int, labels: bool) -> int:
    """Points of a minibatch: at first `batch`, but at most a twentieth of all (of labels a tenth; or BATCH_LEAST); as
    many more in `grow_every` epochs, and so on, up to `batch_max` and a fifth of all.  "all" is all of them.

    Collective: no.
    """
    if keys.batch == "all":
        return n_train
    fewest = tuned.EPOCH_LEAST_LABELS if labels else tuned.EPOCH_LEAST
    first = min(keys.batch, max(n_train // fewest, tuned.BATCH_LEAST))
    most = min(keys.batch_max, max(n_train // tuned.EPOCH_GROWN, tuned.BATCH_LEAST, first))
    return min(int(first * (1.0 + epoch / keys.grow_every)), most)


def minibatch_parts(of: Resolved, n_train: int) -> int:
    """Parts of each minibatch; 0 for methods without them, and for steps of all points.  Collective: no.

    "auto" is 1 where a minibatch is too little work to be shared, else 2, or more where a part stays with a rank:
    whatever the number of ranks, since another number of parts gives other bits.
    """
    keys = of.stochastic
    if of.method.name != "stochastic" or keys.batch == "all":
        return 0
    light = FLOPS * keys.batch * of.chain.whole.multiplications < LIGHT
    auto = of.placement.parts(1 if light else SHARED, n_train, minibatch(keys, n_train, 0, of.loss.labels))
    return min(auto if keys.parts == "auto" else keys.parts, n_train)
