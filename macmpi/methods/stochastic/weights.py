"""The weights of a stochastic run on their way: each rank moves those of its own units, and the average behind them.

    P <- y P + x D,   W <- W + P,   average <- average + rate (W - average)

for the last step P and the direction D.  Weights travel after each step; average and last step where a State must be
whole, or where all of the step is looked along.  A run goes back from a step that has gone wrong, and from an epoch
that has lost the weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from macmpi.half_steps.evaluation import Evaluation
from macmpi.methods.stochastic.directions import Run
from macmpi.methods.stochastic.schedule import MOST
from macmpi.parallel.blocks import commonly
from macmpi.parallel.team import Team
from macmpi.state import State, StochasticState, block_views
from macmpi.typing import Array

PIECE = 1 << 15
"""Numbers that are moved at a time."""

SURGE, SURE = 3.0, 3.0
"""A loss above SURGE times its running mean, and SURE standard errors above it, tells of a step gone wrong."""

LOST = 10.0
"""Weights are lost whose validation error is this many times that of the best ones, and whose training error is above
theirs too."""

MORE = 10.0
"""The damping afterwards, in that before."""


class Moves:
    """In place in a State.  Collective: where a method says so.

    places: of each rank's own units in a flat buffer of weights.
    """

    def __init__(self, team: Team, places: Sequence[Sequence[slice]]) -> None:
        self.team, self.places = team, places

    def share(self, state: State[StochasticState]) -> None:
        """From now on the ranks of a node have one copy of weights, average and last step.  Collective: yes."""
        private = state.weights, state.own.average, state.own.step
        state.weights, state.own.average, state.own.step = (commonly(self.team, flat) for flat in private)

    def _own(self) -> Iterator[slice]:
        """The own units' places in pieces."""
        for place in self.places[self.team.rank]:
            yield from _pieces(place)

    def whole(self, direction: Array) -> Iterator[Run]:
        """The own units' places, and a direction there."""
        for place in self.places[self.team.rank]:
            yield place, direction[place]

    def step(
        self, state: State[StochasticState], rate: float, kept: float, runs: Iterable[Run], length: float, go: bool
    ) -> None:
        """The average by its rate, the last step P by `kept` (y) and `length` (x), and with `go` W: for the own units.

        runs: their directions.  A piece is in the cache for all that is done with it.  Collective: no.
        """
        for place, D in runs:
            for own in _pieces(place):
                W, average, step = state.weights[own], state.own.average[own], state.own.step[own]
                change = W - average
                change *= rate
                average += change
                step *= kept
                step += np.multiply(D[own.start - place.start : own.stop - place.start], length, out=change)
                if go:
                    W += step

    def go(self, state: State[StochasticState]) -> None:
        """W <- W + P for the own units.  Collective: no."""
        for own in self._own():
            state.weights[own] += state.own.step[own]

    def show(self, state: State[StochasticState]) -> None:
        """All ranks have all of W.  Collective: yes."""
        self.team.gather_parts(state.weights, self.places)

    def place(self, weights: Array, state: State[StochasticState]) -> None:
        """W <- weights, average <- weights, P <- 0.  weights: flat; the own units of each rank.  Collective: yes."""
        for own in self._own():
            state.weights[own], state.own.average[own], state.own.step[own] = weights[own], weights[own], 0.0
        self.team.gather_parts(state.weights, self.places)

    def show_step(self, state: State[StochasticState]) -> None:
        """All ranks have all of the last step.  Collective: yes."""
        self.team.gather_parts(state.own.step, self.places)

    def complete(self, state: State[StochasticState]) -> None:
        """All ranks have all of the State.  Collective: yes."""
        self.team.gather_parts(state.own.average, self.places)
        self.show_step(state)


def _pieces(place: slice) -> Iterator[slice]:
    """A place in pieces of at most PIECE numbers, each of which stays in the cache."""
    for start in range(place.start, place.stop, PIECE):
        yield slice(start, min(start + PIECE, place.stop))


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
