"""Demands: a net, a loss, the data or a schedule ask them of every part of a run, and parts say which they handle.

A part of a run (a method, a start, a solver, a schedule, a selection, ...) declares the demands that it handles, and a
config that demands another is refused (macmpi/plan/resolve.py).  So a new demand is refused by every part until the
part lists it, and a new part is refused with every demand that it does not list.  To add a demand: a member here, and
in macmpi/plan/demands.py when a config asks for it, by the value of a key or by its net, and how it is switched off.
SHARDED alone refuses nothing: a solver that does not list it is given rows at hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


class Demand(Enum):
    """Something that not every part of a run can handle; the value is its name in tables.

    Of several demands that a part does not handle the first in this order is named.
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
    INNER_BASIS = "radial basis functions in a net with coordinates"
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
    SLOPES_LACKING = "layers without derivatives behind coordinates"
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
    {D.NO_WEIGHT_SLOPES, D.SLOPES_LACKING, D.INNER_BASIS, D.NO_BITS, D.ALL_POINTS, D.INSEPARABLE, D.INEXACT},
    {D.OUTPUT, D.MISSING},
    {D.RESTRAINED, D.FITTED, D.RIDGE_OF_OBJECTIVE, D.RIDGE_OF_UNITS, D.NO_CLOSED_FORM, D.RING},
    {D.METRIC, D.MULTIPLIERS, D.NO_CONSTRAINTS, D.SEVERAL_SITES, D.SITE_OF_BITS, D.SITE_OF_NUMBERS, D.SETTLING},
    {D.SOME_UNITS, D.COUNTED, D.GRADIENTS, D.ACCELERATED, D.TOGETHER},
    {D.SELECTED, D.SELECTED_UNITS, D.GIVEN_START, D.HALVES},
)
"""The demands that parts handle unless something is in the way: of nets, targets, regressions, constraints and ways to
train.  A new demand is not among them at first."""

Setting = tuple[str, Any]
"""A key, "table.key", and a value."""


@dataclass(frozen=True)
class Asked:
    """A demand, what asks for it, and what switches it off: settings, or words where no setting does."""

    demand: Demand
    by: str
    off: tuple[Setting, ...] = ()
    words: str = ""


@dataclass(frozen=True)
class Part:
    """A part of a run: the key that names it, or words; what it handles; and what it does, which says why no more.

    others: settings that put another part in its place, the nearest first.  author: the class that declares what it
    handles, where that is not macmpi's.
    """

    said: str
    handles: Demands
    why: str = ""
    others: tuple[Setting, ...] = ()
    author: str = ""
