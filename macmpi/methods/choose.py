"""The methods that train: what the loop asks of each, and which one a config names."""

from __future__ import annotations

from macmpi.config import Config
from macmpi.data.dataset import Dataset
from macmpi.mac import Mac
from macmpi.methods.around import Around
from macmpi.methods.protocol import Method
from macmpi.parallel.clock import Clock
from macmpi.parallel.team import Team
from macmpi.plan.plan import Plan
from macmpi.plan.resizable import places


def choose(config: Config, plan: Plan, data: Dataset, team: Team, clock: Clock) -> Method:
    """The method of a config; only its own module is loaded, to start sooner.  Collective: yes."""
    if config.method.name == "stochastic":
        from macmpi.methods.stochastic.method import Stochastic

        return Stochastic(plan, data, team, clock, config.stochastic)
    if config.method.name in ("sgd", "adam"):
        from macmpi.methods.backprop.minibatch import Adam, Sgd

        kind = Sgd if config.method.name == "sgd" else Adam
        return kind(plan, data, team, clock, config.baseline)
    if config.method.name in ("cg", "lbfgs"):
        from macmpi.methods.backprop.full_batch import ConjugateGradients, Lbfgs

        return {"cg": ConjugateGradients, "lbfgs": Lbfgs}[config.method.name](plan, data, team, clock, config.baseline)
    if config.method.name == "alternating":
        from macmpi.methods.alternating import Alternating

        return Alternating(Mac(plan, data, team, clock))
    if config.selection.criterion == "none":
        return half_steps(config, plan, data, team, clock)
    if places(config, plan.chain):
        from macmpi.methods.unit_selection import UnitSelection

        return UnitSelection(config, plan, lambda made: half_steps(config, made, data, team, clock))
    from macmpi.methods.selection import Selection

    return Selection(config, Mac(plan, data, team, clock))


def half_steps(config: Config, plan: Plan, data: Dataset, team: Team, clock: Clock) -> Mac | Around:
    """MAC, or what accelerates it.  Collective: yes."""
    mac = Mac(plan, data, team, clock)
    if config.method.acceleration in ("feasible", "momentum"):
        from macmpi.methods.accelerated import Accelerated

        return Accelerated(mac, momentum=config.method.acceleration == "momentum")
    return mac
