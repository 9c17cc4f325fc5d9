"""The configs of nets that another one begets: that of a selection, and of one of its layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from macmpi.config.model import Model
from macmpi.config.tables import Method, Penalty, Run
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


def one_layer(config: Config, k: int, output: str, iterations: int) -> Config:
    """The config of an autoencoder of hidden layer k, with its own ridge, of some iterations.  Collective: no.

    output: the activation of its output layer.
    """
    (units, activation, _), penalty = config.model.layers()[k], config.penalty
    mu_max = min(1e4, penalty.mu_max)
    return Config(
        model=Model([units], activation, output, precision=config.model.precision),  # type: ignore[arg-type]
        start=replace(config.start, method="uniform", model=""),
        method=Method("mac", "none"),
        penalty=Penalty(mu0=min(10.0, mu_max), mu_max=mu_max, ridge=penalty.each("ridge", k + 1)[k]),
        run=Run(max_iterations=iterations),
    )
