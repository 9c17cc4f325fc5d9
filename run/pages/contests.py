"""Sections of docs/results.md from run/bench/compare.py family and machine: tables, in bold where a rival is sooner."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from pages_of_evidence import Found, table, wrapped

FAMILY = (
    "Seconds are on one core. Rivals begin with random weights, stochastic MAC with its own start. The number in "
    "brackets is the time of the fastest rival divided by that of stochastic MAC. Shampoo is the recipe of "
    "Distributed Shampoo; K-FAC and SINGD are kfac-jax and singd. Each rival is tuned over 3 to 9 settings by "
    "successive halving; rivals on minibatches are judged by averaged weights."
)
MACHINE = (
    "Seconds are wall-clock seconds on all cores. Each rival has the rate, the minibatch and the use of the cores "
    "(threads or processes) that reach a level first. The brackets hold this use, the points of a minibatch, and the "
    "rival's time divided by that of stochastic MAC on the most ranks. Errors are measured once, on one core, and "
    "seconds in turns for each use of the cores (docs/results/machine.json)."
)


def printed(found: Found) -> dict[str, tuple[list[str], list[list[str]]]]:
    """The last tables that each step has printed, joined: by the first cell of their heads, head and rows."""
    joined: dict[str, tuple[list[str], list[list[str]]]] = {}
    for step in found["steps"].values():
        rows: list[list[str]] = step["rows"]
        heads = [i - 1 for i, row in enumerate(rows) if set("".join(row)) <= set("-")]
        last = {rows[i][0]: (rows[i], rows[i + 2 : end]) for i, end in zip(heads, [*heads[1:], None], strict=True)}
        for name, (head, own) in last.items():
            joined.setdefault(name, (head, []))[1].extend(own)
    return joined


def seconds_in(cell: str) -> float:
    """The seconds that a cell of a table names; infinite where the level was not reached."""
    found = re.match(r"([\d.]+) s", cell)
    return float(found[1]) if found else math.inf


def against_soonest(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[tuple[str, str, str, str]]:
    """Of each level the cells of stochastic MAC and of the rival that comes to it first, and that rival's name."""
    for level, ours, *cells in rows:
        best = min(range(len(cells)), key=lambda i: seconds_in(cells[i]))
        level = level.partition(" (the lowest")[0]
        yield level, ours, cells[best], head[2 + best] if seconds_in(cells[best]) < math.inf else "none of them"


def behind(ours: str, cell: str) -> bool:
    """Tells whether the rival of a cell comes to a level before stochastic MAC does on any ranks."""
    return seconds_in(cell) < min(map(float, re.findall(r"([\d.]+) s", ours)), default=math.inf)


def bare(cell: str, on: str = "") -> str:
    """Leaves out of a cell what the head of its column says: the unit, and ` on N` ranks."""
    return re.sub(r" s\b", "", cell).replace(on, "")


def shown(found: Found, first: str = "net, error") -> str:
    """The levels with the soonest rival of each, in bold where that is sooner than stochastic MAC."""
    head, rows = printed(found)[first]
    ranks = {on for _, ours, *_ in rows for on in re.findall(r" on \d+", ours)}
    on = ranks.pop() if len(ranks) == 1 else ""
    levels = [
        (f"**{level}**" if behind(ours, cell) else level, bare(ours, on), f"{rival}: {bare(cell)}")
        for level, ours, cell, rival in against_soonest(head, rows)
    ]
    count = sum(level.startswith("**") for level, *_ in levels)
    said = f"A rival is faster than stochastic MAC at {count} of the {len(levels)} levels, in bold."
    made = table([head[0], f"seconds of {head[1]}{on and f'{on} ranks'}", "of the fastest rival"], levels)
    return f"{made}\n\n{wrapped(said if count else 'No rival is faster at any level.')}"
