"""A whole config: all its tables."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from macmpi.config.data import Data
from macmpi.config.loss import Loss
from macmpi.config.model import Model
from macmpi.config.tables import (
    STRICT,
    Baseline,
    Method,
    Parallel,
    Penalty,
    Run,
    Selection,
    Start,
    Stochastic,
    WStep,
    ZStep,
)
from macmpi.config.writing import flat


@dataclass(frozen=True)
class Config:
    """A whole config file.  `data = "path.h5"` is short for `[data] source = "path.h5"`."""

    data: Data = field(default_factory=Data)
    model: Model = field(default_factory=Model)
    loss: Loss = field(default_factory=Loss)
    start: Start = field(default_factory=Start)
    penalty: Penalty = field(default_factory=Penalty)
    z_step: ZStep = field(default_factory=ZStep)
    w_step: WStep = field(default_factory=WStep)
    method: Method = field(default_factory=Method)
    stochastic: Stochastic = field(default_factory=Stochastic)
    baseline: Baseline = field(default_factory=Baseline)
    selection: Selection = field(default_factory=Selection)
    parallel: Parallel = field(default_factory=Parallel)
    run: Run = field(default_factory=Run)
    __pydantic_config__: ClassVar[Any] = STRICT


RUN_TIME_KEYS = frozenset(f"run.{f.name}" for f in fields(Run))
"""Keys that a resumed run may change: its length and its files, not the path of the weights."""


def given(config: Config) -> list[str]:
    """The keys, "table.key", whose values are not their defaults."""
    usual = flat(Config())
    return [key for key, value in flat(config).items() if value != usual[key]]
