"""Tables within the list of hidden layers: convolutions, recurrent and sparse layers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal

from macmpi.config.bounds import Ge, Gt, Le, Lt
from macmpi.config.tables import NotNegative, PositiveInt, Seed, Table


@dataclass(frozen=True)
class Convolution(Table):
    """A layer of `channels` images, each a kernel that moves over the images before, `stride` pixels at a time.

    upsample: above 1 a transposed convolution, whose images are this many times as high and wide.  padding: "same"
    gives ceil(height / stride) rows of pixels, "none" only pixels whose patches lie within the image.  pool: patches of
    pool x pool pixels become one number each, by their `pooling`, before the next layer reads them.  Under a softmax
    the channels are words of a codebook, and a sum of their shares is a histogram.  groups: channels that are read and
    channels that are given fall into this many runs, and one given reads those of its own run alone; as many as there
    are channels to read: a depthwise convolution.  image: height, width and channels of what the layer reads, where a
    dense layer is before it.
    """

    channels: PositiveInt
    kernel: PositiveInt = 3
    stride: PositiveInt = 1
    upsample: PositiveInt = 1
    padding: Literal["same", "none"] = "same"
    pool: PositiveInt = 1
    pooling: Literal["max", "average", "sum"] = "max"
    groups: PositiveInt = 1
    image: list[PositiveInt] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.upsample > 1 and (self.stride > 1 or self.padding != "same" or self.groups > 1):
            raise ValueError('upsample goes with stride = 1, padding = "same" and groups = 1')
        if self.channels % self.groups:
            raise ValueError(f"groups = {self.groups} does not divide channels = {self.channels}")
        if len(self.image) not in (0, 3):
            raise ValueError("image is a height, a width and channels, as in image = [4, 4, 16]")


@dataclass(frozen=True)
class Recurrent(Table):
    """A layer of `recurrent` units whose state h_t = s(V [h_{t-1}, x_t] + c) reads a share of the inputs at each step.

    The inputs are `steps` equal parts x_1, ..., x_T, one after the other; one block of weights is that of all steps,
    and what the next layer reads is the last state.  memory: the recurrent weights begin as this share of the identity
    (of "relu", "leaky_relu", "linear") or of an orthogonal matrix; 0 draws them as all others.
    """

    recurrent: PositiveInt
    steps: Annotated[int, Ge(2), Lt(2**63)]
    memory: Annotated[float, Ge(0.0)] = 1.0


GIVEN = "given "
"""A mask that has been read from its file begins with this: its text follows."""

RULES = {"random": ("share", "groups", "seed"), "banded": ("width", "groups"), "local": ("width", "groups", "image")}
"""The words of `connections`, and the keys that each of them reads; all else is a file."""


@dataclass(frozen=True)
class Sparse(Table):
    """A dense layer of `units`, each of which reads the inputs that `connections` name.

    connections: "random", a share of all inputs; "banded", `width` neighbouring inputs, windows evenly spaced; "local",
    squares of width x width pixels in a square grid, all channels of them; or a file of a matrix (units, inputs) that
    is not 0 where a weight exists, .npy or .csv.  groups: the number of different masks, each of neighbouring units; 0
    is one for each unit, or for "local" as many as a square grid can have.  seed: of "random".  image: height, width
    and channels of what "local" reads behind a dense layer.
    """

    units: PositiveInt
    connections: str
    share: Annotated[float, Gt(0.0), Le(1.0)] = 0.1
    width: PositiveInt = 5
    groups: NotNegative = 0
    seed: Seed = 0
    image: list[PositiveInt] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.connections:
            raise ValueError(f"connections is empty: {', '.join(map(repr, RULES))}, or a file")
        if self.groups > self.units:
            raise ValueError(f"groups = {self.groups} is more than the layer's {self.units} units")
        if self.connections == "local" and math.isqrt(self.groups) ** 2 != self.groups:
            raise ValueError(f"windows lie in a square grid: groups is 1, 4, 9, 16 or so on, not {self.groups}")
        if len(self.image) not in (0, 3):
            raise ValueError("image is a height, a width and channels, as in image = [4, 4, 16]")
        read = RULES.get(self.connections, ())
        for key in (own.name for own in fields(self) if own.name not in ("units", "connections", *read)):
            if getattr(self, key) not in (getattr(type(self), key, None), []):
                what = f'connections = "{self.connections}" reads {", ".join(read)}' if read else "a file says it all"
                raise ValueError(f"{what}: leave {key} out")

    @property
    def masks(self) -> int:
        """The number of different masks."""
        return self.groups or (math.isqrt(self.units) ** 2 if self.connections == "local" else self.units)


TABLES: dict[str, type] = {"recurrent": Recurrent, "connections": Sparse, "channels": Convolution}
"""The tables that a layer of `hidden` may be, each by the key that none of the others has."""


def table_meant(value: dict[str, Any]) -> type:
    """The table that a layer is meant to be, by its keys; a Convolution where none of them tells."""
    return next((kind for key, kind in TABLES.items() if key in value), Convolution)


Layer = PositiveInt | Convolution | Sparse | Recurrent


def units_of(layer: int | Convolution | Sparse | Recurrent) -> int:
    """Units of a layer, of a convolution its channels."""
    match layer:
        case Convolution():
            return layer.channels
        case Recurrent():
            return layer.recurrent
        case Sparse():
            return layer.units
        case _:
            return layer
