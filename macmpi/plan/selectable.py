"""Candidates of a selection, and what they cost: units of dense layers, centres, widths of these, and ridges."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from macmpi import UsageError, many
from macmpi.config import Config
from macmpi.config.model import OWNERS
from macmpi.nets.build import layers_of
from macmpi.nets.layers import Map, is_basis, is_dense
from macmpi.plan.resolved import Resolved
from macmpi.typing import Array

FEWEST, STEP = 150, 25
"""Without selection.sizes the candidates of a layer of centres are FEWEST, FEWEST + STEP, ..., as in the paper."""

CRITERIA: dict[str, Callable[[int], float]] = {
    "aic": lambda n: 1.0,
    "bic": lambda n: 0.5 * math.log(n),
    "mdl": lambda n: 0.5 * max(math.log(n / (2.0 * math.pi)), 0.0),
}
"""A parameter costs this in units of epsilon^2 in addition to E1, half the sum of squares, for n points: half of what
it costs in addition to -2 log likelihood = sum of squares / epsilon^2."""


def each(given: list[float | list[float]], count: int) -> list[list[float]]:
    """A list of candidates for each of `count` layers, of one for all or of a list for each.  Collective: no."""
    lists = [entry for entry in given if isinstance(entry, list)]
    numbers = [entry for entry in given if not isinstance(entry, list)]
    return lists or [numbers] * count


def width_places(of: Resolved) -> dict[int, int]:
    """The hidden layers of radial basis functions, and the place of each in a list of model.width.  Collective: no."""
    kinds = [(i, kind) for i, (_, kind, _) in enumerate(of.config.model.layers()) if kind in OWNERS["width"]]
    return {layer: place for place, (layer, kind) in enumerate(kinds) if kind == "rbf"}


def all_widths(of: Resolved) -> list[float]:
    """model.width as a list, an entry for each layer that has one.  Collective: no."""
    model = of.config.model
    found: list[float] = model.each("width", sum(kind in OWNERS["width"] for _, kind, _ in model.layers()))
    return found


def widths_of(of: Resolved, layer: int) -> tuple[float, ...]:
    """The candidates of a layer of radial basis functions, the width of the start among them.  Collective: no."""
    places = width_places(of)
    tried = each(of.selection.widths, len(places))[list(places).index(layer)]
    return tuple(sorted({*tried, of.config.model.of_layer("width", layer)}))


def fits_ridges(of: Resolved) -> dict[int, int]:
    """The segments whose ridge can be selected, dense layers fitted in closed form, and the parameter block of each."""
    return {
        k: segment.regressed[0]
        for k, (segment, own) in enumerate(zip(of.chain.segments, of.regressions, strict=True))
        if own.name == "closed_form" and of.chain.views[k].dense
    }


def ridges_of(of: Resolved) -> dict[int, tuple[float, ...]]:
    """The candidates of each segment whose ridge is selected, that of the start among them.  Collective: no."""
    layers = of.shaping.layers
    tried = dict(zip(layers, each(of.selection.ridges, len(layers)), strict=True))
    starts = dict(zip(layers, of.shaping.ridges, strict=True))
    return {k: tuple(sorted({*tried[b], starts[b]})) for k, b in fits_ridges(of).items() if tried[b]}


class Candidates(NamedTuple):
    """The regression of segment `segment`: what a linear layer reads, radial basis functions or what is before it.

    counts: candidates of its inputs, of centres several.  widths, ridges: candidates; () where there is nothing to
    choose.  layer: the hidden layer of radial basis functions, -1 of a dense one.  block: of the linear layer.  price:
    of a parameter, in the scale of E1; a centre has `own` of them, and each of its `outputs` a weight.
    """

    segment: int
    layer: int
    block: int
    counts: Array
    widths: tuple[float, ...]
    ridges: tuple[float, ...]
    price: float
    own: int
    outputs: int

    def cost(self, counts: Array, degrees: Array | float | None = None) -> Array:
        """C = price (own M + outputs M) of M inputs; where ridges are compared, the second M is the degrees."""
        if degrees is None:
            return self.price * (self.own + self.outputs) * counts
        return self.price * (self.own * counts + self.outputs * degrees)


def candidates_of(of: Resolved, n: int) -> list[Candidates]:
    """The regressions that a selection compares, for n points; numbers of centres up to the net's own.

    Collective: no.
    """
    keys, chain, found = of.selection, of.chain, list[Candidates]()
    ridges, layers = ridges_of(of), iter(width_places(of))
    chosen = [k for k, segment in enumerate(chain.segments) if segment.leading or k in ridges]
    a_parameter, epsilons = CRITERIA[keys.criterion](n), keys.epsilons(len(chosen))
    for k, epsilon2 in zip(chosen, epsilons, strict=True):
        segment, price, block = chain.segments[k], a_parameter * epsilon2, chain.segments[k].regressed[0]
        (units, inputs), layer, own, widths = chain.block_shapes[block], -1, 0, tuple[float, ...]()
        counts = np.array([inputs])
        if segment.leading:
            first = segment.maps[0]
            layer = next(layers)
            steps = keys.sizes[layer] if keys.sizes else np.arange(FEWEST, first.n_out, STEP)
            counts, own, widths = np.unique([*steps, first.n_out]), first.n_in, widths_of(of, layer)
        found.append(Candidates(k, layer, block, counts, widths, ridges.get(k, ()), price, own, units))
    return found


def check_selection(of: Resolved) -> None:
    """Refuse candidates that no selection compares, and layers that it cannot change.  Collective: no."""
    config, chain, keys = of.config, of.chain, of.selection
    if keys.criterion == "none":
        return
    check_sizes(config)
    units = bool(places(of))
    basis = [m for m in chain.blocks if "centres" in m.capabilities and "jacobian" in m.capabilities]
    check_selectable(of, units)
    if units:
        return check_places(of)
    dense = [k for k in ridges_of(of) if not chain.segments[k].leading]
    if not basis and not dense:
        raise UsageError(
            f'selection.criterion = "{keys.criterion}" chooses numbers of centres, and no layer has radial basis '
            'functions; use model.activation = "rbf" at some, selection.sizes or selection.ridges for dense layers, '
            'or criterion = "none"'
        )
    if basis and set(config.model.each("centres", 1)) != {"subset"}:
        raise UsageError(
            f'selection.criterion = "{keys.criterion}" compares nested sets of centres; use model.centres = "subset"'
        )
    count = len(basis) + len(dense)
    epsilons = keys.epsilons(count)
    if len(epsilons) != count:
        which = "dense layers and nets of radial basis functions" if dense else "nets of radial basis functions"
        raise UsageError(
            f'selection.criterion = "{keys.criterion}" needs selection.epsilon2, the mean squared error of a model of '
            f"low bias: one number, or one for each of the {count} {which} ({len(epsilons)} given)"
        )
    fewest = min((m.n_out for m in basis), default=FEWEST)
    if fewest < FEWEST and not keys.sizes:
        lists = [[-(-n // 2)] if i in width_places(of) else [] for i, n in enumerate(config.model.units)]
        raise UsageError(
            f"a selection without sizes compares {FEWEST}, {FEWEST + STEP}, ... centres, and a layer starts with "
            f"{fewest:,}; say which to compare, as in selection.sizes = {lists}"
        )
    for k, segment in enumerate(chain.segments, start=1):
        linear = segment.separable and segment.activation == "linear"
        if any(m in basis for m in segment.maps) and not (
            linear and segment.core == 1 and "bias" not in segment.maps[1].capabilities
        ):
            raise UsageError(
                f'selection.criterion = "{keys.criterion}" needs radial basis functions that begin their segment and '
                f"are read by one linear layer, and segment {k} has others; change model.activation or model.sites, "
                'use model.loss = "squared", or criterion = "none"'
            )


def check_selectable(of: Resolved, with_units: bool) -> None:
    """Refuse widths and ridges that no selection compares.  with_units: it compares units.  Collective: no."""
    keys = of.selection
    if keys.widths and not any(is_basis(m) for m in of.chain.maps):  # with other keys or without
        raise UsageError(
            "selection.widths are those of radial basis functions, and no layer has any; leave it out, or use "
            'model.activation = "rbf" at some'
        )
    for key, given in (("widths", keys.widths), ("ridges", keys.ridges)):
        if given and with_units:
            raise UsageError(
                f"selection.{key} are compared by E_Q, and units of dense layers, selection.sizes, by E1; "
                'select them in two runs, the second with start.method = "model", or leave one of them out'
            )
        if len({isinstance(entry, list) for entry in given}) > 1:
            raise UsageError(
                f"selection.{key} mixes numbers and lists; give numbers, for all layers, or a list for each, [] where "
                "nothing is to change"
            )
    if keys.widths:
        _check_widths(of.config, sum(is_basis(m) for m in of.chain.maps))
    if keys.ridges:
        _check_ridges(of)


def _check_widths(config: Config, count: int) -> None:
    if (given := len(each(config.selection.widths, count))) != count:
        raise UsageError(
            f"selection.widths has {many(given, 'list')} but there {many(count, 'layer', 'is')} of radial basis "
            "functions: give one for each, [] for one that keeps its width"
        )


def _check_ridges(of: Resolved) -> None:
    layers, able = of.shaping.layers, set(fits_ridges(of).values())
    tried = each(of.selection.ridges, len(layers))
    if len(tried) != len(layers):
        raise UsageError(
            f"selection.ridges has {many(len(tried), 'list')} but regressions fit the weights of {len(layers)} layers: "
            "give one for each, [] for a layer that keeps its ridge"
        )
    if not able:
        raise UsageError(
            "selection.ridges compares ridges of dense layers that are fitted in closed form, and there is none; use "
            'model.sites = "before", or the squared error, or leave it out'
        )
    listed = any(isinstance(entry, list) for entry in of.selection.ridges)
    for number, (block, own) in enumerate(zip(layers, tried, strict=True), start=1):
        if listed and own and block not in able:
            raise UsageError(
                f"selection.ridges has candidates for layer {number} of those that regressions fit, and it is not "
                "fitted in closed form; give it the empty list []"
            )


@dataclass(frozen=True)
class Place:
    """Hidden layer `layer` is map `at`, with parameter block `block`; the maps before `end` give its outputs.

    The next layer has the next block.  sizes: the candidates, in increasing order.
    """

    layer: int
    at: int
    block: int
    end: int
    sizes: tuple[int, ...]


def places(of: Resolved) -> list[Place]:
    """The dense layers for which selection.sizes has candidates; the same for a net of any sizes.  Collective: no.

    Raises UsageError for layers that keep other numbers than those of units, and for those read by such layers.
    """
    layers = layers_of(of.config.model, of.chain.n_in, of.chain.n_out)
    found, before = list[Place](), list[Map]()
    for i, (sizes, own, reading) in enumerate(zip(of.selection.sizes, layers, layers[1:], strict=False)):
        basis = any(is_basis(m) for m in own)
        if sizes and not basis:
            dense = [j for j, m in enumerate(own) if is_dense(m)]
            after = own[dense[0] + 1 :] if dense else []
            if not dense or not all("elementwise" in m.capabilities for m in after) or not is_dense(reading[0]):
                raise UsageError(
                    f"selection.sizes has candidates for layer {i + 1}, and it takes a dense layer of elementwise "
                    "activation that a dense one reads, neither sparse nor with a skip; give it the empty list []"
                )
            at = len(before) + dense[0]
            block = sum(m.parameter_shape is not None for m in [*before, *own[: dense[0]]])
            found.append(Place(i, at, block, len(before) + len(own), tuple(sorted(set(sizes)))))
        before += own
    return found


def check_sizes(config: Config) -> None:
    """Refuse lists of candidates that do not fit the layers.  Collective: no."""
    sizes, units = config.selection.sizes, config.model.units
    if sizes and len(sizes) != len(units):
        raise UsageError(
            f"selection.sizes has {many(len(sizes), 'list')} but there {many(len(units), 'hidden layer', 'is')}: give "
            "one for each, [] for a layer that keeps its size"
        )
    for i, (tried, own) in enumerate(zip(sizes, units, strict=False), start=1):
        if max(tried, default=0) > own:
            raise UsageError(
                f"selection.sizes has a candidate of {max(tried):,} for layer {i}, which starts with {own:,} and never "
                "becomes larger; leave it out, or start with more (model.hidden)"
            )


def check_places(of: Resolved) -> None:
    """Refuse what a selection of units cannot do.  Collective: no."""
    keys, given = of.selection, of.selection.epsilons(1)
    said = f'selection.criterion = "{keys.criterion}"'
    if any(is_basis(m) for m in of.chain.maps):
        raise UsageError(
            f"{said} compares radial basis functions by E_Q and units by E1, not both in one net: give dense layers "
            "the empty list [] in selection.sizes"
        )
    if len(given) != 1:
        raise UsageError(
            f"{said} of dense layers needs selection.epsilon2, the mean squared error of a model of low bias: one "
            f"number ({len(given)} given)"
        )
