"""A fit to batches as they come: each is a piece of a stream, and goes on from the model of the piece before."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from macmpi import UsageError, shown
from macmpi.data.checks import as_array
from macmpi.data.series import is_frame
from macmpi.parallel.clock import now
from macmpi.parallel.team import Team
from macmpi.results.model import Model
from macmpi.typing import Array

STREAM = "stochastic.stream"
"""The key that makes points a piece of a stream."""


def fit_batches(
    batches: Iterable[Any], Y: Any, weights: Any, piece: Callable[..., Model], start: Any, max_time: float, team: Team
) -> Model:
    """The model of the last batch that rank 0's `batches` give.

    piece(X, Y, weights=, start=, max_time=) trains on one, on all ranks.  Y, weights: of tables the names of columns.
    Raises UsageError where there is none.  Collective: yes.
    """
    began, model, taken = now(), None, list[Any]()
    if team.rank == 0 and not isinstance(batches, Iterable):
        raise UsageError(f"batches = {shown(batches)}: an iterable of X, (X, Y) or (X, Y, weights) is needed")
    source = iter(batches if team.rank == 0 else ())

    def more() -> bool:
        taken[:] = [_parts_of(one, Y, weights) for one in [next(source, None)] if one is not None]
        return bool(taken)

    while team.from_root(more):
        X, own_Y, own_weights = taken.pop() if taken else (None, None, None)
        left = max_time - (now() - began)
        model = piece(X, own_Y, weights=own_weights, start=model or start, max_time=max(left, 1e-3))
        card = model.card
        if card is not None and card.training.ended != "max_iterations":
            return model
    if model is None:
        raise UsageError("batches: there is none, and nothing to train on")
    return model


def _parts_of(batch: Any, Y: Any, weights: Any) -> tuple[Any, Any, Any]:
    """X, Y and weights of a batch; those that it does not give are the same for all, names of columns.

    Raises UsageError.
    """
    if not isinstance(batch, tuple):
        return batch, Y, weights
    if not 1 <= len(batch) <= 3 or is_frame(batch):
        raise UsageError(f"batches: one has {len(batch)} parts; X, (X, Y) or (X, Y, weights) is needed")
    own = (*batch, None, None)[:3]
    if (Y is not None and own[1] is not None) or (weights is not None and own[2] is not None):
        raise UsageError("batches: one gives Y or weights, which are arguments, too: give them in one place")
    return own[0], Y if own[1] is None else own[1], weights if own[2] is None else own[2]


def classes_known(classes: Any) -> Array | None:
    """The classes that a stream may hold, ascending; None where they are not given.  Raises UsageError."""
    if classes is None:
        return None
    import numpy as np

    found: Array = np.unique(as_array(classes, "classes"))
    if len(found) < 2:
        raise UsageError(f"classes = {shown(classes)}: two or more are needed to learn")
    return found
