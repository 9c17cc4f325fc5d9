"""Keys that a config gives and its run does not read: named once, at the start, so that nobody tunes them in vain."""

from __future__ import annotations

from macmpi.config.model import LOSSES
from macmpi.config.tables import HALF_STEPS, NESTED
from macmpi.config.whole import Config, given

BASELINE_KEYS: dict[str, tuple[str, ...]] = dict.fromkeys(("sgd", "adam"), ("batch", "rate", "momentum", "patience"))
BASELINE_KEYS |= dict.fromkeys(("cg", "lbfgs"), ("patience",))
"""The keys of [baseline] that each of its methods reads."""


def ignored(config: Config) -> list[str]:
    """The keys, "table.key", whose values are not their defaults and that mean nothing to the config, decided.

    Collective: no.
    """
    return [key for key in given(config) if _means_nothing(key, config)]


def _means_nothing(name: str, config: Config) -> bool:
    table, _, key = name.partition(".")
    method, start, penalty = config.method.name, config.start.method, config.penalty
    kinds = {kind for _, kind, _ in config.model.layers()}
    nested, by_gradient = method in NESTED, config.penalty.stop == "gradient"
    by_counting = nested or penalty.value("mu_every") > 0 or by_gradient
    of_table = {
        "stochastic": method != "stochastic",
        "baseline": key not in BASELINE_KEYS.get(method, ()),
        "selection": config.selection.criterion == "none",
    } | dict.fromkeys(HALF_STEPS, nested)
    return {
        "penalty.tolerance": by_counting,
        "penalty.tolerance_decay": by_counting,
        "penalty.ridge_until_mu": nested or by_gradient,
        "penalty.gradient_tolerance": nested or not by_gradient,
        "model.sites": nested,
        "model.width": not kinds & {"rbf", "kernel_ridge"},
        "model.centres": start != "staged" and not kinds & {"rbf", "quantise"},
        "model.words": "quantise" not in kinds,
        "model.image": not any(config.model.convolutions) and config.model.readout == "dense",
        "loss.threshold": config.model.loss in LOSSES and config.model.loss != "huber",
        "model.fitters": nested,
        "model.joining": not config.model.skips,
        "model.trees": not kinds & {"forest", "boosted"},
        "model.depth": not kinds & {"forest", "boosted"},
        "model.examples": not kinds & {"kernel_ridge", "nearest_neighbours"},
        "method.acceleration": method != "mac",
        "start.range": start == "staged",
        "start.gradient_step": start in ("staged", "model")
        or (method == "stochastic" and start in ("auto", "uniform")),
        "start.width": start != "elastic_embedding",
        "start.weights": start != "model",
    }.get(name, of_table.get(table, False))
