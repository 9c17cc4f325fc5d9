"""Keys that record gradients or wait for them are refused where there are none, or where they do not vanish."""

from __future__ import annotations

from macmpi import UsageError
from macmpi.config import Config
from macmpi.nets.chain import Chain
from macmpi.plan.choices import Choices


def check_gradients(config: Config, chain: Chain, choices: Choices) -> None:
    """Refuse penalty.gradients and penalty.stop = "gradient" with what has no gradient of E_Q, or leaves it."""
    penalty, method = config.penalty, config.method
    waits = penalty.stop == "gradient"
    if not (waits or penalty.gradients):
        return
    key = 'penalty.stop = "gradient"' if waits else "penalty.gradients = true"
    for other, value, fitting in (
        ("method.name", method.name, ("mac",)),
        ("method.acceleration", method.acceleration, ("auto", "none")),
        ("selection.criterion", config.selection.criterion, ("none",)),
    ):
        if value not in fitting:
            raise UsageError(
                f'{key} is about E_Q over weights and coordinates of one net, not {other} = "{value}"; '
                f'use {other} = "{fitting[-1]}"'
            )
    if not chain.sites:
        raise UsageError(
            f'{key} is about E_Q, and model.sites = "none" has no constraints; use model.sites = "after" or "before"'
        )
    if not chain.differentiable:
        own = 'penalty.stop = "validation"' if waits else "penalty.gradients = false"
        raise UsageError(f"{key} needs the derivatives of all layers, and a layer has none; use {own}")
    if waits:
        _check_waiting(config, choices, key)


def _check_waiting(config: Config, choices: Choices, key: str) -> None:
    penalty = config.penalty
    if penalty.method != "quadratic":
        raise UsageError(
            f'{key} follows the path of the quadratic penalty, not penalty.method = "{penalty.method}"; '
            'use method = "quadratic", or stop = "validation"'
        )
    if penalty.value("mu_every") > 0:
        raise UsageError(
            f"{key} raises mu where the gradient is small, and penalty.mu_every = {penalty.value('mu_every')} after a "
            'number of iterations; use mu_every = 0, or stop = "validation"'
        )
    if max(penalty.each("ridge", 1)) > 0.0 and penalty.ridge_scale == "unit":
        raise UsageError(
            f'{key} needs one E1 + ridge for all mu, and penalty.ridge_scale = "unit" has a ridge that grows with mu; '
            'use ridge_scale = "objective"'
        )
    if penalty.shaping or any(r.by_fitter for r in choices.regressions):
        what = f"penalty.{penalty.shaping[0]}" if penalty.shaping else "a layer that a fitter fits"
        raise UsageError(f'{key} needs half steps to stationary points, and {what} has others; use stop = "validation"')
