"""A config written down: as TOML, or flat."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any


def flat(config: Any) -> dict[str, Any]:
    """{"table.key": value}."""
    return {f"{t}.{k}": v for t, keys in asdict(config).items() for k, v in keys.items()}


def toml(value: Any) -> str:
    """A number, string, list or table as TOML: JSON, but for tables and a control character that it leaves alone."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {toml(inside)}' for key, inside in value.items())} }}"
    if isinstance(value, list) and any(isinstance(inside, dict) for inside in value):
        return f"[{', '.join(map(toml, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def dump(config: Any) -> str:
    """The config as TOML, every key with its value."""
    lines = []
    for table, keys in asdict(config).items():
        lines.append(f"[{table}]")
        lines += [f"{key} = {toml(value)}" for key, value in keys.items()]
        lines.append("")
    return "\n".join(lines)
