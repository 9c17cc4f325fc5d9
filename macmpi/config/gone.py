"""Keys that have gone: what is said of each, and the defaults under which stored configs may still hold them."""

from __future__ import annotations

from typing import Any

FIXED = "its last default is a constant now"

GONE: dict[str, tuple[Any, str]] = {
    "loss.smoothing": (0.0, FIXED),
    "start.iterations": (0, FIXED),
    "penalty.gradient_decay": (0.7, FIXED),
    "penalty.sparsity": (0.0, "it cost three times the error"),
    "method.cg_iterations": (10, FIXED),
    "baseline.parts": (2, FIXED),
    "start.repulsion": (100.0, FIXED),
    "baseline.beta2": (0.999, FIXED),
    "selection.smallest": (150, "selection.sizes lists candidates"),
    "selection.step": (25, "selection.sizes lists candidates"),
    "selection.iterations": (5, FIXED),
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
    return f"{key} has gone ({why}): leave it out, or use an earlier macmpi, which reads {key} = {_short(value)}"


def _short(value: Any) -> str:
    """A value as it may be shown: numbers and lists may be larger than Python prints."""
    try:
        return f"{value!r:.80}"
    except (ValueError, RecursionError):
        return "that"
