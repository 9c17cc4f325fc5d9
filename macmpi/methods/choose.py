"""The methods that train: what the loop asks of each, and which one a plan names."""

from __future__ import annotations

from macmpi.data.dataset import Dataset
from macmpi.mac import Mac
from macmpi.methods.around import Around
from macmpi.methods.protocol import Method
from macmpi.parallel.clock import Clock
from macmpi.parallel.team import Team
from macmpi.plan.plan import Plan
from macmpi.plan.selectable import places


def choose(plan: Plan, data: Dataset, team: Team, clock: Clock) -> Method:
    """The method of a plan; only its own module is loaded, to start sooner.  Collective: yes."""
    of, name = plan.resolved, plan.resolved.method.name
    if name == "stochastic":
        from macmpi.methods.stochastic.method import Stochastic

        return Stochastic(plan, data, team, clock, of.stochastic)
    if name in ("sgd", "adam"):
        from macmpi.methods.backprop.minibatch import Adam, Sgd

        kind = Sgd if name == "sgd" else Adam
        return kind(plan, data, team, clock, of.baseline)
    if name in ("cg", "lbfgs"):
        from macmpi.methods.backprop.full_batch import ConjugateGradients, Lbfgs

        return {"cg": ConjugateGradients, "lbfgs": Lbfgs}[name](plan, data, team, clock, of.baseline)
    if name == "alternating":
        from macmpi.methods.alternating import Alternating

        return Alternating(Mac(plan, data, team, clock))
    if of.selection.criterion == "none":
        return half_steps(plan, data, team, clock)
    if places(of):
        from macmpi.methods.unit_selection import UnitSelection

        return UnitSelection(plan, lambda made: half_steps(made, data, team, clock))
    from macmpi.methods.selection import Selection

    return Selection(Mac(plan, data, team, clock))


def half_steps(plan: Plan, data: Dataset, team: Team, clock: Clock) -> Mac | Around:
    """MAC, or what accelerates it.  Collective: yes."""
    mac = Mac(plan, data, team, clock)
    if (word := plan.resolved.method.acceleration) in ("feasible", "momentum"):
        from macmpi.methods.accelerated import Accelerated

        return Accelerated(mac, momentum=word == "momentum")
    return mac
