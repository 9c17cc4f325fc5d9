"""A net, its data and its schedule make demands on the parts of a run; each part declares which ones it handles.

A part is the value of a key, for which the table below says what it handles, or a solver, fitter or loss, whose class
says it (`handles`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, get_args

from macmpi.config import Activation, Config, Penalty
from macmpi.config.auto import Sizes, of_half_steps
from macmpi.config.whole import toml
from macmpi.demand import USUAL, WEIGHTS, Asked, Demand, Demands, Part, Setting
from macmpi.nets.chain import Chain
from macmpi.nets.layers import Map, is_basis
from macmpi.plan.choices import z_name
from macmpi.plan.resolved import Resolved
from macmpi.solvers import W_SOLVERS
from macmpi.solvers.fitters import ByFitter

D = Demand


class Row(NamedTuple):
    """Describes one value of a key: what it handles, and what to offer instead.

    handles: the demands that a run with this value can meet.
    why: the reason why it can meet no other demands, for the message.
    instead: values to offer in its place, the nearest first.
    asks: a demand that the value itself makes on the other parts.
    off: values that switch that demand off; () if those of `instead` do.
    """

    handles: Demands = USUAL
    why: str = ""
    instead: tuple[Any, ...] = ()
    asks: Demand | None = None
    off: tuple[Any, ...] = ()


NO_DERIVATIVES: Demands = frozenset({D.NO_SLOPES, D.NO_WEIGHT_SLOPES})
"""Demands of layers without derivatives, which only half steps train."""

ACCELERATED = {D.ACCELERATED, D.TOGETHER}
"""Demands of the values of method.acceleration."""

NESTED_ALONE = USUAL - NO_DERIVATIVES - ACCELERATED - {D.RESTRAINED, D.RING, D.SELECTED, D.SELECTED_UNITS}
"""Demands that methods without coordinates handle; they read no keys of half steps."""

ONE_BLOCK = USUAL - {D.SHARED, D.SOME_UNITS}  # a layer's weights are one block
LAYER_BY_LAYER = USUAL - {D.SKIPS, D.SHARED, D.SPARSE, D.OTHER_LAYERS}
ONE_NET = {D.SELECTED, D.SELECTED_UNITS}
MOVED = USUAL - NO_DERIVATIVES - {D.SELECTED, D.MULTIPLIERS, D.NO_CONSTRAINTS}
JOINT = USUAL - NO_DERIVATIVES - ONE_NET - {D.NO_CONSTRAINTS, D.RESTRAINED, D.FITTED, D.RING, D.HALVES}
SUMMED = MOVED - ONE_NET - {D.ACCELERATED, D.TOGETHER, D.CONVOLUTIONS, D.SHARED, D.BASIS, D.INEXACT, D.FITTED}
RECORDED = USUAL - NO_DERIVATIVES - ONE_NET - {D.ACCELERATED, D.NO_CONSTRAINTS}
UNLIKE = USUAL - {D.RIDGE_OF_OBJECTIVE, D.RESTRAINED, D.SHARED}
REFIT = USUAL - ONE_NET - {D.MULTIPLIERS, D.SETTLING, D.GIVEN_START, D.STREAM, D.HALVES, D.ALL_POINTS}

FINISH = NESTED_ALONE - {D.NOT_AFFINE, D.COUNTED, D.GRADIENTS} | ACCELERATED
"""Demands that the steps of all points at the end of full MAC handle: they need the derivatives of all layers."""

AFFINE = "it trains one net of dense layers with biases, by derivatives of E1 and a ridge"
BY_SLOPES = Row(NESTED_ALONE, "it trains all layers of one net, only by derivatives of E1", ("mac", "stochastic"))
MOVING = Row(MOVED, "it moves feasible coordinates along their derivatives", ("none",), D.ACCELERATED)
GIVEN: tuple[Any, ...] = ("pca", "uniform"), D.GIVEN_START, ("uniform", "pca")
"""Remedies of a start that reads coordinates or weights, its demand, and the starts that switch that demand off."""

TABLE: dict[str, dict[Any, Row]] = {
    "method.name": {
        "stochastic": Row(NESTED_ALONE - {D.NOT_AFFINE}, AFFINE, ("mac", "adam")),
        **dict.fromkeys(("sgd", "adam", "cg", "lbfgs"), BY_SLOPES),
        "alternating": Row(
            (ONE_BLOCK - ONE_NET - ACCELERATED)
            - {D.SKIPS, D.NO_SLOPES, D.MULTIPLIERS, D.METRIC, D.RESTRAINED, D.RING, D.GRADIENTS},
            "it fits an encoder and a decoder of the code in turn, without a penalty",
            ("mac",),
            D.HALVES,
        ),
    },
    "start.method": {
        "uniform": Row(USUAL - {D.BASIS}, "it draws weights; centres are found", ("pca", "elastic_embedding")),
        "stochastic": Row(USUAL - NO_DERIVATIVES - ONE_NET - {D.NOT_AFFINE}, AFFINE, ("uniform", "pca")),
        "pca": Row(LAYER_BY_LAYER, "it fits dense layers that read one another in turn", ("uniform", "staged")),
        "itq": Row(
            LAYER_BY_LAYER - {D.NO_BITS},
            "it rotates principal components towards the bits of a layer",
            ("pca", "uniform"),
        ),
        "neighbours": Row(
            LAYER_BY_LAYER - {D.NO_BITS, D.BASIS, D.WEIGHTED},
            "it fits a layer of bits to the neighbours of points, each of which counts once",
            ("itq", "pca", "uniform"),
        ),
        "greedy": Row(
            LAYER_BY_LAYER - {D.NO_SLOPES, D.BASIS},
            "it trains dense layers that read one another in turn, by their derivatives",
            ("uniform", "pca", "elastic_embedding"),
        ),
        "staged": Row(
            USUAL - {D.SKIPS, D.SHARED, D.SPARSE, D.NO_FILTERS, D.ALL_POINTS, D.WEIGHTED_OUTPUTS, D.BASIS},
            "it finds dense layers and convolutions one after the other by k-means, which does not weigh outputs",
            ("uniform", "pca"),
        ),
        "elastic_embedding": Row(USUAL - {D.SHARED, D.WEIGHTED}, "it places points by their neighbours alone", *GIVEN),
        "file": Row(USUAL - {D.SHARED}, "it gives coordinates of all points", *GIVEN),
        "model": Row(USUAL, "", *GIVEN),
    },
    "run.finish": {True: Row(FINISH, f"once the error settles at each mu, {AFFINE}", (False,))},
    "run.refit": {True: Row(REFIT, "it repeats the run on other points", (False,))},
    "stochastic.stream": {True: Row(asks=D.STREAM, off=(False,))},
    "loss.missing": {True: Row(asks=D.MISSING, off=(False,))},
    "model.tied": {True: Row(asks=D.SHARED, off=(False,))},
    "model.output": {word: Row(asks=D.OUTPUT, off=("linear",)) for word in get_args(Activation) if word != "linear"},
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
            RECORDED - {D.COUNTED, D.RIDGE_OF_UNITS, D.RESTRAINED, D.FITTED},
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
    "w_step.sums": {"running": Row(SUMMED, "it keeps sums of closed forms, which Z-steps alone change", ("whole",))},
    "w_step.linear_solver": {"same": Row(asks=D.NO_CLOSED_FORM, off=("closed_form",))},
}
"""Key -> value -> the demands that it handles, and the one that it makes.

