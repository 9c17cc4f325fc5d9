"""docs/refusals.md: what does not fit together, a config that shows it, and what macmpi says.

    python run/pages/refusals_page.py          # writes the page; make docs does it too

The combinations are those of tests/refused, which tests/unit/test_refusals.py checks; the messages are macmpi's own.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "refusals.md"
sys.path.append(str(ROOT / "tests"))

from pages_of_evidence import table  # noqa: E402
from refused import ELSEWHERE, TOPICS  # noqa: E402
from refused.case import Keys, planned  # noqa: E402

from macmpi import UsageError  # noqa: E402
from macmpi.demand import USUAL, Demands  # noqa: E402
from macmpi.demand import Demand as D  # noqa: E402
from macmpi.plan.parts import HALF_STEPS, SELECTION, TABLE  # noqa: E402
from macmpi.solvers import W_SOLVERS, Z_SOLVERS  # noqa: E402

HEAD = """# What is refused

A config whose keys do not go together is refused before anything is created, with one message, a remedy and exit code
2. Search this page for a few words of your message, or for a key: each row has a combination, and the message that
macmpi prints for an example of it (`tests/refused`; two hidden layers, 4 inputs, 3 targets, 37 points). An unknown key
or a value of a wrong type is not listed: its message names the key and what is expected. What is refused of data is
in [data](data.md#what-is-refused).

`model.hidden.0` is the first entry of `model.hidden`; layers and segments are counted from 1. A segment is what lies
between two layers with coordinates (`model.sites`). "affine" is a dense layer, "quantiser" one of codewords, "trees" a
forest or boosted trees.
"""

PARTS = """## Parts, and what they do not go with

Parts that are not listed handle everything. Messages have the reasons of the last column where the tables below have
"...". macmpi offers only remedies that it has tried: another part, or the demand
switched off. A solver, fitter or loss of another package declares what it handles ([extending](extending/index.md)).
"""

LAST = "With files, libraries and layers of other packages"


OF_A_SEGMENT = frozenset({D.RESTRAINED, D.WEIGHTED, D.WEIGHTED_OUTPUTS, D.RING, D.SPARSE, D.INSEPARABLE})
"""The demands that a W-solver is asked for."""


PAIRS = {
    "a selection of centres or ridges, a selection of layers' sizes": "selection",
    "layers without derivatives in their inputs, layers without derivatives in their weights": (
        "layers without derivatives"
    ),
    "weights of points, weights of points and outputs": "weights of points",
}
"""Demands that a part lacks together, in fewer words."""


def handled(solver: Any) -> Demands:
    """The demands that a solver handles; a W-solver of segments needs no units one by one."""
    found: Demands = solver.handles
    return found | {D.INSEPARABLE} if "segment" in getattr(solver, "takes", ()) else found


def parts() -> list[list[str]]:
    """A row for parts that do not handle everything, those that lack the same as one: names, what, and why."""
    tables = {**TABLE, **HALF_STEPS}
    named = {
        f"{key} = {json.dumps(word)}": tuple(row[:2]) for key, rows in tables.items() for word, row in rows.items()
    }
    named["selection.criterion"] = SELECTION, "nets are compared by one sum of squares, fitted with a ridge alone"
    for key, solvers in {"z_step": Z_SOLVERS, "w_step": W_SOLVERS}.items():
        asked = OF_A_SEGMENT if key == "w_step" else USUAL
        for name, solver in solvers.items():
            named[f'{key}.solver = "{name}"'] = handled(solver) | (USUAL - asked), ""
    alike: dict[tuple[str, str], list[str]] = {}
    for said, (handles, why) in named.items():
        lacking = ", ".join(sorted(demand.value for demand in USUAL - handles))
        for pair, short in PAIRS.items():
            lacking = lacking.replace(pair, short)
        if lacking:
            alike.setdefault((lacking, why), []).append(said)
    return [[f"`{together(said)}`", lacking, why] for (lacking, why), said in alike.items()]


def together(said: list[str]) -> str:
    """Values of one key as one line."""
    key = said[0].partition(" = ")[0]
    return " or ".join([said[0], *(text.removeprefix(f"{key} = ") for text in said[1:])])


def message(keys: Keys, reasons: set[str]) -> str:
    """What macmpi says of a config, without reasons that another table has.  Raises ValueError where it is taken."""
    try:
        planned(keys)
    except UsageError as error:
        said = str(error)
        return next((said.replace(f": {why}; ", ": ...; ") for why in reasons if f": {why}; " in said), said)
    raise ValueError(f"{keys} is not refused")


def page() -> str:
    """The whole page, a table for each topic."""
    of_parts = parts()
    reasons = {why for *_, why in of_parts if why}
    found = [HEAD, f"{PARTS}\n{table(('part', 'does not go with', 'since'), of_parts)}\n"]
    for title, topic in TOPICS.items():
        cells = []
        for combination in topic.COMBINATIONS:
            row = next(row for row in topic.TABLE.values() if combination.startswith(row.of))
            cells.append([combination, message(row.keys, reasons).replace("|", "\\|")])
        found.append(f"## {title}\n\n{table(('combination', 'macmpi says'), cells)}\n")
    found.append(f"## {LAST}\n\n{table(('combination', 'why', 'remedy'), list(map(list, ELSEWHERE)))}\n")
    return "\n".join(found)


def write() -> Path:
    PAGE.write_text(page(), encoding="utf-8")
    return PAGE


if __name__ == "__main__":
    print(write())
