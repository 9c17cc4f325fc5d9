"""Plan: config and sizes -> segments, solvers, tiles, owners, places; what does not fit is refused here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from macmpi import tiles
from macmpi.chain import Chain, Segment
from macmpi.config import Config, Model
from macmpi.layers import Map
from macmpi.layers.activation import Activation
from macmpi.layers.affine import Affine
from macmpi.layers.softmax import Softmax
from macmpi.losses import LOSSES, Loss
from macmpi.penalty import AugmentedLagrangian, Quadratic, Ridge
from macmpi.refusals import check
from macmpi.solvers import W_SOLVERS, Z_SOLVERS, WSolver, ZSolver
from macmpi.tiles import Tile

SAMPLE_POINTS = 100
"""Points over which the Z-solver averages its preconditioner."""


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
class Deal:
    """Jobs of the W-step dealt to ranks; segments whose shared factor a rank makes, and where they lie."""

    jobs: tuple[tuple[Job, ...], ...]
    weight_parts: tuple[tuple[slice, ...], ...]
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
    """All that is settled before the first half step, the same on every rank.

    refit_solver: of the last segment in the postprocessing, not over-relaxed.
    w_names, by_unit: for each segment, the name of its W-solver and whether its units are solved apart.
    site_weights: mu of a site in units of mu.
    forcing: linear systems of the (Z-, W-)step are solved to this times the last iteration's relative fall of the
    validation error.  factor_every: iterations after which a shared factor that only preconditions is made anew.
    """

    chain: Chain
    loss: Loss
    schedule: Quadratic
    ridge: Ridge
    z_solver: ZSolver
    w_solvers: tuple[WSolver, ...]
    refit_solver: WSolver
    w_names: tuple[str, ...]
    by_unit: tuple[bool, ...]
    site_weights: tuple[float, ...]
    metric: str
    forcing: tuple[float, float]
    factor_every: int
    dtype: np.dtype
    seed: int
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
    def shared_bounds(self) -> list[int]:
        """Where each segment's shared factor lies in the flat buffer of factors."""
        shapes = [self.shared_shape(k) for k in range(len(self.chain.segments))]
        return np.cumsum([0, *(a * b for a, b in shapes)]).tolist()

    def shared_shape(self, segment: int) -> tuple[int, int]:
        first = self.chain.segments[segment].weighted[0]
        return self.w_solvers[segment].shared_shape(self.chain.block_shapes[first][1] - 1)

    def shapes(self, segment: int) -> tuple[tuple[int, int], ...]:
        """Of the segment's parameter blocks."""
        return tuple(self.chain.block_shapes[b] for b in self.chain.segments[segment].weighted)

    def jobs(self, segment: int) -> list[Job]:
        blocks, bounds = self.chain.segments[segment].weighted, self.weight_bounds
        if not self.by_unit[segment]:
            place = slice(bounds[blocks[0]], bounds[blocks[-1] + 1])
            return [Job(segment, None, place, float(place.stop - place.start))]
        units, width = self.chain.block_shapes[blocks[0]]
        start = bounds[blocks[0]]
        return [
            Job(segment, t, slice(start + t.start * width, start + t.stop * width), float(len(t) * width))
            for t in tiles.unit_tiles(units, tiles.EXACT_WIDTH if self.w_solvers[segment].exact else tiles.UNIT_WIDTH)
        ]

    def _deal(self, segments: Sequence[int], shared: Sequence[int]) -> Deal:
        jobs = [job for k in segments for job in self.jobs(k)]
        owned = tiles.deal_by_cost([job.cost for job in jobs], self.ranks)
        mine = tuple(tuple(jobs[j] for j in rank) for rank in owned)
        made = [k for k in shared if 0 not in self.shared_shape(k)]
        costs = [float(self.shared_shape(k)[1]) ** 2 for k in made]
        factors = tuple(tuple(made[i] for i in rank) for rank in tiles.deal_by_cost(costs, self.ranks))
        bounds = self.shared_bounds
        return Deal(
            jobs=mine,
            weight_parts=tuple(tuple(job.place for job in rank) for rank in mine),
            shared=factors,
            shared_parts=tuple(tuple(slice(bounds[k], bounds[k + 1]) for k in rank) for rank in factors),
        )

    @cached_property
    def all_units(self) -> Deal:
        """The W-step: jobs of all layers in one list.  The first segment's inputs never change: no factor to redo."""
        segments = range(len(self.chain.segments))
        return self._deal(segments, segments[1:])

    @cached_property
    def exact_factors(self) -> Deal:
        """The shared factors that must be those of the present inputs."""
        return self._deal([], [k for k, s in enumerate(self.w_solvers) if k and s.exact])

    @cached_property
    def first_factor(self) -> Deal:
        """The shared factor of the first segment alone, computed once."""
        return self._deal([], [0])

    @cached_property
    def last_units(self) -> Deal:
        """The refit of the last layer in the postprocessing step."""
        last = len(self.chain.segments) - 1
        return self._deal([last], [last] if last else [])


