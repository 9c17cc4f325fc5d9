"""Builds the chain of maps that the table [model] of a config describes, with its skip connections.

Layer i + 1 reads x_i.  A skip [i, j] copies x_i and joins it to the inputs of layer j, by adding or appending.  The
copy is made after the site in front of layer i + 1, and the join before the site in front of layer j, so that a
residual layer x + g(x) needs only its own coordinates.  Channels of images that are appended stand in the coordinates
after all channels of the layer before; only after the site they are stacked pixel by pixel.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

from macmpi import UsageError
from macmpi.config import Model
from macmpi.config.model import file_of
from macmpi.nets.chain import Chain
from macmpi.nets.design import Columns
from macmpi.nets.layers import Map, is_basis, registered
from macmpi.nets.layers.activation import is_function
from macmpi.nets.layers.affine import divided, mirrored, mirrored_blocks
from macmpi.nets.layers.carrying import Add, Copy, Stack, carry
from macmpi.nets.layers.place import Built, Place, Read
from macmpi.nets.losses import loss_named


def build_chain(model: Model, n_in: int, n_out: int) -> Chain:
    """Builds the net of a config, its hidden layers and its output layer, and places the sites.

    n_in, n_out: the numbers of inputs and outputs.
    A file of macmpi/nets/layers makes the maps of a layer (`file_of` in config/model.py), for most kinds an affine map
    or a convolution and its activation.  Raises UsageError.  Collective: no.
    """
    laid = _laid(model, n_in, n_out)
    layers, sites, before = _layers(model, laid, n_in), list[int](), 0
    for (_, _, site), layer, maps in zip(model.layers(), laid, layers, strict=False):
        before += len(maps)
        inner = before - 1 - layer.added - layer.behind
        ends = {"before": [inner], "after": [before], "both": [inner, before]}.get(site, [])
        sites += [last - layer.apart * back for back in reversed(range(layer.steps)) for last in ends]
    numbers, reads = (mirrored_blocks(layers), ()) if model.tied else _shared(laid)
    chain = Chain(tuple(m for maps in layers for m in maps), tuple(sites), tuple(numbers), tuple(reads))
    return _divided(chain, **model.some_units) if model.some_units else chain


def _divided(chain: Chain, after: int = 0, before: int = 0) -> Chain:
    """Returns the net in which only some units of the first layer have coordinates.

    after, before: the number of these units, for coordinates after or before the activation; the other is 0.
    The weights of the other units become a parameter block of their own, which comes next, so that the flat weights
    have the same order as in the chain.
    """
    cut = 2 if after else 1
    first, others = divided(chain.maps[:cut], after + before)
    maps, read = (*first, *others, *chain.maps[cut:]), (0, chain.n_in)
    sites = (cut, *(site + len(others) for site in chain.sites))
    return Chain(maps, sites, reads=tuple(read if i == cut else None for i in range(len(maps))), undivided=chain)


def layers_of(model: Model, n_in: int, n_out: int) -> list[list[Map]]:
    """Lists the maps of each hidden layer and of the output layer; a layer begins with the pooling of the one before.

    Raises UsageError.
    """
    return _layers(model, _laid(model, n_in, n_out), n_in)


def _layers(model: Model, laid: list[Built], n_in: int) -> list[list[Map]]:
    layers = [layer.maps for layer in laid]
    return mirrored(model, layers, n_in) if model.tied else layers


def _laid(model: Model, n_in: int, n_out: int) -> list[Built]:
    """Makes all layers in turn, so that each reads the outputs of the layers before.  Raises UsageError.

    The maps of a layer are first those that pool and stack the images of the layer before, then its own, last those
    that add skips.
    """
    laid, carried, begins = list[Built](), Carried(model), list[Map]()
    read = Read(n_in, (*model.image, 1)[:3] if model.image else ())
    unbiased = ("linear", "quantise") if loss_named(model.loss).unit_hessian else ()
    kinds = [*(kind for _, kind, _ in model.layers()), model.output]
    layers: Any = zip([*model.hidden, model.readout], kinds, [*model.units, n_out], strict=True)
    for i, (layer, kind, units) in enumerate(layers):
        copies, before = carried.copies(read, i), [*(laid[-1].maps if laid else ()), *begins]
        biased = kind not in unbiased or not before or not is_basis(before[-1])
        built = _built(Place(model, i, layer, kind, units, read, biased))
        maps = [*begins, *copies, *carried.on(built.maps)]
        if i + 1 == len(kinds) and kind == "linear":
            maps.pop()
        given, adds, stacks = carried.joined(read.through(built.maps), i + 2, layer.pool if built.pooled else 1)
        laid.append(replace(built, maps=[*maps, *adds], added=len(adds)))
        begins, read = [*carried.on(built.pooled), *stacks], given.through(built.pooled)
    return laid


def _built(place: Place) -> Built:
    """Makes the maps of a layer by the file of its table or word, or by another package.  Raises UsageError.

    Other packages have kinds of layers as entry points of the group "macmpi.layers".  These are functions
    (inputs, units) -> list of maps, where `inputs` is a number that also has the `shape` of images.
    """
    check_joined(place)
    file, kind = file_of(place.layer, place.kind), place.kind
    if not file and not is_function(kind):
        return Built(list(registered({}, "macmpi.layers", kind)(place.read, place.units)))
    return import_module(f"macmpi.nets.layers.{file or 'affine'}").layer(place)


def _shared(laid: list[Built]) -> tuple[list[int | None], list[Columns | None]]:
    """Returns the parameter block of each map and the columns of the data that it reads; [] if no map shares one."""
    numbers, reads, taken = list[int | None](), list[Columns | None](), 0
    if not any(layer.blocks for layer in laid):
        return numbers, reads
    for layer in laid:
        count = iter(range(len(layer.maps)))
        own = layer.blocks or [None if m.parameter_shape is None else next(count) for m in layer.maps]
        numbers += [None if b is None else taken + b for b in own]
        reads += layer.reads or [None] * len(layer.maps)
        taken += len({b for b in own if b is not None})
    return numbers, reads


# --- skips ------------------------------------------------------------------------------------------------------------


@dataclass
class Carried:
    """The columns that skips carry past layers; they stand after the columns that the next layer reads.

    uses: for each skip that has begun and not ended, the layer that it joins and the columns that it carries, in the
        order in which they join.
    """

    model: Model
    uses: list[tuple[int, Read]] = field(default_factory=list)

    @property
    def width(self) -> int:
        return sum(read for _, read in self.uses)

    def copies(self, read: Read, layer: int) -> list[Map]:
        """Makes the maps that copy the inputs of layer + 1, one for each skip that begins there."""
        return [self._copied(read, last) for first, last in sorted(self.model.skips) if first == layer]

    def _copied(self, read: Read, layer: int) -> Map:
        place = bisect_right([use for use, _ in self.uses], layer)
        between = sum(own for _, own in self.uses[:place])
        copy = carry(Copy(int(read), between), self.width - between)
        self.uses.insert(place, (layer, read))
        return copy

    def on(self, maps: list[Map]) -> list[Map]:
        """Wraps maps so that the carried columns pass them unchanged."""
        return [carry(map_, self.width) for map_ in maps]

    def joined(self, given: Read, layer: int, pool: int) -> tuple[Read, list[Map], list[Map]]:
        """Joins the skips that end at a layer to its inputs.

        given: the outputs of the layer before, which are then pooled by `pool`.
        layer: its number, counted from 1 as in model.skips.
        Returns the inputs of the layer, the maps that add skips, and the maps that stack channels, which come after the
        site.  Raises UsageError if sizes or shapes do not agree.
        """
        joins = list[Read]()
        while self.uses and self.uses[0][0] == layer:
            joins.append(self.uses.pop(0)[1])
        if joins and pool > 1:
            raise UsageError(
                f"model.hidden.{layer - 2}.pool = {pool}: its images are pooled after the coordinates, and "
                f"model.skips join them before; use a stride in the place of the pool, or no skip to layer {layer}"
            )
        adds, stacks, behind = list[Map](), list[Map](), sum(joins) + self.width
        for own in joins:
            behind -= own
            if self.model.joining == "add":
                _check_alike(own, given, layer)
                adds.append(carry(Add(int(given)), behind))
            elif given.shape and self.model.convolves(layer - 1):
                height, width, channels = given.shape
                if own.shape[:2] != (height, width):
                    raise UsageError(
                        f'model.joining = "append" appends the channels of {own.words} to the {given.words} that layer '
                        f"{layer} reads; use layers of equal height and width (padding, stride)"
                    )
                stacks.append(carry(Stack(height * width, channels, own.shape[2]), behind))
                given = Read(given + own, (height, width, channels + own.shape[2]))
            else:
                given = Read(given + own)
        return given, adds, stacks


def _check_alike(own: Read, given: Read, layer: int) -> None:
    if own != given or (given.shape and own.shape != given.shape):
        raise UsageError(
            f'model.joining = "add" adds {own.words} to the {given.words} that layer {layer} reads; use "append", or '
            f"layers of equal {'shapes' if given.shape else 'sizes'}"
        )


def check_joined(place: Place) -> None:
    """Raises UsageError if a net has skips and this layer is of a kind that skips cannot pass.  Collective: no."""
    if place.model.skips and not is_function(place.kind):
        raise UsageError(
            f"model.skips join dense and sparse layers and convolutions with elementwise activations, and layer "
            f'{place.number + 1} is of "{place.kind}"; use another there, or skips = []'
        )
