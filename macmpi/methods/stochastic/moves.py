"""In each minibatch a rank computes the directions of its own units, and moves their weights and averages.

    D_k = -M_k^-1 (dE1/dW_k) G_k^-1 for each layer k,
    average <- average + rate (W - average),   P <- y P + x D,   W <- W + P

for the last step P.  The direction of a layer that is damped in eigenvectors (layers.py) is computed as a whole, that
of other layers in groups of units (plan/directions.py), with the same products on any number of ranks.  The weights are
exchanged after each step; the average and the last step are exchanged only if a State must be whole, or if the loss is
measured along the whole step.  A run takes back a step that has failed, and an epoch that has lost the weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter

import numpy as np

from macmpi.half_steps.context import HalfStepContext
from macmpi.methods.stochastic.curvature import RunningCurvature
from macmpi.methods.stochastic.layers import Gradient
from macmpi.methods.stochastic.schedule import Running
from macmpi.parallel import tiles
from macmpi.parallel.shared_work import DoubleBuffer, Sum, share_on_node
from macmpi.parallel.team import Team
from macmpi.plan import tuned
from macmpi.plan.directions import DirectionWork, sides_of
from macmpi.state import block_views
from macmpi.typing import Array

Run = tuple[slice, Array]
"""The place of some units' weights in a flat buffer, and numbers for it."""

PIECE = 1 << 15
"""This many numbers are moved at a time."""


class Directions:
    """Makes the directions of a rank's own units by inverses of a RunningCurvature.  Collective: methods that say so.

    points: the number of points of a minibatch, by which `assign` assigns the work.
    places: for each rank the places of its own units in flat weights.
    """

    def __init__(self, curvature: RunningCurvature, points: float) -> None:
        self.curvature, self.plan, self.layout = curvature, curvature.plan, curvature.layout
        self.team, self.forms = curvature.team, curvature.forms.layers
        self._buffer = DoubleBuffer(self.team, self.plan.dtype.itemsize * self.layout.weights[-1].stop)
        self.assign(points)

    def assign(self, points: float) -> None:
        """Chooses the inverses that are applied to the factors of gradients, and assigns the units to ranks by cost.

        A unit may go to another rank, so all ranks must already have all weights, averages and last steps.

        points: the number of points of a minibatch; inf: no inverse is applied to factors.  Collective: no.
        """
        if (sides := sides_of(self.plan.chain, self.forms, points)) == self.curvature.sides:
            return  # nothing has changed, as in most epochs
        self.curvature.sides = sides
        self.units = DirectionWork(self.layout.shapes, self.forms, sides).assigned(self.team.size)
        self.places = [tiles.merged(self.layout.place(k, units) for k, units in rank) for rank in self.units]
        runs = (self.layout.place(k, units) for k, units in self.units[self.team.rank])
        longest = max((place.stop - place.start for place in runs), default=0)
        self._memory = np.empty(longest, self.plan.dtype)

    def whole(self, slopes: Sum, n: float, damping: float, state: Running) -> Array:
        """Computes D of all units, (P,), in memory that the next call uses again.  Collective: yes.

        slopes: the slopes summed over n points, to which the inverses of `curvature.sides` are already applied.
        damping: the damping of this step; each layer divides it between G and M.
        """
        found = self._buffer.array((self.layout.weights[-1].stop,), self.plan.dtype)
        for _ in self.runs(slopes, n, damping, state, found):
            pass
        self.team.gather_parts(found, self.places)
        return found

    def runs(self, slopes: Sum, n: float, damping: float, state: Running, out: Array | None = None) -> Iterator[Run]:
        """Yields place and direction D of each group of this rank's units, one after the other.  Collective: no.

        slopes: the slopes summed over n points, to which the inverses of `curvature.sides` are already applied.
        out (P,): where D is put; None: in memory that the next group of units uses again.
        """
        layers, amount = self.curvature.layers(state), self.curvature.amount(damping, state)
        for k, runs in groupby(self.units[self.team.rank], itemgetter(0)):
            shape, map_ = self.layout.shapes[k], self.plan.chain.blocks[k].own
            with self.team.clock("w"):
                put = layers[k].precondition(Gradient(slopes, self.layout, k, n, self.curvature.sides[k]), amount)
            for _, units in runs:
                place = self.layout.place(k, units)
                flat = self._memory[: place.stop - place.start] if out is None else out[place]
                D = flat.reshape(-1, shape[1])
                with self.team.clock("w"):
                    put(units, D)
                    map_.zero_missing(D, units)
                yield place, flat


