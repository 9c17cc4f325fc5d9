"""Candidates of a selection are units of dense layers, numbers and widths of centres, and ridges; each has a cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from macmpi import UsageError, many
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
"""The cost of a parameter for n points, in units of epsilon^2, that is added to E1, half the sum of squares.  It is
half of the criterion's usual cost, which is added to -2 log likelihood = sum of squares / epsilon^2."""


def each(given: list[float | list[float]], count: int) -> list[list[float]]:
    """Makes a list of candidates for each of `count` layers.  Collective: no.

    given: one list of numbers for all layers, or a list for each.
    """
    lists = [entry for entry in given if isinstance(entry, list)]
    numbers = [entry for entry in given if not isinstance(entry, list)]
    return lists or [numbers] * count


def basis_layers(of: Resolved) -> list[int]:
    """Lists the hidden layers of radial basis functions, counted from 0.  Collective: no."""
    return [layer for layer, kind in enumerate(of.activations) if kind == "rbf"]


def widths_of(of: Resolved) -> dict[int, float]:
    """Returns the width of each hidden layer that has one, by the layer's number.  Collective: no."""
    return of.config.model.by_layer("width")


def ridge_segments(of: Resolved) -> dict[int, int]:
    """Returns {segment: parameter block} of the dense layers fitted in closed form, whose ridge can be selected."""
    return {
        k: of.chain.segments[k].regressed[0]
        for k, regression in of.regressions.items()
        if regression.name == "closed_form" and of.chain.views[k].dense
    }


def ridges_of(of: Resolved) -> dict[int, tuple[float, ...]]:
    """Returns the candidates of each segment whose ridge is selected, and its ridge at the start.  Collective: no."""
    starts = of.shaping.ridges
    tried = dict(zip(starts, each(of.selection.ridges, len(starts)), strict=True))
    return {k: tuple(sorted({*tried[b], starts[b]})) for k, b in ridge_segments(of).items() if tried[b]}


