"""Nets whose maps share weights are refused what fits one layer at a time: a sentence, a remedy."""

from __future__ import annotations

from macmpi import UsageError
from macmpi.config import NESTED, Config
from macmpi.nets.chain import Chain


def check_sharing(config: Config, chain: Chain) -> None:
    """Refuse what needs each layer's weights to be its own; before solvers are chosen."""
    if not chain.numbers:
        return
    what = "model.tied = true" if config.model.tied else "a recurrent layer"
    start, penalty, model = config.start.method, config.penalty, config.model
    if start not in ("auto", "uniform", "model"):
        raise UsageError(
            f'{what} and start.method = "{start}", which finds the weights of one layer after the other; '
            'use start.method = "uniform" or "model"'
        )
    if config.selection.criterion != "none":
        raise UsageError(
            f'{what} and selection.criterion = "{config.selection.criterion}", which changes one layer\'s size; '
            'use criterion = "none"'
        )
    if config.method.name in NESTED:
        return
    if config.method.name == "alternating":
        raise UsageError(
            f'{what} and method.name = "alternating", which fits encoder and decoder in turn; use method.name = "mac"'
        )
    if model.tied and isinstance(penalty.value("ridge"), list):
        raise UsageError(
            f"{what} and a list penalty.ridge: a layer and the one tied to it have one ridge; give one number"
        )
    if penalty.metric != "identity":
        raise UsageError(
            f'{what} and penalty.metric = "{penalty.metric}", which weighs each layer\'s units in another way; '
            'use penalty.metric = "identity"'
        )
    if model.fitters != "auto":
        raise UsageError(f'{what} and model.fitters, which fit the weights of one layer; use fitters = "auto"')
    if penalty.shaping:
        raise UsageError(
            f"{what} and penalty.{penalty.shaping[0]}, whose W-solver fits one layer's weights; leave "
            f"penalty.{penalty.shaping[0]} out, and use penalty.ridge"
        )
    if config.w_step.schedule == "ring":
        raise UsageError(
            f'{what} and w_step.schedule = "ring", which takes each layer\'s units round by themselves; '
            'use w_step.schedule = "units"'
        )