class Moves:
    """Moves weights, average and last step of a State in place, each rank for its own units.

    places: for each rank the places of its own units in flat weights.  Collective: methods that say so.
    """

    def __init__(self, team: Team, places: Sequence[Sequence[slice]]) -> None:
        self.team, self.places = team, places

    def share(self, state: Running) -> None:
        """Moves weights, average and last step to memory that the ranks of a node share.  Collective: yes."""
        private = state.weights, state.own.average, state.own.step
        state.weights, state.own.average, state.own.step = [share_on_node(self.team, flat) for flat in private]

    def step(self, state: Running, rate: float, kept: float, runs: Iterable[Run], length: float, go: bool) -> None:
        """Does average += rate (W - average), P <- kept P + length D, and with `go` W <- W + P, for this rank's units.

        PIECE numbers are moved at a time, so they stay in the cache.

        runs: the directions of this rank's units.  Collective: no.
        """
        for place, D in runs:
            for start in range(place.start, place.stop, PIECE):
                own = slice(start, min(start + PIECE, place.stop))
                W, average, step = state.weights[own], state.own.average[own], state.own.step[own]
                change = W - average
                change *= rate
                average += change
                step *= kept
                step += np.multiply(D[own.start - place.start : own.stop - place.start], length, out=change)
                if go:
                    W += step

    def go(self, state: Running) -> None:
        """Does W <- W + P for this rank's units.  Collective: no."""
        for own in self.places[self.team.rank]:
            state.weights[own] += state.own.step[own]

    def show(self, flat: Array) -> None:
        """Gives all ranks the whole flat array (P,); each rank has the places of its own units.  Collective: yes."""
        self.team.gather_parts(flat, self.places)

    def place(self, weights: Array, state: Running) -> None:
        """Puts weights (P,) into the State, as W and as the average; the last step becomes 0.  Collective: yes.

        weights: each rank reads the weights of its own units.
        """
        for own in self.places[self.team.rank]:
            state.weights[own], state.own.average[own], state.own.step[own] = weights[own], weights[own], 0.0
        self.show(state.weights)

    def complete(self, state: Running) -> None:
        """Gives all ranks the whole average and last step; each rank had its own units' part.  Collective: yes."""
        self.show(state.own.average)
        self.show(state.own.step)


def gone_wrong(loss: float, square: float, n: float, level: float) -> bool:
    """Tells whether a minibatch's losses show that the last step has failed.

    loss, square: mean and mean square of the losses of n points.
    level: the running mean of losses.  Collective: no.
    """
    if not np.isfinite(square):
        return True
    error = np.sqrt(max(square - loss * loss, 0.0) / n)
    return not (loss <= tuned.SURGE * level or loss - level <= tuned.SURGE_ERRORS * error)


def running_loss(loss: float, state: Running) -> float:
    """Returns the running mean of losses after a minibatch's loss, which counts as at most SURGE times the mean.

    Collective: no.
    """
    level = state.own.level
    return level + tuned.LEVEL_SHARE * (min(loss, tuned.SURGE * level) - level) if state.own.steps else loss


def take_back(moves: Moves, state: Running) -> None:
    """Puts the weights back to their average after a step that has failed.  Collective: yes.

    The last step becomes 0, the damping grows, and inverses are computed again.
    """
    moves.place(state.own.average, state)
    _with_more_damping(state, 2.0 * state.own.level)


def is_lost(parts: HalfStepContext, state: Running) -> bool:
    """Tells whether the weights have become worse than the best weights, by validation and training errors.

    If the validation error is above LOST times the best one, the training errors of both weights decide, since a few
    validation points may be far off by chance.  Cost: then two passes through the net.  Collective: yes.
    """
    history, shapes = state.history, parts.plan.chain.block_shapes
    if not history.e1_val > tuned.LOST * history.best_e1_val:
        return False
    now, best = [parts.nested(block_views(flat, shapes)).error for flat in (state.result, history.best_weights)]
    return now > best


def begin_again(moves: Moves, state: Running) -> None:
    """Begins again at the best weights, as if no step had been taken, but with more damping.  Collective: yes."""
    moves.place(state.history.best_weights, state)
    state.own.steps = 0
    _with_more_damping(state, 0.0)


def _with_more_damping(state: Running, level: float) -> None:
    state.own.damping, state.own.level = min(tuned.DAMPING_RAISED * state.own.damping, tuned.DAMPING_MOST), level
    state.own.inverses, state.own.length = np.zeros_like(state.own.inverses), 0.0
