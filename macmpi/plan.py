"""Plan: config and sizes -> segments, tiles, owners, counts.  Every refusal happens here, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from macmpi import UsageError, tiles
from macmpi.chain import Chain
from macmpi.config import Config, Model
from macmpi.layers import Map
from macmpi.layers.activation import Activation
from macmpi.layers.affine import Affine
from macmpi.objective import LOSSES, Loss
from macmpi.penalty import Ridge, Schedule
from macmpi.solvers import W_SOLVERS, Z_SOLVERS, WSolver, ZSolver
from macmpi.tiles import Tile

SAMPLE_POINTS = 100
"""Points over which the Z-solver averages its preconditioner."""


@dataclass(frozen=True)
class UnitJob:
    """A tile of units of one segment's parameter block: the atom of the W-step."""

    segment: int
    block: int
    tile: Tile
    cost: float


@dataclass(frozen=True)
class UnitDeal:
    """Unit jobs dealt to ranks, and where their results lie in the flat buffers of weights and of unit errors."""

    jobs: tuple[tuple[UnitJob, ...], ...]
    weight_parts: tuple[tuple[slice, ...], ...]
    error_parts: tuple[tuple[slice, ...], ...]
    shared: tuple[tuple[int, ...], ...]
    shared_parts: tuple[tuple[slice, ...], ...]


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


@dataclass(frozen=True)
class Plan:
    """All that is settled before the first half step, the same on every rank."""

    chain: Chain
    loss: Loss
    schedule: Schedule
    ridge: Ridge
    z_solver: ZSolver
    w_solvers: tuple[WSolver, ...]
    activations: tuple[str, ...]
    n_train: int
    n_val: int
    ranks: int

    @cached_property
    def train(self) -> PointDeal:
        return deal_points(self.n_train, self.ranks)

    @cached_property
    def validation(self) -> PointDeal:
        return deal_points(self.n_val, self.ranks)

    @cached_property
    def chunks(self) -> tuple[slice, ...]:
        """Runs of points that a W-solver sums over."""
        return tuple(tile.rows for tile in tiles.point_chunks(self.n_train))

    @cached_property
    def sample(self) -> np.ndarray:
        """Evenly spaced points for the Z-solver's preconditioner."""
        count = min(SAMPLE_POINTS, self.n_train)
        return np.arange(count) * self.n_train // count

    @cached_property
    def weight_bounds(self) -> list[int]:
        return np.cumsum([0, *(h * d for h, d in self.chain.block_shapes)]).tolist()

    @cached_property
    def unit_bounds(self) -> list[int]:
        return np.cumsum([0, *(h for h, _ in self.chain.block_shapes)]).tolist()

    @cached_property
    def shared_bounds(self) -> list[int]:
        """Where each segment's shared factor lies in the flat buffer of factors."""
        shapes = [self.shared_shape(k) for k in range(len(self.chain.segments))]
        return np.cumsum([0, *(a * b for a, b in shapes)]).tolist()

    def shared_shape(self, segment: int) -> tuple[int, int]:
        return self.w_solvers[segment].shared_shape(self.chain.segments[segment].n_in)

    def _deal(self, segments: Sequence[int], shared: Sequence[int]) -> UnitDeal:
        jobs = []
        for k in segments:
            block = self.chain.segments[k].block
            units, width = self.chain.block_shapes[block]
            jobs += [UnitJob(k, block, t, float(len(t) * width)) for t in tiles.unit_tiles(units)]
        owned = tiles.deal_by_cost([job.cost for job in jobs], self.ranks)
        mine = tuple(tuple(jobs[j] for j in rank) for rank in owned)
        costs = [float(self.chain.segments[k].n_in) ** 2 for k in shared]
        factors = tuple(tuple(shared[i] for i in rank) for rank in tiles.deal_by_cost(costs, self.ranks))
        bounds = self.shared_bounds
        return UnitDeal(
            jobs=mine,
            weight_parts=tuple(tuple(self._weight_part(j) for j in rank) for rank in mine),
            error_parts=tuple(tuple(self._error_part(j) for j in rank) for rank in mine),
            shared=factors,
            shared_parts=tuple(tuple(slice(bounds[k], bounds[k + 1]) for k in rank) for rank in factors),
        )

    def _weight_part(self, job: UnitJob) -> slice:
        width = self.chain.block_shapes[job.block][1]
        start = self.weight_bounds[job.block]
        return slice(start + job.tile.start * width, start + job.tile.stop * width)

    def _error_part(self, job: UnitJob) -> slice:
        start = self.unit_bounds[job.block]
        return slice(start + job.tile.start, start + job.tile.stop)

    @cached_property
    def all_units(self) -> UnitDeal:
        """The W-step: units of all layers in one list.  The first segment's inputs never change: no factor to redo."""
        segments = range(len(self.chain.segments))
        return self._deal(segments, segments[1:])

    @cached_property
    def first_factor(self) -> UnitDeal:
        """The shared factor of the first segment alone, computed once."""
        return self._deal([], [0])

    @cached_property
    def last_units(self) -> UnitDeal:
        """The refit of the last layer in the postprocessing step."""
        last = len(self.chain.segments) - 1
        return self._deal([last], [last])


