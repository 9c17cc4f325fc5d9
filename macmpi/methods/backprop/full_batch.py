"""Nonlinear conjugate gradients (section 4.2) and L-BFGS on all points: an iteration is a line search."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from macmpi.config import Baseline as Keys
from macmpi.data.dataset import Dataset
from macmpi.methods.backprop.gradient import Backprop
from macmpi.methods.backprop.line_search import Trial, search
from macmpi.parallel.clock import Clock
from macmpi.parallel.shared_work import TreeSum
from macmpi.parallel.team import Team
from macmpi.plan.plan import Plan
from macmpi.solvers.descent import PAIRS, inverse_times, pair
from macmpi.state import LineSearchState, Pause, State, never
from macmpi.typing import Array

TRIALS = 20
"""A line search makes at most this number of trials."""

LONGER = 10.0
"""The first trial of conjugate gradients is at most this many times as long as the last step."""

RESTART = 100
"""Iterations of conjugate gradients between two restarts along the gradient."""


class Descent(Backprop[LineSearchState]):
    """w <- w + t d, t by cubic line search, so that E1 never rises.  Collective: where a method says so.

    Its record is in float64.  Every rank takes the same steps: what a library computes of whole vectors, which another
    processor may round in another way, comes from rank 0.
    """

    bend: ClassVar[float]
    """The share of the slope that a line search may leave."""

    def __init__(self, plan: Plan, data: Dataset, team: Team, clock: Clock, keys: Keys) -> None:
        super().__init__(plan, data, team, clock, keys)
        self.sum = TreeSum(len(plan.work.train.blocks), team)

    def new_record(self, weights: Array) -> LineSearchState:
        """An empty record.  Collective: no."""
        return LineSearchState()

    def begin(self, state: State[LineSearchState]) -> None:
        """The gradient at the start, and the direction against it.  Collective: yes."""
        if not len(state.own.gradient):
            state.own.gradient = self.error(state.weights)
            self.restart(state)

    def error(self, weights: Array) -> Array:
        """The gradient of E1 per point, and E1 (P + 1,), in float64.  Cost: three passes.  Collective: yes."""

        def add(block: int, out: Array) -> None:
            for tile in self.plan.work.train.tiles_in(block):
                self.add_gradient(weights, tile.rows, out)

        with self.clock("w"):
            return self.sum(add, self.size + 1) / self.parts.points.weight

    def sweep(self, state: State[LineSearchState], pause: Pause = never) -> bool:
        """One line search; against the gradient where the direction leads nowhere.  Collective: yes."""
        if not self.descend(state):
            self.restart(state)
            self.descend(state)
        state.completed()
        return True

    def descend(self, state: State[LineSearchState]) -> bool:
        """Tells whether E1 falls along the direction; then the state is there, with a new one.  Collective: yes."""
        before, direction = state.own.gradient, state.own.direction
        slope = self.product(direction, before[:-1])
        if not slope < 0.0:
            return False

        def moved(t: float) -> Array:
            return (state.weights + t * direction).astype(self.plan.dtype, copy=False)

        def at(t: float) -> Trial:
            found = self.error(moved(t))
            return Trial(t, float(found[-1]), self.product(direction, found[:-1]), found)

        best = search(at, Trial(0.0, float(before[-1]), slope, before), state.own.first, self.bend, TRIALS)
        if not best.t:
            return False
        state.weights[:], state.own.gradient = moved(best.t), best.gradient
        self.turn(best.t, slope, before[:-1], state)
        return True

    def product(self, a: Array, b: Array) -> float:
        """a . b as rank 0 has it.  Collective: yes."""
        return self.team.from_root(lambda: float(a @ b))

    def restart(self, state: State[LineSearchState]) -> None:
        """The direction against the gradient; nothing is remembered.  Collective: yes."""
        gradient = state.own.gradient[:-1]
        state.own.direction, state.own.first = -gradient, 1.0 / (1.0 + self.product(gradient, gradient))
        state.own.pairs = np.empty(0)

    def turn(self, t: float, slope: float, before: Array, state: State[LineSearchState]) -> None:
        """The next direction, after a step t along one with this slope and gradient at its start.  Collective: yes."""
        raise NotImplementedError


class ConjugateGradients(Descent):
    """d <- -g + max(0, g . (g - g_old) / g_old . g_old) d, reset every RESTART iterations.  Collective: as Descent."""

    called = "conjugate gradients"
    bend = 0.3

    def turn(self, t: float, slope: float, before: Array, state: State[LineSearchState]) -> None:
        """Polak-Ribiere, PR+.  The first trial of the next line search promises the same decrease.  Collective: yes."""
        gradient = state.own.gradient[:-1]
        beta = max(0.0, self.product(gradient, gradient - before) / self.product(before, before))
        if (state.iteration + 1) % RESTART == 0:
            beta = 0.0
        state.own.direction = beta * state.own.direction - gradient
        state.own.first = t * min(LONGER, slope / min(self.product(state.own.direction, gradient), -1e-300))


class Lbfgs(Descent):
    """d = -H g, H from the last PAIRS steps s and changes y of the gradient.  Collective: as Descent."""

    called = "L-BFGS"
    bend = 0.9

    def turn(self, t: float, slope: float, before: Array, state: State[LineSearchState]) -> None:
        """A row of `descent.inverse_times`.  Collective: yes."""
        gradient, kept = state.own.gradient[:-1], state.own.pairs.reshape(2, -1, self.size)
        new = np.stack([t * state.own.direction, gradient - before])[:, None]
        if self.team.from_root(lambda: bool(pair(*new)[2] > 0.0)):
            kept = np.concatenate([new, kept[:, : PAIRS - 1]], axis=1)
            state.own.pairs = kept.ravel()
        pairs = [pair(*kept[:, i : i + 1]) for i in reversed(range(kept.shape[1]))]
        state.own.direction, state.own.first = -inverse_times(pairs, gradient[None])[0], 1.0
        self.team.share_array(state.own.direction)
