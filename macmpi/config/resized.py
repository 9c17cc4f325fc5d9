"""A config for a net whose sizes a selection has changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from macmpi.config.reading import Config


def resized(config: Config, units: Sequence[int]) -> Config:
    """The config with other units in its layers of units, and without the candidates that are larger than these.

    Collective: no.
    """
    model, selection = config.model, config.selection
    assert isinstance(model.hidden, list)
    pairs = zip(units, model.hidden, strict=True)
    hidden = [int(n) if isinstance(layer, int) else layer for n, layer in pairs]
    pairs_of_sizes = zip(selection.sizes, units, strict=False)
    sizes = [sorted({int(own), *(n for n in tried if n <= own)}) if tried else [] for tried, own in pairs_of_sizes]
    return replace(config, model=replace(model, hidden=hidden), selection=replace(selection, sizes=sizes))
