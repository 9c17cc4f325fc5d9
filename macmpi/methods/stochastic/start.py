"""A stochastic run starts from wide random layers, a code of principal components, an output layer that fits.

Only the code, the narrowest layer of all, is not random: random units there would lose most of what the points differ
in, while a wide layer of random units loses little.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from macmpi.data.dataset import Dataset
from macmpi.methods.embedding import principal_directions
from macmpi.nets.chain import Chain
from macmpi.nets.design import adjoint, gram
from macmpi.nets.layers.activation import function, is_function
from macmpi.nets.losses import Loss
from macmpi.nets.losses.constant import start_targets
from macmpi.parallel.balance import assign_by_cost, contiguous_runs
from macmpi.parallel.team import Team
from macmpi.parallel.tiles import Tile, cut
from macmpi.parallel.tree_sum import TreeSum, over_parts
from macmpi.reductions import OverPoints
from macmpi.solvers.grams import solve_rows
from macmpi.solvers.regular import jitter, regular_factor
from macmpi.typing import Array

RANGES, USUAL = {"sigmoid": 6.0}, 1.7
"""Range of random weights times sqrt(fan-in): wide where the slope at 0 is 1/4, else about Glorot and Bengio's."""

TIED = 1.0
"""Range of the weights of tied layers: wider ones make the outputs of the decoder many times too large."""

SPREADS, SPREAD = {"sigmoid": 1.0}, 0.5
"""Deviation of the code's first principal component before its activation: where that is still nearly linear."""

ONE_SIDED = frozenset({"relu"})
"""Activations whose codes are shifted by their deviation, so that most points lie on the side that has a slope."""

POINTS = 2000
"""Points of the fits here."""

MOST_APART = 16
"""Weights that are shared over P positions are fitted to one point in P, at least to one in this number."""

RIDGE = 1.0
"""The ridge of the fit of the output layer."""

RUNS = 4
"""Runs of the output layer's units that are assigned to ranks."""


def random_jointly(draw: Callable[[int], Array], places: Sequence[slice], flat: Array, team: Team) -> Array:
    """Random weights, block by block assigned to ranks: draw(b) gives those of block b, which go to places[b].

    flat: of their size, shared by the ranks of a node.  Collective: yes.
    """
    owners = assign_by_cost([place.stop - place.start for place in places], team.size)
    for b in owners[team.rank]:
        flat[places[b]] = draw(b)
    team.gather_parts(flat, [[places[b] for b in rank] for rank in owners])
    return flat.copy()


def scale_random(chain: Chain, weights: list[Array], range_: float) -> None:
    """Scales uniform weights to the range asked for, or (0) to that of the next activation, or of tied layers.

    Collective: no.
    """
    tied = any("transposed" in m.capabilities for m in chain.maps)
    for block, after in _followers(chain).items():
        weights[block] *= range_ or (TIED if tied else RANGES.get(after, USUAL))


def code_of(chain: Chain) -> int | None:
    """The block of the layer that is narrower than all others, inputs and outputs too; None without one."""
    sizes, narrowest = chain.layer_sizes, min(chain.layer_sizes)
    place = sizes.index(narrowest)
    alone = sizes.count(narrowest) == 1 and 0 < place < len(sizes) - 1
    dense = len(chain.blocks) == len(sizes) - 1 and all("bias" in m.capabilities for m in chain.blocks)
    block = chain.layer_blocks[place - 1] if place else None
    if block is None or not alone or not dense or any(chain.reads):
        return None
    own = chain.blocks[block]
    return block if "linear" in own.capabilities and own.connected is None else None


def slope(chain: Chain) -> float:
    """The geometric mean of the hidden activations' steepest slopes; 1 where none is known.  Collective: no."""
    bent = [m.trained_as for m in chain.maps[:-1] if "elementwise" in m.own.capabilities]
    known = [function(name).steepest for name in bent if is_function(name)]
    return float(np.exp(np.mean(np.log(known)))) if known else 1.0


