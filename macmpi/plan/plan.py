"""Plan: config and sizes -> choices, offsets and work; what does not fit is refused here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from macmpi.config import NESTED, Config
from macmpi.config.auto import decide_net
from macmpi.nets.build import build_chain, is_basis
from macmpi.nets.chain import Chain, Segment
from macmpi.nets.layers import Map
from macmpi.parallel.streams import stream
from macmpi.plan.choices import Choices, choose, without_half_steps
from macmpi.plan.fitted import check_fitters
from macmpi.plan.minibatches import minibatch_parts
from macmpi.plan.offsets import Offsets, offsets
from macmpi.plan.refusing import Pair, refuse, unhandled
from macmpi.plan.selectable import check_selection
from macmpi.plan.shaping_refusals import check_shaping
from macmpi.plan.structure import check_choices, check_layers
from macmpi.plan.work import Work
from macmpi.solvers.restraint import Restraint


@dataclass(frozen=True)
class Plan:
    """All that is settled before the first half step, the same on every rank.

    choices: what the config names.  sharded: each rank holds its own points; all ranks do every regression jointly, and
    no result is exchanged.  per_node: a node has one copy of points and coordinates.  minibatch_parts: 0 without
    minibatches.
    """

    chain: Chain
    choices: Choices
    dtype: np.dtype
    seed: int
    n_train: int
    n_val: int
    ranks: int
    sharded: bool = False
    per_node: bool = False
    minibatch_parts: int = 0

    @cached_property
    def offsets(self) -> Offsets:
        """The places of weights and Grams in flat buffers."""
        return offsets(self.chain, self.choices.regressions)

    @cached_property
    def work(self) -> Work:
        """The work of each rank: its points, and its tasks in a W-step."""
        sizes = self.n_train, self.n_val, self.ranks
        return Work(self.chain, self.choices, self.offsets, *sizes, self.sharded, self.minibatch_parts)

    @cached_property
    def features(self) -> tuple[Segment, ...]:
        """The segments without what comes before the weights that a regression fits."""
        return tuple(segment.rest for segment in self.chain.segments)

    def weight_of(self, segment: int, mu: float) -> float:
        """A segment's sum of squares weighs mu in E_Q; 1 for the last, whose loss it is."""
        return mu if segment < len(self.chain.sites) else 1.0

    def unit_ridge(self, segment: int, mu: float) -> float:
        """Ridge of the segment's own regression, 1/2 sum r^2 + ridge/2 ||v||^2: that of its first layer."""
        return self.ridges(segment, mu)[0]

    def ridges(self, segment: int, mu: float) -> tuple[float, ...]:
        """The ridge of each layer of a segment's regression (`Shaping`)."""
        blocks, output = self.chain.trained(segment), segment == len(self.chain.sites)
        return tuple(self.choices.shaping.ridge(b, mu, output) for b in blocks)

    def restraints(self, segment: int, mu: float) -> tuple[Restraint, ...]:
        """Restraints on the weights of each of these layers: all that is asked of them but the ridge."""
        blocks, output = self.chain.trained(segment), segment == len(self.chain.sites)
        return tuple(self.choices.shaping.restraint(b, mu, output) for b in blocks)

    def centres(self, block: int, inputs: np.ndarray, present: np.ndarray | None) -> np.ndarray:
        """Let a trainer find a parameter block: the same on every rank."""
        count = self.chain.block_shapes[block][0]
        return self.choices.trainers[block].fit(inputs, count, present, stream(self.seed, "centres", block))

    @property
    def has_basis(self) -> bool:
        """Radial basis functions: the nested error then holds the ridge, as in eq. (6)."""
        return any(is_basis(m) for m in self.chain.maps)

    @property
    def hidden(self) -> list[Map]:
        """The first map of each hidden layer: its radial basis functions, or what is affine in it."""
        return [m for m in self.chain.blocks if "weight_jacobian" in m.capabilities or m.fitter or is_basis(m)][:-1]

    @property
    def basis_sizes(self) -> list[int]:
        """Centres of each layer of radial basis functions."""
        return [m.n_out for m in self.chain.blocks if is_basis(m)]


def make_plan(
    config: Config, n_in: int, n_out: int, n_train: int, n_val: int, ranks: int, weighted: bool = False
) -> Plan:
    """The plan of a run.  weighted: the data have weights of points.

    Raises UsageError, naming a remedy, for what does not fit together.  Collective: no.
    """

    def chosen(config: Config) -> tuple[Config, Chain, Choices]:
        config, _ = decide_net(config, n_in)
        if config.method.name in NESTED:
            config = without_half_steps(config)
        chain = build_chain(config.model, n_in, n_out)
        check_layers(config, chain, n_train)
        if config.method.name not in NESTED:
            check_fitters(config, chain)
        check_shaping(config, chain)
        choices = choose(config, chain)
        check_choices(config, chain, choices, ranks)
        return config, chain, choices

    def pairs_of(config: Config) -> list[Pair]:
        found = chosen(config)
        if not (pairs := list(unhandled(*found, weighted))):
            check_selection(*found[:2])
        return pairs

    given, (config, chain, choices) = config, chosen(config)
    for pair in unhandled(config, chain, choices, weighted):
        refuse(pair, given, pairs_of)
    check_selection(config, chain)
    return Plan(
        chain=chain,
        choices=choices,
        dtype=np.dtype(config.model.precision),
        seed=config.start.seed,
        n_train=n_train,
        n_val=n_val,
        ranks=ranks,
        sharded=config.parallel.data == "sharded",
        per_node=config.parallel.data == "node",
        minibatch_parts=minibatch_parts(config, chain, n_train),
    )
