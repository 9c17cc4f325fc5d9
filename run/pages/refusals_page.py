"""docs/refusals.md: what does not fit together, a config that shows it, and what macmpi says.

    python run/pages/refusals_page.py          # writes the page; make docs does it too

The combinations are those of tests/refused, which tests/unit/test_refusals.py checks; the messages are macmpi's own.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "refusals.md"
sys.path.append(str(ROOT / "tests"))

from pages_of_evidence import table  # noqa: E402
from refused import ELSEWHERE, TOPICS  # noqa: E402
from refused.case import Keys, Row, planned  # noqa: E402

from macmpi import UsageError  # noqa: E402

HEAD = """# What is refused

A config whose keys do not go together is refused before anything is created, with one message and exit code 2. Search
this page for a few words of your message: each row has the combination, keys that show it, and the message that macmpi
prints for them. Unless an example says otherwise, it has `method.name = "mac"`, two hidden layers, 4 inputs, 3 targets
and 37 points. An unknown key or a value of a wrong type is not listed: its message names the key and what is expected.
What is refused of data: [data](data.md#what-is-refused).

`model.hidden.0` is the first entry of `model.hidden`; layers and segments are counted from 1. A segment is what lies
between two layers with coordinates (`model.sites`). "affine" is a dense layer, "quantiser" one of codewords, "trees" a
forest or boosted trees.
"""

LAST = "With files, libraries and layers of other packages"


def message(keys: Keys) -> str:
    """What macmpi says of a config.  Raises ValueError where it is not refused."""
    try:
        planned(keys)
    except UsageError as error:
        return str(error)
    raise ValueError(f"{keys} is not refused")


def as_toml(value: Any) -> str:
    """A value as a config has it."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{value}"'
        case dict():
            return "{" + ", ".join(f"{key} = {as_toml(own)}" for key, own in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(as_toml, value)) + "]"
    return repr(value)


def shown(row: Row) -> str:
    """The keys of a row, a line each."""
    return "<br>".join(f"`{key} = {as_toml(value)}`" for key, value in row.keys.items())


def page() -> str:
    """The whole page, a table for each topic."""
    parts = [HEAD]
    for title, topic in TOPICS.items():
        cells = []
        for combination in topic.COMBINATIONS:
            row = next(row for row in topic.TABLE.values() if combination.startswith(row.of))
            cells.append([combination, shown(row), message(row.keys).replace("|", "\\|")])
        parts.append(f"## {title}\n\n{table(('combination', 'for example', 'macmpi says'), cells)}\n")
    parts.append(f"## {LAST}\n\n{table(('combination', 'why', 'remedy'), list(map(list, ELSEWHERE)))}\n")
    return "\n".join(parts)


def write() -> Path:
    PAGE.write_text(page(), encoding="utf-8")
    return PAGE


if __name__ == "__main__":
    print(write())
