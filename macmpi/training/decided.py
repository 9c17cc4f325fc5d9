"""From a config to a plan: what "auto" stands for, the sizes of the data, and refusals, before NumPy is everywhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from macmpi import UsageError
from macmpi.console import warn
from macmpi.parallel.clock import now

if TYPE_CHECKING:
    from macmpi.config import Config
    from macmpi.config.auto import Decision
    from macmpi.data.dataset import Sizes
    from macmpi.data.scaling import Scaling
    from macmpi.data.source import Source
    from macmpi.parallel.team import Team
    from macmpi.plan.plan import Plan
    from macmpi.results.model import Model


@dataclass(frozen=True)
class Decided:
    """A config without "auto", what was decided, and the data that it is for.  notes: what their reading has to say."""

    config: Config
    decisions: list[Decision]
    source: Source
    sizes: Sizes
    notes: list[str] = field(default_factory=list)

    @property
    def in_short(self) -> str:
        """Lines for the head of the table: the notes, and what stands for "auto"."""
        from macmpi.config.auto import in_short

        return "\n  ".join(line for line in (*self.notes, in_short(self.decisions)) if line)


def decided(
    config: Config,
    team: Team,
    with_loss: Callable[[Config], tuple[Config, list[Decision]]],
    source_of: Callable[[Config], Source],
    start: Model | None = None,
) -> Decided:
    """Settles what the data have to say.  Raises UsageError.  Collective: yes.

    with_loss: the config with a loss, by the kind of the targets, on rank 0; source_of: the data of such a config;
    start: the model that training starts from, in the place of a file, on rank 0.
    """
    began = now()
    config, losses = team.from_root(lambda: with_loss(_with_connections(config)))
    source = source_of(config)
    source.like = team.from_root(lambda: _scaling_of_start(config, start))
    sizes = team.from_root(source.sizes)
    notes = source.notes(now() - began)
    from macmpi.config.auto import decide
    from macmpi.training.refit import decide_refit

    config, others = decide(config, sizes.n_in, sizes.autoencoder, sizes.shape)
    config, refits = decide_refit(config, sizes)
    return Decided(config, losses + others + refits, source, sizes, notes)


def _scaling_of_start(config: Config, start: Model | None) -> tuple[Scaling, Scaling] | None:
    """The scaling of the inputs and the targets of the model that training starts from; None where it starts afresh.

    A file that is no model is refused where its weights are read.
    """
    if config.start.method != "model":
        return None
    from macmpi.results.model_file import load

    try:
        found = start or load(config.start.model)
    except UsageError:
        return None
    return found.scaling_x, found.scaling_y


def _with_connections(config: Config) -> Config:
    from macmpi.data.connections import with_connections

    return with_connections(config)


def plan_for(config: Config, sizes: Sizes, ranks: int) -> Plan:
    """The plan of a config without "auto".  Raises UsageError where it is refused.  Collective: no."""
    from macmpi.parallel.launchers import ranks_here
    from macmpi.plan.estimate import check_memory
    from macmpi.plan.plan import make_plan

    made = make_plan(config, *sizes.counts, ranks, sizes.weighted)
    check_memory(made, sizes.autoencoder, ranks_here(os.environ) if ranks > 1 else 1)
    return made


def planned(config: Config, sizes: Sizes, team: Team) -> Plan:
    """The plan, refused by rank 0 before the others make it.  Raises UsageError.  Collective: yes."""
    from macmpi.plan.estimate import idle
    from macmpi.plan.plan import make_plan

    def refuse() -> None:
        made = plan_for(config, sizes, team.size)
        if line := idle(made):
            warn(line)
        batch, points = config.baseline.batch, made.n_train
        if config.method.name in ("sgd", "adam") and batch > max(points, type(config.baseline).batch):
            warn(f"baseline.batch = {batch}: there are {points} training points; a minibatch is all of them")

    team.from_root(refuse)
    return make_plan(config, *sizes.counts, team.size)
