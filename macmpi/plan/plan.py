"""Plan: a resolved config and sizes -> the work of each rank, and the places of weights in flat buffers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from macmpi.config.auto import Sizes
from macmpi.config.whole import one_layer, resized
from macmpi.nets.chain import Chain, Segment
from macmpi.nets.layers import is_basis
from macmpi.parallel.placement import EVERYWHERE, Placement
from macmpi.parallel.streams import stream
from macmpi.plan.resolve import resolve
from macmpi.plan.resolved import Resolved
from macmpi.plan.work import Offsets, Work, minibatch_parts, offsets
from macmpi.solvers.w_problem import Restraint


@dataclass(frozen=True)
class Plan:
    """All that is settled before the first half step, the same on every rank.

    resolved: what the config says.  origin: of a net that a selection has changed, or of the steps that full MAC ends
    with, the plan that the run began with.
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
        """The net of the data's own columns, as a model has it: where training is in the span of the points another."""
        columns = self.begun.resolved.columns
        return self.chain.reading(columns) if columns else self.chain

    @property
    def in_span(self) -> str:
        """Says that training is in the span of the points; nothing where it is not."""
        columns, own = self.begun.resolved.columns, self.chain.n_in
        return f"trained on {own:,} coordinates in the span of the points, of {columns:,} columns" if columns else ""

    @property
    def dtype(self) -> np.dtype:
        return self.resolved.dtype

    @property
    def seed(self) -> int:
        return self.resolved.start.seed

    @property
    def placement(self) -> Placement:
        """The placement says where rows of points live."""
        return self.resolved.placement

    @cached_property
    def minibatch_parts(self) -> int:
        """Parts of a minibatch; 0 without minibatches."""
        return minibatch_parts(self.resolved, self.n_train)

    @cached_property
    def finishing(self) -> Plan | None:
        """The plan of the steps of all points with which full MAC ends; None where it ends without."""
        of = self.resolved.finishing
        return None if of is None else Plan(of, self.n_train, self.n_val, self.ranks, self.begun)

    @cached_property
    def offsets(self) -> Offsets:
        """The places of weights and Grams in flat buffers."""
        return offsets(self.chain, self.resolved.regressions)

    @cached_property
    def work(self) -> Work:
        """The work of each rank: its points, and its tasks in a W-step."""
        sizes = self.n_train, self.n_val, self.ranks
        return Work(self.resolved, self.offsets, *sizes, self.minibatch_parts)

    @cached_property
    def features(self) -> tuple[Segment, ...]:
        """The segments without what comes before the weights that a regression fits."""
        return tuple(segment.rest for segment in self.chain.segments)

    def penalty_weight(self, segment: int, mu: float) -> float:
        """A segment's sum of squares weighs mu in E_Q; 1 for the last, whose loss it is."""
        return mu if segment < len(self.chain.sites) else 1.0

    def unit_ridge(self, segment: int, mu: float) -> float:
        """Ridge of the segment's own regression, 1/2 sum r^2 + ridge/2 ||v||^2: that of its first layer."""
        return self.ridges(segment, mu)[0]

    def ridges(self, segment: int, mu: float) -> tuple[float, ...]:
        """The ridge of each layer of a segment's regression (`Shaping`)."""
        blocks, output = self.chain.regressed(segment), segment == len(self.chain.sites)
        return tuple(self.resolved.shaping.ridge(b, mu, output) for b in blocks)

    def restraints(self, segment: int, mu: float) -> tuple[Restraint, ...]:
        """Restraints on the weights of each of these layers: all that is asked of them but the ridge."""
        blocks, output = self.chain.regressed(segment), segment == len(self.chain.sites)
        return tuple(self.resolved.shaping.restraint(b, mu, output) for b in blocks)

    def centres(self, block: int, inputs: np.ndarray, present: np.ndarray | None) -> np.ndarray:
        """Let a trainer find a parameter block: the same on every rank."""
        count = self.chain.block_shapes[block][0]
        return self.resolved.trainers[block].fit(inputs, count, present, stream(self.seed, "centres", block))

    def resized(self, units: Sequence[int], widths: Sequence[float] = (), ridges: Sequence[float] = ()) -> Plan:
        """The plan of a net that a selection has changed: as of `config.resized`.  Collective: no."""
        sizes = Sizes(self.chain.n_in, self.chain.n_out, self.n_train, self.n_val, self.resolved.autoencoder)
        config = resized(self.begun.resolved.config, units, widths, ridges)
        return Plan(resolve(config, sizes), self.n_train, self.n_val, self.ranks, self.begun)

    def of_layer(self, k: int, output: str, n_in: int, iterations: int) -> Plan:
        """The plan of an autoencoder of hidden layer k alone, of whose inputs `output` is the activation."""
        sizes = Sizes(n_in, n_in, self.n_train, self.n_val, autoencoder=True)
        alone = resolve(one_layer(self.resolved.config, k, output, iterations), sizes)
        return Plan(replace(alone, placement=self.placement), self.n_train, self.n_val, self.ranks)

    def of_subset(self, n_train: int, n_val: int) -> Plan:
        """This plan on few points, which every rank has."""
        return Plan(replace(self.resolved, placement=EVERYWHERE), n_train, n_val, self.ranks)

    @property
    def has_basis(self) -> bool:
        """Radial basis functions: the nested error then holds the ridge, as in eq. (6)."""
        return any(is_basis(m) for m in self.chain.maps)

    @property
    def basis_sizes(self) -> list[int]:
        """Centres of each layer of radial basis functions."""
        return [m.n_out for m in self.chain.blocks if is_basis(m)]


def make_plan(resolved: Resolved, n_train: int, n_val: int, ranks: int) -> Plan:
    """The plan of a run.  Collective: no."""
    return Plan(resolved, n_train, n_val, ranks)
