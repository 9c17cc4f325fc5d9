"""The words of `method.name` name the classes that train; config/auto.py decides what "auto" stands for."""

from __future__ import annotations

from typing import Any, TypeAlias

from macmpi.data.dataset import Dataset
from macmpi.half_steps.method import TrainingMethod
from macmpi.parallel.team import Team
from macmpi.plan.plan import Plan
from macmpi.plan.selectable import places
from macmpi.solvers import Table

Method: TypeAlias = TrainingMethod[Any]
"""A training method with any type of record."""

METHODS = Table(
    mac="macmpi.mac:Mac",
    accelerated="macmpi.methods.accelerated:Accelerated",
    joint="macmpi.methods.joint:Joint",
    selection="macmpi.methods.selection:Selection",
    units="macmpi.methods.unit_selection:UnitSelection",
    accelerated_units="macmpi.methods.unit_selection:AcceleratedUnitSelection",
    stochastic="macmpi.methods.stochastic.method:Stochastic",
    stream="macmpi.methods.stochastic.method:Stream",
    all_points="macmpi.methods.stochastic.all_points:AllPoints",
    sgd="macmpi.methods.backprop:Sgd",
    adam="macmpi.methods.backprop:Adam",
    cg="macmpi.methods.backprop:ConjugateGradients",
    lbfgs="macmpi.methods.backprop:Lbfgs",
    alternating="macmpi.methods.alternating:Alternating",
)
"""Methods by the words of `method.name`, and their variants; only the module of the run's method is imported."""


def choose(plan: Plan, data: Dataset, team: Team) -> Method:
    """Makes the training method that a plan names, or the variant that other keys ask for.  Collective: yes."""
    of = plan.resolved
    word: str = of.method.name
    accelerated = of.method.acceleration in ("feasible", "momentum")
    if word == "mac" and of.selection.criterion != "none":
        word = "selection" if not places(of) else "accelerated_units" if accelerated else "units"
    elif word == "mac" and accelerated:
        word = "accelerated"
    elif word == "mac" and of.method.acceleration == "joint":
        word = "joint"
    elif of.whole_steps:
        word = "all_points"
    elif word == "stochastic" and of.stochastic.stream:
        word = "stream"
    return METHODS[word](plan, data, team)
