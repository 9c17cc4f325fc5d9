"""Candidates of a selection besides numbers of units: widths of radial basis functions, and ridges."""

from __future__ import annotations

from macmpi import UsageError, many
from macmpi.config import Config
from macmpi.nets.build import is_basis
from macmpi.nets.chain import Chain
from macmpi.plan.choices import regressed, w_choice
from macmpi.plan.fitted import fitter_of, fitters
from macmpi.plan.resizable import check_places, check_sizes, places
from macmpi.plan.shaping import shaping_of

FEWEST, STEP = 150, 25
"""Without selection.sizes the candidates of a layer of centres are FEWEST, FEWEST + STEP, ..., as in the paper."""

WIDE = ("rbf", "kernel_ridge")
"""Layers with an entry in a list of model.width."""


def each(given: list[float | list[float]], count: int) -> list[list[float]]:
    """A list of candidates for each of `count` layers, of one for all or of a list for each.  Collective: no."""
    lists = [entry for entry in given if isinstance(entry, list)]
    numbers = [entry for entry in given if not isinstance(entry, list)]
    return lists or [numbers] * count


def width_places(config: Config) -> dict[int, int]:
    """The hidden layers of radial basis functions, and the place of each in a list of model.width.  Collective: no."""
    kinds = [(i, kind) for i, (_, kind, _) in enumerate(config.model.layers()) if kind in WIDE]
    return {layer: place for place, (layer, kind) in enumerate(kinds) if kind == "rbf"}


def all_widths(config: Config) -> list[float]:
    """model.width as a list, an entry for each layer that has one.  Collective: no."""
    found: list[float] = config.model.each("width", sum(kind in WIDE for _, kind, _ in config.model.layers()))
    return found


def widths_of(config: Config, layer: int) -> tuple[float, ...]:
    """The candidates of a layer of radial basis functions, the width of the start among them.  Collective: no."""
    places = width_places(config)
    tried = each(config.selection.widths, len(places))[list(places).index(layer)]
    return tuple(sorted({*tried, all_widths(config)[places[layer]]}))


def fits_ridges(config: Config, chain: Chain) -> list[int]:
    """The segments whose ridge can be selected: dense layers fitted in closed form.  Collective: no."""
    names, found = fitters(config.model, chain), list[int]()
    shaped = shaping_of(config.penalty, regressed(chain)).restrained
    for k, segment in enumerate(chain.segments):
        if chain.groups[k] != (k,) or segment.trailing or fitter_of(names, segment.weighted):
            continue
        restrained = bool(set(segment.regressed) & set(shaped))
        exact = w_choice(config, segment, k == len(chain.sites), restrained)[0] == "closed_form"
        if exact and segment.fitted[0].positions == 1 and segment.fitted[0].connected is None:
            found.append(k)
    return found


def ridges_of(config: Config, chain: Chain) -> dict[int, tuple[float, ...]]:
    """The candidates of each segment whose ridge is selected, that of the start among them.  Collective: no."""
    layers = regressed(chain)
    tried = dict(zip(layers, each(config.selection.ridges, len(layers)), strict=True))
    starts = dict(zip(layers, shaping_of(config.penalty, layers).ridges, strict=True))
    blocks = {k: chain.segments[k].regressed[0] for k in fits_ridges(config, chain)}
    return {k: tuple(sorted({*tried[b], starts[b]})) for k, b in blocks.items() if tried[b]}


def check_selection(config: Config, chain: Chain) -> None:
    """Refuse candidates that no selection compares, and layers that it cannot change.  Collective: no."""
    keys = config.selection
    if keys.criterion == "none":
        return
    check_sizes(config)
    units = bool(places(config, chain))
    basis = [m for m in chain.blocks if "centres" in m.capabilities and "jacobian" in m.capabilities]
    check_selectable(config, chain, units)
    if units:
        return check_places(config, chain)
    dense = [k for k in ridges_of(config, chain) if not chain.segments[k].leading]
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
        lists = [[-(-n // 2)] if i in width_places(config) else [] for i, n in enumerate(config.model.units)]
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


def check_selectable(config: Config, chain: Chain, with_units: bool) -> None:
    """Refuse widths and ridges that no selection compares.  with_units: it compares units.  Collective: no."""
    keys = config.selection
    if keys.widths and not any(is_basis(m) for m in chain.maps):  # with other keys or without
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
        _check_widths(config, sum(is_basis(m) for m in chain.maps))
    if keys.ridges:
        _check_ridges(config, chain)


def _check_widths(config: Config, count: int) -> None:
    if (given := len(each(config.selection.widths, count))) != count:
        raise UsageError(
            f"selection.widths has {many(given, 'list')} but there {many(count, 'layer', 'is')} of radial basis "
            "functions: give one for each, [] for one that keeps its width"
        )


def _check_ridges(config: Config, chain: Chain) -> None:
    layers, exact = regressed(chain), fits_ridges(config, chain)
    tried = each(config.selection.ridges, len(layers))
    if len(tried) != len(layers):
        raise UsageError(
            f"selection.ridges has {many(len(tried), 'list')} but regressions fit the weights of {len(layers)} layers: "
            "give one for each, [] for a layer that keeps its ridge"
        )
    able = {chain.segments[k].regressed[0] for k in exact}
    if not able:
        raise UsageError(
            "selection.ridges compares ridges of dense layers that are fitted in closed form, and there is none; use "
            'model.sites = "before", or the squared error, or leave it out'
        )
    listed = any(isinstance(entry, list) for entry in config.selection.ridges)
    for number, (block, own) in enumerate(zip(layers, tried, strict=True), start=1):
        if listed and own and block not in able:
            raise UsageError(
                f"selection.ridges has candidates for layer {number} of those that regressions fit, and it is not "
                "fitted in closed form; give it the empty list []"
            )