Values without a row handle all demands and make none.
"""

SELECTION = ONE_BLOCK - {D.RESTRAINED, D.MISSING, D.METRIC} - WEIGHTS


def said(key: str, value: Any) -> str:
    """Writes a setting as in a config: 'model.loss = "squared"'.  Collective: no."""
    return f"{key} = {toml(value)}"


def rows_of(config: Config) -> Iterator[tuple[str, Any, Row]]:
    """Yields key, value and row of each key of the config whose value has a row in the table."""
    for key, rows in TABLE.items():
        value = attrgetter(key)(config)
        if row := rows.get(value):
            yield key, value, row


def replaced(key: str, values: Sequence[Any]) -> tuple[Setting, ...]:
    """Pairs a key with each of some values: settings to offer as remedies."""
    return tuple((key, value) for value in values)


def asked_by_keys(config: Config) -> Iterator[Asked]:
    """Yields the demands that single keys make, whatever the net and the data are.  Collective: no."""
    nested, penalty = config.method.nested, config.penalty
    for key, value, row in rows_of(config):
        if row.asks and not (nested and key.startswith("penalty.")):
            yield Asked(row.asks, said(key, value), replaced(key, row.off or row.instead))
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


# --- what a run is asked to handle ------------------------------------------------------------------------------------

BITS_FIRST = 'a binary layer as the first of model.hidden, with model.sites = "after" there and "none" elsewhere'


def asked(of: Resolved, sizes: Sizes) -> list[Asked]:
    """Lists the demands on a run as a whole, in the order of `Demand`.

    sizes: the sizes of the data.  Collective: no.
    """
    config, chain = of.config, of.chain
    demands = [*asked_by_keys(config), *_of_layers(config, chain)]
    if sizes.weights:
        demands.append(Asked(D.WEIGHTED, "data with weights of points", words="data without weights"))
    if sizes.weights > 1:
        by = "data with a weight for each point and output"
        demands.append(Asked(D.WEIGHTED_OUTPUTS, by, words="data with one weight a point, (N,)"))
    if not config.method.nested:
        demands += [*_of_sites(config, chain), *_of_regressions(of)]
    order = list(Demand)
    return sorted(demands, key=lambda one: order.index(one.demand))


def _of_layers(config: Config, chain: Chain) -> Iterator[Asked]:
    model = config.model
    if model.skips:
        yield Asked(D.SKIPS, "model.skips", (("model.skips", []),))
    if chain.numbers and not model.tied:
        yield Asked(D.SHARED, "a recurrent layer", words="a dense layer in its place")
    weighted = [m for m in chain.maps if m.parameter_shape is not None]
    fitted = [m for s in chain.segments for m in s.fitted]
    another = "a layer of another kind there"
    for demand, what, maps in (
        (D.CONVOLUTIONS, "convolutions", [m for m in chain.blocks if "patches" in m.own.capabilities]),
        (D.SPARSE, "sparse layers", [view.map for view in chain.views.values() if view.sparse]),
        (D.OTHER_LAYERS, "", [m for m in fitted if "linear" not in m.capabilities]),
        (D.NOT_AFFINE, "", [m for m in chain.blocks if m.own.columns and not _is_affine(m.own)]),
        (D.NO_FILTERS, "", [m for m in chain.net.blocks[:-1] if not (_is_affine(m) and "units" in m.capabilities)]),
        (D.NO_WEIGHT_SLOPES, "", [m for m in weighted if "weight_jacobian" not in m.capabilities]),
        (D.NO_SLOPES, "", [m for m in chain.maps if "jacobian" not in m.capabilities]),
    ):
        if maps:
            kind = maps[0].kind
            yield Asked(demand, what or f"a layer of the kind {kind}", words=another)
    if all(code.run_length > 1 for code in chain.codes):
        yield Asked(D.NO_BITS, "a net without a layer of bits", words=BITS_FIRST)
    if any(is_basis(m) for m in chain.blocks):
        yield Asked(D.BASIS, "radial basis functions", words=another)
    centred = config.start.method == "staged" or any("centres" in m.capabilities for m in chain.blocks)
    if centred and "points" in model.each("centres", 1):
        yield Asked(D.ALL_POINTS, 'model.centres = "points"', replaced("model.centres", ("kmeans", "subset")))


def _is_affine(map_: Map) -> bool:
    """Tells whether a map has a row [v, c] for each filter or word, which gives one output at each position."""
    return "bias" in map_.capabilities and bool({"patches", "linear"} & map_.capabilities)


def _of_sites(config: Config, chain: Chain) -> Iterator[Asked]:
    if not chain.sites:
        yield Asked(D.NO_CONSTRAINTS, 'model.sites = "none"', replaced("model.sites", ("after", "before")))
    if len(chain.sites) > 1:
        layers = range(len(config.model.units))
        one = replaced("model.sites", [["after" if k == i else "none" for k in layers] for i in layers])
        yield Asked(D.SEVERAL_SITES, f"{len(chain.sites)} sites", one, BITS_FIRST)
    if chain.undivided:
        yield Asked(D.SOME_UNITS, said("model.sites", config.model.sites), (("model.sites", "after"),))
    ends = {bool(s.maps[-1].code) for s in chain.segments[:-1]}
    if True in ends:
        yield Asked(D.SITE_OF_BITS, "coordinates that are bits", words="a layer that gives numbers there")
    if False in ends:
        yield Asked(D.SITE_OF_NUMBERS, "coordinates that are numbers", words=BITS_FIRST)
    for k, segment in enumerate(chain.segments[1:], start=2):
        for map_ in (m for m in segment.maps if "jacobian" not in m.capabilities):
            kind = f"a layer of the kind {map_.kind} in segment {k}"
            first = "it as the first of model.hidden, with no site before it"
            yield Asked(D.SLOPES_LACKING, kind, words=first)


def _of_regressions(of: Resolved) -> Iterator[Asked]:
    penalty, model = of.config.penalty, of.config.model
    if model.fitters != "auto":
        yield Asked(D.FITTED, "model.fitters", (("model.fitters", "auto"),))
    elif any(r.by_fitter for r in of.regressions.values()):
        yield Asked(D.FITTED, "a layer that a fitter fits", words="a layer of another kind there")
    demands, scale = {"objective": D.RIDGE_OF_OBJECTIVE, "unit": D.RIDGE_OF_UNITS}, penalty.ridge_scale
    if scale in demands and max(penalty.each("ridge", 1)) > 0.0:
        off = replaced("penalty.ridge_scale", [word for word in demands if word != scale])
        yield Asked(demands[scale], said("penalty.ridge_scale", scale), off)
    if not all(r.solver.exact for k, r in of.regressions.items() if k < len(of.chain.sites)):
        others = (("model.sites", "before"), ("w_step.linear_solver", "closed_form"))
        yield Asked(D.INEXACT, "hidden layers that are not fitted in closed form", others)


def _asked_of_segment(of: Resolved, k: int, asked_of_run: Sequence[Asked]) -> Iterator[Asked]:
    """Yields the demands on the regression of segment k, counted from 0.  Collective: no.

    asked_of_run: the demands on the whole run, some of which reach the regression.
    """
    segment, regression, place = of.chain.segments[k], of.regressions[k], f"segment {k + 1}"
    reaching = {D.WEIGHTED} if regression.by_fitter else {D.WEIGHTED, D.RING}
    if len(of.chain.sites) in of.chain.groups[k]:
        reaching.add(D.WEIGHTED_OUTPUTS)
    if set(segment.regressed) & set(of.shaping.restrained):
        reaching.add(D.RESTRAINED)
    yield from (one for one in asked_of_run if one.demand in reaching)
    if of.chain.views[k].sparse:
        yield Asked(D.SPARSE, f"a sparse layer of {place}", words="a layer that reads all its inputs")
    if not regression.by_unit and not regression.by_fitter:
        yield Asked(D.INSEPARABLE, f"the units of {place}, which do not separate (it {_why(of, k)})")


def _why(of: Resolved, k: int) -> str:
    """Says why the units of a segment are not fitted one by one: "ends in softmax"."""
    config, segment, last = of.config, of.chain.segments[k], k == len(of.chain.sites)
    if len(of.chain.groups[k]) > 1:
        return "shares its weights with another"
    if len(segment.parameter_blocks) > 1:
        return f"holds {len(segment.parameter_blocks)} layers between two sites"
    offered = segment.fitted[0].capabilities
    if lacking := sorted({"units", "bias", *({"linear"} if "patches" not in offered else ())} - offered):
        return f"is {segment.fitted[0].kind}, without '{lacking[0]}'"
    by_loss = f'model.loss = "{config.model.loss}"{" with missing outputs" if config.loss.missing else ""}'
    return f"ends in {by_loss}" if last and segment.separable else "ends in softmax"


def parts(of: Resolved, sizes: Sizes) -> Iterator[tuple[Part, Sequence[Asked]]]:
    """Yields the parts of a run, each with the demands on it.  sizes: of the data.  Collective: no."""
    whole = asked(of, sizes)
    yield from ((part, whole) for part in _parts_of_run(of))
    if not of.method.nested:
        for k in (k for k, group in enumerate(of.chain.groups) if group):
            yield _part_of_segment(of, k), list(_asked_of_segment(of, k, whole))


def _parts_of_run(of: Resolved) -> Iterator[Part]:
    config, nested = of.config, of.config.method.nested
    for key, value, row in rows_of(config):
        if not (nested and of_half_steps(key)):
            yield Part(said(key, value), row.handles, row.why, replaced(key, row.instead))
    criterion = config.selection.criterion
    if criterion != "none":
        centres = any("centres" in m.capabilities for m in of.chain.blocks)
        lacks = {D.MULTIPLIERS} if config.selection.sizes and not centres else {D.NO_CLOSED_FORM}
        why = "it compares nets by one sum of squares over all points and outputs, fitted with a ridge alone"
        yield Part(said("selection.criterion", criterion), SELECTION - lacks, why, (("selection.criterion", "none"),))
    yield _loss(of)
    if config.model.fitters != "auto":
        why = "each fits the weights of one layer"
        yield Part(said("model.fitters", config.model.fitters), ONE_BLOCK, why, (("model.fitters", "auto"),))
    for key in config.penalty.shaping[:1]:
        yield Part(f"penalty.{key}", ONE_BLOCK, "it is fitted to one layer's weights")
    if of.trainers:
        weighs = all(trainer.copies for trainer in of.trainers.values())
        handles = USUAL if weighs else USUAL - {D.WEIGHTED}
        why = "it finds centres without weighing points"
        yield Part(said("model.centres", config.model.centres), handles, why, (("model.centres", "subset"),))
    if not nested:
        yield _z_solver(of)


def _loss(of: Resolved) -> Part:
    loss = of.loss
    handled = {D.MISSING: loss.missing, D.WEIGHTED_OUTPUTS: loss.by_output, D.OUTPUT: loss.link == "identity"}
    lacks = {demand for demand, handles in handled.items() if not handles}
    why = "a point has one label" if loss.labels else f"its outputs end in a {loss.link} of their own"
    return Part(said("model.loss", of.config.model.loss), USUAL - lacks, why)


def _z_solver(of: Resolved) -> Part:
    name, solver = z_name(of.config, of.chain), of.z_solver
    others = replaced("z_step.solver", [word for word in ("auto", "binary") if word != of.config.z_step.solver])
    why = "it takes one site of bits" if D.SITE_OF_BITS in solver.handles else "it moves numbers by derivatives"
    text = said("z_step.solver", name) if of.config.z_step.solver == name else f'the Z-solver "{name}"'
    return Part(text, solver.handles, why, others, _author(solver))


def _part_of_segment(of: Resolved, k: int) -> Part:
    """Describes the solver or fitter of a segment's regression as a part.  Collective: no."""
    regression, solver = of.regressions[k], of.regressions[k].solver
    if isinstance(solver, ByFitter):
        handles: Demands = getattr(solver.fitter, "handles", frozenset())
        text, why = f'the fitter "{regression.name}" of segment {k + 1}', "it is given points at once"
        return Part(text, handles, why, (("model.fitters", "auto"),), _author(solver.fitter))
    handles = solver.handles | ({D.INSEPARABLE} if "segment" in solver.takes else set())
    named = of.config.w_step.solver == regression.name
    text = said("w_step.solver", regression.name) if named else f'the W-solver "{regression.name}" of segment {k + 1}'
    others = [word for word in ("auto", *W_SOLVERS) if word not in (regression.name, "closed_form")]
    return Part(text, handles, "", replaced("w_step.solver", others), _author(solver))


def _author(solver: Any) -> str:
    """Names the class of a part that comes from another package; "" for macmpi's own."""
    kind = type(getattr(solver, "inner", solver))
    return "" if kind.__module__.startswith("macmpi.") else kind.__qualname__
