"""The methods that train: what the loop asks of each, and which one a config names."""

from __future__ import annotations

from typing import Any, Protocol

from macmpi.config import Config
from macmpi.data import Dataset
from macmpi.evaluation import Errors
from macmpi.mac import Mac
from macmpi.plan import Plan
from macmpi.record import Account, Clock
from macmpi.state import Pause, State, never
from macmpi.team import AnyTeam


class Method(Protocol):
    """A way to train: its plan (which a selection changes), and a State moved from one iteration to the next.

    mac: what makes the first State.  account: what the console says of the method.  sweep: whether the iteration is
    complete; else `pause` has ended it in the middle, and the next sweep goes on from there.  notes: keys for the
    record beside the errors; "phase" if it is not "iteration".
    """

    @property
    def plan(self) -> Plan: ...

    @property
    def mac(self) -> Mac: ...

    @property
    def account(self) -> Account: ...

    def begin(self, state: State) -> None: ...

    def sweep(self, state: State, pause: Pause = never) -> bool: ...

    def move_multipliers(self, state: State) -> None: ...

    def evaluate(self, state: State, feasible: bool = False) -> Errors: ...

    def notes(self) -> dict[str, Any]: ...

    def finish(self, state: State) -> State: ...


def choose(config: Config, plan: Plan, data: Dataset, team: AnyTeam, clock: Clock) -> Method:
    """The method of a config; only its own room is loaded, to start sooner.  Collective: yes."""
    if config.method.name == "alternating":
        from macmpi.alternating import Alternating

        return Alternating(plan, data, team, clock, config.method.cg_iterations)
    if config.method.name == "stochastic":
        from macmpi.stochastic import Stochastic

        return Stochastic(plan, data, team, clock, config.stochastic)
    if config.method.name in ("sgd", "adam"):
        from macmpi.baselines.minibatch import Adam, Sgd

        return {"sgd": Sgd, "adam": Adam}[config.method.name](plan, data, team, clock, config.baseline)
    if config.method.name in ("cg", "lbfgs"):
        from macmpi.baselines.full_batch import ConjugateGradients, Lbfgs

        return {"cg": ConjugateGradients, "lbfgs": Lbfgs}[config.method.name](plan, data, team, clock, config.baseline)
    if config.method.acceleration != "none":
        from macmpi.acceleration import Accelerated

        return Accelerated(plan, data, team, clock, momentum=config.method.acceleration == "momentum")
    if config.selection.criterion != "none":
        from macmpi.selection import Selection

        return Selection(config, plan, data, team, clock)
    return Mac(plan, data, team, clock)
