"""The combinations of a sweep: values of keys as a command line gives them, a name for each, seeds."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from macmpi import UsageError
from macmpi.config import Config
from macmpi.config.reading import parsed
from macmpi.config.writing import toml
from macmpi.parallel.streams import stream

MOST = 1_000_000
"""Combinations of a grid, of which a sweep may take some."""

SEEDS = ("data.seed", "start.seed")
"""Keys that move together from one repetition to the next."""

LONGEST = 120
"""Characters of the name of a folder; of a longer name the end is a hash."""


@dataclass(frozen=True)
class Axis:
    """A key and the values that it takes, in the order given."""

    key: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Combination:
    """One value of each axis, and the seeds that are added to those of the config; name: that of its folder.

    settings: {key: value}, of the axes; repetition: 0, 1, ...; seeds: {key: value}.
    """

    settings: dict[str, Any]
    repetition: int
    seeds: dict[str, int]
    name: str

    @property
    def words(self) -> list[str]:
        """The words of a command line that set them."""
        return [
            word for key, value in (self.settings | self.seeds).items() for word in ("--set", f"{key}={toml(value)}")
        ]


def axis(setting: str) -> Axis:
    """The axis of `table.key=value,value,...`, where values are TOML, or words without quotes.  Raises UsageError.

    Commas inside of lists and of quotes separate no values: a value ends at the first comma before which it is one.
    """
    name, equals, text = setting.partition("=")
    if not equals or not text.strip():
        raise UsageError(f"--set {setting}: write table.key=value,value,...")
    found, pieces = list[tuple[str, Any]](), list[str]()
    for piece in text.split(","):
        pieces.append(piece)
        with suppress(UsageError):
            found.append(_only(parsed(f"{name}={','.join(pieces).strip()}"), setting))
            pieces.clear()
    if pieces:
        _only(parsed(f"{name}={','.join(pieces).strip() or ','}"), setting)
    values = tuple(value for _, value in found)
    if len({toml(value) for value in values}) < len(values):
        raise UsageError(f"--set {setting}: a value is given twice")
    return Axis(found[0][0], values)


def _only(found: dict[str, Any], setting: str) -> tuple[str, Any]:
    """The one key, "table.key", that is set, and its value.  Raises UsageError."""
    leaves = [(f"{t}.{k}", v) for t, keys in found.items() if isinstance(keys, dict) for k, v in keys.items()]
    if len(found) != 1 or len(leaves) != 1 or isinstance(leaves[0][1], dict):
        raise UsageError(f"--set {setting}: one key is needed, as in table.key=value,value")
    return leaves[0]


def axes(settings: Sequence[str]) -> list[Axis]:
    """The axes of a command line.  Raises UsageError."""
    found = [axis(setting) for setting in settings]
    for key, count in Counter(one.key for one in found).items():
        if count > 1:
            raise UsageError(f"--set {key} is given {count} times: give all its values in one, {key}=value,value")
    return found


def combinations(found: Sequence[Axis], config: Config, drawn: int = 0, repetitions: int = 1) -> list[Combination]:
    """Every combination, or `drawn` of them; each of those `repetitions` times, with other seeds.  Raises UsageError.

    Those of a smaller number drawn are among those of a larger one, so that a sweep can be made larger.
    """
    total = prod(len(one.values) for one in found)
    if total > MOST:
        raise UsageError(f"the values given have {total:,} combinations, more than {MOST:,}: give fewer values")
    if repetitions > 1 and (given := [one.key for one in found if one.key in SEEDS]):
        raise UsageError(f"--seeds sets {' and '.join(SEEDS)}: leave out --set {given[0]}, or --seeds")
    places = np.arange(total)
    if 0 < drawn < total:
        places = np.sort(stream(0, "sweep").permutation(total)[:drawn])
    shape, result = [len(one.values) for one in found], list[Combination]()
    for place in places.tolist():
        chosen = np.unravel_index(place, shape) if shape else ()
        settings = {one.key: one.values[int(i)] for one, i in zip(found, chosen, strict=True)}
        for i in range(repetitions):
            seeds = {key: _seed(config, key) + i for key in SEEDS} if repetitions > 1 else {}
            name = _name(settings, i if repetitions > 1 else None)
            result.append(Combination(settings, i, seeds, name))
    return result


def _seed(config: Config, key: str) -> int:
    return config.data.seed if key == "data.seed" else config.start.seed


def short(keys: Sequence[str]) -> dict[str, str]:
    """The keys without their tables, where that tells them apart."""
    ends = Counter(key.partition(".")[2] for key in keys)
    return {key: end if ends[end := key.partition(".")[2]] == 1 else key for key in keys}


def shown(value: Any) -> str:
    """A value for people: words without quotes."""
    return value if isinstance(value, str) and value else toml(value)


def _name(settings: dict[str, Any], repetition: int | None) -> str:
    """The name of a folder for these values: "hidden=100-50,batch=250", with ",seed=1" where there are several."""
    names = short(list(settings))
    parts = [f"{names[key]}={_plain(value)}" for key, value in settings.items()]
    parts += [] if repetition is None else [f"seed={repetition}"]
    name, exact = ",".join(parts) or "run", toml([settings, repetition])
    if len(name) > LONGEST or not all(PLAIN.fullmatch(shown(value)) for value in settings.values()):
        name = f"{name[:LONGEST]}~{hashlib.sha256(exact.encode()).hexdigest()[:8]}"
    return name


PLAIN = re.compile(r"[A-Za-z0-9_.+-]+|\[[0-9]+(, [0-9]+)*\]")
"""A value that no folder's name is ambiguous for: a number, a word, or whole numbers."""


def _plain(value: Any) -> str:
    """A value in letters that no shell and no file system minds."""
    text = "-".join(map(shown, value)) if isinstance(value, list) else shown(value)
    return re.sub(r"[^A-Za-z0-9_.+-]+", "_", text)