class Candidates(NamedTuple):
    """Holds the candidates for one segment's regression: a linear layer, and radial basis functions that it may read.

    layer: the hidden layer of radial basis functions; -1 if the linear layer reads other inputs.
    block: the parameter block of the linear layer.
    counts: the numbers of inputs that are compared; several if they are centres, else one.
    widths, ridges: the candidates; () if there is nothing to choose.
    price: the cost of a parameter, on the scale of E1.
    own: the number of parameters of a centre.
    outputs: the number of weights that each input has.
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
        """Computes C = price (own M + outputs M) for M inputs; where ridges are compared, the second M is `degrees`."""
        if degrees is None:
            return self.price * (self.own + self.outputs) * counts
        return self.price * (self.own * counts + self.outputs * degrees)


def candidates_of(of: Resolved, n: int) -> list[Candidates]:
    """Lists the candidates of each regression that a selection compares, for n points.

    No candidate has more centres than the net.  Collective: no.
    """
    keys, chain, basis, candidates = of.selection, of.chain, basis_layers(of), list[Candidates]()
    ridges, layers, present = ridges_of(of), iter(basis), widths_of(of)
    tried = dict(zip(basis, each(keys.widths, len(basis)), strict=True))
    chosen = [k for k, segment in enumerate(chain.segments) if segment.leading or k in ridges]
    a_parameter, epsilons = CRITERIA[keys.criterion](n), keys.epsilons(len(chosen))
    for k, epsilon2 in zip(chosen, epsilons, strict=True):
        segment, price, block = chain.segments[k], a_parameter * epsilon2, chain.segments[k].regressed[0]
        (units, inputs), layer, own, widths = chain.block_shapes[block], -1, 0, tuple[float, ...]()
        counts = np.array([inputs])
        if segment.leading:
            first, layer = segment.maps[0], next(layers)
            steps = keys.sizes[layer] if keys.sizes else np.arange(FEWEST, first.n_out, STEP)
            counts, own = np.unique([*steps, first.n_out]), first.n_in
            widths = tuple(sorted({*tried[layer], present[layer]}))
        candidates.append(Candidates(k, layer, block, counts, widths, ridges.get(k, ()), price, own, units))
    return candidates


@dataclass(frozen=True)
class Place:
    """Says where a dense layer whose size is selected stands in the net; the next layer has the next block.

    layer: its number among the hidden layers, from 0.
    at, block: the number of its map, and its parameter block.
    end: the maps before this one compute the layer's outputs.
    sizes: the candidates, in increasing order.
    """

    layer: int
    at: int
    block: int
    end: int
    sizes: tuple[int, ...]


def places(of: Resolved) -> list[Place]:
    """Lists the dense layers for which selection.sizes has candidates, whatever the sizes of the net.

    Raises UsageError for layers that cannot change their size: all except dense layers with an elementwise activation
    that a dense layer reads.  Collective: no.
    """
    layers = layers_of(of.config.model, of.chain.n_in, of.chain.n_out)
    dense_layers, before = list[Place](), list[Map]()
    for i, (sizes, maps, reading) in enumerate(zip(of.selection.sizes, layers, layers[1:], strict=False)):
        basis = any(is_basis(m) for m in maps)
        if sizes and not basis:
            dense = [j for j, m in enumerate(maps) if is_dense(m)]
            after = maps[dense[0] + 1 :] if dense else []
            if not dense or not all("elementwise" in m.capabilities for m in after) or not is_dense(reading[0]):
                raise UsageError(
                    f"selection.sizes has candidates for layer {i + 1}, and it takes a dense layer of elementwise "
                    "activation that a dense one reads, neither sparse nor with a skip; give it the empty list []"
                )
            at = len(before) + dense[0]
            block = sum(m.parameter_shape is not None for m in [*before, *maps[: dense[0]]])
            dense_layers.append(Place(i, at, block, len(before) + len(maps), tuple(sorted(set(sizes)))))
        before += maps
    return dense_layers


# --- what is refused --------------------------------------------------------------------------------------------------


def check_selection(of: Resolved) -> None:
    """Raises UsageError for candidates that no selection compares, and for layers that it cannot change.

    Collective: no.
    """
    if of.selection.criterion == "none":
        return
    _check_lists(of)
    units = bool(places(of))
    for key in ("widths", "ridges"):
        if units and getattr(of.selection, key):
            raise UsageError(
                f"selection.{key} are compared by E_Q, and units of dense layers, selection.sizes, by E1; "
                'select them in two runs, the second with start.method = "model", or leave one of them out'
            )
    if of.selection.ridges:
        _check_ridges(of)
    listed = [*of.selection.sizes, *of.selection.widths, *of.selection.ridges]
    if listed and not any(isinstance(entry, float) or entry for entry in listed):
        raise UsageError(
            f'selection.criterion = "{of.selection.criterion}" has nothing to compare: every list of candidates is '
            'empty; name some, as in selection.sizes = [[50, 100]], or use criterion = "none"'
        )
    (_check_units if units else _check_centres)(of)


def _check_lists(of: Resolved) -> None:
    """Refuses lists of candidates that do not match the net's layers, one list for each."""
    keys, units, basis = of.selection, of.config.model.units, sum(is_basis(m) for m in of.chain.maps)
    if keys.widths and not basis:
        raise UsageError(
            "selection.widths are those of radial basis functions, and no layer has any; leave it out, or use "
            'model.activation = "rbf" at some'
        )
    for key, layers, kind, which in (
        ("sizes", len(units), "hidden layer", ""),
        ("widths", basis, "layer", " of radial basis functions"),
        ("ridges", len(of.shaping.ridges), "layer", " whose weights regressions fit"),
    ):
        given = getattr(keys, key)
        if len({isinstance(entry, list) for entry in given}) > 1:
            raise UsageError(
                f"selection.{key} mixes numbers and lists; give numbers, for all layers, or a list for each, [] where "
                "nothing is to change"
            )
        if given and (lists := len(each(given, layers))) != layers:
            raise UsageError(
                f"selection.{key} has {many(lists, 'list')} but there {many(layers, kind, 'is')}{which}: give one for "
                f"each, [] for a layer that keeps its {key.removesuffix('s')}"
            )
    for i, (tried, most) in enumerate(zip(keys.sizes, units, strict=False), start=1):
        if max(tried, default=0) > most:
            raise UsageError(
                f"selection.sizes has a candidate of {max(tried):,} for layer {i}, which starts with {most:,} and "
                "never becomes larger; leave it out, or start with more (model.hidden)"
            )


