"""Keys that a config gives and its run does not read: named once, at the start, so that nobody tunes them in vain."""

from __future__ import annotations

from macmpi.config.reading import Config, flat
from macmpi.config.tables import NESTED

DESCENTS = ("sgd", "adam", "cg", "lbfgs")
MINIBATCHES = ("batch", "rate", "momentum", "beta2", "parts")


def ignored(config: Config) -> list[str]:
    """The keys, "table.key", whose values are not their defaults and that mean nothing to the config, decided.

    Collective: no.
    """
    usual = flat(Config())
    given = [key for key, value in flat(config).items() if value != usual[key]]
    return [key for key in given if _means_nothing(key, config)]


def _means_nothing(name: str, config: Config) -> bool:
    table, _, key = name.partition(".")
    method, start = config.method.name, config.start.method
    kinds = {kind for _, kind, _ in config.model.layers()}
    nested = method in NESTED
    if table in ("penalty", "z_step", "w_step"):
        return nested
    if table == "stochastic":
        return method != "stochastic"
    if table == "baseline":
        return method not in DESCENTS or (method in ("cg", "lbfgs") and key in MINIBATCHES)
    if table == "selection":
        return config.selection.criterion == "none"
    return {
        "model.sites": nested,
        "model.width": "rbf" not in kinds,
        "model.centres": not kinds & {"rbf", "quantise"},
        "model.words": "quantise" not in kinds,
        "method.acceleration": method != "mac",
        "method.cg_iterations": method != "alternating",
        "start.gradient_step": method == "stochastic",
        "start.iterations": start not in ("greedy", "elastic_embedding"),
        "start.width": start != "elastic_embedding",
        "start.repulsion": start != "elastic_embedding",
        "start.weights": start != "model",
    }.get(name, False)
