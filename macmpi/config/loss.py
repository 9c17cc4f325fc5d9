"""The table [loss] of a config: numbers of losses, and whether outputs may be missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from macmpi.config.bounds import Ge, Le
from macmpi.config.tables import STRICT

Size = Annotated[float, Ge(0.0), Le(1e9)]


@dataclass(frozen=True)
class Loss:
    """missing: NaN among the targets stands for an output that is not known.

    threshold: of "huber" and of losses of other packages, in units of the scaled targets; 0 stands for their own.
    """

    missing: bool = False
    threshold: Size = 0.0
    __pydantic_config__: ClassVar[Any] = STRICT
