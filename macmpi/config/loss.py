"""The table [loss] of a config: numbers of losses, and whether outputs may be missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from macmpi.config.bounds import Ge, Le
from macmpi.config.tables import STRICT

Size = Annotated[float, Ge(0.0), Le(1e9)]

NUMBERS = {"huber": ("threshold",), "absolute": ("smoothing",)}
"""The keys that each loss of macmpi reads; those of other packages may read any."""


@dataclass(frozen=True)
class Loss:
    """Numbers of a loss, in units of the scaled targets; 0 stands for its own default.

    missing: NaN among the targets stands for an output that is not known.
    """

    missing: bool = False
    threshold: Size = 0.0
    smoothing: Size = 0.0
    __pydantic_config__: ClassVar[Any] = STRICT