def _check_ridges(of: Resolved) -> None:
    layers, able = of.shaping.ridges, set(ridge_segments(of).values())
    if not able:
        raise UsageError(
            "selection.ridges compares ridges of dense layers that are fitted in closed form, and there is none; use "
            'model.sites = "before", or the squared error, or leave it out'
        )
    listed = any(isinstance(entry, list) for entry in of.selection.ridges)
    tried = each(of.selection.ridges, len(layers))
    for number, (block, candidates) in enumerate(zip(layers, tried, strict=True), start=1):
        if listed and candidates and block not in able:
            raise UsageError(
                f"selection.ridges has candidates for layer {number} of those that regressions fit, and it is not "
                "fitted in closed form; give it the empty list []"
            )


def _check_price(of: Resolved, of_what: str, count: int, which: str) -> None:
    """Refuses epsilon2 if it is neither one number nor one for each of `count` regressions.

    of_what, which: words for the message.
    """
    given = of.selection.epsilons(count)
    if len(given) != count:
        raise UsageError(
            f'selection.criterion = "{of.selection.criterion}"{of_what} needs selection.epsilon2, the mean squared '
            f"error of a model of low bias: one number{which} ({len(given)} given)"
        )


def _check_units(of: Resolved) -> None:
    """Refuses nets whose units cannot be selected, and more than one epsilon2."""
    if any(is_basis(m) for m in of.chain.maps):
        raise UsageError(
            f'selection.criterion = "{of.selection.criterion}" compares radial basis functions by E_Q and units by E1, '
            "not both in one net: give dense layers the empty list [] in selection.sizes"
        )
    _check_price(of, " of dense layers", 1, "")


def _check_centres(of: Resolved) -> None:
    """Refuses nets whose centres and ridges cannot be selected, and a wrong number of epsilon2."""
    config, chain, keys, said = of.config, of.chain, of.selection, f'selection.criterion = "{of.selection.criterion}"'
    basis = [m for m in chain.blocks if "centres" in m.capabilities and "jacobian" in m.capabilities]
    dense = [k for k in ridges_of(of) if not chain.segments[k].leading]
    if not basis and not dense:
        raise UsageError(
            f"{said} chooses numbers of centres, and no layer has radial basis functions; use model.activation = "
            '"rbf" at some, selection.sizes or selection.ridges for dense layers, or criterion = "none"'
        )
    if basis and set(config.model.each("centres", 1)) != {"subset"}:
        raise UsageError(f'{said} compares nested sets of centres; use model.centres = "subset"')
    count, nets = len(basis) + len(dense), "nets of radial basis functions"
    _check_price(of, "", count, f", or one for each of the {count} {'dense layers and ' if dense else ''}{nets}")
    fewest = min((m.n_out for m in basis), default=FEWEST)
    if fewest < FEWEST and not keys.sizes:
        lists = [[-(-n // 2)] if i in basis_layers(of) else [] for i, n in enumerate(config.model.units)]
        raise UsageError(
            f"a selection without sizes compares {FEWEST}, {FEWEST + STEP}, ... centres, and a layer starts with "
            f"{fewest:,}; say which to compare, as in selection.sizes = {lists}"
        )
    for k, segment in enumerate(chain.segments, start=1):
        linear = segment.separable and segment.activation == "linear" and segment.core == 1
        if any(m in basis for m in segment.maps) and not (linear and "bias" not in segment.maps[1].capabilities):
            raise UsageError(
                f"{said} needs radial basis functions that begin their segment and are read by one linear layer, and "
                f"segment {k} has others; change model.activation, model.sites, model.output or model.loss, or use "
                'selection.criterion = "none"'
            )
