"""The table [data] of a config: where the points come from, and what is made of them before training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from macmpi.config.bounds import Gt, Lt
from macmpi.config.tables import NOTHING, STRICT, NotNegative, PositiveInt, Seed


@dataclass(frozen=True)
class Data:
    """The source, and how it is read.  source: a named set, a file, a folder of images (docs/data.md has them all).

    target: of a table, the column or columns to predict, of an .npy file the number of a column; "": the source's own,
    [] none.  weights: of a table the column that holds the weights of points.  ignore: columns of a table that are no
    inputs.  categories: columns of a table whose values are categories, whatever they are.  empty: texts of a table
    that stand for a missing value.  missing: what becomes of missing values.  image_size: height and width of the
    images of a folder, [] as they are.
    """

    source: str = field(default="", metadata=NOTHING)
    target: str | list[str] = ""
    weights: str = ""
    ignore: list[str] = field(default_factory=list)
    categories: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    missing: Literal["impute", "refuse"] = "impute"
    image_size: list[PositiveInt] = field(default_factory=list)
    validation: Annotated[float, Gt(0.0), Lt(1.0)] = 0.2
    points: NotNegative = 0
    seed: Seed = 0
    scale: Literal["auto", "none", "range", "standard", "robust"] = "auto"
    __pydantic_config__: ClassVar[Any] = STRICT

    def __post_init__(self) -> None:
        if len(self.image_size) not in (0, 2):
            raise ValueError("image_size is a height and a width, as in image_size = [28, 28]")

    @property
    def targets(self) -> list[str] | None:
        """The names of the targets; None where the source is to say."""
        if isinstance(self.target, str):
            return [self.target] if self.target else None
        return self.target
