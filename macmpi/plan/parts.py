"""A value of a key handles demands, and asks for one: a method, a start, a schedule, a metric, a place of the points.

The parts of a run that a config names declare the demands that they handle, here or, of solvers, fitters and losses, in
their classes (`handles`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple, get_args

from macmpi.config import NESTED, Activation, Config, Penalty
from macmpi.config.whole import toml
from macmpi.demand import USUAL, WEIGHTS, Demand, Demands

D = Demand

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


class Row(NamedTuple):
    """A value of a key handles these demands, does this, and may be replaced by these values, the nearest first.

    asks: the demand that it asks the other parts for itself; off: the values that switch that off, where they are not
    those that replace it.
    """

    handles: Demands = USUAL
    why: str = ""
    instead: tuple[Any, ...] = ()
    asks: Demand | None = None
    off: tuple[Any, ...] = ()


NO_DERIVATIVES: Demands = frozenset({D.NO_SLOPES, D.NO_WEIGHT_SLOPES})
"""Layers that only half steps train."""

ACCELERATED = {D.ACCELERATED, D.TOGETHER}
"""Values of method.acceleration ask for these."""

NESTED_ALONE = USUAL - NO_DERIVATIVES - ACCELERATED - {D.RESTRAINED, D.RING, D.SELECTED, D.SELECTED_UNITS}
"""Methods without coordinates; of the keys of half steps they read none."""

LAYER_BY_LAYER = USUAL - {D.SKIPS, D.SHARED, D.SPARSE, D.OTHER_LAYERS}
ONE_NET = {D.SELECTED, D.SELECTED_UNITS}
MOVED = USUAL - NO_DERIVATIVES - {D.SELECTED, D.MULTIPLIERS, D.NO_CONSTRAINTS}
JOINT = USUAL - NO_DERIVATIVES - ONE_NET - {D.NO_CONSTRAINTS, D.RESTRAINED, D.FITTED, D.RING, D.HALVES}
RECORDED = USUAL - NO_DERIVATIVES - ONE_NET - {D.ACCELERATED, D.NO_CONSTRAINTS}
UNLIKE = USUAL - {D.RIDGE_OF_OBJECTIVE, D.RESTRAINED, D.SHARED}
REFIT = USUAL - ONE_NET - {D.MULTIPLIERS, D.SETTLING, D.GIVEN_START, D.HALVES}

FINISH = NESTED_ALONE - {D.NOT_AFFINE, D.COUNTED, D.GRADIENTS} | ACCELERATED
"""Steps of all points go on from the weights with which full MAC has settled, by their derivatives."""

SPAN = USUAL - {D.SKIPS, D.SHARED, D.SPARSE, D.RESTRAINED, D.FITTED}
"""A net that is trained in the span of the points reads all columns by one layer, held by squares of its weights."""

BY_SQUARES = ("mac", "stochastic")
"""Methods that find the same net whatever orthonormal coordinates the inputs have."""

BY_SLOPES = Row(NESTED_ALONE, "it trains all layers by their derivatives", ("mac", "stochastic"))
MOVING = Row(MOVED, "it moves feasible coordinates along their derivatives", ("none",), D.ACCELERATED)
GIVEN: tuple[Any, ...] = ("pca", "uniform"), D.GIVEN_START, ("uniform", "pca")
"""The starts in the place of one that is given coordinates or weights, and the demand of that one."""

TABLE: dict[str, dict[Any, Row]] = {
    "method.name": {
        "stochastic": Row(
            NESTED_ALONE - {D.NOT_AFFINE},
            "it trains dense layers with biases, by their derivatives",
            ("mac", "adam"),
        ),
        **dict.fromkeys(("sgd", "adam", "cg", "lbfgs"), BY_SLOPES),
        "alternating": Row(
            USUAL
            - ONE_NET
            - {D.SKIPS, D.SHARED, D.NO_SLOPES, D.MULTIPLIERS, D.METRIC, D.RESTRAINED, D.RING, D.GRADIENTS}
            - ACCELERATED,
            "it fits an encoder and a decoder of the code in turn, without a penalty",
            ("mac",),
            D.HALVES,
        ),
    },
    "start.method": {
        "uniform": Row(
            USUAL - {D.INNER_BASIS},
            "it draws weights, and centres are found from data",
            ("pca", "elastic_embedding"),
        ),
        "pca": Row(
            LAYER_BY_LAYER,
            "it fits dense layers that read one another in turn",
            ("uniform", "staged"),
        ),
        "itq": Row(
            LAYER_BY_LAYER - {D.NO_BITS},
            "it rotates principal components towards the bits of a layer",
            ("pca", "uniform"),
        ),
        "greedy": Row(
            LAYER_BY_LAYER - {D.NO_SLOPES, D.INNER_BASIS},
            "it trains dense layers that read one another in turn, by their derivatives",
            ("uniform", "pca", "elastic_embedding"),
        ),
        "staged": Row(
            USUAL - {D.SHARED, D.SPARSE, D.NO_FILTERS, D.ALL_POINTS} - WEIGHTS - {D.INNER_BASIS},
            "it finds filters and codewords of one layer after the other by k-means, which does not weigh points",
            ("uniform", "pca"),
        ),
        "elastic_embedding": Row(USUAL - {D.SHARED, D.WEIGHTED}, "it places points by their neighbours alone", *GIVEN),
        "file": Row(USUAL - {D.SHARED}, "it gives coordinates of all points", *GIVEN),
        "model": Row(USUAL, "", *GIVEN),
    },
    "run.finish": {True: Row(FINISH, "it goes on with dense layers with biases, by their derivatives", (False,))},
    "run.refit": {True: Row(REFIT, "it repeats the run on other points", (False,))},
    "loss.missing": {True: Row(asks=D.MISSING, off=(False,))},
    "model.tied": {True: Row(asks=D.SHARED, off=(False,))},
    "model.output": {word: Row(asks=D.OUTPUT, off=("linear",)) for word in get_args(Activation) if word != "linear"},
}
"""Key -> value -> the demands that it handles, and the one that it asks for.

