"""The weights of a stochastic run on their way: each rank moves those of its own units, and the average behind them.

    P <- y P + x D,   W <- W + P,   average <- average + rate (W - average)

for the last step P and the direction D.  Weights travel after each step; average and last step where a State must be
whole, or where all of the step is looked along.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from macmpi.methods.stochastic.directions import Run
from macmpi.parallel.shared_work import commonly
from macmpi.parallel.team import Team
from macmpi.state import State, StochasticState
from macmpi.typing import Array

PIECE = 1 << 15
"""Numbers that are moved at a time."""


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
