"""A plan gives ranks their points and work, and weights their places in flat buffers, for a config and sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

import numpy as np

from macmpi.config.auto import Sizes
from macmpi.config.whole import one_layer, resized
from macmpi.demand import Demand
from macmpi.nets.chain import Chain, Segment
from macmpi.nets.layers import is_basis
from macmpi.parallel import tiles
from macmpi.parallel.placement import EVERYWHERE, Placement
from macmpi.parallel.points import PointPartition, partition_points
from macmpi.parallel.streams import stream
from macmpi.plan.resolve import resolve
from macmpi.plan.resolved import Regression, Resolved
from macmpi.plan.work_lists import Factor, Gram, Job, Layer, Tour, WorkList, all_jointly, by_one, each_its_own
from macmpi.solvers.w_problem import Restraint

FLOPS, LIGHT = 6.0, 2e7
"""A step takes FLOPS flops for each point and weight.  A minibatch of fewer than LIGHT flops, about a millisecond or
two, is not shared: one rank takes it, and the others wait."""

SHARED = 2
"""A minibatch that ranks share has this many parts."""


@dataclass(frozen=True)
class Plan:
    """Holds all that is settled before the first half step, the same on every rank.

    resolved: the values of the config.
    origin: the plan that the run began with, if a selection has changed the net, or full MAC ends with steps of all
        points; else None.
    """

    resolved: Resolved
    n_train: int
    n_val: int
    ranks: int
    origin: Plan | None = None

    @property
    def begun(self) -> Plan:
        """The plan that the run began with, its net the largest one."""
        return self.origin or self

    @property
    def chain(self) -> Chain:
        return self.resolved.chain

    @property
    def net(self) -> Chain:
        """The net that reads the data's own columns, as a model does, even if training is in the span of the points."""
        columns = self.begun.resolved.columns
        return self.chain.net.reading(columns) if columns else self.chain.net

    @property
    def in_span(self) -> str:
        """Says that training is in the span of the points; "" if it is not."""
        columns, n_in = self.begun.resolved.columns, self.chain.n_in
        return f"trained on {n_in:,} coordinates in the span of the points, of {columns:,} columns" if columns else ""

    @property
    def dtype(self) -> np.dtype:
        return self.resolved.dtype

    @property
    def seed(self) -> int:
        return self.resolved.start.seed

    @property
    def placement(self) -> Placement:
        """The place where rows of points live."""
        return self.resolved.placement

    @cached_property
    def minibatch_parts(self) -> int:
        """The number of parts of a minibatch; 0 for methods without minibatches, and for steps of all points.

        "auto" is 1 if a minibatch is too little work to be shared, else 2, or more if each part stays with a rank.  It
        does not depend on the number of ranks, since another number of parts gives other bits.
        """
        of, keys = self.resolved, self.resolved.stochastic
        if of.method.name != "stochastic" or keys.batch == "all":
            return 0
        light = FLOPS * keys.batch * self.chain.whole.multiplications < LIGHT
        auto = self.placement.parts(1 if light else SHARED, self.n_train, of.minibatch(self.n_train))
        return min(auto if keys.parts == "auto" else keys.parts, self.n_train)

    @cached_property
    def finishing(self) -> Plan | None:
        """The plan of the steps on all points with which full MAC ends; None if it ends without such steps."""
        return self.of(self.resolved.finishing)

    def of(self, other: Resolved | None) -> Plan | None:
        """Makes the plan of other Resolved values on the same points and ranks; returns None for None."""
        return None if other is None else Plan(other, self.n_train, self.n_val, self.ranks, self.begun)

    @cached_property
    def offsets(self) -> Offsets:
        """The places of weights and Grams in flat buffers, which the shapes of the net determine."""
        sides = [0] * len(self.chain.segments)
        for k, regression in self.resolved.regressions.items():
            if regression.system:
                sides[k] = self.chain.views[k].map.columns + self.chain.views[k].bias
        weights, grams = ([a * b for a, b in self.chain.block_shapes], [side**2 for side in sides])
        of_weights, of_grams = (tuple(accumulate(counts, initial=0)) for counts in (weights, grams))
        return Offsets(of_weights, of_grams, tuple(sides))

    @cached_property
    def work(self) -> Work:
        """The work of each rank: its points, and its tasks in a W-step."""
        return Work(self)

    @cached_property
    def features(self) -> tuple[Segment, ...]:
        """The segments, each from the first map that its regression fits; the maps before this one compute features."""
        return tuple(segment.rest for segment in self.chain.segments)

    def penalty_weight(self, segment: int, mu: float) -> float:
        """Returns the weight of a segment's term in E_Q: mu for a sum of squares, 1 for the last segment's loss."""
        return mu if segment < len(self.chain.sites) else 1.0

    def unit_ridge(self, segment: int, mu: float) -> float:
        """Returns the ridge of the first layer of a segment's own regression, 1/2 sum r^2 + ridge/2 ||v||^2."""
        return self.ridges(segment, mu)[0]

    def ridges(self, segment: int, mu: float) -> tuple[float, ...]:
        """Returns the ridge of each layer of a segment's regression (`Shaping`)."""
        blocks, output = self.chain.regressed(segment), segment == len(self.chain.sites)
        return tuple(self.resolved.shaping.ridge(b, mu, output) for b in blocks)

    def restraints(self, segment: int, mu: float) -> tuple[Restraint, ...]:
        """Returns the restraints on the weights of each regressed layer of a segment: l1, groups and bounds."""
        blocks, output = self.chain.regressed(segment), segment == len(self.chain.sites)
        return tuple(self.resolved.shaping.restraint(b, mu, output) for b in blocks)

    def centres(self, block: int, inputs: np.ndarray, present: np.ndarray | None) -> np.ndarray:
        """Lets a trainer find the weights (units, D) of a parameter block, the same on every rank.

        inputs (n, D): the inputs of the layer.
        present: the present weights; None: there are none yet.
        """
        count = self.chain.block_shapes[block][0]
        return self.resolved.trainers[block].fit(inputs, count, present, stream(self.seed, "centres", block))

    def resized(self, units: Sequence[int], widths: Sequence[float] = (), ridges: Sequence[float] = ()) -> Plan:
        """Makes the plan of a net to which a selection has given other units, widths or ridges.

        units, widths, ridges: as `resized` of config/whole.py takes them.  Collective: no.
        """
        sizes = Sizes(self.chain.n_in, self.chain.n_out, self.n_train, self.n_val, self.resolved.autoencoder)
        config = resized(self.begun.resolved.config, units, widths, ridges)
        return Plan(resolve(config, sizes), self.n_train, self.n_val, self.ranks, self.begun)

    def of_layer(self, k: int, output: str, n_in: int, iterations: int) -> Plan:
        """Makes the plan of hidden layer k alone, trained as an autoencoder of its inputs.

        output: the activation of its output layer.
        n_in: the number of its inputs.
        iterations: the most iterations of its training.
        """
        sizes = Sizes(n_in, n_in, self.n_train, self.n_val, autoencoder=True)
        alone = resolve(one_layer(self.resolved.config, k, output, iterations), sizes)
        return Plan(replace(alone, placement=self.placement), self.n_train, self.n_val, self.ranks)

    def of_subset(self, n_train: int, n_val: int) -> Plan:
        """Makes the plan of the same net on n_train and n_val points that every rank has."""
        return Plan(replace(self.resolved, placement=EVERYWHERE), n_train, n_val, self.ranks)

    @property
    def has_basis(self) -> bool:
        """Tells whether there are radial basis functions: the nested error then holds the ridge, as in eq. (6)."""
        return any(is_basis(m) for m in self.chain.maps)

    @property
    def basis_sizes(self) -> list[int]:
        """The number of centres of each layer of radial basis functions."""
        return [m.n_out for m in self.chain.blocks if is_basis(m)]


