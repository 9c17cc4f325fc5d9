"""Questions to --check about ranks, nodes and data that are not at hand; light: it is read before NumPy is imported."""

from __future__ import annotations

import re
from dataclasses import dataclass

from macmpi import UsageError

MOST_RANKS = 2**17
"""Plans are made rank by rank, in some seconds for this number."""

UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True)
class Paper:
    """A question: ranks, nodes and bytes of a node (0: as here), rows, columns and outputs (0: as the data have)."""

    ranks: int = 0
    nodes: int = 1
    points: int = 0
    columns: int = 0
    outputs: int = 0
    memory: float = 0.0

    @property
    def without_data(self) -> bool:
        return bool(self.points and self.columns)


def paper_of(asked: dict[str, int], memory: str | None, check: bool) -> Paper:
    """The question of the options that are given.  Raises UsageError where it makes no sense, or not without --check.

    Collective: no.
    """
    if not check:
        raise UsageError(
            f"--{next(iter(asked), 'memory')} goes with --check: a launch has the ranks that mpiexec starts"
        )
    for name, value in asked.items():
        if value < 1:
            raise UsageError(f"--{name} {value}: a number from 1 on is needed")
    try:
        paper = Paper(**asked, memory=0.0 if memory is None else bytes_in(memory))
    except ValueError as error:
        raise UsageError(f"--memory {error}") from None
    check_asked(paper)
    return paper


def bytes_in(text: str) -> float:
    """Bytes of "64G", "512M", "1.5T" or a plain number.  Raises ValueError."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if found is None or not float(found[1]):
        raise ValueError(f"{text!r} is no amount of memory: 64G, 512M, 1.5T")
    return float(found[1]) * UNITS[found[2].upper()]


def check_asked(asked: Paper) -> None:
    """Raises UsageError where what is asked makes no sense.  Collective: no."""
    for name in ("ranks", "nodes", "points", "columns", "outputs"):
        if (value := getattr(asked, name)) < 0 or (value == 0 and name == "nodes"):
            raise UsageError(f"--{name} {value}: a number from 1 on is needed")
    if asked.ranks > MOST_RANKS:
        raise UsageError(f"--ranks {asked.ranks}: plans are made for up to {MOST_RANKS:,} ranks")
    if asked.nodes > (ranks := max(asked.ranks, 1)):
        raise UsageError(
            f"--nodes {asked.nodes} for {ranks} rank{'s' * (ranks > 1)}: a node has at least a rank; more --ranks"
        )
    if asked.points == 1:
        raise UsageError("--points 1: two rows are needed, one to train on and one to validate with")
    if asked.columns and not asked.points:
        raise UsageError("--columns says what the data would be, and so does --points: give both")
    if asked.outputs and not asked.columns:
        raise UsageError("--outputs goes with --columns and --points, for data that are not at hand")
