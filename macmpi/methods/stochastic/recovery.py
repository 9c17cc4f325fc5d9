"""A stochastic run goes back from a step that has gone wrong, and from an epoch that has lost the weights."""

from __future__ import annotations

import numpy as np

from macmpi.half_steps.evaluation import Evaluation
from macmpi.methods.stochastic.damping import MOST
from macmpi.methods.stochastic.weights import Moves
from macmpi.state import State, StochasticState, block_views

SURGE, SURE = 3.0, 3.0
"""A loss above SURGE times its running mean, and SURE standard errors above it, tells of a step gone wrong."""

LOST = 10.0
"""Weights are lost whose validation error is this many times that of the best ones, and whose training error is above
theirs too."""

MORE = 10.0
"""The damping afterwards, in that before."""


def gone_wrong(loss: float, square: float, n: float, level: float) -> bool:
    """Tells whether a minibatch's loss (mean, mean square, n points) says that the last step has failed.

    level: the running mean of losses.  Collective: no.
    """
    if not np.isfinite(square):
        return True
    error = np.sqrt(max(square - loss * loss, 0.0) / n)
    return not (loss <= SURGE * level or loss - level <= SURE * error)


def take_back(moves: Moves, state: State[StochasticState]) -> None:
    """Goes back to the average, without momentum, with more damping and new inverses.  Collective: yes."""
    moves.place(state.own.average, state)
    _with_more_damping(state, 2.0 * state.own.level)


def is_lost(evaluation: Evaluation, state: State[StochasticState]) -> bool:
    """Tells whether the epoch before has lost the weights.

    A few validation points may be far off by chance, so the training points are asked too.  Cost: two passes through
    the net where the validation error is as high as that.  Collective: yes.
    """
    history, shapes = state.history, evaluation.plan.chain.block_shapes
    if not history.e1_val > LOST * history.best_e1_val:
        return False
    now, best = (evaluation.nested(block_views(flat, shapes)).error for flat in (state.result, history.best_weights))
    return now > best


def begin_again(moves: Moves, state: State[StochasticState]) -> None:
    """Begins again at the best weights, as a run does that has taken no step yet.  Collective: yes."""
    moves.place(state.history.best_weights, state)
    state.own.steps = 0
    _with_more_damping(state, 0.0)


def _with_more_damping(state: State[StochasticState], level: float) -> None:
    state.own.damping, state.own.level = min(MORE * state.own.damping, MOST), level
    state.own.inverses, state.own.length = np.zeros_like(state.own.inverses), 0.0
