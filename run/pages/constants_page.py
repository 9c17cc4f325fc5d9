"""docs/algorithms/constants.md: the numbers of stochastic MAC that were tuned, of macmpi/plan/tuned.py.

python run/pages/constants_page.py          # writes the page; make docs does it too
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pages_of_evidence import table

ROOT = Path(__file__).resolve().parents[2]
SOURCE, PAGE = ROOT / "macmpi" / "plan" / "tuned.py", ROOT / "docs" / "algorithms" / "constants.md"

HEAD = """# Constants of stochastic MAC

The formulas of [stochastic MAC](stochastic.md) leave {count} numbers open, and no key changes these: they were tuned,
or set by judgement. Most were chosen on one net, the autoencoder of USPS digits. The tables list the {known} constants
with other values on record, and the effect of these values; each was chosen on USPS unless a row names other data.

Errors are E1 per point, training / validation. "USPS" is `run/usps_fast.toml`, "large" is `run/large_fast.toml`, and
"tables" are small public tables (log/few_points.md). Figures are from one run with seed 0 unless a row names seeds.
`python run/pages/constants_page.py` generates this page from `macmpi/plan/tuned.py`, which has all constants.
"""


class Constant(NamedTuple):
    """A number of the table: its name and value as in Python, what it is, and what is known of it."""

    name: str
    value: str
    what: str
    chosen: str
    half: str
    double: str


def constants(source: str) -> Iterator[Constant | str]:
    """Each constant of the source, and before those of a part the part's title.  Raises ValueError for a gap."""
    for paragraph in source.split("\n\n")[1:]:
        if title := re.fullmatch(r"# --- (.*) ---", paragraph.strip()):
            yield title[1].capitalize()
        elif found := re.search(r"^([A-Z][A-Z_]*) = (.+)$", paragraph, re.MULTILINE):
            text = " ".join(re.findall(r"^# (.*)$", paragraph, re.MULTILINE))
            text = re.sub("Chosen on, half, double: (.+)", r"Chosen on: \1 Half, double: \1", text)
            words = re.fullmatch(r"(.+) Chosen on: (.+) (?:Half, double: (.+)|Half: (.+) Double: (.+))", text)
            if words is None:
                raise ValueError(f"{found[1]}: what it is, and lines for Chosen on, Half, Double, in this order")
            what, chosen, both, half, double = words.groups()
            yield Constant(found[1], found[2], what, chosen, both or half, both or double)


LOGS = re.compile(r" \((?:log|docs)/[^()]*\)| \(see [^()]*\)")
"""Where more is said, which the comments of the source name."""


def recorded(text: str) -> str:
    """What is known, as a sentence; nothing where it is not recorded."""
    found = re.sub(r"^(?:not recorded|impossible)[;.]?\s*(?:\((.*)\)\.)?", r"\1", LOGS.sub("", text))
    return f"{found[0].upper()}{found[1:].removesuffix('.')}." if found else ""


def page() -> str:
    found = list(constants(SOURCE.read_text(encoding="utf-8")))
    count = sum(isinstance(each, Constant) for each in found)
    parts, title, rows, known = list[str](), "", list[list[str]](), 0
    for each in [*found, ""]:
        if isinstance(each, Constant):
            others = " ".join(text for text in map(recorded, dict.fromkeys((each.half, each.double))) if text)
            if others:
                on = recorded(each.chosen)
                said = f" Chosen on: {on}" * (not on.startswith(("USPS", "It was")))
                what = f"{each.what.split('.  ')[0].removesuffix('.')}.{said}"
                rows.append([f"`{each.name} = {each.value}`", what, others])
            continue
        if rows:
            parts += [f"## {title}\n", table(["constant", "what it is", "other values"], rows) + "\n"]
            known += len(rows)
        title, rows = each, []
    return "\n".join([HEAD.format(count=count, known=known), *parts])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
