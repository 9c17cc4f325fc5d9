"""docs/config.md: every key of a config, its default and what it means, from run/defaults.toml.

    python run/pages/config_page.py            # writes the page; make docs does it too

run/defaults.toml is held to the tables of macmpi/config by tests/unit/test_config.py.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from macmpi.config.documented import explanations

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "config.md"
DEFAULTS = ROOT / "run" / "defaults.toml"

HEAD = """# Config: every key

A config is a TOML file of tables; what it leaves out has its default. `macmpi configs defaults` prints the file that
this page is made from (`python run/pages/config_page.py`), `--explain` says what "auto" stands for in a run, and
`--set table.key=value` gives a key for one run. An unknown key is refused, with the nearest one that exists.
[Choosing](choosing.md) says which to choose for which problem.
"""

PAGES = {
    "data": "data.md",
    "model": "layers/without_derivatives.md",
    "loss": "losses.md",
    "start": "starts.md",
    "penalty": "algorithms/mac.md",
    "z_step": "algorithms/mac.md",
    "w_step": "algorithms/mac.md",
    "method": "algorithms/index.md",
    "stochastic": "algorithms/stochastic.md",
    "baseline": "algorithms/baselines.md",
    "selection": "algorithms/selection.md",
    "parallel": "parallel.md",
    "run": "reliability.md",
}
"""The page that says more of a table's keys."""


def comments_of_tables(text: str) -> dict[str, str]:
    """The comment behind each [table] and on the lines below it, up to its first key."""
    found: dict[str, str] = {}
    table = ""
    for line in text.splitlines():
        heading = re.fullmatch(r"\[(\w+)\](?:\s+# (.*))?", line)
        more = re.fullmatch(r"\s+# (.*)", line)
        if heading:
            table = heading[1]
            found[table] = heading[2] or ""
        elif table and more:
            found[table] += f" {more[1]}"
        else:
            table = ""
    return found


def default_of(value: object) -> str:
    """A value as a config would write it."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f'"{value}"'
        case float() if abs(value) >= 1e6:
            return f"{value:.0e}".replace("+0", "").replace("+", "")
        case _:
            return str(value)


def cell(text: str) -> str:
    """Text in a cell of a table: bars would end it, and asterisks would make it bold."""
    return text.replace("|", r"\|").replace("*", r"\*")


def page(text: str) -> str:
    """The whole page.

    text: that of run/defaults.toml.
    """
    meanings, headings = explanations(), comments_of_tables(text)
    parts = [HEAD]
    for table, keys in tomllib.loads(text).items():
        more = f"More: [{PAGES[table]}]({PAGES[table]})."
        heading = headings.get(table, "")
        said = f"{heading[0].upper()}{heading[1:]}." if heading else ""
        rows = [
            f"| `{key}` | `{default_of(value)}` | {cell(meanings.get(f'{table}.{key}', ''))} |"
            for key, value in keys.items()
        ]
        intro = "\n\n".join(part for part in (wrapped(said), more) if part)
        parts.append(
            "\n".join([f"## [{table}]", "", intro, "", "| key | default | meaning |", "|---|---|---|", *rows, ""])
        )
    return "\n".join(parts)


def wrapped(text: str, width: int = 120) -> str:
    """Lines of at most `width` characters."""
    lines: list[str] = []
    for word in text.split():
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(DEFAULTS.read_text(encoding="utf-8")), encoding="utf-8")
