"""The table of docs/parallel.md: which layers go with which methods, wherever points live, and how parts read them.

    python run/pages/places_page.py          # writes them into the page; make docs does it too

A cell is what macmpi says of a small net of such layers, with each word of parallel.data.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import fill

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "parallel.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->\n"
sys.path.append(str(ROOT / "tests"))

from pages_of_evidence import table, wrapped  # noqa: E402
from plans import plan_of  # noqa: E402
from refused.case import BASIS, BITS, CODES, FOREST, IMAGES, LABELS, RECURRENT, SKIPS, SPARSE, Keys, configured  # noqa: E402

from macmpi import UsageError  # noqa: E402
from macmpi.demand import Demand  # noqa: E402
from macmpi.parallel.placement import PLACEMENTS  # noqa: E402
from macmpi.plan.resolve import Refused  # noqa: E402
from macmpi.solvers import W_SOLVERS  # noqa: E402
from macmpi.solvers.fitters import FITTERS, TRAINERS  # noqa: E402

LAYERS: dict[str, Keys] = {
    "dense": {"model.activation": "tanh"},
    "softmax": {"model.activation": "softmax", "model.sites": ["none", "after"]},
    "convolutions": IMAGES,
    "recurrent": RECURRENT,
    "sparse": SPARSE,
    "skips": SKIPS,
    "tied": {"model.tied": True, "model.hidden": [5, 3, 5], "model.activation": "tanh"},
    "radial basis functions": BASIS,
    "codewords": CODES,
    "bits": BITS,
    "forest": FOREST,
    "boosted trees": FOREST | {"model.activation": ["boosted", "tanh"]},
    "kernel ridge": {"model.activation": ["kernel_ridge", "tanh"], "model.examples": 7, "model.width": 2.0},
    "nearest neighbours": {"model.activation": ["nearest_neighbours", "tanh"], "model.examples": 7},
    "a fitter of labels": LABELS | {"model.fitters": ["auto", "auto", "logistic"], "model.activation": "tanh"},
}

METHODS: dict[str, Keys] = {
    "`mac`": {},
    '`mac`, `schedule = "ring"`': {"w_step.schedule": "ring", "w_step.linear_solver": "same"},
    "`stochastic`": {"method.name": "stochastic"},
    "`sgd`, `adam`, `cg`, `lbfgs`": {"method.name": "adam"},
    "`alternating`": {"method.name": "alternating"},
}


CODE = 4
"""Units of a linear code before other layers, which halves of a net have between them."""


def halves(own: Keys) -> Keys:
    """A net with a linear code: radial basis functions and tied layers around it, other layers behind it."""
    if own is LAYERS["radial basis functions"]:
        return own
    if own.get("model.tied"):
        return own | {"model.activation": ["tanh", "linear", "tanh"], "model.sites": ["none", "after", "none"]}
    hidden, kinds = own.get("model.hidden", [5, 4]), own["model.activation"]
    kinds = [kinds] * len(hidden) if isinstance(kinds, str) else kinds
    images = {"image": [2, CODE // 2, 1]}
    hidden = [CODE, *(layer | images if i == 0 and "model.image" in own else layer for i, layer in enumerate(hidden))]
    skips = [[before + 1, after + 1] for before, after in own.get("model.skips", [])]
    fitters = {"model.fitters": ["auto", *own["model.fitters"]]} if "model.fitters" in own else {}
    net = {"model.hidden": hidden, "model.activation": ["linear", *kinds], "model.skips": skips}
    return own | net | fitters | {"model.sites": ["after", *["none"] * (len(hidden) - 1)]}


Reasons = dict[str, list[str]]
"""What each part says, and the demands that it does not handle; none of what a net by itself is refused for."""


ALIKE = {
    r'a layer \(\w+\) is fitted by "\w+", which needs': "A fitter that fits a layer needs",
    r"(a layer without derivatives) \(\w+\)": r"\1",
}
"""Reasons that differ in the name of a layer alone are one."""


def number_of(keys: Keys, place: str, reasons: Reasons) -> int:
    """The number of the reason why a config is refused, which is added to the reasons; 0 where it is not."""
    tied = bool(keys.get("model.tied"))
    try:
        plan_of(configured({**keys, "parallel.data": place}), 4, 4 if tied else 3, 37, 11, 2, autoencoder=tied)
    except Refused as error:
        said = f"`{error.part.said}`" + (f" is refused, since {error.part.why}" if error.part.why else "")
        lacking = reasons.setdefault(said, [])
        lacking += [error.demand.value] if error.demand.value not in lacking else []
    except UsageError as error:
        said = str(error).split("; ")[0]
        for pattern, general in ALIKE.items():
            said = re.sub(pattern, general, said)
        reasons.setdefault(said, [])
    else:
        return 0
    return list(reasons).index(said) + 1


def cells(reasons: Reasons) -> Iterator[list[str]]:
    """A row for each kind of layer: yes, or no with the number of the reason, where all places agree."""
    for layer, own in LAYERS.items():
        row = [layer]
        for name, keys in METHODS.items():
            net = halves(own) if name == "`alternating`" else own
            found = {place: number_of({**net, **keys}, place, reasons) for place in PLACEMENTS}
            by_place = ", ".join(f"{place} {number}" for place, number in found.items())
            number = found["replicated"]
            alike = f"no ({number})" if number else "yes"
            row.append(alike if len(set(found.values())) == 1 else by_place)
        yield row


def ways() -> str:
    """Which solvers, fitters and trainers read rows of points of which no rank holds all; the others sum over all."""
    rows = [f'`w_step.solver = "{name}"`' for name, kind in W_SOLVERS.items() if Demand.SHARDED not in kind.handles]
    rows += [f"the fitters {', '.join(f'`{name}`' for name in FITTERS)}"]
    rows += [f'`centres = "{name}"`' for name, trainer in TRAINERS.items() if not hasattr(trainer, "by_sums")]
    then = [f'`centres = "{name}"`' for name, trainer in TRAINERS.items() if hasattr(trainer, "by_sums")]
    return (
        f"With sharded points these parts read the rows of the points at hand: {'; '.join(rows)}. "
        f"{', '.join(then)} reads these rows and then sums over all points; the other W-solvers sum over all points."
    )


def tables() -> str:
    """The table, layers of which the same holds as one row, the reasons of what is refused, and what reads rows."""
    reasons: Reasons = {}
    alike: dict[tuple[str, ...], list[str]] = {}
    for layer, *own in cells(reasons):
        alike.setdefault(tuple(own), []).append(layer)
    rows = [[", ".join(layers), *own] for own, layers in alike.items()]
    lacking = (f"{said}; it does not take {' or '.join(no)}" if no else said for said, no in reasons.items())
    numbered = "\n".join(f"{i}. {why}." for i, why in enumerate(lacking, start=1))
    names = ", ".join(f'`"{place}"`' for place in PLACEMENTS)
    head = f"The table holds for `parallel.data` = {names} alike; its numbers refer to the reasons below."
    lines = (fill(line, 120, subsequent_indent="   ", break_on_hyphens=False) for line in numbered.splitlines())
    return (
        "\n\n".join(
            [fill(head, 120), table(("layers", *METHODS), rows), "\n".join(lines), wrapped(ways()), ""]
        ).rstrip()
        + "\n"
    )


def page(text: str) -> str:
    """The page with its tables made again."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{tables()}\n{END}{after}"


def write() -> Path:
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return PAGE


if __name__ == "__main__":
    print(write())
