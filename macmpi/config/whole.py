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


KINDS: dict[str, Any] = {
    f"{table.name}.{key.name}": key.metadata
    for table in fields(Config)
    for key in fields(getattr(Config(), table.name))
}
"""Key, "table.key" -> the metadata of its declaration, which say what it changes (`tables.END`)."""


def changes(key: str) -> str:
    """Says what a key changes: "result", the "end" of a run, or "nothing".  Of one that is not known "result"."""
    return str(KINDS.get(key, {}).get("changes", "result"))


def differences(then: dict[str, Any], now: dict[str, Any], changing: str = "result") -> list[str]:
    """The keys of two flat configs that change the result, or the end, and do not mean the same in both, in words."""
    found = []
    for key in sorted(then.keys() | now.keys()):
        alike = KINDS.get(key, {}).get("alike", {})
        was, is_ = (config.get(key) for config in (then, now))
        meant = [alike.get(value, value) if alike else value for value in (was, is_)]
        if changes(key) == changing and meant[0] != meant[1]:
            found.append(f"{key} (was {was!r}, {f'is {is_!r}' if key in now else 'has gone'})")
    return found


def given(config: Config) -> list[str]:
    """The keys, "table.key", whose values are not their defaults."""
    usual = flat(Config())
    return [key for key, value in flat(config).items() if value != usual[key]]
