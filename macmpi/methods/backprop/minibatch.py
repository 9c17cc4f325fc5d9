"""Stochastic gradient descent (section 4.2) and Adam (Kingma and Ba, 2015): an iteration is an epoch."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from macmpi.config import Baseline as Keys
from macmpi.data.dataset import Dataset
from macmpi.methods.backprop.gradient import Backprop
from macmpi.parallel import tiles
from macmpi.parallel.clock import Clock
from macmpi.parallel.shared_work import TreeSum
from macmpi.parallel.streams import stream
from macmpi.parallel.team import Team
from macmpi.plan.minibatches import SHARED
from macmpi.plan.plan import Plan
from macmpi.state import AdamState, Pause, SgdState, State, never
from macmpi.typing import Array

BETA2, EPSILON = 0.999, 1e-8
"""Adam averages squares by the one, and adds the other to the root of their mean."""

STRETCH = 50
"""Minibatches between two places where a run may be ended."""

Kind = TypeVar("Kind", bound=SgdState)


class Minibatches(Backprop[Kind]):
    """A step for each minibatch, against its mean gradient g.

    With weights g is sum w_n g_n over the minibatch's points, divided by their number and by the mean weight of all
    points: its expectation is the gradient of E1.  Collective: where a method says so."""

    def __init__(self, plan: Plan, data: Dataset, team: Team, clock: Clock, keys: Keys) -> None:
        super().__init__(plan, data, team, clock, keys)
        self.batch = min(keys.batch, plan.n_train)
        self.sum = TreeSum(min(SHARED, self.batch), team)

    def sweep(self, state: State[Kind], pause: Pause = never) -> bool:
        """An epoch from minibatch state.position on, in a new order, without the rest of one.  Collective: yes."""
        order = stream(self.plan.seed, "epoch", state.iteration).permutation(self.plan.n_train)
        steps = len(order) // self.batch
        while state.position < steps:
            first = state.position * self.batch
            with self.clock("w"):
                self.step(order[first : first + self.batch], state)
            state.position += 1
            if state.position % STRETCH == 0 and state.position < steps and pause():
                return False
        state.completed()
        return True

    def step(self, rows: Array, state: State[Kind]) -> None:
        """One minibatch: its parts assigned to ranks, their sums by Allgatherv.  Collective: yes."""
        parts = tiles.cut(len(rows), self.sum.leaves)

        def add(i: int, out: Array) -> None:
            self.add_gradient(state.weights, rows[parts[i].rows], out)

        gradient = self.sum(add, self.size + 1, self.plan.dtype)[:-1]
        gradient /= len(rows) * (self.parts.points.weight / self.plan.n_train)
        state.own.steps += 1
        self.move(gradient, state)

    def move(self, gradient: Array, state: State[Kind]) -> None:
        """The step; may write over the gradient.  Collective: no."""
        raise NotImplementedError


class Sgd(Minibatches[SgdState]):
    """w <- w - rate v, v <- momentum v + g.  Collective: as Minibatches."""

    called, reads = "SGD", ("batch", "rate", "momentum")

    def new_record(self, weights: Array) -> SgdState:
        """No step before the first.  Collective: no."""
        return SgdState(np.zeros_like(weights))

    def move(self, gradient: Array, state: State[SgdState]) -> None:
        """The step; writes over the gradient.  Collective: no."""
        state.own.velocity *= self.keys.momentum
        state.own.velocity += gradient
        state.weights -= np.multiply(state.own.velocity, self.keys.rate, out=gradient)


class Adam(Minibatches[AdamState]):
    """w <- w - rate m / (sqrt(v) + epsilon), m and v the corrected means of g and g^2.  Collective: as Minibatches."""

    called = "Adam"

    def new_record(self, weights: Array) -> AdamState:
        """No step, no mean squares.  Collective: no."""
        return AdamState(np.zeros_like(weights), mean_squares=np.zeros_like(weights))

    def move(self, gradient: Array, state: State[AdamState]) -> None:
        """The step; writes over the gradient.  Collective: no."""
        beta1, beta2, t = self.keys.momentum, BETA2, state.own.steps
        state.own.velocity *= beta1
        state.own.velocity += (1.0 - beta1) * gradient
        gradient *= gradient
        gradient *= 1.0 - beta2
        state.own.mean_squares *= beta2
        state.own.mean_squares += gradient
        below = np.sqrt(state.own.mean_squares, out=gradient)
        below *= 1.0 / np.sqrt(1.0 - power(beta2, t))
        below += EPSILON
        np.divide(state.own.velocity, below, out=below)
        below *= self.keys.rate / (1.0 - power(beta1, t))
        state.weights -= below


def power(base: float, exponent: int) -> float:
    """base^exponent by products, which every machine rounds alike, as its C library's `pow` need not.  Collective: no.

    Every rank moves all weights for itself.
    """
    found = 1.0
    while exponent:
        found *= base if exponent % 2 else 1.0
        base, exponent = base * base, exponent // 2
    return found
