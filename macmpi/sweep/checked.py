"""All runs of a sweep are checked before one of them starts: config, data, plan, and what lies in their folders."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from macmpi import UsageError
from macmpi import config as configs
from macmpi.config import RUN_TIME_KEYS, Config, flat
from macmpi.config.auto import decide
from macmpi.data.connections import with_connections
from macmpi.data.dataset import Dataset, Sizes
from macmpi.data.source import source_of
from macmpi.data.targets import with_loss
from macmpi.results.reading import read_curve
from macmpi.sweep.grid import Combination
from macmpi.training.decided import plan_for
from macmpi.training.launch import origin_of

NAMED = 5
"""Runs that are named for one mistake."""


@dataclass(frozen=True)
class Run:
    """A run of a sweep.  config: without "auto"; state: "new", "stopped" (it can go on) or "finished"."""

    combination: Combination
    folder: Path
    config: Config
    state: str

    @property
    def name(self) -> str:
        return self.combination.name


class Known:
    """The sizes of the data sets of a sweep, each read once, and kept without its points."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[Config, Sizes]] = {}

    def sizes(self, config: Config) -> tuple[Config, Sizes]:
        """The config with a loss, and the sizes of its data.  Raises UsageError."""
        key = repr((config.data, config.model.loss, config.loss, config.model.precision, config.parallel.data))
        if key not in self._found:
            decided, _ = with_loss(config)
            self._found[key] = decided, source_of(decided).sizes()
        decided, sizes = self._found[key]
        return replace(config, model=replace(config.model, loss=decided.model.loss)), sizes


def checked(path: Path, combinations: Sequence[Combination], folder: Path, ranks: int) -> list[Run]:
    """The runs.  Raises UsageError, with every mistake and the runs that have it, where one of them is refused."""
    known, runs = Known(), list[Run]()
    mistakes: dict[str, list[str]] = {}
    for one in combinations:
        try:
            config = decided(path, one, ranks, known)
            runs.append(Run(one, folder / one.name, config, state_of(folder / one.name, config)))
        except UsageError as error:
            mistakes.setdefault(str(error), []).append(one.name)
    if mistakes:
        count = sum(map(len, mistakes.values()))
        lines = [f"{_listed(names)}: {text}" for text, names in mistakes.items()]
        raise UsageError("\n  ".join([f"{count} of {len(combinations)} runs are refused, none was started:", *lines]))
    return runs


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return "; ".join(names[:NAMED]) + more


def decided(path: Path, one: Combination, ranks: int, known: Known) -> Config:
    """The config of a run, as that run decides it.  Raises UsageError where the run would refuse it."""
    config = with_connections(configs.read(path, one.words[1::2]))
    if not config.data.source:
        raise UsageError(f'{path}: no data are named; write data = "points.npz"')
    config, sizes = known.sizes(config)
    config, _ = decide(config, sizes.n_in, sizes.autoencoder, sizes.shape)
    plan = plan_for(config, sizes, ranks)
    if config.start.method in ("file", "model"):
        origin_of(config, plan, _outline(config))
    return config


def _outline(config: Config) -> Dataset:
    source = source_of(config)
    source.sizes()
    return source.outline()


def state_of(folder: Path, config: Config) -> str:
    """Tells how far the run in a folder is.  Raises UsageError where it is a run of another config.

    A run that may go on, because a key of [run] is another one now, has stopped.
    """
    if not os.path.isfile(folder / "config.toml"):
        return "new"
    then, now = flat(configs.read(folder / "config.toml", [])), flat(config)
    changed = {key for key in then.keys() | now.keys() if then.get(key) != now.get(key)}
    if others := sorted(changed - RUN_TIME_KEYS):
        pairs = ", ".join(f"{key} (was {then.get(key)!r}, is {now.get(key)!r})" for key in others)
        raise UsageError(f"{folder} holds a run of another config: {pairs}; name another --output")
    if changed or not os.path.isfile(folder / "model.h5"):
        return "stopped"
    try:
        records, _ = read_curve(folder / "curve.jsonl")
    except UsageError:
        return "stopped"
    return "finished" if records[-1]["phase"] == "postprocess" else "stopped"
