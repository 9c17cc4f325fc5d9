"""Skip connections: what a layer reads is carried on to later layers, and added or appended there.

Layer i + 1 reads x_i; a skip [i, j] has x_i join what layer j reads.  A join comes before the site in front of layer j,
a copy behind the one in front of layer i + 1, so that a residual layer, x + g(x), needs no coordinates but its own.
Channels of images that are appended stand in the coordinates behind those of the layer before; behind the site each
pixel gets its own.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from macmpi import UsageError
from macmpi.config import Model
from macmpi.nets.layers import Map
from macmpi.nets.layers.activation import is_function
from macmpi.nets.layers.carrying import Add, Copy, Stack, carry
from macmpi.nets.layers.place import Place, Read


@dataclass
class Carried:
    """Columns behind those that the next layer reads, those first that are needed first: (layer, what)."""

    model: Model
    uses: list[tuple[int, Read]] = field(default_factory=list)

    @property
    def width(self) -> int:
        return sum(read for _, read in self.uses)

    def copies(self, read: Read, layer: int) -> list[Map]:
        """The maps that copy what layer + 1 reads, for later layers."""
        return [self._copied(read, last) for first, last in sorted(self.model.skips) if first == layer]

    def _copied(self, read: Read, layer: int) -> Map:
        place = bisect_right([use for use, _ in self.uses], layer)
        between = sum(own for _, own in self.uses[:place])
        copy = carry(Copy(int(read), between), self.width - between)
        self.uses.insert(place, (layer, read))
        return copy

    def on(self, maps: list[Map]) -> list[Map]:
        """The maps, past which everything is carried on."""
        return [carry(map_, self.width) for map_ in maps]

    def joined(self, given: Read, layer: int, pool: int) -> tuple[Read, list[Map], list[Map]]:
        """A layer reads this once all has joined; the maps that add, and those behind the site that stack channels.

        given: by the layer before, which is pooled by `pool`.  Raises UsageError where numbers or images do not fit.
        """
        joins = list[Read]()
        while self.uses and self.uses[0][0] == layer:
            joins.append(self.uses.pop(0)[1])
        if joins and pool > 1:
            raise UsageError(
                f"model.hidden.{layer - 2}.pool = {pool}: its images are pooled behind the coordinates, and "
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
    """Raises UsageError for a layer of a net with skips that is none of those that they join.  Collective: no."""
    if place.model.skips and not is_function(place.kind):
        raise UsageError(
            f"model.skips join dense and sparse layers and convolutions with elementwise activations, and layer "
            f'{place.number + 1} is of "{place.kind}"; use another there, or skips = []'
        )
