"""Some of the points, on their way through a net that is being started, and least squares on them."""

from __future__ import annotations

import numpy as np

from macmpi.data.dataset import Dataset
from macmpi.nets.chain import Chain
from macmpi.nets.design import adjoint, gram
from macmpi.nets.layers import Map
from macmpi.parallel.balance import contiguous_runs
from macmpi.parallel.shared_work import TreeSum, over_parts
from macmpi.parallel.team import Team
from macmpi.parallel.tiles import Tile, cut
from macmpi.reductions import OverPoints
from macmpi.solvers.grams import solve_rows
from macmpi.solvers.regular import jitter, regular_factor
from macmpi.typing import Array

POINTS = 4000
"""Points of the fits of a start."""

MOST_APART = 16
"""Weights that are shared over P positions are fitted to one point in P, at least to one in this number."""

RIDGE = 1.0
"""The ridge of the fits."""

RUNS = 4
"""Runs of a layer's units that are assigned to ranks."""


class Sample:
    """Evenly spaced points of each part, X and Y, by their weights if there are some, as far through the net as they
    have been asked for.  Collective: no.

    rows: this rank's points of each of its parts; weights: of the points that it holds; over, roughly: sums over the
    points of all ranks, in float64 and in the precision of the points, which are collective.
    """

    def __init__(self, data: Dataset, rows: dict[int, Tile], tree: TreeSum, weights: Array | None = None) -> None:
        share = -(-POINTS // tree.leaves)
        taken = {i: _spread(own, share, weights) for i, own in rows.items()}
        ends = np.cumsum([0, *map(len, taken.values())]).tolist()
        self._places = {i: slice(a, b) for i, a, b in zip(taken, ends, ends[1:], strict=False)}
        every = np.concatenate([*taken.values(), np.zeros(0, dtype=int)])
        self.X, self.Y = data.X[every], data.Y[every]
        self._through, self._A = 0, self.X
        self.over: OverPoints = over_parts(tree, lambda i: [self._places[i]])
        self.roughly = over_parts(tree, lambda i: [self._places[i]], self.X.dtype)

    def through(self, chain: Chain, weights: list[Array], maps: int) -> Array:
        """The outputs of the first maps, whose weights must not have changed since the last time.

        Part by part, so that the bits do not depend on which parts a rank has.
        """
        if maps > self._through:
            further, dtype = chain.part(self._through, maps), self._A.dtype
            A, weights = np.empty((len(self._A), further.n_out), dtype), [W.astype(dtype, copy=False) for W in weights]
            for own in self._places.values():
                A[own] = further.forward(weights, self._A[own])
            self._through, self._A = maps, A
        return self._A

    def mapped(self, V: Array, c: Array) -> Array:
        """V x + c for V (h, D) and c (h,): (n, h), in the precision of the points, part by part as `through` has it."""
        V, c = V.astype(self.X.dtype, copy=False), c.astype(self.X.dtype, copy=False)
        found = np.empty((len(self.X), len(V)), self.X.dtype)
        for own in self._places.values():
            np.matmul(self.X[own], V.T, out=found[own])
        found += c
        return found

    def fit(self, map_: Map, A: Array, T: Array, W: Array, found: Array, team: Team) -> None:
        """W <- argmin sum_n ||t_n - W [a_n, 1]||^2 + RIDGE ||V||^2, W = [V, c]: each rank solves for some units.

        A, T: inputs and targets of the map, a row a point of the sample.  found: of W's shape, shared by the ranks of a
        node.  Collective: yes.  Cost: D^3 / 3 flops, and 2 D^2 h owners.
        """
        apart = min(map_.positions, MOST_APART)

        def part(rows: slice) -> tuple[Array, Array]:
            inputs = map_.unfold(A[rows][::apart])
            return gram(inputs), adjoint(T[rows][::apart].reshape(-1, len(W)), inputs)

        G, crossed = self.roughly(part)
        added = np.full(len(G), RIDGE + jitter(G, 0.0, A.dtype))
        added[-1] -= RIDGE
        lower = regular_factor(G, added)
        units = cut(len(crossed), RUNS)
        runs = contiguous_runs(len(units), team.size)
        for run in units[runs[team.rank].rows]:
            found[run.rows] = solve_rows(lower, crossed[run.rows])
        team.gather_rows(found, [sum(map(len, units[run.rows])) for run in runs])
        W[:] = found


def _spread(own: Tile, count: int, weights: Array | None = None) -> Array:
    """At most `count` evenly spaced rows of a run; by weights (N,), evenly along their running sum.

    Of weighted points there are as many as were asked for: some several times.
    """
    if weights is not None and (sums := np.cumsum(weights[own.rows])).size and sums[-1] > 0.0:
        marks = np.arange(count) * (sums[-1] / count)
        return own.start + np.minimum(np.searchsorted(sums, marks, side="right"), len(own) - 1)
    count = min(count, len(own))
    return own.start + np.arange(count) * len(own) // count