Values without a row handle all and ask nothing.
"""

HALF_STEPS: dict[str, dict[Any, Row]] = {
    "penalty.method": {
        "augmented_lagrangian": Row(
            USUAL - {D.NO_CONSTRAINTS}, "multipliers are those of constraints", ("quadratic",), D.MULTIPLIERS
        )
    },
    "penalty.metric": {
        "variance": Row(UNLIKE, "it weighs the units of a layer unlike", ("identity",), D.METRIC),
        "curvature": Row(
            UNLIKE - {D.SKIPS, D.INEXACT},
            "it couples the units of a layer",
            ("variance", "identity"),
            D.METRIC,
            ("identity",),
        ),
    },
    "penalty.stop": {
        "gradient": Row(
            RECORDED - {D.MULTIPLIERS, D.COUNTED, D.RIDGE_OF_UNITS, D.RESTRAINED, D.FITTED},
            "it follows a path of stationary points of one E_Q + ridge",
            ("validation",),
            D.GRADIENTS,
        )
    },
    "penalty.gradients": {
        True: Row(RECORDED, "they are those of E_Q over weights and coordinates of one net", (False,), D.GRADIENTS)
    },
    "method.acceleration": {
        "feasible": MOVING,
        "momentum": MOVING,
        "joint": Row(
            JOINT, "it moves all weights together with the coordinates, by their derivatives", ("none",), D.TOGETHER
        ),
    },
    "w_step.schedule": {
        "ring": Row(
            USUAL - {D.RESTRAINED},
            "units, trained by minibatches, go from block to block of the points",
            ("units",),
            D.RING,
        )
    },
    "w_step.linear_solver": {"same": Row(asks=D.NO_CLOSED_FORM, off=("closed_form",))},
}
"""Keys that a method without coordinates does not read, in the same form."""

SELECTION = USUAL - {D.SHARED, D.RESTRAINED, D.MISSING, D.METRIC} - WEIGHTS


def said(key: str, value: Any) -> str:
    """A setting as a config has it.  Collective: no."""
    return f"{key} = {toml(value)}"


def rows_of(config: Config, tables: dict[str, dict[Any, Row]] = TABLE | HALF_STEPS) -> Iterator[tuple[str, Any, Row]]:
    """The keys whose value has a row: key, value, row."""
    for key, rows in tables.items():
        value = attrgetter(key)(config)
        if row := rows.get(value):
            yield key, value, row


def asked_by_keys(config: Config) -> Iterator[Asked]:
    """The demands of single keys, whatever the net and the data are.  Collective: no."""
    nested, penalty = config.method.name in NESTED, config.penalty
    for key, value, row in rows_of(config):
        if row.asks and not (nested and key.startswith("penalty.")):
            yield Asked(row.asks, said(key, value), tuple((key, other) for other in row.off or row.instead))
    criterion, sizes = config.selection.criterion, config.selection.sizes
    if criterion != "none":
        off = (("selection.criterion", "none"),)
        yield Asked(D.SELECTED_UNITS if sizes else D.SELECTED, said("selection.criterion", criterion), off)
    for key in penalty.shaping[:1]:
        yield Asked(D.RESTRAINED, f"penalty.{key}", ((f"penalty.{key}", vars(Penalty())[key]),))
    if not nested and (every := penalty.value("mu_every")) > 0:
        yield Asked(D.COUNTED, said("penalty.mu_every", every), (("penalty.mu_every", 0),))
    elif config.method.name == "mac":
        yield Asked(D.SETTLING, "penalty.mu_every = 0", (("penalty.mu_every", 10),))
