"""The noise level of a selection, eps^2, from a run of low bias: one with many units, whose errors are mostly noise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from macmpi import UsageError
from macmpi.config import Config
from macmpi.config.auto import Decision


def with_epsilon(config: Config, n_out: int) -> tuple[Config, list[Decision]]:
    """The config with selection.epsilon2 = 2 E1 / outputs of the run that low_bias names, and that decision.

    Raises UsageError where that run has no such errors.  Collective: no (rank 0).
    """
    name = config.selection.low_bias
    if not name or config.selection.criterion == "none":
        return config, []
    from macmpi.results.model_file import load, notes

    key, path = f'selection.low_bias = "{name}"', Path(name)
    path = path / "model.h5" if path.is_dir() else path
    try:
        (outputs, link), (_, numbers) = ((net := load(path)).chain.n_out, net.link), notes(path)
    except UsageError as error:
        raise UsageError(f"{key}: {error}") from None
    remedy = "name another run, or give the number itself, selection.epsilon2"
    if config.model.loss != "squared" or link != "identity":
        raise UsageError(f"{key}: only squared errors have a mean square; give a number, selection.epsilon2")
    if outputs != n_out:
        raise UsageError(f"{key}: its net has {outputs:,} outputs, and the data have {n_out:,}; {remedy}")
    error_there = numbers.get("E1_train", 0.0)
    if not error_there > 0.0:
        raise UsageError(f"{key}: it says nothing of an error at its end; {remedy}")
    epsilon2 = 2.0 * error_there / n_out
    keys = replace(config.selection, epsilon2=epsilon2, low_bias="")
    why = f"2 E1 / outputs of {path}"
    return replace(config, selection=keys), [Decision("selection.epsilon2", epsilon2, why)]
