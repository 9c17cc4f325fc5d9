"""The directions of a minibatch, D_k = -M_k^-1 (dE1/dW_k) G_k^-1 of each layer k, and which rank makes which.

Each rank makes the directions of its own units and moves their weights.  Layers that are damped in eigenvectors
(spectral.py) are whole ones, the others runs of units (plan/directions.py): the same products on any number of ranks.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from macmpi.methods.stochastic import spectral
from macmpi.methods.stochastic.curvature import RunningCurvature
from macmpi.methods.stochastic.layout import Layout
from macmpi.methods.stochastic.lowrank import Inverse, SomeRows
from macmpi.parallel import tiles
from macmpi.parallel.clock import Clock
from macmpi.parallel.shared_work import Sum, Turns
from macmpi.parallel.team import Team
from macmpi.plan.damped import Damped
from macmpi.plan.directions import DirectionWork, Sides, sides_of
from macmpi.plan.plan import Plan
from macmpi.reductions import EVERY
from macmpi.state import State, StochasticState
from macmpi.typing import Array

Run = tuple[slice, Array]
"""The place of some units' weights in a flat buffer, and numbers for it."""


class Directions:
    """Directions by the inverses of a RunningCurvature.  Collective: where a method says so.

    points: of a minibatch, as `sides` takes them; places: of each rank's own units in a flat buffer of weights.
    """

    places: list[list[slice]]

    def __init__(
        self,
        plan: Plan,
        layout: Layout,
        curvature: RunningCurvature,
        team: Team,
        clock: Clock,
        damped: Damped,
        points: float,
    ) -> None:
        self.plan, self.layout, self.curvature = plan, layout, curvature
        self.team, self.clock, self.damped = team, clock, damped
        self._sides: dict[float, Sides] = {}
        self._turns = Turns(team, plan.dtype.itemsize * layout.weights[-1].stop)
        self.assign(points)

    def assign(self, points: float) -> None:
        """Assigns units to ranks by their work in minibatches of some points.

        All ranks must have all of what they move: others may move it from now on.  Collective: no.
        """
        self.units = DirectionWork(self.layout.shapes, self.damped, self.sides(points)).assigned(self.team.size)
        self.places = [tiles.merged(self.layout.place(k, units) for k, units in rank) for rank in self.units]
        runs = (self.layout.place(k, units) for k, units in self.units[self.team.rank])
        longest = max((place.stop - place.start for place in runs), default=0)
        self._memory = np.empty(longest, self.plan.dtype)

    def sides(self, points: float) -> Sides:
        """Chooses the inverses that a minibatch of some points applies to the factors of its gradient.

        Collective: no.
        """
        if points not in self._sides:
            self._sides[points] = sides_of(self.plan.chain, self.damped, points)
        return self._sides[points]

    def empty(self) -> Array:
        """Flat weights, anything in them, shared by the ranks of a node; to be read until the next ones are asked for.

        Collective: yes.
        """
        return self._turns.array((self.layout.weights[-1].stop,), self.plan.dtype)

    def whole(self, slopes: Sum, n: float, damping: float, sides: Sides, state: State[StochasticState]) -> Array:
        """D of this rank's units, in a flat array to be read before the next one is made.  Collective: yes."""
        found = self.empty()
        for _ in self.runs(slopes, n, damping, sides, state, found):
            pass
        return found

    def runs(
        self,
        slopes: Sum,
        n: float,
        damping: float,
        sides: Sides,
        state: State[StochasticState],
        out: Array | None = None,
    ) -> Iterator[Run]:
        """D of each run of this rank's units, in `out` (flat) or else in memory that the next run takes again.

        slopes: summed over n points, with the inverses of `sides` in them already.  Collective: no.
        """
        inverses, layer, scale = self.curvature.inverses(state), _Layer(slopes, self.layout), -1.0 / n
        q = spectral.cross(state.own.steps)
        for k, units in self.units[self.team.rank]:
            place, d = self.layout.place(k, units), self.layout.shapes[k][1]
            flat = self._memory[: place.stop - place.start] if out is None else out[place]
            D = flat.reshape(-1, d)
            with self.clock("w"):
                if k in self.damped.spectral:
                    gram, metric = self.curvature.spectra(k, state)
                    spectral.put_direction(layer.slope(k), n, metric, gram, damping, q, D)
                else:
                    (G, M), (outputs, inputs) = inverses[2 * k : 2 * k + 2], sides[k]
                    left = D if inputs else np.empty_like(D)
                    if outputs or k in self.damped.identity:
                        own = slopes.part(place, left.reshape(-1)).reshape(-1, d)
                        np.multiply(own, scale, out=left)
                    if not outputs and k in self.damped.identity:
                        M.times(left)(EVERY, left)
                    elif not outputs:
                        layer.times(M, k)(units, left)
                        left *= scale
                    if not inputs:
                        G.of_rows(left, D)
                if (mask := self.plan.chain.blocks[k].connected) is not None:
                    D *= mask[units]  # weights that a sparse layer has not stay 0
            yield place, flat

    def show(self, direction: Array) -> None:
        """All ranks have all of D.  Collective: yes."""
        self.team.gather_parts(direction, self.places)


class _Layer:
    """The slope (h, d) of one layer at a time, joined when it is first asked for.  Collective: no."""

    def __init__(self, slopes: Sum, layout: Layout) -> None:
        self._slopes, self._layout = slopes, layout
        self._last, self._slope = -1, np.empty(0)
        self._rows: SomeRows | None = None

    def slope(self, k: int) -> Array:
        if k != self._last:
            place = self._layout.weights[k]
            slope = self._slopes.part(place, np.empty(place.stop - place.start, self._slopes.rows.dtype))
            self._last, self._slope, self._rows = k, slope.reshape(self._layout.shapes[k]), None
        return self._slope

    def times(self, M: Inverse, k: int) -> SomeRows:
        """Some rows of M_k^-1 times the slope."""
        slope = self.slope(k)
        if self._rows is None:
            self._rows = M.times(slope)
        return self._rows
