"""Nets with skip connections: what a layer reads is carried on to later layers, and added or appended there.

Layer i + 1 reads x_i; a skip [i, j] has x_i join what layer j reads.  A join comes before the site in front of layer j,
a copy behind the one in front of layer i + 1, so that a residual layer, x + g(x), needs no coordinates but its own.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from macmpi import UsageError
from macmpi.config import Model, Sparse
from macmpi.nets.layers import Map
from macmpi.nets.layers.activation import Activation, is_function
from macmpi.nets.layers.affine import Affine
from macmpi.nets.layers.carrying import Add, Copy, carry
from macmpi.nets.masks import masked


@dataclass
class Carried:
    """Columns behind those that the next layer reads, those first that are needed first: (layer, size)."""

    uses: list[tuple[int, int]] = field(default_factory=list)

    @property
    def width(self) -> int:
        return sum(size for _, size in self.uses)

    def copied(self, size: int, layer: int) -> Map:
        """The map that copies what is read, for a later layer."""
        place = bisect_right([use for use, _ in self.uses], layer)
        between = sum(n for _, n in self.uses[:place])
        copy = carry(Copy(size, between), self.width - between)
        self.uses.insert(place, (layer, size))
        return copy

    def joined(self, size: int, layer: int, adds: bool) -> tuple[list[Map], int]:
        """The maps that join what is carried to a layer to `size` numbers that it reads, and how many it reads then.

        Raises UsageError where numbers do not fit.
        """
        maps = list[Map]()
        while self.uses and self.uses[0][0] == layer:
            _, own = self.uses.pop(0)
            if not adds:
                size += own
            elif own == size:
                maps.append(carry(Add(size), self.width))
            else:
                raise UsageError(
                    f'model.joining = "add" adds {own:,} numbers to the {size:,} that layer {layer} reads; '
                    'use "append", or layers of equal sizes'
                )
        return maps, size


def layers_with_skips(model: Model, n_in: int, n_out: int) -> list[list[Map]]:
    """The maps of each hidden layer and of the output layer.  Raises UsageError.  Collective: no."""
    layers, size, carried = list[list[Map]](), n_in, Carried()
    rows = zip(model.layers(), model.sparse, model.convolutions, strict=True)
    hidden = [(units, kind, sparse, convolution) for (units, kind, _), sparse, convolution in rows]
    for i, (units, kind, sparse, convolution) in enumerate([*hidden, (n_out, model.output, None, None)]):
        if convolution is not None or not is_function(kind):
            what = "a convolution" if convolution is not None else f'of "{kind}"'
            raise UsageError(
                f"model.skips join dense and sparse layers with elementwise activations, and layer {i + 1} is {what}; "
                "use another there, or skips = []"
            )
        copies = [carried.copied(size, later) for layer, later in sorted(model.skips) if layer == i]
        own = _layer(sparse, i, tuple(model.image) if not i else (), size, units)
        maps = [carry(own, carried.width), carry(Activation(kind, units), carried.width)]
        joins, size = carried.joined(units, i + 2, model.joining == "add")
        layers.append([*copies, *maps, *joins])
    if model.output == "linear":
        layers[-1].pop()
    return layers


def _layer(sparse: Sparse | None, number: int, image: tuple[int, ...], size: int, units: int) -> Map:
    return Affine(size, units) if sparse is None else masked(sparse, number, image, size)
