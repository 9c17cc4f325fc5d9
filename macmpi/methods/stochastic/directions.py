"""The directions of a minibatch, D_k = -M_k^-1 (dE1/dW_k) G_k^-1 of each layer k, and which rank makes which.

Each rank makes the directions of its own units and moves their weights.  Layers that are damped in eigenvectors
(spectral.py) are whole ones, the others runs of UNITS units: the same products on any number of ranks.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from macmpi.methods.stochastic import spectral
from macmpi.methods.stochastic.curvature import RunningCurvature
from macmpi.methods.stochastic.factors import Sides, choose_sides, plain
from macmpi.methods.stochastic.layout import Layout
from macmpi.parallel import balance, tiles
from macmpi.parallel.clock import Clock
from macmpi.parallel.team import Team
from macmpi.parallel.tree_sum import Sum
from macmpi.parallel.turns import Turns
from macmpi.plan.damped import Damped
from macmpi.plan.plan import Plan
from macmpi.reductions import EVERY
from macmpi.state import State, StochasticState
from macmpi.typing import Array

TURNED = 2.5
"""The work of a direction in eigenvectors, in that of one by two inverses."""

Job = tuple[int, slice]
"""A layer and some of its units."""

Run = tuple[slice, Array]
"""The place of some units' weights in a flat buffer, and numbers for it."""

UNITS = 100
"""Units of a layer whose directions are one product."""

MOVED, JOINED, PASSED, BEGUN = 200.0, 50.0, 150.0, 7e5
"""Multiplications in the time that it takes to move a weight, its average and its last step; to join the sums of a
slope; to pass over a weight where an inverse is made of a few eigenvectors; and to begin a product."""


class Directions:
    """Directions by the inverses of a RunningCurvature.  Collective: where a method says so.

    points: of a minibatch, as `sides` takes them; places: of each rank's own units in a flat buffer of weights.
    """

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
        self.units = self._assigned(self.sides(points))
        self.places = [tiles.merged(layout.place(k, units) for k, units in rank) for rank in self.units]
        runs = (layout.place(k, units) for k, units in self.units[team.rank])
        longest = max((place.stop - place.start for place in runs), default=0)
        self._memory = np.empty(longest, plan.dtype)

    def _assigned(self, sides: Sides) -> list[list[Job]]:
        """The jobs of each rank, a layer and some of its units each: single runs, or whole layers of those whose units
        read all of their layer's slope, whichever keeps the busiest rank less busy.
        """
        shapes, whole = self.layout.shapes, self.damped.spectral
        runs = [tiles.unit_tiles(h, h if k in whole else UNITS) for k, (h, _) in enumerate(shapes)]
        single = [[(k, run.rows)] for k, own in enumerate(runs) for run in own]
        apart = [k for k in range(len(shapes)) if self._reads_own_units(k, sides)]
        kept = [[(k, run.rows) for run in own] for k, own in enumerate(runs) if k not in apart]
        found = [
            self._by_cost(groups, sides) for groups in (single, [job for job in single if job[0][0] in apart] + kept)
        ]
        return min(found, key=lambda ranks: max(self._cost(jobs, sides) for jobs in ranks))

    def _by_cost(self, groups: list[list[Job]], sides: Sides) -> list[list[Job]]:
        """Jobs in groups, each of which one rank has."""
        groups = sorted(groups, key=lambda group: (group[0][0], group[0][1].start))
        costs = [self._cost(group, sides) for group in groups]
        return [[job for i in own for job in groups[i]] for own in balance.assign_in_order(costs, self.team.size)]

    def _cost(self, jobs: list[Job], sides: Sides) -> float:
        """Multiplications of some jobs, and as many as could be made while the sums that they read are joined."""
        efforts, places = self._efforts(sides), [self.layout.place(k, units) for k, units in jobs]
        read = {k: self.layout.weights[k] for k, _ in jobs if not self._reads_own_units(k, sides)}
        own = [place for (k, _), place in zip(jobs, places, strict=True) if k not in read]
        joined = sum(place.stop - place.start for place in (*read.values(), *own))
        begun = sum(4 if k in self.damped.spectral else 1 for k, _ in jobs)
        moved = (efforts[k] * (place.stop - place.start) for (k, _), place in zip(jobs, places, strict=True))
        return BEGUN * begun + JOINED * joined + sum(moved)

    def _reads_own_units(self, k: int, sides: Sides) -> bool:
        """The directions of a unit of layer k read its own slope alone: M_k^-1 is in it already, or a number."""
        return sides[k][0] or k in self.damped.identity

    def _efforts(self, sides: Sides) -> list[float]:
        """Multiplications for each weight of a layer."""
        low_rank, identity = self.layout.low_rank, self.damped.identity

        def applied(j: int, side: int) -> float:
            return 2.0 * low_rank[j] + PASSED if j in low_rank else float(side)

        found = []
        for k, ((h, d), (outputs, inputs)) in enumerate(zip(self.layout.shapes, sides, strict=True)):
            left = 0.0 if outputs or k in identity else applied(2 * k + 1, h)
            right = 0.0 if inputs else applied(2 * k, d)
            found.append((TURNED if k in self.damped.spectral else 1.0) * (left + right) + MOVED)
        return found

    def sides(self, points: float) -> Sides:
        """Chooses the inverses that a minibatch applies to the factors of its gradient.  Collective: no.

        points: of the minibatch.
        """
        if points not in self._sides:
            numbers, blocks = self.plan.chain.whole.blocks, self.plan.chain.blocks
            shared = [k for k, m in enumerate(blocks) if not plain(m) or numbers.count(k) > 1]
            whole, identity = [*shared, *self.damped.spectral], list(self.damped.identity)
            self._sides[points] = tuple(choose_sides(self.layout.shapes, points, identity, whole))
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
                    spectral.put_direction(layer(k), n, metric, gram, damping, q, D)
                else:
                    (G, M), (outputs, inputs) = inverses[2 * k : 2 * k + 2], sides[k]
                    left = D if inputs else np.empty_like(D)
                    if self._reads_own_units(k, sides):
                        own = slopes.part(place, left.reshape(-1)).reshape(-1, d)
                        np.multiply(own, scale, out=left)
                    if not outputs and k in self.damped.identity:
                        M.some_rows(EVERY, left, left)
                    elif not outputs:
                        M.some_rows(units, layer(k), left)
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

    def __call__(self, k: int) -> Array:
        if k != self._last:
            place = self._layout.weights[k]
            slope = self._slopes.part(place, np.empty(place.stop - place.start, self._slopes.rows.dtype))
            self._last, self._slope = k, slope.reshape(self._layout.shapes[k])
        return self._slope
