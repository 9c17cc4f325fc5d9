"""A config as the program runs it: read, and decided where it says "auto"."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from macmpi import config as configs
from macmpi.config.auto import decide
from macmpi.data.source import Whole
from macmpi.data.targets import with_loss


def decided(path: Path, settings: Sequence[str]) -> configs.Config:
    """The config of a file with settings on top.  Cost: its data are read."""
    config, _ = with_loss(configs.read(path, list(settings)))
    sizes = Whole(config).sizes()
    return decide(config, sizes.n_in, sizes.autoencoder)[0]
