"""From a config to a plan: the data say their sizes and the loss, then all else is settled (`plan/resolve.py`).

What needs NumPy is imported where it is used: a mistake in the config is refused sooner.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from macmpi import UsageError, many
from macmpi.console import warn
from macmpi.data.source import source_of
from macmpi.parallel.clock import now

if TYPE_CHECKING:
    from macmpi.config import Config
    from macmpi.config.auto import Decision, Sizes
    from macmpi.data.gathered import Points
    from macmpi.data.scaling import Scaling
    from macmpi.data.source import Source
    from macmpi.parallel.team import Team
    from macmpi.plan.plan import Plan
    from macmpi.plan.resolved import Resolved
    from macmpi.results.model import Model


@dataclass(frozen=True)
class Decided:
    """A config with a loss, what was decided of it, and the data that it is for.  notes: what their reading says."""

    config: Config
    decisions: list[Decision]
    source: Source
    sizes: Sizes
    notes: list[str] = field(default_factory=list)

    def resolved(self) -> Resolved:
        """All that the config says of a run on these data.  Raises UsageError.  Collective: no."""
        from macmpi.plan.resolve import resolve

        return resolve(self.config, self.sizes, self.decisions)

    def in_short(self, plan: Plan) -> str:
        """Lines for the head of the table: the notes, and what stands for "auto"."""
        from macmpi.config.auto import in_short

        return "\n  ".join(line for line in (*self.notes, in_short(plan.resolved.decisions)) if line)


def decided(config: Config, team: Team, points: Points | None = None, start: Model | None = None) -> Decided:
    """Settles what the data have to say.  Raises UsageError.  Collective: yes.

    with_loss: the config with a loss, by the kind of the targets, on rank 0; source_of: the data of such a config;
    start: the model that training starts from, in the place of a file, on rank 0.
    """
    began = now()
    config, losses = team.from_root(lambda: _with_loss(config, points))
    source = source_of(config, points)
    source.like = team.from_root(lambda: _scaling_of_start(config, start))
    sizes = team.from_root(source.sizes)
    return Decided(config, losses, source, sizes, source.notes(now() - began))


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


def _with_loss(config: Config, points: Points | None) -> tuple[Config, list[Decision]]:
    from macmpi.data.reading import with_connections
    from macmpi.data.targets import with_loss

    return with_loss(with_connections(config), points)


def planned(known: Decided, team: Team) -> Plan:
    """The plan, refused by rank 0 before the others make it.  Raises UsageError.  Collective: yes."""
    from macmpi.parallel.launchers import ranks_here
    from macmpi.plan.estimate import check_memory, idle
    from macmpi.plan.plan import make_plan

    counts = known.sizes.n_train, known.sizes.n_val, team.size

    def refuse() -> None:
        made = make_plan(known.resolved(), *counts)
        check_memory(made, ranks_here(os.environ) if made.ranks > 1 else 1)
        if line := idle(made):
            warn(line)
        keys, points = made.resolved.baseline, many(made.n_train, "training point", "is")
        if made.resolved.method.name in ("sgd", "adam") and keys.batch > max(made.n_train, type(keys).batch):
            warn(f"baseline.batch = {keys.batch}: there {points}; a minibatch is all of them")

    team.from_root(refuse)
    return make_plan(known.resolved(), *counts)
