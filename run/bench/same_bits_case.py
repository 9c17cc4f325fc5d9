"""A case of same_bits.py: keys of a config, data, and what its results must show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Keys = dict[str, Any]
"""table.key -> value."""


@dataclass(frozen=True)
class Seen:
    """What a run has left: its maps, its datasets, the records of its curve, what it printed."""

    maps: list[dict[str, Any]]
    numbers: list[int | None]
    datasets: dict[str, np.ndarray]
    records: list[dict[str, Any]]
    printed: str
    ranks: int

    @property
    def weights(self) -> np.ndarray:
        """The last weights, flat."""
        return self.datasets["weights/last"]

    @property
    def kinds(self) -> set[str]:
        """The kinds of the maps, and of those that others are made around."""
        return {kind for m in self.maps for kind in (m["kind"], m.get("map", {}).get("kind", m["kind"]))}


Shows = dict[str, Callable[[Seen], bool]]


@dataclass(frozen=True)
class Case:
    """data: a name of same_bits_data.py, or a source of the program; shows: what must hold of its results, by name.

    runs: the words that each run of the program has on top, one run after the other in one folder; as_case: the case
    whose bits it is to have.  No other two cases have the same bits: keys that do nothing would show nothing.
    """

    data: str
    keys: Keys
    shows: Shows = field(default_factory=dict)
    iterations: int = 3
    runs: tuple[tuple[str, ...], ...] = ((),)
    as_case: str = ""


@dataclass(frozen=True)
class Real:
    """A config of run/ on real data (MACMPI_DATA), with settings."""

    config: str
    iterations: int
    settings: tuple[str, ...] = ()


def kind(*names: str) -> Shows:
    """The net has a map of each kind."""
    return {f"a map of the kind {name!r}": lambda seen, name=name: name in seen.kinds for name in names}  # type: ignore[misc]


def recorded(key: str, what: str = "is above 0") -> Shows:
    """A record has a key that is not 0, empty or false."""
    return {f"{key} {what} in some record": lambda seen: any(np.any(r.get(key, 0)) for r in seen.records)}


def _has_zeros(seen: Seen) -> bool:
    return bool(0.0 < np.mean(seen.weights == 0.0) < 1.0)


def within(low: float, high: float) -> Shows:
    """Weights lie on both bounds and between."""
    return {
        "weights on a lower bound": lambda seen: bool((seen.weights == low).any()),
        "weights on an upper bound": lambda seen: bool((seen.weights == high).any()),
        "weights between": lambda seen: bool(((seen.weights > low) & (seen.weights < high)).any()),
    }


EVERYWHERE: Shows = {
    "training": lambda seen: len({r["E_Q"] for r in seen.records}) > 1,
    "its ranks": lambda seen: all(r.get("ranks", seen.ranks) == seen.ranks for r in seen.records),
}
"""What every case must show."""

ONE_BLOCK: Shows = {"two maps with the weights of one block": lambda seen: _twice(seen.numbers)}
ZEROS: Shows = {"weights that are 0, and others": _has_zeros}
NODE: Shows = {
    "ranks share memory": lambda seen: seen.ranks == 1 or "what its node shares included" in seen.printed,
}
OWN: Shows = {"no codes in model.h5, where no rank has all": lambda seen: "codes" not in seen.datasets}
REFIT: Shows = {"weights of a refit": lambda seen: "weights/refit" in seen.datasets}
CHANGED: Shows = {"a selection changes the net": lambda seen: any(r.get("changed") for r in seen.records)}


def _twice(numbers: list[int | None]) -> bool:
    known = [n for n in numbers if n is not None]
    return len(known) > len(set(known))
