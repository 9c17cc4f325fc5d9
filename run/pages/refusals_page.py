"""docs/refusals.md: what does not fit together.

    python run/pages/refusals_page.py          # writes the page; make docs does it too

The combinations are those of tests/refused, which tests/unit/test_refusals.py checks; the messages are macmpi's own.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from textwrap import fill
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "refusals.md"
sys.path.append(str(ROOT / "tests"))

from pages_of_evidence import table  # noqa: E402
from refused import ELSEWHERE, TOPICS  # noqa: E402
from refused.case import BASIS, FOREST, LABELS, Keys, planned  # noqa: E402

from macmpi import UsageError  # noqa: E402
from macmpi.config.auto import Sizes  # noqa: E402
from macmpi.config.model import LOSSES  # noqa: E402
from macmpi.demand import USUAL, Demands  # noqa: E402
from macmpi.demand import Demand as D  # noqa: E402
from macmpi.plan import demands  # noqa: E402
from macmpi.plan.demands import SELECTION, TABLE  # noqa: E402
from macmpi.solvers import W_SOLVERS, Z_SOLVERS  # noqa: E402

HEAD = """# What is refused

A config with keys that cannot be combined is refused before anything is created, with exit code 2. One message gives
the reason and remedies, which macmpi has tried. `macmpi run CONFIG --check` prints the message without a run.