def make_plan(resolved: Resolved, n_train: int, n_val: int, ranks: int) -> Plan:
    """Makes the plan of a run.  n_train, n_val, ranks: the numbers of points and of ranks.  Collective: no."""
    return Plan(resolved, n_train, n_val, ranks)


# --- places in flat buffers -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Offsets:
    """Says where parameter blocks begin and end among the weights, and segments' Grams among the Grams.

    sides: the side of each Gram, which is square; 0 for segments whose units share none.
    """

    weights: tuple[int, ...]
    grams: tuple[int, ...]
    sides: tuple[int, ...]

    def block(self, block: int) -> slice:
        """Returns the place of a parameter block among the weights."""
        return slice(self.weights[block], self.weights[block + 1])

    def gram(self, segment: int) -> slice:
        """Returns the place of a segment's Gram among the Grams."""
        return slice(self.grams[segment], self.grams[segment + 1])

    def large(self, segment: int) -> bool:
        """Tells whether the Gram of a segment is so large that it is made by rows and factored by all ranks jointly."""
        return self.sides[segment] > tiles.GRAM_WHOLE


# --- the work of each rank --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """Makes the point partitions and work lists of a plan, each once; they depend on sizes and the number of ranks."""

    plan: Plan

    @property
    def chain(self) -> Chain:
        return self.plan.chain

    def _training(self, blocks: int) -> PointPartition:
        """Cuts the training points into at most `blocks` blocks, or into fixed ones where a block stays with a rank."""
        nested = self.plan.resolved.method.nested
        only = self.plan.minibatch_parts or (tiles.block_count if nested else tiles.sum_blocks)(self.plan.n_train)
        blocks = blocks if self.plan.placement.all_rows and not self.plan.resolved.ring else only
        return partition_points(self.plan.n_train, self.plan.ranks, blocks, self.plan.placement, self._tiled)

    def _tiled(self, n: int) -> tiles.Cut:
        """Cuts n points into tiles, which are larger for stochastic runs of few points: only errors use them there."""
        parts = self.plan.minibatch_parts
        return tiles.large_tiles(n, parts) if parts and n <= tiles.FEW else tiles.point_tiles(n)

    @cached_property
    def train(self) -> PointPartition:
        """The training points, divided among ranks: a rank computes coordinates and errors of its own points."""
        return self._training(tiles.block_count(self.plan.n_train))

    @cached_property
    def summed(self) -> PointPartition:
        """The training points, divided among ranks for sums of Grams."""
        return self._training(tiles.sum_blocks(self.plan.n_train))

    @cached_property
    def parts(self) -> PointPartition:
        """The training points, divided among ranks in parts, by which minibatches or steps of all points are summed."""
        return self._training(self.plan.minibatch_parts or tiles.sum_blocks(self.plan.n_train))

    @cached_property
    def validation(self) -> PointPartition:
        """The validation points, divided among ranks: a rank computes the errors of its own points."""
        return partition_points(self.plan.n_val, self.plan.ranks, None, self.plan.placement, self._tiled)

    @cached_property
    def w_step(self) -> WorkList:
        """The work list of all regressions; the first segment's inputs never change, so its Gram is not made again."""
        segments = range(len(self.chain.segments))
        return self.regressions(segments, [k for k in segments if k or self._grouped(0)])

    @cached_property
    def first_gram(self) -> WorkList:
        """The work list that makes the Gram of the first segment, once."""
        return self.regressions([], [] if self._grouped(0) else [0])

    def _grouped(self, segment: int) -> bool:
        """Tells whether other segments share the weights of this one."""
        return len(self.chain.groups[segment]) > 1

    @cached_property
    def leading_layers(self) -> WorkList:
        """The work list of layers that trainers fit before a W-step's regressions, as their inputs have changed."""
        return self.leading(range(1, len(self.chain.segments)))

    @cached_property
    def trailing_layers(self) -> WorkList:
        """The work list of layers that trainers fit after a W-step's regressions."""
        return self.trailing(range(len(self.chain.segments)))

    def regressions(self, segments: Sequence[int], renewed: Sequence[int] | None = None) -> WorkList:
        """Makes the work list of some segments' regressions.  renewed: segments with new Grams; None: all."""
        renewed = segments if renewed is None else renewed
        jobs = [job for k in segments for job in self.jobs(k)]
        grams = [gram for k in renewed for gram in self.grams(k)]
        fresh = {gram.segment for gram in grams}
        asked = [k for k in sorted({*segments, *fresh}) if k in self.chain.views]
        made = [k for k in asked if self._regression(k).by_unit or self.chain.segments[k].leading]
        large = [Factor(k) for k in sorted(segments) if self.plan.offsets.large(k)]
        old, new = ([factor for factor in large if (factor.segment in fresh) == again] for again in (False, True))
        away = tuple(job for job in jobs if self.plan.resolved.travels(job.segment))
        here, tour = [job for job in jobs if job not in away], [Tour(away)] if away else []
        if self.plan.placement.all_rows:
            return WorkList((*each_its_own(here, grams, old, new, self.plan.ranks), *all_jointly(tour)), tuple(made))
        alone = [job for job in here if self.at_hand(job.segment)]
        joint = all_jointly([*(job for job in here if job not in alone), *tour], grams, old, new)
        return WorkList((*joint, *by_one(alone, self.plan.ranks)), tuple(made))

    def at_hand(self, segment: int) -> bool:
        """Tells whether a segment's regression is fitted only to some points at hand.

        This is so if its solver does not sum over points and no rank has all of them.
        """
        of, regression = self.plan.resolved, self.plan.resolved.regressions.get(segment)
        if regression is None or self.plan.placement.all_rows or of.travels(segment):
            return False
        return Demand.SHARDED not in regression.solver.handles

    def jobs(self, segment: int) -> list[Job]:
        """Makes the jobs of a segment: one for each tile of units or each row of a fitter, or one for all weights."""
        blocks, bounds, n = self.chain.regressed(segment), self.plan.offsets.weights, self.plan.n_train
        if not blocks:
            return []
        regression, view = self._regression(segment), self.chain.views[segment]
        place = slice(bounds[blocks[0]], bounds[blocks[-1] + 1])
        if regression.by_unit:
            ((units, width),), P = view.shapes, view.rows_per_point
            cut = self._unit_tiles(segment, units)
            efforts = [P * regression.solver.effort(width, len(tile), P * n) for tile in cut]
        else:
            sizes = zip(view.shapes, (self.chain.blocks[b].own for b in blocks), strict=True)
            effort = sum(m.multiplications / (h * d) * regression.solver.effort(d, h, n) for (h, d), m in sizes)
            if not regression.by_rows:
                return [Job(segment, None, place, effort)]
            ((rows, width),) = view.shapes
            cut, efforts = tiles.evenly(rows, 1), [effort / rows] * rows
        pairs = zip(cut, efforts, strict=True)
        return [Job(segment, tile, _rows_of(place, tile, width), effort) for tile, effort in pairs]

    def _unit_tiles(self, segment: int, units: int) -> Sequence[tiles.Tile]:
        if self.plan.resolved.travels(segment):
            return tiles.ring_tiles(units, len(self.train.blocks))
        if self.plan.resolved.shaping.asked(self.chain.regressed(segment)[0]).joins:
            return tiles.cut(units, 1)
        solver = self._regression(segment).solver
        if solver.exact or Demand.RESTRAINED in solver.handles:
            return tiles.evenly(units, tiles.EXACT_WIDTH)
        return tiles.unit_tiles(units)

    def grams(self, segment: int) -> list[Gram]:
        """Makes the tasks of the Gram that a segment's units share: one, or one for some rows each if it is large."""
        offsets = self.plan.offsets
        if segment not in self.chain.views or not (system := self._regression(segment).system):
            return []
        side, place, P = offsets.sides[segment], offsets.gram(segment), self.chain.views[segment].rows_per_point
        if not offsets.large(segment):
            return [Gram(segment, None, place, P * system.cost(side))]
        cut = tiles.evenly(side, tiles.GRAM_ROWS)
        return [Gram(segment, t, _rows_of(place, t, side), P * system.cost(side, t.rows)) for t in cut]

    def _regression(self, segment: int) -> Regression:
        return self.plan.resolved.regressions[segment]

    def leading(self, segments: Sequence[int]) -> WorkList:
        """Makes the work list of the layers of some segments that trainers fit before a W-step's regressions."""
        return self._by_trainers(self._layers({k: self.chain.segments[k].leading for k in segments}))

    def trailing(self, segments: Sequence[int]) -> WorkList:
        """Makes the work list of the layers of some segments that trainers fit after a W-step's regressions."""
        return self._by_trainers(self._layers({k: self.chain.segments[k].trailing for k in segments}))

    def untrained(self, segment: int, weights: np.ndarray) -> WorkList:
        """Makes the work list of a segment's trailing layers that no trainer has fitted yet: all their weights are 0.

        weights: (P,).
        """
        layers = self._layers({segment: self.chain.segments[segment].trailing})
        return self._by_trainers([layer for layer in layers if not weights[layer.place].any()])

    def _layers(self, maps: dict[int, Sequence[int]]) -> list[Layer]:
        """Makes the tasks of those layers that have weights.  maps: by segment the numbers of its maps."""
        numbers = ((k, i, self.chain.segments[k].blocks[i]) for k, some in maps.items() for i in some)
        placed = [(k, i, b, self.plan.offsets.block(b)) for k, i, b in numbers if b is not None]
        return [Layer(k, i, b, place, float(place.stop - place.start)) for k, i, b, place in placed]

    def _by_trainers(self, layers: Sequence[Layer]) -> WorkList:
        if not self.plan.placement.all_rows:
            return WorkList(all_jointly(layers))
        trainers = self.plan.resolved.trainers
        copies = [trainers[f.block].copies and not f.map for f in layers]  # if the layer reads coordinates
        copied, fitted = ([f for f, c in zip(layers, copies, strict=True) if c == which] for which in (True, False))
        return WorkList(by_one(fitted, self.plan.ranks, copied))


def _rows_of(place: slice, rows: tiles.Tile, width: int) -> slice:
    """Returns the place of some rows of a matrix that has this width and place."""
    return slice(place.start + rows.start * width, place.start + rows.stop * width)
