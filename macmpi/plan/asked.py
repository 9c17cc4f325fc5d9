"""The demands of a config, on a run as a whole and on each segment's regression; and how each is switched off."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from macmpi.config import NESTED, Config, Penalty
from macmpi.config.auto import Sizes
from macmpi.config.whole import toml
from macmpi.demand import Demand
from macmpi.nets.build import is_basis
from macmpi.nets.chain import Chain
from macmpi.nets.layers import Map
from macmpi.parallel.placement import PLACEMENTS
from macmpi.plan.resolved import Resolved

Setting = tuple[str, Any]
"""A key, "table.key", and a value."""

ROWS_OF_WEIGHTS = frozenset({"bias", "units"})
"""A layer of filters or words has a row [v, c] for each, which gives one output at each position."""


BITS_FIRST = 'a binary layer as the first of model.hidden, with model.sites = "after" there and "none" elsewhere'


@dataclass(frozen=True)
class Asked:
    """A demand, what asks for it, and what switches it off: settings, or words where no setting does."""

    demand: Demand
    by: str
    off: tuple[Setting, ...] = ()
    words: str = ""


def said(key: str, value: Any) -> str:
    """A setting as a config has it.  Collective: no."""
    return f"{key} = {toml(value)}"


def asked(of: Resolved, sizes: Sizes) -> list[Asked]:
    """Gives what a run as a whole is asked to handle.  sizes: of the data.  Collective: no."""
    config, chain = of.config, of.chain
    found = [*_of_layers(config, chain), *_of_targets(config, sizes), *of_ways(config), *of_schedule(config)]
    if config.method.name not in NESTED:
        found += [*_of_sites(config, chain), *_of_regressions(of)]
    return found


def _of_layers(config: Config, chain: Chain) -> Iterator[Asked]:
    model = config.model
    if model.skips:
        yield Asked(Demand.SKIPS, "model.skips", (("model.skips", []),))
    if chain.numbers and model.tied:
        yield Asked(Demand.SHARED, "model.tied = true", (("model.tied", False),))
    elif chain.numbers:
        yield Asked(Demand.SHARED, "a recurrent layer", words="a dense layer in its place")
    weighted = [m for m in chain.maps if m.parameter_shape is not None]
    fitted = [m for s in chain.segments for m in s.fitted]
    another = "a layer of another kind there"
    for demand, what, maps in (
        (Demand.CONVOLUTIONS, "convolutions", [m for m in chain.blocks if "patches" in m.own.capabilities]),
        (Demand.SPARSE, "sparse layers", [view.map for view in chain.views if view.sparse]),
        (Demand.OTHER_LAYERS, "", [m for m in fitted if "linear" not in m.capabilities]),
        (Demand.NOT_AFFINE, "", [m for m in chain.blocks if m.own.columns and not _affine(m.own)]),
        (Demand.NO_FILTERS, "", [m for m in chain.blocks[:-1] if not _has_filters(m)]),
        (Demand.NO_WEIGHT_SLOPES, "", [m for m in weighted if "weight_jacobian" not in m.capabilities]),
        (Demand.NO_SLOPES, "", [m for m in chain.maps if "jacobian" not in m.capabilities]),
        (Demand.CENTRES, "", [m for m in chain.maps if {"centres", "bits"} & m.capabilities]),
    ):
        if maps:
            kind = maps[0].spec()["kind"]
            yield Asked(demand, what or f"a layer of the kind {kind}", words=another)
    if chain.sites and any(is_basis(m) for m in chain.blocks):
        yield Asked(Demand.INNER_BASIS, "radial basis functions", words=another)
    if model.each("centres", 1) == ["points"]:
        yield Asked(
            Demand.ALL_POINTS, 'model.centres = "points"', tuple(("model.centres", w) for w in ("kmeans", "subset"))
        )


def _affine(map_: Map) -> bool:
    return "bias" in map_.capabilities and bool({"patches", "linear"} & map_.capabilities)


def _has_filters(map_: Map) -> bool:
    return map_.capabilities >= ROWS_OF_WEIGHTS and bool({"patches", "linear"} & map_.capabilities)


def _of_targets(config: Config, sizes: Sizes) -> Iterator[Asked]:
    if config.model.output != "linear":
        yield Asked(Demand.OUTPUT, said("model.output", config.model.output), (("model.output", "linear"),))
    if config.loss.missing:
        yield Asked(Demand.MISSING, "loss.missing = true", (("loss.missing", False),))
    if sizes.weighted:
        yield Asked(Demand.WEIGHTED, "data with weights of points", words="data without weights")
    if sizes.weighted_outputs:
        by = "data with a weight for each point and output"
        yield Asked(Demand.WEIGHTED_OUTPUTS, by, words="data with one weight a point, (N,)")


def of_ways(config: Config) -> Iterator[Asked]:
    """The demands of selection, start, acceleration, restraints, ring, method and place of the points."""
    keys, start, places = config.selection, config.start.method, config.parallel.data
    penalty, acceleration = config.penalty, config.method.acceleration
    if keys.criterion != "none":
        demand = Demand.SELECTED_UNITS if keys.sizes else Demand.SELECTED
        off = ("selection.criterion", "none")
        yield Asked(demand, said("selection.criterion", keys.criterion), (off,))
    if start in ("file", "model", "elastic_embedding"):
        others = tuple(("start.method", word) for word in ("uniform", "pca"))
        yield Asked(Demand.GIVEN_START, said("start.method", start), others)
    if acceleration in ("feasible", "momentum"):
        yield Asked(Demand.ACCELERATED, said("method.acceleration", acceleration), (("method.acceleration", "none"),))
    for key in penalty.shaping[:1]:
        usual = vars(Penalty())[key]
        yield Asked(Demand.RESTRAINED, f"penalty.{key}", ((f"penalty.{key}", usual),))
    if config.w_step.schedule == "ring":
        yield Asked(Demand.RING, said("w_step.schedule", "ring"), (("w_step.schedule", "units"),))
    if config.method.name == "alternating":
        yield Asked(Demand.HALVES, 'method.name = "alternating"', (("method.name", "mac"),))
    others = tuple(("parallel.data", word) for word in PLACEMENTS if word != places)
    yield Asked(Demand[places.upper()], said("parallel.data", places), others)


def of_schedule(config: Config) -> Iterator[Asked]:
    """The demands of penalty, multipliers and mu; those of a method without coordinates are none.  Collective: no."""
    penalty, every = config.penalty, config.penalty.value("mu_every")
    if config.method.name in NESTED:
        return
    if penalty.metric != "identity":
        yield Asked(Demand.METRIC, said("penalty.metric", penalty.metric), (("penalty.metric", "identity"),))
    if penalty.method == "augmented_lagrangian":
        yield Asked(Demand.MULTIPLIERS, said("penalty.method", penalty.method), (("penalty.method", "quadratic"),))
    if every > 0:
        yield Asked(Demand.COUNTED, said("penalty.mu_every", every), (("penalty.mu_every", 0),))
    elif config.method.name == "mac":
        yield Asked(Demand.SETTLING, "penalty.mu_every = 0", (("penalty.mu_every", 10),))
    if penalty.stop == "gradient":
        yield Asked(Demand.GRADIENTS, said("penalty.stop", "gradient"), (("penalty.stop", "validation"),))
    elif penalty.gradients:
        yield Asked(Demand.GRADIENTS, "penalty.gradients = true", (("penalty.gradients", False),))


def _of_sites(config: Config, chain: Chain) -> Iterator[Asked]:
    if not chain.sites:
        others = tuple(("model.sites", word) for word in ("after", "before"))
        yield Asked(Demand.NO_CONSTRAINTS, 'model.sites = "none"', others)
    if len(chain.sites) > 1:
        one = tuple(_one_site(len(config.model.units)))
        yield Asked(Demand.SEVERAL_SITES, f"{len(chain.sites)} sites", one, BITS_FIRST)
    ends = {"bits" in s.maps[-1].capabilities for s in chain.segments[:-1]}
    if True in ends:
        yield Asked(Demand.SITE_OF_BITS, "coordinates that are bits", words="a layer that gives numbers there")
    if False in ends:
        yield Asked(Demand.SITE_OF_NUMBERS, "coordinates that are numbers", words=BITS_FIRST)
    for k, segment in enumerate(chain.segments[1:], start=2):
        for map_ in (m for m in segment.maps if "jacobian" not in m.capabilities):
            kind = f"a layer of the kind {map_.spec()['kind']} in segment {k}"
            first = "it as the first of model.hidden, with no site before it"
            yield Asked(Demand.SLOPES_LACKING, kind, words=first)


def _one_site(layers: int) -> Iterator[Setting]:
    """Coordinates behind one layer alone, whichever that is."""
    for i in range(layers):
        yield "model.sites", ["after" if k == i else "none" for k in range(layers)]


def _of_regressions(of: Resolved) -> Iterator[Asked]:
    config, penalty, model = of.config, of.config.penalty, of.config.model
    if model.fitters != "auto":
        yield Asked(Demand.FITTED, "model.fitters", (("model.fitters", "auto"),))
    elif any(r.by_fitter for r in of.regressions):
        yield Asked(Demand.FITTED, "a layer that a fitter fits", words="a layer of another kind there")
    demands, scale = {"objective": Demand.RIDGE_OF_OBJECTIVE, "unit": Demand.RIDGE_OF_UNITS}, penalty.ridge_scale
    if scale in demands and max(penalty.each("ridge", 1)) > 0.0:
        others = tuple(("penalty.ridge_scale", word) for word in demands if word != scale)
        yield Asked(demands[scale], said("penalty.ridge_scale", scale), others)
    if config.w_step.linear_solver != "closed_form":
        key = "w_step.linear_solver"
        yield Asked(Demand.NO_CLOSED_FORM, said(key, config.w_step.linear_solver), ((key, "closed_form"),))
    if not all(r.solver.exact for r in of.regressions[:-1]):
        others = (("model.sites", "before"), ("w_step.linear_solver", "closed_form"))
        yield Asked(Demand.INEXACT, "hidden layers that are not fitted in closed form", others)


def asked_of_segment(of: Resolved, k: int, asked_of_run: Sequence[Asked]) -> Iterator[Asked]:
    """Gives what the regression of segment k, counted from 0, is asked to handle.  Collective: no."""
    segment, regression, place = of.chain.segments[k], of.regressions[k], f"segment {k + 1}"
    reaching = {Demand.WEIGHTED, Demand.RING}
    if len(of.chain.sites) in of.chain.groups[k]:
        reaching.add(Demand.WEIGHTED_OUTPUTS)
    if set(segment.regressed) & set(of.shaping.restrained):
        reaching.add(Demand.RESTRAINED)
    if of.ring is None:
        reaching.add(Demand.SHARDED)
    yield from (one for one in asked_of_run if one.demand in reaching)
    if of.chain.views[k].sparse:
        yield Asked(Demand.SPARSE, f"a sparse layer of {place}", words="a layer that reads all its inputs")
    if not regression.by_unit and not regression.by_fitter:
        yield Asked(Demand.INSEPARABLE, f"the units of {place}, which do not separate (it {_why(of, k)})")


def _why(of: Resolved, k: int) -> str:
    """Says why the units of a segment are not fitted one by one: "ends in softmax"."""
    config, chain = of.config, of.chain
    segment, last = chain.segments[k], k == len(chain.sites)
    if len(chain.groups[k]) > 1:
        return "shares its weights with another"
    if len(segment.weighted) > 1:
        return f"holds {len(segment.weighted)} layers between two sites"
    offered = segment.fitted[0].capabilities
    if lacking := sorted({"units", "bias", *({"linear"} if "patches" not in offered else ())} - offered):
        return f"is {segment.fitted[0].spec()['kind']}, without '{lacking[0]}'"
    own = f'model.loss = "{config.model.loss}"{" with missing outputs" if config.loss.missing else ""}'
    return f"ends in {own}" if last and segment.separable else "ends in softmax"
