"""A whole config: all its tables, and how it is written down, as TOML or flat."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from macmpi.config.model import Model
from macmpi.config.tables import (
    Baseline,
    Data,
    Loss,
    Method,
    Parallel,
    Penalty,
    Run,
    Selection,
    Start,
    Stochastic,
    Table,
    WStep,
    ZStep,
)


@dataclass(frozen=True)
class Config(Table):
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


def flat(config: Config) -> dict[str, Any]:
    """{"table.key": value}."""
    return {f"{t}.{k}": v for t, keys in asdict(config).items() for k, v in keys.items()}


def toml(value: Any) -> str:
    """A number, string, list or table as TOML: JSON, but for tables and a control character that it leaves alone."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {toml(inside)}' for key, inside in value.items())} }}"
    if isinstance(value, list) and any(isinstance(inside, dict) for inside in value):
        return f"[{', '.join(map(toml, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def dump(config: Config) -> str:
    """The config as TOML, every key with its value."""
    lines = []
    for table, keys in asdict(config).items():
        lines.append(f"[{table}]")
        lines += [f"{key} = {toml(value)}" for key, value in keys.items()]
        lines.append("")
    return "\n".join(lines)
