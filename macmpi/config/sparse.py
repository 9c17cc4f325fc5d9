"""A table of model.hidden: a dense layer whose weights exist only where a mask says so."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, ClassVar

from macmpi.config.bounds import Gt, Le
from macmpi.config.tables import STRICT, NotNegative, PositiveInt, Seed

GIVEN = "given "
"""A mask that has been read from its file begins with this: its text follows."""

RULES = {"random": ("share", "groups", "seed"), "banded": ("width", "groups"), "local": ("width", "groups", "image")}
"""The words of `connections`, and the keys that each of them reads; all else is a file."""


@dataclass(frozen=True)
class Sparse:
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
    __pydantic_config__: ClassVar[Any] = STRICT

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
