"""The place of a layer in a net, with what a config says of it and what it reads; and what the layer is built of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from macmpi import UsageError
from macmpi.config import Model
from macmpi.nets.design import Columns
from macmpi.nets.layers import Map, Shape


class Read(int):
    """The number of inputs that a layer reads; shape: height, width and channels where they are images, else ()."""

    shape: Shape

    def __new__(cls, size: int, shape: Shape = ()) -> Read:
        found = super().__new__(cls, size)
        found.shape = shape
        return found

    @property
    def words(self) -> str:
        """Says in words what the inputs are."""
        return "images of " + " x ".join(map(str, self.shape)) if self.shape else f"{self:,} numbers"

    def through(self, maps: Iterable[Map]) -> Read:
        """The number and shape of the outputs of maps that read this, one after the other.  Collective: no."""
        size, shape = int(self), self.shape
        for map_ in maps:
            size, shape = map_.n_out, map_.images(shape)
        return Read(size, shape)


@dataclass(frozen=True)
class Place:
    """The place of a layer in a net, from which the files of nets/layers build it.

    number: of the hidden layer, from 0; that of the output layer is the next one.
    layer: its entry of model.hidden, or model.readout.
    kind: the word of its activation.
    units: its units, of the output layer the outputs.
    read: its inputs.
    biased: a linear map has biases.
    """

    model: Model
    number: int
    layer: Any
    kind: str
    units: int
    read: Read
    biased: bool = True

    @property
    def last(self) -> bool:
        """Tells whether the layer is the output layer."""
        return self.number == len(self.model.units)

    @property
    def key(self) -> str:
        """The key of the config that the layer has."""
        return "model.readout" if self.last else f"model.hidden.{self.number}"

    @property
    def n_in(self) -> int:
        return int(self.read)

    @property
    def shape(self) -> Shape:
        """Height, width and channels of the images that the layer reads, by its own `image` or the layer before.

        Raises UsageError where neither says so, or they have another number of inputs.
        """
        own, key, size = self.layer.image, self.key, self.n_in
        if not own and not self.read.shape:
            shape = "[height, width, channels]"
            remedy = f"{key}.image = {shape}" if self.number else f"model.image = [height, width] or {shape}"
            raise UsageError(f"{key} reads images, and is given {size:,} numbers of no known shape; give {remedy}")
        height, width, channels = own or self.read.shape
        if (numbers := height * width * channels) != size:
            said = f"{key}.image = {own}" if own else f"model.image = {self.model.image}"
            raise UsageError(
                f"{said} has {numbers:,} numbers, and the layer ({key}) reads {size:,}; "
                f"give a height, a width and channels whose product is {size:,}"
            )
        return height, width, channels


@dataclass(frozen=True)
class Built:
    """A layer as maps.

    maps: those up to its site.
    pooled: maps that pool its images; the next layer begins with them.
    behind: the number of maps behind its activation.
    steps: the number of times that it is applied, each with a site of its own.
    apart: the number of maps from one of these sites to the next.
    blocks: the parameter block of each map, counted from 0, where maps share some; else ().
    reads: the columns of the data that each map reads, or None; () where none does.
    """

    maps: list[Map]
    pooled: list[Map] = field(default_factory=list)
    behind: int = 0
    steps: int = 1
    apart: int = 2
    blocks: tuple[int | None, ...] = ()
    reads: tuple[Columns | None, ...] = ()
