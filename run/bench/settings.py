"""A config as the program runs it: read, and a plan on one rank for its data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from macmpi import config as configs
from macmpi.config.auto import decide
from macmpi.data.dataset import Dataset
from macmpi.data.gathered import with_loss
from macmpi.data.loading import Source
from macmpi.plan.plan import Plan, make_plan
from macmpi.plan.resolve import resolve


def decided(path: Path, settings: Sequence[str]) -> configs.Config:
    """The config of a file with settings on top.  Cost: its data are read."""
    config, _ = with_loss(configs.read(path, list(settings)))
    sizes = Source(config).sizes()
    return decide(config, sizes.n_in, sizes.autoencoder)[0]


def planned(path: Path, settings: Sequence[str]) -> tuple[Plan, Dataset]:
    """The plan of a config on one rank, and its data.  Cost: the data are read."""
    config, _ = with_loss(configs.read(path, list(settings)))
    data = Source(config).outline()
    return make_plan(resolve(config, data.sizes), len(data.X), len(data.X_val), 1), data