class Sample:
    """Evenly spaced points of each part, by their weights if there are some, as far through the net as they have been
    asked for.  Collective: no.

    rows: this rank's points of each of its parts; weights: of the points that it holds; over, roughly: sums over the
    points of all ranks, in float64 and in the precision of the points, which are collective.
    """

    def __init__(self, data: Dataset, rows: dict[int, Tile], tree: TreeSum, weights: Array | None = None) -> None:
        share = -(-POINTS // tree.leaves)
        taken = {i: _spread(own, share, weights) for i, own in rows.items()}
        ends = np.cumsum([0, *map(len, taken.values())]).tolist()
        self._places = {i: slice(a, b) for i, a, b in zip(taken, ends, ends[1:], strict=False)}
        every = np.concatenate([*taken.values(), np.zeros(0, dtype=int)])
        self._through, self._A, self.Y = 0, data.X[every], data.Y[every]
        self.over: OverPoints = over_parts(tree, lambda i: [self._places[i]])
        self.roughly = over_parts(tree, lambda i: [self._places[i]], self._A.dtype)

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


def principal_code(chain: Chain, weights: list[Array], sample: Sample) -> None:
    """The code's units: principal directions of their inputs, the first with the deviation of `SPREADS`.

    v_h = spread u_h / sqrt(l_1), c_h = -v_h^T mean (+ its deviation, one-sided), for directions u_h and variances l_h.
    Collective: yes.  Cost: n d^2 flops and an eigen-decomposition of (d, d).
    """
    block = code_of(chain)
    assert block is not None
    W, after = weights[block], _followers(chain)[block]
    A = sample.through(chain, weights, chain.whole.blocks.index(block))
    (total,) = sample.over(lambda rows: (gram(np.asarray(A[rows], np.float64)),))
    G = total / total[-1, -1]
    mean = G[-1, :-1]
    variances, directions = principal_directions(G[:-1, :-1] - np.outer(mean, mean), len(W))
    if not variances[0] > 0.0:
        return
    scale = SPREADS.get(after, SPREAD) / np.sqrt(variances[0])
    W[:, :-1] = scale * directions
    W[:, -1] = -W[:, :-1] @ mean
    if after in ONE_SIDED:
        W[:, -1] += scale * np.sqrt(np.maximum(variances, 0.0))


def fit_output(chain: Chain, weights: list[Array], loss: Loss, sample: Sample, found: Array, team: Team) -> None:
    """The output layer by least squares with a ridge on its inputs: each rank solves for some units.

    found: of its shape, shared by the ranks of a node.  Collective: yes.  Cost: D^3 / 3 flops, and 2 D^2 h owners.
    """
    A, output = sample.through(chain, weights, len(chain.maps) - 1), chain.maps[-1]
    Y = start_targets(loss, sample.Y, sample.over).astype(A.dtype, copy=False)
    apart = min(output.positions, MOST_APART)

    def part(rows: slice) -> tuple[Array, Array]:
        inputs = output.unfold(A[rows][::apart])
        return gram(inputs), adjoint(Y[rows][::apart].reshape(-1, len(weights[-1])), inputs)

    G, crossed = sample.roughly(part)
    added = np.full(len(G), RIDGE + jitter(G, 0.0, A.dtype))
    added[-1] -= RIDGE
    lower = regular_factor(G, added)
    units = cut(len(crossed), RUNS)
    runs = contiguous_runs(len(units), team.size)
    for run in units[runs[team.rank].rows]:
        found[run.rows] = solve_rows(lower, crossed[run.rows])
    team.gather_rows(found, [sum(map(len, units[run.rows])) for run in runs])
    weights[-1][:] = found


def _spread(own: Tile, count: int, weights: Array | None = None) -> Array:
    """At most `count` evenly spaced rows of a run; by weights (N,), evenly along their running sum.

    Of weighted points there are as many as were asked for: some several times.
    """
    if weights is not None and (sums := np.cumsum(weights[own.rows])).size and sums[-1] > 0.0:
        marks = np.arange(count) * (sums[-1] / count)
        return own.start + np.minimum(np.searchsorted(sums, marks, side="right"), len(own) - 1)
    count = min(count, len(own))
    return own.start + np.arange(count) * len(own) // count


def _followers(chain: Chain) -> dict[int, str]:
    """For each block of random weights the activation that follows it."""
    numbers, found = chain.whole.blocks, dict[int, str]()
    for i, b in enumerate(numbers):
        if b is not None and b not in found:
            found[b] = chain.maps[i + 1].trained_as if i + 1 < len(chain.maps) else ""
    return found
