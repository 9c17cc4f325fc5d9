"""docs/config/: every key of a config, its default and what it means, from run/defaults.toml.

    python run/pages/config_page.py            # writes the pages; make docs does it too

run/defaults.toml is held to the tables of macmpi/config by tests/unit/test_config.py.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from macmpi.config.documented import explanations

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "config"
DEFAULTS = ROOT / "run" / "defaults.toml"

HEAD = """# Config: which key is where?

A config is a TOML file of tables; what it leaves out has its default. Each table below leads to its keys, with their
defaults and meanings. `macmpi init --config defaults` prints the file that these pages are made from (`python
run/pages/config_page.py`), `--explain` says what "auto" stands for in a run, and `--set table.key=value` gives a key
for one run. An unknown key is refused, with the nearest one that exists. [Choosing](../choosing.md) says which to
choose for which problem.
"""

PAGES = {
    "data": ("the data and the loss", ("data", "loss")),
    "net": ("the net and its start", ("model", "start")),
    "method": ("the method, minibatches and baselines", ("method", "stochastic", "baseline")),
    "mac": ("full MAC and selection", ("penalty", "z_step", "w_step", "selection")),
    "run": ("ranks and the run", ("parallel", "run")),
}
"""Pages, with what they are about and their tables."""

DECIDES = {
    "data": "where the points come from, targets, scaling, validation",
    "loss": "missing outputs, outliers",
    "model": "layers, activations, where coordinates live, the loss",
    "start": "the first weights",
    "method": "full MAC, stochastic MAC or a baseline",
    "stochastic": "minibatches or all points, damping, ridge, averaging of stochastic MAC",
    "baseline": "rate and minibatches of SGD, Adam, CG, L-BFGS",
    "penalty": "mu, multipliers, ridge, l1, bounds, when full MAC stops",
    "z_step": "how coordinates are solved for",
    "w_step": "how weights are solved for",
    "selection": "which sizes, widths and ridges are tried, and what a parameter costs",
    "parallel": "what a rank holds",
    "run": "iterations, finish, refit, threads, checkpoints, deadline",
}
"""What each table decides."""

MORE = {
    "data": "[data](../data.md)",
    "model": "[layers](../layers/index.md), [activations and losses](../losses.md)",
    "loss": "[losses](../losses.md)",
    "start": "[starts](../starts.md)",
    "penalty": "[full MAC](../algorithms/mac.md), [penalties on weights](../algorithms/weight_penalties.md)",
    "z_step": "[full MAC](../algorithms/mac.md)",
    "w_step": "[full MAC](../algorithms/mac.md)",
    "method": "[algorithms](../algorithms/index.md), [acceleration](../algorithms/acceleration.md)",
    "stochastic": "[stochastic MAC](../algorithms/stochastic.md)",
    "baseline": "[baselines](../algorithms/baselines.md)",
    "selection": "[selection](../algorithms/selection.md)",
    "parallel": "[what a rank holds](../parallel.md)",
    "run": "[what a run leaves behind](../run_directory.md), [reliability](../reliability.md)",
}
"""The pages that say more of a table's keys."""


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


def pages(text: str) -> dict[Path, str]:
    """All pages, by their files.

    text: that of run/defaults.toml.
    """
    tables, meanings, headings = tomllib.loads(text), explanations(), comments_of_tables(text)
    of = {table: name for name, (_, own) in PAGES.items() for table in own}
    lines = [
        f"| [`[{table}]`]({of[table]}.md#{table}) | {DECIDES[table]} | {', '.join(f'`{key}`' for key in keys)} |"
        for table, keys in tables.items()
    ]
    found = {FOLDER / "index.md": "\n".join([HEAD, "| table | what it decides | keys |", "|---|---|---|", *lines, ""])}
    for name, (about, own) in PAGES.items():
        sections = [section(table, tables[table], meanings, headings.get(table, "")) for table in own]
        found[FOLDER / f"{name}.md"] = "\n".join([f"# Config: {about}\n", *sections])
    return found


def section(table: str, keys: dict[str, object], meanings: dict[str, str], heading: str) -> str:
    """The keys of one table."""
    more = f"More: {MORE[table]}."
    said = f"{heading if heading.startswith('mu ') else heading[0].upper() + heading[1:]}." if heading else ""
    rows = [
        f"| `{key}` | `{default_of(value)}` | {cell(meanings.get(f'{table}.{key}', ''))} |"
        for key, value in keys.items()
    ]
    intro = "\n\n".join(part for part in (wrapped(said), more) if part)
    return "\n".join([f"## [{table}]", "", intro, "", "| key | default | meaning |", "|---|---|---|", *rows, ""])


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
    FOLDER.mkdir(exist_ok=True)
    for path, content in pages(DEFAULTS.read_text(encoding="utf-8")).items():
        path.write_text(content, encoding="utf-8")