def build_chain(model: Model, n_in: int, n_out: int) -> Chain:
    """Dense layers with an activation each, a linear output layer; a site after or before each hidden activation."""
    sizes = [n_in, *model.hidden]
    maps: list[Map] = []
    sites = []
    for a, b in pairwise(sizes):
        maps += [Affine(a, b), Activation(model.activation, b)]
        sites.append(len(maps) if model.sites == "after" else len(maps) - 1)
    maps.append(Affine(sizes[-1], n_out))
    return Chain(tuple(maps), tuple(sites))


def make_plan(config: Config, n_in: int, n_out: int, n_train: int, n_val: int, ranks: int) -> Plan:
    """The plan of a run.  Raises UsageError, naming a remedy, for what does not fit together.  Collective: no."""
    chain = build_chain(config.model, n_in, n_out)
    penalty, z, w = config.penalty, config.z_step, config.w_step
    z_solver = Z_SOLVERS["gauss_newton"](
        iterations=z.iterations,
        relaxation=z.relaxation,
        cg_iterations=z.cg_iterations,
        cg_tolerance=z.cg_tolerance,
        halvings=z.halvings,
    )
    hidden = W_SOLVERS["gauss_newton"](
        iterations=w.iterations,
        cg_iterations=w.cg_iterations,
        cg_tolerance=w.cg_tolerance,
        tolerance=w.tolerance,
        halvings=w.halvings,
    )
    closed = W_SOLVERS["closed_form"]()
    activations = tuple(segment.activation for segment in chain.segments)
    solvers = tuple(closed if name == "linear" else hidden for name in activations)
    _check(chain, z_solver, solvers, activations)
    return Plan(
        chain=chain,
        loss=LOSSES["squared"],
        schedule=Schedule(penalty.mu0, penalty.factor, penalty.mu_max, penalty.tolerance, config.run.max_iterations),
        ridge=Ridge(penalty.ridge, penalty.ridge_scale, penalty.ridge_until_mu),
        z_solver=z_solver,
        w_solvers=solvers,
        activations=activations,
        n_train=n_train,
        n_val=n_val,
        ranks=ranks,
    )


def _check(chain: Chain, z_solver: ZSolver, w_solvers: Sequence[WSolver], activations: Sequence[str]) -> None:
    for k, (segment, solver, name) in enumerate(zip(chain.segments, w_solvers, activations, strict=True), start=1):
        kinds = {m.spec()["kind"]: m.capabilities for m in segment.maps}
        for kind, capabilities in kinds.items():
            for need in z_solver.needs - capabilities:
                raise UsageError(f"the Z-solver needs '{need}'; segment {k} ({kind}) does not offer it")
        weighted = [m for m in segment.maps if m.parameter_shape is not None]
        for need in solver.needs - frozenset.union(*(m.capabilities for m in weighted)):
            raise UsageError(f"the W-solver of segment {k} needs '{need}', which its map does not offer")
        if solver.activations is not None and name not in solver.activations:
            raise UsageError(f"the W-solver of segment {k} cannot train under '{name}'; use gauss_newton")
