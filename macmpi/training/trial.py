"""A few iterations are tried and timed, so that --check knows what they take here; nothing is written."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from macmpi.parallel.clock import Clock, now

if TYPE_CHECKING:
    from macmpi.config import Config
    from macmpi.data.dataset import Sizes
    from macmpi.data.source import Source
    from macmpi.methods.protocol import Method
    from macmpi.parallel.team import Team
    from macmpi.plan.plan import Plan
    from macmpi.state import State

BUDGET = 3.0
"""Seconds that the trial may take, by the prediction and once it runs."""

WARM, TIMED = 1, 6
"""Iterations that warm up, and those that are timed, at most, at the start and again later on."""

LATER = 4
"""Changes of mu after which an iteration is timed again: by then half steps need fewer passes."""


INSTEAD: dict[str, Literal["pca", "uniform"]] = {"elastic_embedding": "pca", "file": "pca", "model": "uniform"}
"""Starts that need files or take long are replaced by these, from which iterations take as long."""


@dataclass(frozen=True)
class Trial:
    """Seconds of an iteration, from the medians of those at the start and later, and how many there were."""

    seconds: float
    iterations: int


def tried(config: Config, plan: Plan, source: Source, sizes: Sizes, predicted: float, team: Team) -> Trial | None:
    """Times iterations from the start that the config asks for, or from one as good where that one takes long.

    None where they would take too long by the prediction.  Cost: the start, and BUDGET seconds at most.
    Collective: yes.
    """
    from macmpi.methods.choose import choose
    from macmpi.methods.starts import Origin, start
    from macmpi.training.launch import loaded
    from macmpi.training.process import ready_memory, ready_products

    if team.from_root(lambda: predicted * (WARM + 2) > BUDGET):
        return None
    ready_memory()
    ready_products()
    if instead := INSTEAD.get(config.start.method):
        config = replace(config, start=replace(config.start, method=instead, model="", coordinates=""))
    method = choose(config, plan, loaded(config, plan, source, sizes, team), team, Clock())
    state = start(method, config, Origin())
    method.begin(state)
    early = _timed(method, state, team, WARM)
    _move_on(config, plan, state)
    late = _timed(method, state, team, 0)
    share = 1.0 - _growing(config) / (2.0 * max(config.run.max_iterations, 1))
    return Trial((1.0 - share) * median(early) + share * median(late), len(early) + len(late))


def _growing(config: Config) -> int:
    """Iterations in which minibatches grow, steadily; of full MAC all, in which mu does."""
    keys, most = config.stochastic, max(config.run.max_iterations, 1)
    if config.method.name != "stochastic":
        return most
    return min(math.ceil(keys.grow_every * (keys.batch_max / keys.batch - 1.0)) * keys.records, most)


def _move_on(config: Config, plan: Plan, state: State[Any]) -> None:
    """Takes the state to where a run is later on: larger minibatches, or a larger mu."""
    penalty = plan.choices.penalty
    if config.method.name == "stochastic":
        state.iteration = min(_growing(config), config.run.max_iterations - 1)
    elif config.method.name == "mac":
        state.mu = min(penalty.mu0 * penalty.factor**LATER, penalty.mu_max)


def _timed(method: Method, state: State[Any], team: Team, warm: int) -> list[float]:
    """Seconds of some iterations, the slowest rank's.  Collective: yes."""
    took: list[float] = []
    began = now()
    while len(took) < warm + TIMED and team.from_root(lambda: len(took) <= warm or now() - began < BUDGET / 2):
        swept = now()
        method.sweep(state)
        took.append(team.max_over_ranks({"took": now() - swept})["took"])
        method.evaluate(state)
    return took[warm:]
