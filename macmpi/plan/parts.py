"""The parts of a run that a config names, and the demands that each of them handles.

Solvers, fitters and losses declare theirs in their classes (`handles`); those of methods, starts, schedules, metrics,
selections and refits are the table here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from macmpi.config import NESTED
from macmpi.demand import USUAL, Demand, Demands
from macmpi.nets.chain import Chain
from macmpi.parallel.placement import PLACEMENTS
from macmpi.plan.asked import Setting, said
from macmpi.plan.choices import z_name
from macmpi.plan.resolved import Resolved
from macmpi.solvers import W_SOLVERS

D = Demand


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
    """A value of a key handles these demands, does this, and may be replaced by these values, the nearest first."""

    handles: Demands
    why: str = ""
    instead: tuple[Any, ...] = ()


NO_DERIVATIVES: Demands = frozenset({D.NO_SLOPES, D.NO_WEIGHT_SLOPES})
"""Layers that only half steps train."""

NESTED_ALONE = USUAL - NO_DERIVATIVES - {D.RESTRAINED, D.RING, D.ACCELERATED, D.SELECTED, D.SELECTED_UNITS}
"""Methods without coordinates; of the keys of half steps they read none."""

LAYER_BY_LAYER = USUAL - {D.SKIPS, D.SHARED, D.SPARSE, D.OTHER_LAYERS, D.SHARDED}
ONE_NET = {D.SELECTED, D.SELECTED_UNITS}
MOVED = USUAL - NO_DERIVATIVES - {D.SELECTED, D.MULTIPLIERS, D.NO_CONSTRAINTS}
RECORDED = USUAL - NO_DERIVATIVES - ONE_NET - {D.ACCELERATED, D.NO_CONSTRAINTS}
UNLIKE = USUAL - {D.RIDGE_OF_OBJECTIVE, D.RESTRAINED, D.SHARED}
REFIT = USUAL - ONE_NET - {D.SHARDED, D.MULTIPLIERS, D.SETTLING, D.GIVEN_START, D.HALVES}

ALL_POINTS = tuple(name for name, place in PLACEMENTS.items() if place.sums_alone)
"""Placements in which a rank sees all points."""

BY_SLOPES = Row(NESTED_ALONE - {D.SHARDED}, "it trains all layers by their derivatives", ("mac", "stochastic"))
MOVING = Row(MOVED, "it moves feasible coordinates along their derivatives", ("none",))

TABLE: dict[str, dict[Any, Row]] = {
    "method.name": {
        "mac": Row(USUAL),
        "stochastic": Row(
            NESTED_ALONE - {D.NOT_AFFINE},
            "it trains dense layers with biases, by their derivatives",
            ("mac", "adam"),
        ),
        **dict.fromkeys(("sgd", "adam", "cg", "lbfgs"), BY_SLOPES),
        "alternating": Row(
            USUAL
            - ONE_NET
            - {D.SKIPS, D.SHARED, D.NO_SLOPES, D.MULTIPLIERS, D.METRIC, D.RESTRAINED, D.RING, D.ACCELERATED}
            - {D.GRADIENTS, D.SHARDED},
            "it fits an encoder and a decoder of the code in turn, without a penalty",
            ("mac",),
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
            "it fits dense layers that read one another in turn, on ranks that hold all points",
            ("uniform", "staged"),
        ),
        "greedy": Row(
            LAYER_BY_LAYER - {D.NO_SLOPES, D.INNER_BASIS},
            "it trains dense layers that read one another in turn, by their derivatives",
            ("uniform", "pca", "elastic_embedding"),
        ),
        "staged": Row(
            USUAL
            - {D.SHARED, D.SPARSE, D.SHARDED, D.WEIGHTED, D.WEIGHTED_OUTPUTS, D.NO_FILTERS, D.ALL_POINTS}
            - {D.INNER_BASIS},
            "it finds filters and codewords of one layer after the other by k-means, which does not weigh points",
            ("uniform", "pca"),
        ),
        "elastic_embedding": Row(
            USUAL - {D.SHARED, D.SHARDED, D.WEIGHTED},
            "it places points by their neighbours alone, on ranks that hold all of them",
            ("pca", "uniform"),
        ),
        "file": Row(USUAL - {D.SHARED, D.SHARDED}, "it gives coordinates of all points", ("pca", "uniform")),
    },
    "run.refit": {True: Row(REFIT, "it repeats the run on other points", (False,))},
    "parallel.data": {
        name: Row(USUAL - {D.CENTRES}, "layers are fitted by sums over points", ALL_POINTS)
        for name in PLACEMENTS
        if name not in ALL_POINTS
    },
}
"""The demands that a value of a key handles; other values of these keys handle all.  A part of the run as a whole."""

HALF_STEPS: dict[str, dict[Any, Row]] = {
    "method.acceleration": {"feasible": MOVING, "momentum": MOVING},
    "penalty.method": {
        "augmented_lagrangian": Row(USUAL - {D.NO_CONSTRAINTS}, "multipliers are those of constraints", ("quadratic",))
    },
    "penalty.metric": {
        "variance": Row(UNLIKE, "it weighs the units of a layer unlike", ("identity",)),
        "curvature": Row(UNLIKE - {D.SKIPS, D.INEXACT}, "it couples the units of a layer", ("variance", "identity")),
    },
    "penalty.stop": {
        "gradient": Row(
            RECORDED - {D.MULTIPLIERS, D.COUNTED, D.RIDGE_OF_UNITS, D.RESTRAINED, D.FITTED},
            "it follows a path of stationary points of one E_Q + ridge",
            ("validation",),
        )
    },
    "penalty.gradients": {
        True: Row(RECORDED, "they are those of E_Q over weights and coordinates of one net", (False,))
    },
    "w_step.schedule": {
        "ring": Row(
            USUAL - {D.CONVOLUTIONS, D.SPARSE, D.SKIPS, D.SHARED, D.RESTRAINED, D.REPLICATED, D.NODE},
            "units of dense layers, trained by minibatches, go round the ranks that hold the points",
            ("units",),
        )
    },
}
"""Keys that a method without coordinates does not read, in the same form."""

SELECTION = USUAL - {D.SHARED, D.RESTRAINED, D.WEIGHTED, D.WEIGHTED_OUTPUTS, D.MISSING, D.METRIC}


def parts(of: Resolved) -> Iterator[Part]:
    """The parts of the run as a whole.  Collective: no."""
    config = of.config
    nested = config.method.name in NESTED
    for key, rows in (TABLE if nested else TABLE | HALF_STEPS).items():
        table, name = key.split(".")
        value = getattr(getattr(config, table), name)
        if row := rows.get(value):
            yield Part(said(key, value), row.handles, row.why, tuple((key, other) for other in row.instead))
    criterion = config.selection.criterion
    if criterion != "none":
        lacks = {D.MULTIPLIERS} if config.selection.sizes and not _has_centres(of.chain) else {D.NO_CLOSED_FORM}
        if config.selection.ridges:
            lacks |= {D.SHARDED}
        why = "it compares nets by one sum of squares over all points and outputs, fitted with a ridge alone"
        yield Part(said("selection.criterion", criterion), SELECTION - lacks, why, (("selection.criterion", "none"),))
    yield _loss(of)
    if config.model.fitters != "auto":
        why = "each fits the weights of one layer"
        yield Part(said("model.fitters", config.model.fitters), USUAL - {D.SHARED}, why, (("model.fitters", "auto"),))
    for key in config.penalty.shaping[:1]:
        yield Part(f"penalty.{key}", USUAL - {D.SHARED}, "it is fitted to one layer's weights")
    if of.trainers:
        weighs = all(trainer.copies for trainer in of.trainers.values())
        handles = USUAL if weighs else USUAL - {D.WEIGHTED}
        why = "it finds centres without weighing points"
        yield Part(said("model.centres", config.model.centres), handles, why, (("model.centres", "subset"),))
    if not nested:
        yield _z_solver(of)


def _has_centres(chain: Chain) -> bool:
    return any("centres" in m.capabilities for m in chain.blocks)


def _loss(of: Resolved) -> Part:
    loss = of.loss
    lacks = {D.MISSING} if not loss.missing else set()
    if not loss.by_output:
        lacks |= {D.WEIGHTED_OUTPUTS}
    if loss.link != "identity":
        lacks |= {D.OUTPUT}
    why = "a point has one label" if loss.labels else f"its outputs end in a {loss.link} of their own"
    return Part(said("model.loss", of.config.model.loss), USUAL - lacks, why)


def _z_solver(of: Resolved) -> Part:
    name, solver = z_name(of.config, of.chain), of.z_solver
    others = tuple(("z_step.solver", word) for word in ("auto", "binary") if word != of.config.z_step.solver)
    why = "it takes one site of bits" if D.SITE_OF_BITS in solver.handles else "it moves numbers by derivatives"
    return Part(said("z_step.solver", name), solver.handles, why, others, _author(solver))


def part_of_segment(of: Resolved, k: int) -> Part:
    """The solver or fitter of a segment's regression.  Collective: no."""
    regression, solver = of.regressions[k], of.regressions[k].solver
    if regression.by_fitter:
        handles: Demands = getattr(regression.fitter, "handles", frozenset())
        text = f'the fitter "{regression.name}" of segment {k + 1}'
        return Part(
            text, handles, "it is given all points at once", (("model.fitters", "auto"),), _author(regression.fitter)
        )
    handles = solver.handles | ({D.INSEPARABLE} if "segment" in solver.takes else set())
    named = of.config.w_step.solver == regression.name
    text = said("w_step.solver", regression.name) if named else f'the W-solver "{regression.name}" of segment {k + 1}'
    others = [("w_step.solver", word) for word in ("auto", *W_SOLVERS) if word not in (regression.name, "closed_form")]
    if named and D.SHARDED not in handles:
        others.insert(1, ("w_step.schedule", "ring"))
    return Part(text, handles, "", tuple(others), _author(solver))


def _author(solver: Any) -> str:
    """The class of a part that another package gives."""
    kind = type(getattr(solver, "inner", solver))
    return "" if kind.__module__.startswith("macmpi.") else kind.__qualname__
