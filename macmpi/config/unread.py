"""Keys that no run reads: those that have gone, and those that a config gives in vain, named once at the start."""

from __future__ import annotations

from typing import Any

from macmpi import shown
from macmpi.config.model import LOSSES
from macmpi.config.tables import HALF_STEPS, NESTED
from macmpi.config.whole import Config, given

GONE: dict[str, tuple[Any, str]] = {
    "loss.smoothing": (0.0, "labels are taken as they are"),
    "start.iterations": (0, "each start has its own number, a constant of macmpi.methods.starts"),
    "penalty.gradient_decay": (0.7, "it is 0.7 now, the constant DECAY of macmpi.plan.penalty"),
    "penalty.sparsity": (0.0, "it cost three times the error"),
    "method.cg_iterations": (10, "it is 10 now, the default of macmpi.methods.alternating.Alternating"),
    "baseline.parts": (2, "it is 2 now, the constant SHARED of macmpi.plan.minibatches"),
    "start.repulsion": (100.0, "it is 100 now, the constant REPULSION of macmpi.methods.starts"),
    "baseline.beta2": (0.999, "it is 0.999 now, the constant BETA2 of macmpi.methods.backprop"),
    "selection.smallest": (150, "selection.sizes lists candidates"),
    "selection.step": (25, "selection.sizes lists candidates"),
    "selection.iterations": (5, "it is 5 now, the constant ITERATIONS of macmpi.methods.unit_selection"),
    "selection.low_bias": ("", "selection.epsilon2 is 2 E1 / outputs of that run"),
}
"""Key -> its last default, and why it has gone."""

OF_MINIBATCHES = ("batch_max", "grow_every", "averaging", "records", "parts")
"""Keys of [stochastic] that mean nothing where each step is of all points."""


def gone(key: str, value: Any) -> str | None:
    """Says what became of a key that has gone: "" at its last default; None of any other key.  Collective: no."""
    if key not in GONE:
        return None
    default, why = GONE[key]
    if value == default and isinstance(value, bool) is isinstance(default, bool):
        return ""
    return f"{key} has gone ({why}): leave it out, or use an earlier macmpi, which reads {key} = {shown(value)}"


def ignored(config: Config) -> list[str]:
    """The keys, "table.key", whose values are not their defaults and that mean nothing to the config, decided.

    Collective: no.
    """
    method, start, penalty = config.method.name, config.start.method, config.penalty
    kinds = {kind for _, kind, _ in config.model.layers()}
    nested, by_gradient = method in NESTED, config.penalty.stop == "gradient"
    ends = method == "mac" and config.run.finish is not False
    whole = config.stochastic.batch == "all"
    by_counting = nested or penalty.value("mu_every") > 0 or by_gradient
    unread = dict.fromkeys(HALF_STEPS, nested) | {
        "stochastic": method != "stochastic",
        **{f"stochastic.{key}": whole or method != "stochastic" for key in OF_MINIBATCHES},
        "stochastic.cg_iterations": not (ends or (whole and method == "stochastic")),
        **{f"stochastic.{key}": not ends and method != "stochastic" for key in ("damping", "ridge")},
        "baseline": method not in ("sgd", "adam"),
        "baseline.patience": method not in ("sgd", "adam", "cg", "lbfgs"),
        "selection": config.selection.criterion == "none",
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
        "run.finish": method != "mac",
        "start.range": start == "staged",
        "start.gradient_step": start in ("staged", "model")
        or (method == "stochastic" and start in ("auto", "uniform")),
        "start.width": start != "elastic_embedding",
        "start.weights": start != "model",
    }
    return [key for key in given(config) if unread.get(key, unread.get(key.partition(".")[0], False))]
