"""Sections of docs/results.md from run/bench/compare.py family and machine: tables, and where a rival is sooner."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pages_of_evidence import Found, table, wrapped

FAMILY = (
    "Seconds of one core, from random weights (stochastic MAC's own start is its method's); in brackets how many times "
    "later than stochastic MAC. Shampoo with corrected eigenvalues is the recipe of Distributed Shampoo, K-FAC and "
    "SINGD are the packages kfac-jax and singd; 'adaptive' is kfac-jax's example of an autoencoder. Each is tuned over "
    "3 to 9 settings by successive halving; those on minibatches are judged by averaged weights."
)
MACHINE = (
    "Seconds by the clock, with all cores. A rival has its best way to use them, its best rate and minibatch: in "
    "brackets the way, the points of a minibatch, and how many times later than stochastic MAC on the most ranks. Its "
    "error by epochs is measured once, on one core; an epoch is timed in each way, in turns: the second table has "
    "medians, least and most. Processes average gradients over gloo, and each does the whole of an optimiser's step."
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


def sooner(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Each level that a rival comes to before stochastic MAC, with the soonest one."""
    for level, ours, *cells in rows:
        said = [(re.match(r"([\d.]+) s", cell), name) for cell, name in zip(cells, head[2:], strict=True)]
        known = [(float(found[1]), name) for found, name in said if found]
        own = min((float(seconds) for seconds in re.findall(r"([\d.]+) s", ours)), default=None)
        best = min(known, default=None)
        if best and (own is None or best[0] < own):
            yield f"{level}: {best[1]} after {best[0]:g} s ({'never' if own is None else f'{own:g} s'})"


def shown(found: Found, first: str = "net, error") -> str:
    """The tables, that of levels first, and a paragraph that says where a rival is sooner."""
    tables = printed(found)
    head, rows = tables.pop(first)
    behind = "; ".join(sooner(head, rows))
    said = f"A rival is sooner than stochastic MAC at {behind}." if behind else "No rival is sooner at any of these."
    others = (table(*other) for other in tables.values())
    return "\n\n".join([table(head, rows), wrapped(said), *others])