def build_chain(model: Model, n_in: int, n_out: int) -> Chain:
    """Dense layers with an activation each, and the output layer; sites as the config puts them."""
    maps: list[Map] = []
    sites, size = [], n_in
    for units, activation, site in model.layers():
        maps += [Affine(size, units), _activation(activation, units)]
        if site != "none":
            sites.append(len(maps) if site == "after" else len(maps) - 1)
        size = units
    maps.append(Affine(size, n_out))
    if model.output != "linear":
        maps.append(_activation(model.output, n_out))
    return Chain(tuple(maps), tuple(sites))


def _activation(name: str, size: int) -> Map:
    return Softmax(size) if name == "softmax" else Activation(name, size)


def make_plan(config: Config, n_in: int, n_out: int, n_train: int, n_val: int, ranks: int) -> Plan:
    """The plan of a run.  Raises UsageError, naming a remedy, for what does not fit together.  Collective: no."""
    chain, loss, penalty = build_chain(config.model, n_in, n_out), LOSSES[config.model.loss], config.penalty
    z_solver = _solver(Z_SOLVERS[config.z_step.solver], config.z_step)
    choices = [_w_choice(config, segment, k + 1 == len(chain.segments)) for k, segment in enumerate(chain.segments)]
    plan = Plan(
        chain=chain,
        loss=loss,
        schedule=_schedule(config),
        ridge=Ridge(penalty.ridge, penalty.ridge_scale, penalty.ridge_until_mu),
        z_solver=z_solver,
        w_solvers=tuple(_solver(W_SOLVERS[name], config.w_step) for name, _ in choices),
        refit_solver=_solver(W_SOLVERS[choices[-1][0]], replace(config.w_step, relaxation=1.0)),
        w_names=tuple(name for name, _ in choices),
        by_unit=tuple(by_unit for _, by_unit in choices),
        site_weights=tuple(penalty.site_weights or [1.0] * len(chain.sites)),
        metric=penalty.metric,
        forcing=(config.z_step.forcing, config.w_step.forcing),
        factor_every=config.w_step.factor_every,
        dtype=np.dtype(config.model.precision),
        seed=config.start.seed,
        n_train=n_train,
        n_val=n_val,
        ranks=ranks,
    )
    check(config, chain, z_solver, plan.w_solvers, plan.by_unit)
    return plan


def _solver(kind: type, keys: Any) -> Any:
    """A solver with the keys that it knows; 0 stands for its own default."""
    given = {name: value for name, value in vars(keys).items() if not (name.endswith("iterations") and value == 0)}
    return kind(**{f.name: given[f.name] for f in fields(kind) if f.name in given})


def _schedule(config: Config) -> Quadratic:
    penalty = config.penalty
    nested = not any(site != "none" for _, _, site in config.model.layers())
    mu_max = penalty.mu0 if nested else penalty.mu_max  # without constraints there is no mu to grow
    common = (penalty.mu0, penalty.factor, mu_max, penalty.tolerance, config.run.max_iterations)
    if penalty.method == "quadratic":
        return Quadratic(*common, penalty.tolerance_decay)
    return AugmentedLagrangian(
        *common, penalty.tolerance_decay, enough=penalty.enough, multiplier_max=penalty.multiplier_max
    )


def _w_choice(config: Config, segment: Segment, last: bool) -> tuple[str, bool]:
    """The W-solver of a segment, by name, and whether it solves the units apart."""
    separable = segment.separable and (LOSSES[config.model.loss].by_output or not last)
    name, step = config.w_step.solver, config.w_step
    if separable and segment.activation == "linear" and step.linear_solver == "closed_form":
        return "closed_form", True
    if name == "auto":
        name = "gauss_newton" if separable else "hessian_free"
    takes = W_SOLVERS[name].takes  # type: ignore[attr-defined]
    return name, separable and "units" in takes
