"""A config for a net that a selection has changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from macmpi.config.whole import Config


def resized(config: Config, units: Sequence[int], widths: Sequence[float] = (), ridges: Sequence[float] = ()) -> Config:
    """The config with other units in its layers of units, and without the candidates that are larger than these.

    widths: of model.width; ridges: of penalty.ridge; () where they stay.  Collective: no.
    """
    model, selection = config.model, config.selection
    assert isinstance(model.hidden, list)
    pairs = zip(units, model.hidden, strict=True)
    hidden = [int(n) if isinstance(layer, int) else layer for n, layer in pairs]
    pairs_of_sizes = zip(selection.sizes, units, strict=False)
    sizes = [sorted({int(own), *(n for n in tried if n <= own)}) if tried else [] for tried, own in pairs_of_sizes]
    model, penalty = replace(model, hidden=hidden), config.penalty
    if len(widths):
        model = replace(model, width=[float(width) for width in widths])
    if len(ridges):
        penalty = replace(penalty, ridge=[float(ridge) for ridge in ridges])
    return replace(config, model=model, penalty=penalty, selection=replace(selection, sizes=sizes))
