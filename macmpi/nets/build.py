"""[model] -> the chain of maps that it describes."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from macmpi.config import Model
from macmpi.config.model import file_of
from macmpi.nets.chain import Chain
from macmpi.nets.design import Columns
from macmpi.nets.layers import Map, is_basis, registered
from macmpi.nets.layers.activation import is_function
from macmpi.nets.layers.place import Built, Place, Read
from macmpi.nets.layers.tied import mirrored, mirrored_blocks
from macmpi.nets.losses import loss_named
from macmpi.nets.skips import Carried, check_joined


@dataclass(frozen=True)
class Laid:
    """A layer where it lies: its maps, which begin with those that pool and stack the images before it.

    built: of the layer itself; added: the number of maps in the end that add what skips bring.
    """

    maps: list[Map]
    built: Built
    added: int = 0


def build_chain(model: Model, n_in: int, n_out: int) -> Chain:
    """The hidden layers and the output layer; sites as the config puts them.  Raises UsageError.  Collective: no.

    A file of macmpi/nets/layers makes the maps of a layer (`file_of` in config/model.py): of most an affine
    map or a convolution and its activation.
    """
    laid = _laid(model, n_in, n_out)
    layers, sites, before = _layers(model, laid, n_in), list[int](), 0
    for (_, _, site), layer, maps in zip(model.layers(), laid, layers, strict=False):
        before += len(maps)
        if site != "none":
            last = before if site == "after" else before - 1 - layer.added - layer.built.behind
            sites += [last - 2 * back for back in reversed(range(layer.built.steps))]
    numbers, reads = (mirrored_blocks(layers), ()) if model.tied else _shared(laid)
    return Chain(tuple(m for maps in layers for m in maps), tuple(sites), tuple(numbers), tuple(reads))


def layers_of(model: Model, n_in: int, n_out: int) -> list[list[Map]]:
    """The maps of each hidden layer and of the output layer; a layer begins with the pooling of the one before."""
    return _layers(model, _laid(model, n_in, n_out), n_in)


def _layers(model: Model, laid: list[Laid], n_in: int) -> list[list[Map]]:
    layers = [layer.maps for layer in laid]
    return mirrored(model, layers, n_in) if model.tied else layers


def _laid(model: Model, n_in: int, n_out: int) -> list[Laid]:
    """All layers, one after the other, each for what those before it give.  Raises UsageError."""
    found, carried, begins = list[Laid](), Carried(model), list[Map]()
    read = Read(n_in, (*model.image, 1)[:3] if model.image else ())
    unbiased = ("linear", "quantise") if loss_named(model.loss).unit_hessian else ()
    kinds = [*(kind for _, kind, _ in model.layers()), model.output]
    layers: Any = zip([*model.hidden, model.readout], kinds, [*model.units, n_out], strict=True)
    for i, (layer, kind, units) in enumerate(layers):
        copies, before = carried.copies(read, i), [*(found[-1].maps if found else ()), *begins]
        biased = kind not in unbiased or not before or not is_basis(before[-1])
        built = _built(Place(model, i, layer, kind, units, read, biased))
        maps = [*begins, *copies, *carried.on(built.maps)]
        if i + 1 == len(kinds) and kind == "linear":
            maps.pop()
        given, adds, stacks = carried.joined(read.through(built.maps), i + 2, layer.pool if built.pooled else 1)
        found.append(Laid([*maps, *adds], built, len(adds)))
        begins, read = [*carried.on(built.pooled), *stacks], given.through(built.pooled)
    return found


def _built(place: Place) -> Built:
    """The maps of a layer, by the file that its table or its word names, or by another package.

    Those give kinds of layers by entry points of the group "macmpi.layers": functions (inputs, units) -> list of maps;
    `inputs` is a number, and has the `shape` of images.  Raises UsageError.
    """
    check_joined(place)
    file, kind = file_of(place.layer, place.kind), place.kind
    if not file and not is_function(kind):
        return Built(list(registered({}, "macmpi.layers", kind)(place.read, place.units)))
    found: Built = import_module(f"macmpi.nets.layers.{file or 'affine'}").layer(place)
    return found


def _shared(laid: list[Laid]) -> tuple[list[int | None], list[Columns | None]]:
    """The parameter block of each map, and the columns of the data that it reads; none where layers share nothing."""
    numbers, reads, taken = list[int | None](), list[Columns | None](), 0
    if not any(layer.built.blocks for layer in laid):
        return numbers, reads
    for layer in laid:
        count = iter(range(len(layer.maps)))
        own = layer.built.blocks or [None if m.parameter_shape is None else next(count) for m in layer.maps]
        numbers += [None if b is None else taken + b for b in own]
        reads += layer.built.reads or [None] * len(layer.maps)
        taken += len({b for b in own if b is not None})
    return numbers, reads
