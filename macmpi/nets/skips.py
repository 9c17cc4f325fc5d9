"""Nets with skip connections: what a layer reads is carried on to later layers, and added or appended there.

Layer i + 1 reads x_i; a skip [i, j] has x_i join what layer j reads.  A join comes before the site in front of layer j,
a copy behind the one in front of layer i + 1, so that a residual layer, x + g(x), needs no coordinates but its own.
Channels of images that are appended stand in the coordinates behind those of the layer before; behind the site each
pixel gets its own.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field

from macmpi import UsageError
from macmpi.config import Model
from macmpi.nets.images import convolution, masked, pooling, readout, shape_read
from macmpi.nets.layers import Map
from macmpi.nets.layers.activation import Activation, is_function
from macmpi.nets.layers.carrying import Add, Copy, Stack, carry
from macmpi.nets.layers.dense import Affine

Shape = tuple[int, ...]
"""Height, width and channels of images; () of other numbers."""


@dataclass(frozen=True)
class Read:
    """The numbers that a layer reads: how many, and their shape where they are images."""

    size: int
    shape: Shape = ()

    def __str__(self) -> str:
        return f"{self.size:,} numbers" if not self.shape else "images of " + " x ".join(map(str, self.shape))


@dataclass
class Carried:
    """Columns behind those that the next layer reads, those first that are needed first: (layer, what)."""

    uses: list[tuple[int, Read]] = field(default_factory=list)

    @property
    def width(self) -> int:
        return sum(read.size for _, read in self.uses)

    def copied(self, read: Read, layer: int) -> Map:
        """The map that copies what is read, for a later layer."""
        place = bisect_right([use for use, _ in self.uses], layer)
        between = sum(own.size for _, own in self.uses[:place])
        copy = carry(Copy(read.size, between), self.width - between)
        self.uses.insert(place, (layer, read))
        return copy

    def taken(self, layer: int) -> list[Read]:
        """Takes out what is carried to a layer, and no further."""
        found = list[Read]()
        while self.uses and self.uses[0][0] == layer:
            found.append(self.uses.pop(0)[1])
        return found


def layers_with_skips(model: Model, n_in: int, n_out: int) -> list[list[Map]]:
    """The maps of each hidden layer and of the output layer; a layer begins with what the images before it become.

    Raises UsageError.  Collective: no.
    """
    layers, carried, begins = list[list[Map]](), Carried(), list[Map]()
    image = (*model.image, 1)[:3] if model.image else ()
    read = Read(n_in, image if math.prod(image) == n_in else ())
    rows = list(zip(model.layers(), model.sparse, model.convolutions, strict=True))
    for i, ((units, kind, _), sparse, images) in enumerate(rows):
        key = f"model.hidden.{i}"
        copies = [carried.copied(read, j) for first, j in sorted(model.skips) if first == i]
        pooled, shape = list[Map](), tuple[int, ...]()
        _check(kind, i)
        if images is not None:
            own: Map = (shared := convolution(images, shape_read(images, read.shape, read.size, key), key))
            pooled, shape = pooling(images, shared, key)
            given = Read(shared.n_out, (*shared.shape, shared.units))
        else:
            own = Affine(read.size, units) if sparse is None else masked(sparse, i, read.shape, read.size)
            given = Read(units)
        maps = [carry(own, carried.width), carry(Activation(kind, given.size), carried.width)]
        joins = carried.taken(i + 2)
        if pooled and joins:
            raise UsageError(
                f"{key}.pool = {images.pool if images else 1}: its images are pooled behind the coordinates, and "
                f"model.skips join them before; use a stride in the place of the pool, or no skip to layer {i + 2}"
            )
        given, adds, stacks = _joined(given, joins, model, i + 2, carried.width)
        layers.append([*begins, *copies, *maps, *adds])
        begins = [*(carry(m, carried.width) for m in pooled), *stacks]
        read = Read(math.prod(shape), shape) if pooled else given
    copies = [carried.copied(read, j) for first, j in sorted(model.skips) if first == len(rows)]
    last: Map = Affine(read.size, n_out)
    if model.readout != "dense":
        last = readout(model.readout, read.shape, read.size, n_out)
    _check(model.output, len(rows))
    ends = [] if model.output == "linear" else [Activation(model.output, n_out)]
    return [*layers, [*begins, *copies, last, *ends]]


def _check(kind: str, layer: int) -> None:
    if not is_function(kind):
        raise UsageError(
            f"model.skips join dense and sparse layers and convolutions with elementwise activations, and layer "
            f'{layer + 1} is of "{kind}"; use another there, or skips = []'
        )


def _joined(given: Read, joins: list[Read], model: Model, layer: int, rest: int) -> tuple[Read, list[Map], list[Map]]:
    """A layer reads this once all has joined; the maps that add, and those behind the site that stack channels.

    rest: columns that are carried on.  Raises UsageError where numbers or images do not fit.
    """
    adds, stacks, behind = list[Map](), list[Map](), sum(own.size for own in joins) + rest
    images = layer <= len(model.units) and model.convolutions[layer - 1] is not None
    images |= layer > len(model.units) and model.readout != "dense"
    for own in joins:
        behind -= own.size
        if model.joining == "add":
            if own.size != given.size or (given.shape and own.shape != given.shape):
                raise UsageError(
                    f'model.joining = "add" adds {own} to the {given} that layer {layer} reads; use "append", or '
                    f"layers of equal {'shapes' if given.shape else 'sizes'}"
                )
            adds.append(carry(Add(given.size), behind))
        elif images and given.shape:
            if own.shape[:2] != given.shape[:2]:
                raise UsageError(
                    f'model.joining = "append" appends the channels of {own} to the {given} that layer {layer} reads; '
                    "use layers of equal height and width (padding, stride)"
                )
            height, width, channels = given.shape
            stacks.append(carry(Stack(height * width, channels, own.shape[2]), behind))
            given = Read(given.size + own.size, (height, width, channels + own.shape[2]))
        else:
            given = Read(given.size + own.size)
    return given, adds, stacks
