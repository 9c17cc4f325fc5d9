"""The methods that train: what the loop asks of each, and which one a config names."""

from __future__ import annotations

from macmpi.config import Config
from macmpi.data.dataset import Dataset
from macmpi.mac import Mac
from macmpi.methods.protocol import Method
from macmpi.parallel.clock import Clock
from macmpi.parallel.team import Team
from macmpi.plan.plan import Plan


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
    mac = Mac(plan, data, team, clock)
    if config.method.name == "alternating":
        from macmpi.methods.alternating import Alternating

        return Alternating(mac, config.method.cg_iterations)
    if config.method.acceleration in ("feasible", "momentum"):
        from macmpi.methods.accelerated import Accelerated

        return Accelerated(mac, momentum=config.method.acceleration == "momentum")
    if config.selection.criterion != "none":
        from macmpi.methods.selection import Selection

        return Selection(config, mac)
    return mac
