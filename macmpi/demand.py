"""Demands: what a net, a loss, the data or a schedule need from every part of a run; parts list those they handle.

A part of a run (a method, a start, a solver, a schedule, a selection, ...) declares the demands that it handles, and a
config that demands another is refused (macmpi/plan/resolve.py).  So a new demand is refused by every part until the
part lists it, and a new part is refused with every demand that it does not list.  To add a demand, add a member here;
macmpi/plan/demands.py then says which value of a key, or which net, asks for it, and how it is switched off.
SHARDED alone leads to no refusal: a solver that does not list it gets only points that its rank holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


class Demand(Enum):
    """Something that not every part of a run can handle; the value is its name in tables.

    If a part does not handle several demands, the refusal names the first of them in the order of this class.
    """

    SKIPS = "skips"
    SHARED = "weights that layers share"
    CONVOLUTIONS = "convolutions"
    SPARSE = "sparse layers"
    OTHER_LAYERS = "layers that are not dense"
    NOT_AFFINE = "layers that are not affine"
    NO_FILTERS = "other than dense layers and convolutions"
    NO_WEIGHT_SLOPES = "layers without derivatives in their weights"
    NO_SLOPES = "layers without derivatives in their inputs"
    NO_BITS = "a net without bits"
    BASIS = "radial basis functions"
    ALL_POINTS = "centres that are all points"
    OUTPUT = "an activation of the outputs"
    MISSING = "missing targets"
    WEIGHTED = "weights of points"
    WEIGHTED_OUTPUTS = "weights of points and outputs"
    SELECTED = "a selection of centres or ridges"
    SELECTED_UNITS = "a selection of layers' sizes"
    GIVEN_START = "a start that the config names a file for, or an embedding"
    ACCELERATED = "acceleration"
    TOGETHER = "weights and coordinates that move together"
    RESTRAINED = "l1, groups or bounds"
    RING = "a ring of blocks of points"
    STREAM = "a piece of a stream"
    HALVES = "halves of a net that are fitted in turn"
    SHARDED = "points that ranks hold apart"
    METRIC = "a metric of the constraints"
    MULTIPLIERS = "multipliers"
    COUNTED = "a mu that grows after a number of iterations"
    SETTLING = "a mu that grows once the error settles"
    GRADIENTS = "gradients of E_Q"
    NO_CONSTRAINTS = "a net without constraints"
    SEVERAL_SITES = "several sites"
    SOME_UNITS = "coordinates of some units"
    SITE_OF_BITS = "a site of bits"
    SITE_OF_NUMBERS = "a site of numbers"
    SLOPES_LACKING = "layers without derivatives after coordinates"
    FITTED = "layers that fitters fit"
    RIDGE_OF_OBJECTIVE = "a ridge of the objective"
    RIDGE_OF_UNITS = "a ridge of each unit's own regression"
    NO_CLOSED_FORM = "linear layers without their closed form"
    INEXACT = "hidden layers that are not fitted in closed form"
    INSEPARABLE = "units that are not fitted one by one"


Demands = frozenset[Demand]
D = Demand

WEIGHTS: Demands = frozenset({D.WEIGHTED, D.WEIGHTED_OUTPUTS})

USUAL: Demands = WEIGHTS.union(
    {D.SKIPS, D.SHARED, D.CONVOLUTIONS, D.SPARSE, D.OTHER_LAYERS, D.NOT_AFFINE, D.NO_FILTERS, D.NO_SLOPES},
    {D.NO_WEIGHT_SLOPES, D.SLOPES_LACKING, D.BASIS, D.NO_BITS, D.ALL_POINTS, D.INSEPARABLE, D.INEXACT},
    {D.OUTPUT, D.MISSING},
    {D.RESTRAINED, D.FITTED, D.RIDGE_OF_OBJECTIVE, D.RIDGE_OF_UNITS, D.NO_CLOSED_FORM, D.RING},
    {D.METRIC, D.MULTIPLIERS, D.NO_CONSTRAINTS, D.SEVERAL_SITES, D.SITE_OF_BITS, D.SITE_OF_NUMBERS, D.SETTLING},
    {D.SOME_UNITS, D.COUNTED, D.GRADIENTS, D.ACCELERATED, D.TOGETHER},
    {D.SELECTED, D.SELECTED_UNITS, D.GIVEN_START, D.STREAM, D.HALVES},
)
"""Most parts handle these demands, of nets, targets, regressions, constraints, and ways to train and to start: a part
is declared as these without some, or with others.  A new demand is not among them at first."""

Setting = tuple[str, Any]
"""A key, "table.key", and a value."""


@dataclass(frozen=True)
class Asked:
    """A demand that a config makes, and how the user can switch it off.

    by: a phrase that says what asks for it.
    off: settings that switch it off, each a key and its value.
    words: a phrase for the remedy, where no setting switches it off.
    """

    demand: Demand
    by: str
    off: tuple[Setting, ...] = ()
    words: str = ""


@dataclass(frozen=True)
class Part:
    """A part of a run, for instance its method or a solver, and the demands that it handles.

    said: the setting that chooses it, or words.
    handles: the demands that it handles; a config that makes another one is refused.
    why: what the part does, which tells the user why it handles no more.
    others: settings that put another part in its place, the nearest first.
    author: the class of another package that declares what the part handles; "" for parts of macmpi.
    """

    said: str
    handles: Demands
    why: str = ""
    others: tuple[Setting, ...] = ()
    author: str = ""
