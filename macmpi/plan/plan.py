"""Plan: config and sizes -> segments, solvers, tiles, owners, offsets; what does not fit is refused here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from macmpi.config import NESTED, Config
from macmpi.nets.build import build_chain, is_basis
from macmpi.nets.chain import Chain, Segment
from macmpi.nets.layers import Map
from macmpi.nets.losses import LOSSES, Loss
from macmpi.parallel import tiles
from macmpi.parallel.balance import assigned, places
from macmpi.parallel.partition import PointPartition, partition_points
from macmpi.parallel.streams import stream
from macmpi.plan import choices
from macmpi.plan.layer_refusals import check_layers, check_method
from macmpi.plan.penalty import Quadratic, Ridge
from macmpi.plan.refusals import check, check_ring, check_sharded
from macmpi.plan.work_lists import Job, Layer, LayerWork, Share, WorkList, schedule
from macmpi.solvers import SGDW, Z_SOLVERS, Trainer, WSolver, ZSolver


@dataclass(frozen=True)
class Plan:
    """All that is settled before the first half step, the same on every rank.

    plain_solvers: the W-solvers, none over-relaxed: of starts, selections and the postprocessing.
    w_names, by_unit: of each segment, the name of its W-solver and whether its units are solved apart.
    trainers: of the parameter blocks that no regression fits.  sharded: each rank holds its own points; all ranks do
    every W-job together and no result is exchanged.  ring: trains the jobs of inexact solvers, which then travel.
    shared: a node has one copy of points and coordinates.  minibatch_parts: 0 without minibatches.
    """

    chain: Chain
    loss: Loss
    schedule: Quadratic
    ridge: Ridge
    z_solver: ZSolver
    w_solvers: tuple[WSolver, ...]
    plain_solvers: tuple[WSolver, ...]
    w_names: tuple[str, ...]
    by_unit: tuple[bool, ...]
    trainers: dict[int, Trainer]
    metric: str
    dtype: np.dtype
    seed: int
    n_train: int
    n_val: int
    ranks: int
    sharded: bool = False
    ring: SGDW | None = None
    shared: bool = False
    minibatch_parts: int = 0

    @cached_property
    def train(self) -> PointPartition:
        if not self.sharded:
            return partition_points(self.n_train, self.ranks)
        return partition_points(self.n_train, self.ranks, self.minibatch_parts or tiles.sum_blocks(self.n_train), True)

    @cached_property
    def summed(self) -> PointPartition:
        """The training points as Grams are summed over them."""
        return (
            self.train if self.sharded else partition_points(self.n_train, self.ranks, tiles.sum_blocks(self.n_train))
        )

    @cached_property
    def validation(self) -> PointPartition:
        return partition_points(self.n_val, self.ranks, sharded=self.sharded)

    @cached_property
    def parts(self) -> PointPartition:
        """The training points as parts that a minibatch is drawn from."""
        return self.train if self.sharded else partition_points(self.n_train, self.ranks, self.minibatch_parts)

    @cached_property
    def weight_bounds(self) -> list[int]:
        return np.cumsum([0, *(h * d for h, d in self.chain.block_shapes)]).tolist()

    @cached_property
    def shared_bounds(self) -> list[int]:
        """Where each segment's Gram lies in the flat buffer of Grams."""
        shapes = [self.shared_shape(k) for k in range(len(self.chain.segments))]
        return np.cumsum([0, *(a * b for a, b in shapes)]).tolist()

    def shared_shape(self, segment: int) -> tuple[int, int]:
        if not self.by_unit[segment]:
            return (0, 0)
        first = self.chain.segments[segment].regressed[0]
        return self.w_solvers[segment].shared_shape(self.chain.fan_in(first), self.has_bias(segment))

    def has_bias(self, segment: int) -> bool:
        """Whether the first weights that a regression fits have biases."""
        first = self.chain.segments[segment].regressed[0]
        return self.chain.block_shapes[first][1] > self.chain.fan_in(first)

    def shapes(self, segment: int) -> tuple[tuple[int, int], ...]:
        """Give the shapes of the parameter blocks that the segment's regression fits."""
        return tuple(self.chain.block_shapes[b] for b in self.chain.segments[segment].regressed)

    @cached_property
    def features(self) -> tuple[Segment, ...]:
        """The segments without what comes before the weights that a regression fits."""
        return tuple(s.part(s.core, len(s.maps)) for s in self.chain.segments)

    @property
    def has_basis(self) -> bool:
        """Radial basis functions: the nested error then holds the ridge, as in eq. (6)."""
        return any(is_basis(m) for m in self.chain.maps)

    def weight_of(self, segment: int, mu: float) -> float:
        """A segment's sum of squares weighs mu in E_Q; 1 for the last, whose loss it is."""
        return mu if segment < len(self.chain.sites) else 1.0

    def unit_ridge(self, segment: int, mu: float) -> float:
        """Ridge of the segment's own regression, 1/2 sum r^2 + ridge/2 ||v||^2 (penalty.Ridge)."""
        return self.ridge.of_unit(mu, segment == len(self.chain.sites))

    def jobs(self, segment: int) -> list[Job]:
        """The segment's regressions: tiles of units, or one for all its weights."""
        blocks, bounds, solver = self.chain.segments[segment].regressed, self.weight_bounds, self.w_solvers[segment]
        if not self.by_unit[segment]:
            place = slice(bounds[blocks[0]], bounds[blocks[-1] + 1])
            return [Job(segment, None, place, sum(solver.effort(d, h, self.n_train) for h, d in self.shapes(segment)))]
        units, width = self.chain.block_shapes[blocks[0]]
        start, wide = bounds[blocks[0]], units if self.sharded else tiles.EXACT_WIDTH
        cut = tiles.evenly(units, wide) if solver.exact else tiles.unit_tiles(units)
        if self.travels(segment):
            cut = tiles.ring_tiles(units, len(self.train.blocks))
        efforts = [solver.effort(width, len(t), self.n_train) for t in cut]
        return [
            Job(segment, t, slice(start + t.start * width, start + t.stop * width), cost)
            for t, cost in zip(cut, efforts, strict=True)
        ]

    def travels(self, segment: int) -> bool:
        """Its regressions go round the ring of blocks; they are not done by all ranks together."""
        return self.ring is not None and not self.w_solvers[segment].exact

    def rounds(self, segment: int) -> bool:
        """The W-step of its units reads its inputs in single precision too."""
        return self.by_unit[segment] and self.w_solvers[segment].rounds

    def large(self, segment: int) -> bool:
        """Its units share a Gram so large that it is made by rows and factored by all ranks together."""
        return self.by_unit[segment] and self.shared_shape(segment)[1] > tiles.GRAM_WHOLE

    def shares(self, segment: int) -> list[Share]:
        """The Gram that the segment's units share: whole, or where it is large and points are not sharded by rows."""
        (rows, width), solver = self.shared_shape(segment), self.w_solvers[segment]
        start = self.shared_bounds[segment]
        if not rows:
            return []
        if self.sharded or not self.large(segment):
            cost = solver.share_effort(width, self.n_train)
            return [Share(segment, None, slice(start, start + rows * width), cost)]
        return [
            Share(segment, t, slice(start + t.start * width, start + t.stop * width), cost)
            for t in tiles.evenly(rows, tiles.GRAM_ROWS)
            for cost in [solver.share_effort(width, self.n_train, t.rows)]
        ]

    def _deal(self, segments: Sequence[int], shared: Sequence[int]) -> WorkList:
        jobs = [job for k in segments for job in self.jobs(k)]
        shares = [share for k in shared for share in self.shares(k)]
        if self.sharded:
            none = ((),) * self.ranks
            here, away = (tuple(j for j in jobs if self.travels(j.segment) == moves) for moves in (False, True))
            return WorkList(none, (here,) * self.ranks, none, tuple(shares), False, away)
        return schedule(jobs, shares, self.ranks)

    def _layers(self, segments: Sequence[int], leading: bool) -> LayerWork:
        found = []
        for k in segments:
            segment = self.chain.segments[k]
            for i in segment.leading if leading else segment.trailing:
                block = segment.blocks[i]
                assert block is not None
                place = slice(self.weight_bounds[block], self.weight_bounds[block + 1])
                found.append(Layer(k, i, block, place, float(place.stop - place.start)))
        copied = tuple(f for f in found if self.trainers[f.block].copies and not f.map)  # its inputs are coordinates
        fitted = assigned([layer for layer in found if layer not in copied], self.ranks)
        return LayerWork(copied, fitted, places(fitted))

    def leading(self, segments: Sequence[int]) -> LayerWork:
        """The layers of some segments that trainers fit before the regressions of a W-step."""
        return self._layers(segments, leading=True)

    def trailing(self, segments: Sequence[int]) -> LayerWork:
        """Those that they fit after them."""
        return self._layers(segments, leading=False)

    def deal(self, segments: Sequence[int]) -> WorkList:
        """The regressions of some segments, and what their units share."""
        return self._deal(segments, segments)

    def centres(self, block: int, inputs: np.ndarray, present: np.ndarray | None) -> np.ndarray:
        """Let a trainer find a parameter block: the same on every rank."""
        count = self.chain.block_shapes[block][0]
        return self.trainers[block].fit(inputs, count, present, stream(self.seed, "centres", block))

    @property
    def hidden(self) -> list[Map]:
        """The first map of each hidden layer: its radial basis functions, or what is affine in it."""
        return [m for m in self.chain.blocks if "weight_jacobian" in m.capabilities or is_basis(m)][:-1]

    @property
    def basis_sizes(self) -> list[int]:
        """Centres of each layer of radial basis functions."""
        return [m.n_out for m in self.chain.blocks if is_basis(m)]

    @cached_property
    def leading_layers(self) -> LayerWork:
        """Those of the segments whose inputs change."""
        return self.leading(range(1, len(self.chain.segments)))

    def untrained(self, segment: int, weights: np.ndarray) -> LayerWork:
        """A segment's trailing layers whose weights are 0: not yet found."""
        found = self._layers([segment], leading=False)
        fitted = tuple(tuple(f for f in rank if not weights[f.place].any()) for rank in found.fitted)
        return LayerWork(tuple(f for f in found.copied if not weights[f.place].any()), fitted, places(fitted))

    @cached_property
    def trailing_layers(self) -> LayerWork:
        """The layers that trainers fit after the regressions of a W-step."""
        return self.trailing(range(len(self.chain.segments)))

    @cached_property
    def all_units(self) -> WorkList:
        """The W-step: jobs of all layers in one list.  The first segment's inputs never change: no Gram to redo."""
        segments = range(len(self.chain.segments))
        return self._deal(segments, segments[1:])

    @cached_property
    def first_gram(self) -> WorkList:
        """The Gram of the first segment alone, computed once."""
        return self._deal([], [0])


