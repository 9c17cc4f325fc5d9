"""The place of a layer in a net, from which its maps are built: its entry in the config and its inputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from macmpi import UsageError
from macmpi.config import Model
from macmpi.nets.design import Columns
from macmpi.nets.layers import Map, Shape


class Read(int):
    """The number of inputs of a layer.

    shape: height, width and channels where the inputs are images, otherwise ().
    """

    shape: Shape

    def __new__(cls, size: int, shape: Shape = ()) -> Read:
        found = super().__new__(cls, size)
        found.shape = shape
        return found

    @property
    def words(self) -> str:
        """Writes the kind and number of the inputs in words, for messages."""
        return "images of " + " x ".join(map(str, self.shape)) if self.shape else f"{self:,} numbers"

    def through(self, maps: Iterable[Map]) -> Read:
        """Returns the number and shape of the outputs of maps that are applied to these inputs.  Collective: no."""
        size, shape = int(self), self.shape
        for map_ in maps:
            size, shape = map_.n_out, map_.images(shape)
        return Read(size, shape)


@dataclass(frozen=True)
class Place:
    """The place of a layer in a net, from which the files of nets/layers build it.

    number: the number of the hidden layer, from 0; the output layer has the next number.
    layer: its entry in model.hidden, or model.readout.
    kind: the word of its activation.
    units: the number of its units; in the output layer, the number of outputs.
    read: its inputs.
    biased: whether its linear map has biases.
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
        """The key of the config under which the layer stands."""
        return "model.readout" if self.last else f"model.hidden.{self.number}"

    @property
    def n_in(self) -> int:
        return int(self.read)

    @property
    def shape(self) -> Shape:
        """Height, width and channels of the images that the layer reads, from its own `image` or the layer before.

        Raises UsageError if neither has them, or their product is not the number of inputs.
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
    """A layer as its file builds it, and then with the maps of its skips.

    maps: its maps up to its site.
    pooled: the maps that pool its images after the site; the next layer begins with them.
    behind: the number of `maps` after its activation.
    steps: the number of steps of a recurrent layer, each with a site of its own; otherwise 1.
    apart: the number of maps from one of these sites to the next.
    blocks: the parameter block of each map, counted from 0, where maps share blocks; otherwise ().
    reads: the columns of the data that each map reads, or None; () if none reads data.
    added: the number of `maps` at the end that add skips.
    """

    maps: list[Map]
    pooled: list[Map] = field(default_factory=list)
    behind: int = 0
    steps: int = 1
    apart: int = 2
    blocks: tuple[int | None, ...] = ()
    reads: tuple[Columns | None, ...] = ()
    added: int = 0