Unknown keys and values of a wrong type are not listed. Another page lists [refused data](data.md#what-is-refused).
Layers and segments are counted from 1, but entries of a list, such as `model.hidden.0`, from 0. A segment lies between
two layers with coordinates (`model.sites`). "affine" means a dense layer, "quantiser" a layer of codewords, and "trees"
a forest or boosted trees.
"""

PARTS = """## Parts, and what they do not go with

Parts that are not listed handle everything; "l1" includes groups. A solver, fitter or loss of another package declares
what it handles ([extending](extending/index.md)).
"""

LAST = "With files, libraries and layers of other packages"


OF_A_FITTER = frozenset({D.RESTRAINED, D.WEIGHTED, D.WEIGHTED_OUTPUTS})
"""The demands that a fitter is asked for."""

OF_A_SEGMENT = OF_A_FITTER | {D.RING, D.SPARSE, D.INSEPARABLE}
"""The demands that a W-solver is asked for."""


OTHERS: list[Keys] = [
    *({"model.loss": word, "loss.missing": word != "cross_entropy"} for word in LOSSES),
    {"penalty.l1": 0.1},
    BASIS,
    *(FOREST | {"model.activation": [word, "tanh"]} for word in ("forest", "boosted")),
    *({"model.activation": [word, "tanh"], "model.examples": 7} for word in ("kernel_ridge", "nearest_neighbours")),
    *(LABELS | {"model.fitters": ["auto", "auto", word]} for word in ("linear_svm", "logistic")),
]
"""Configs with the parts that neither the table of keys has nor those of solvers: losses, l1, centres, fitters."""

SHORT = {
    "a selection of centres or ridges, a selection of layers' sizes": "selection",
    "layers without derivatives in their inputs, layers without derivatives in their weights": (
        "layers without derivatives"
    ),
    "weights of points, weights of points and outputs": "weights of points",
    D.ACCELERATED.value: '`acceleration = "feasible"` or `"momentum"`',
    D.TOGETHER.value: '`acceleration = "joint"`',
    D.RING.value: '`schedule = "ring"`',
    D.SHARED.value: "shared weights",
    D.RESTRAINED.value: "l1 and bounds",
    D.COUNTED.value: "`mu_every`",
    D.RIDGE_OF_OBJECTIVE.value: '`ridge_scale = "objective"`',
    D.RIDGE_OF_UNITS.value: '`ridge_scale = "unit"`',
    D.OTHER_LAYERS.value: "other than dense layers",
    D.METRIC.value: "a metric",
}
"""Demands that a part lacks, some of them together, in fewer words."""


def handled(solver: Any) -> Demands:
    """The demands that a solver handles; a W-solver of segments needs no units one by one."""
    found: Demands = solver.handles
    return found | {D.INSEPARABLE} if "segment" in getattr(solver, "takes", ()) else found


def others(known: set[str]) -> dict[str, tuple[Demands, str]]:
    """What the parts of `OTHERS` handle, and why no more, but for those that are known."""
    found: dict[str, tuple[Demands, str]] = {}
    for keys in OTHERS:
        for part, _ in demands.parts(planned(keys).resolved, Sizes(4, 3, 37, 11, False)):
            fitter = re.match(r'the fitter ("\w+")', part.said)
            said = f"model.fitters = {fitter[1]}" if fitter else re.sub(r" = \[.*", "", part.said)
            if not said.startswith(("the W-solver", "the Z-solver")) and said not in {*known, *found}:
                found[said] = part.handles | (USUAL - OF_A_FITTER if fitter else set()), part.why
    return found


def parts() -> tuple[list[list[str]], set[str]]:
    """A row for parts that do not handle everything, those that lack the same as one; the reasons of messages."""
    every = [(f"{key} = {json.dumps(word)}", row) for key, rows in TABLE.items() for word, row in rows.items()]
    named = {said: (row.handles, row.why) for said, row in every}
    named["selection.criterion"] = SELECTION, "nets are compared by one sum of squares, fitted with a ridge alone"
    for key, solvers in {"z_step": Z_SOLVERS, "w_step": W_SOLVERS}.items():
        asked = OF_A_SEGMENT if key == "w_step" else USUAL
        for name, solver in solvers.items():
            word = "linear_solver" if name == "closed_form" else "solver"
            named[f'{key}.{word} = "{name}"'] = handled(solver) | (USUAL - asked), ""
    named |= others({*named})
    alike: dict[tuple[str, str], list[str]] = {}
    for said, (handles, why) in named.items():
        lacking = ", ".join(sorted(demand.value for demand in USUAL - handles))
        for long, short in SHORT.items():
            lacking = lacking.replace(long, short)
        if {D.ACCELERATED, D.TOGETHER} <= USUAL - handles:
            lacking = lacking.replace(f", {SHORT[D.TOGETHER.value]}", "")
            lacking = lacking.replace(SHORT[D.ACCELERATED.value], D.ACCELERATED.value)
        if lacking:
            alike.setdefault((lacking, why), []).append(said)
    return [[f"`{together(said)}`", lacking] for (lacking, _), said in alike.items()], {why for _, why in alike}


def together(said: list[str]) -> str:
    """Values of one key as one line."""
    key = said[0].partition(" = ")[0]
    return " or ".join([said[0], *(text.removeprefix(f"{key} = ") for text in said[1:])])


def of_parts_alone(keys: Keys, reasons: set[str]) -> bool:
    """A config is refused for a reason that the table of parts has.  Raises ValueError for one that is taken."""
    try:
        planned(keys)
    except UsageError as error:
        return any(why and f": {why}; " in str(error) for why in reasons)
    raise ValueError(f"{keys} is not refused")


def page() -> str:
    """The whole page: a table of parts, and of each topic what else does not go together."""
    of_parts, reasons = parts()
    found = [HEAD, f"{PARTS}\n{table(('part', 'does not go with'), of_parts)}\n"]
    for title, topic in TOPICS.items():
        rows = (next(r for r in topic.TABLE.values() if text.startswith(r.of)) for text in topic.COMBINATIONS)
        others = [
            text for text, row in zip(topic.COMBINATIONS, rows, strict=True) if not of_parts_alone(row.keys, reasons)
        ]
        if others:
            lines = (fill(f"- {text}", 118, subsequent_indent="  ", break_on_hyphens=False) for text in others)
            found.append(f"## {title}\n\n" + "\n".join(lines) + "\n")
    elsewhere = [[what, remedy] for what, _, remedy in ELSEWHERE]
    found.append(f"## {LAST}\n\n{table(('combination', 'remedy'), elsewhere)}\n")
    return "\n".join(found)


def write() -> Path:
    PAGE.write_text(page(), encoding="utf-8")
    return PAGE


if __name__ == "__main__":
    print(write())
