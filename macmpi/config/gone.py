"""Keys that have gone: what is said of each, and the defaults under which stored configs may still hold them."""

from __future__ import annotations

from typing import Any

from macmpi import shown


def _constant(value: Any, where: str) -> tuple[Any, str]:
    """The entry of a key in whose place a constant stands; where: its name and its module."""
    name, module = where.split(" of ")
    return value, f"it is {value:g} now, the constant {name} of {module}"


GONE: dict[str, tuple[Any, str]] = {
    "loss.smoothing": (0.0, "labels are taken as they are"),
    "start.iterations": (0, "each start has its own number, a constant of macmpi.methods.starts"),
    "penalty.gradient_decay": _constant(0.7, "DECAY of macmpi.plan.penalty"),
    "penalty.sparsity": (0.0, "it cost three times the error"),
    "method.cg_iterations": (10, "it is 10 now, the default of macmpi.methods.alternating.Alternating"),
    "baseline.parts": _constant(2, "SHARED of macmpi.plan.minibatches"),
    "start.repulsion": _constant(100.0, "REPULSION of macmpi.methods.starts"),
    "baseline.beta2": _constant(0.999, "BETA2 of macmpi.methods.backprop"),
    "selection.smallest": (150, "selection.sizes lists candidates"),
    "selection.step": (25, "selection.sizes lists candidates"),
    "selection.iterations": _constant(5, "ITERATIONS of macmpi.methods.unit_selection"),
    "selection.low_bias": ("", "selection.epsilon2 is 2 E1 / outputs of that run"),
}
"""Key -> its last default, and why it has gone."""


def gone(key: str, value: Any) -> str | None:
    """Says what became of a key that has gone: "" at its last default; None of any other key.  Collective: no."""
    if key not in GONE:
        return None
    default, why = GONE[key]
    if value == default and isinstance(value, bool) is isinstance(default, bool):
        return ""
    return f"{key} has gone ({why}): leave it out, or use an earlier macmpi, which reads {key} = {shown(value)}"
