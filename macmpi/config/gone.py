"""Keys that have gone: what is said of each, and the defaults under which stored configs may still hold them."""

from __future__ import annotations

from typing import Any

LAST = "0.1.0"
"""The last version that reads them."""

LOST, FIXED = "it lost in every benchmark", "its last default is a constant now"
SLOW = "it has the curve of gauss_newton at seventeen times the cost"

GONE: dict[str, tuple[Any, str]] = {
    "penalty.site_weights": ([], LOST),
    "penalty.enough": (0.8, FIXED),
    "penalty.multiplier_max": (100.0, FIXED),
    "z_step.forcing": (0.0, LOST),
    "w_step.forcing": (0.0, LOST),
    "z_step.direction": ("auto", "the solver counts the flops"),
    "z_step.halvings": (10, FIXED),
    "z_step.memory": (5, "its solver has gone"),
    "z_step.enumerated": (10, FIXED),
    "w_step.halvings": (10, FIXED),
    "w_step.factor_every": (1, LOST),
    "w_step.memory": (10, FIXED),
    "stochastic.memory": (0.95, FIXED),
    "stochastic.probed": (64, FIXED),
    "stochastic.curvature_every": (2, FIXED),
    "stochastic.factor_every": (10, FIXED),
    "stochastic.least_damping": (0.0, FIXED),
    "baseline.restart": (100, FIXED),
    "baseline.memory": (10, FIXED),
    "selection.errors": ("half", "the paper adds C to E1 with its 1/2"),
}
"""Key -> its last default, and why it has gone."""

WORDS: dict[tuple[str, str], str] = {
    ("z_step.solver", "lbfgs"): LOST,
    ("z_step.solver", "gradient"): LOST,
    ("w_step.solver", "gauss_newton_exact"): SLOW,
    ("w_step.solver", "newton"): SLOW,
}
"""A key and a word that it no longer takes -> why."""


def gone(key: str, value: Any) -> str | None:
    """Says what became of a key that has gone: "" at its last default; None of any other key.  Collective: no."""
    if key in GONE:
        default, why = GONE[key]
        if value == default:
            return ""
        said = f"{key} has gone ({why}): leave it out"
    elif isinstance(value, str) and (key, value) in WORDS:
        said = f'{key} = "{value}" has gone ({WORDS[key, value]}): use "auto"'
    else:
        return None
    return f"{said}, or use macmpi {LAST}, which reads {key} = {_short(value)}"


def _short(value: Any) -> str:
    """A value as it may be shown: numbers and lists may be larger than Python prints."""
    try:
        return f"{value!r:.80}"
    except (ValueError, RecursionError):
        return "that"