def make_plan(config: Config, n_in: int, n_out: int, n_train: int, n_val: int, ranks: int) -> Plan:
    """The plan of a run.  Raises UsageError, naming a remedy, for what does not fit together.  Collective: no."""
    if config.method.name in NESTED:
        config = choices.without_half_steps(config)
    chain, loss, penalty = build_chain(config.model, n_in, n_out), LOSSES[config.model.loss], config.penalty
    check_layers(config, chain, n_train)
    check_method(config, chain)
    z_solver = choices.solver(Z_SOLVERS[choices.z_name(config, chain)], config.z_step)
    named = [
        choices.w_choice(config, segment, k + 1 == len(chain.segments)) for k, segment in enumerate(chain.segments)
    ]
    w_step = config.w_step if config.model.precision == "float64" else replace(config.w_step, cg_precision="double")
    plan = Plan(
        chain=chain,
        loss=loss,
        schedule=choices.schedule(config),
        ridge=Ridge(penalty.ridge, penalty.ridge_scale, penalty.ridge_until_mu),
        z_solver=z_solver,
        w_solvers=choices.w_solvers(w_step, named, chain),
        plain_solvers=choices.w_solvers(replace(w_step, relaxation=1.0), named, chain),
        w_names=tuple(name for name, _ in named),
        by_unit=tuple(by_unit for _, by_unit in named),
        trainers=choices.trainers(config.model, chain),
        metric=penalty.metric if chain.sites else "identity",  # without constraints there is none to measure
        dtype=np.dtype(config.model.precision),
        seed=config.start.seed,
        n_train=n_train,
        n_val=n_val,
        ranks=ranks,
        sharded=config.parallel.data == "sharded",
        ring=choices.solver(SGDW, config.w_step) if config.w_step.schedule == "ring" else None,
        shared=config.parallel.data == "node",
        minibatch_parts=min(config.stochastic.parts, n_train) if config.method.name == "stochastic" else 0,
    )
    check(config, chain, z_solver, plan.w_solvers, plan.by_unit)
    if plan.ring:
        check_ring(config, plan.w_solvers)
    if plan.sharded:
        check_sharded(config, chain, plan.w_solvers, ranks)
    return plan
