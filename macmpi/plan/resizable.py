"""Dense hidden layers whose sizes can be selected: one dense layer reads their units, by its weights."""

from __future__ import annotations

from dataclasses import dataclass

from macmpi import UsageError, many
from macmpi.config import Config
from macmpi.nets.build import is_basis, layers_of
from macmpi.nets.chain import Chain
from macmpi.nets.layers import Map


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


def places(config: Config, chain: Chain) -> list[Place]:
    """The dense layers for which selection.sizes has candidates; the same for a net of any sizes.  Collective: no.

    Raises UsageError for layers that keep other numbers than those of units, and for those read by such layers.
    """
    layers = layers_of(config.model, chain.n_in, chain.n_out)
    found, before = list[Place](), list[Map]()
    for i, (sizes, own, reading) in enumerate(zip(config.selection.sizes, layers, layers[1:], strict=False)):
        basis = any(is_basis(m) for m in own)
        if sizes and not basis:
            dense = [j for j, m in enumerate(own) if _dense(m)]
            after = own[dense[0] + 1 :] if dense else []
            if not dense or not all("elementwise" in m.capabilities for m in after) or not _dense(reading[0]):
                raise UsageError(
                    f"selection.sizes has candidates for layer {i + 1}, and it takes a dense layer of elementwise "
                    "activation that a dense one reads, neither sparse nor with a skip; give it the empty list []"
                )
            at = len(before) + dense[0]
            block = sum(m.parameter_shape is not None for m in [*before, *own[: dense[0]]])
            found.append(Place(i, at, block, len(before) + len(own), tuple(sorted(set(sizes)))))
        before += own
    return found


def _dense(map_: Map) -> bool:
    return {"units", "linear", "bias"} <= map_.capabilities and map_.connected is None


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


def check_places(config: Config, chain: Chain) -> None:
    """Refuse what a selection of units cannot do.  Collective: no."""
    keys, given = config.selection, config.selection.epsilons(1)
    said = f'selection.criterion = "{keys.criterion}"'
    if any(is_basis(m) for m in chain.maps):
        raise UsageError(
            f"{said} compares radial basis functions by E_Q and units by E1, not both in one net: give dense layers "
            "the empty list [] in selection.sizes"
        )
    if len(given) != 1:
        raise UsageError(
            f"{said} of dense layers needs selection.epsilon2, the mean squared error of a model of low bias: one "
            f"number ({len(given)} given)"
        )
