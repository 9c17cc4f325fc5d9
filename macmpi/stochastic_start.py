"""Where a stochastic run starts: wide random layers, a code of principal components, an output layer that fits.

Only the code, the narrowest layer of all, is not random: random units there would lose most of what the points differ
in, while a wide layer of random units loses little.
"""

from __future__ import annotations

import numpy as np

from macmpi.chain import Chain
from macmpi.layers import Array
from macmpi.layers.design import gram
from macmpi.regression import OverPoints, Term, UnitProblem
from macmpi.solvers.closed_form import ClosedForm
from macmpi.tiles import Tile

RANGES, USUAL = {"sigmoid": 6.0}, 1.7
"""Range of random weights times sqrt(fan-in): wide where the slope at 0 is 1/4, else about Glorot and Bengio's."""

SPREADS, SPREAD = {"sigmoid": 1.0}, 0.5
"""Deviation of the code's first principal component before its activation: where that is still nearly linear."""

ONE_SIDED = frozenset({"relu"})
"""Activations whose codes are shifted by their deviation, so that most points lie on the side that has a slope."""

POINTS, RIDGE = 2000, 1.0
"""Points of the fits here; ridge of that of the output layer."""


def scale_random(chain: Chain, weights: list[Array], range_: float) -> None:
    """Uniform weights of range 1 / sqrt(fan-in) to the range asked for, or (0) to that of the activation that follows.

    Collective: no.
    """
    for block, after in _followers(chain).items():
        weights[block] *= range_ or RANGES.get(after, USUAL)


def code_of(chain: Chain) -> int | None:
    """The block of the layer that is narrower than all others, inputs and outputs too; None without one."""
    sizes, narrowest = chain.layer_sizes, min(chain.layer_sizes)
    place = sizes.index(narrowest)
    alone = sizes.count(narrowest) == 1 and 0 < place < len(sizes) - 1
    dense = len(chain.blocks) == len(sizes) - 1 and all("bias" in m.capabilities for m in chain.blocks)
    return place - 1 if alone and dense else None


def principal_code(chain: Chain, weights: list[Array], A: Array, over: OverPoints) -> None:
    """The code's units: principal directions of their inputs A, the first with the deviation of `SPREADS`.

    v_h = spread u_h / sqrt(l_1), c_h = -v_h^T mean (+ its deviation, one-sided), for directions u_h and variances l_h.
    Collective: as `over` is.  Cost: n d^2 flops and an eigen-decomposition of (d, d).
    """
    block = code_of(chain)
    assert block is not None
    W, after = weights[block], _followers(chain)[block]
    (total,) = over(lambda rows: (gram(np.asarray(A[rows], np.float64)),))
    G = total / total[-1, -1]
    mean = G[-1, :-1]
    variances, directions = np.linalg.eigh(G[:-1, :-1] - np.outer(mean, mean))
    variances, directions = variances[::-1][: len(W)], directions.T[::-1][: len(W)]
    if not variances[0] > 0.0:
        return
    scale = SPREADS.get(after, SPREAD) / np.sqrt(variances[0])
    W[:, :-1] = scale * directions
    W[:, -1] = -W[:, :-1] @ mean
    if after in ONE_SIDED:
        W[:, -1] += scale * np.sqrt(np.maximum(variances, 0.0))


def fit_output(weights: list[Array], A: Array, Y: Array, over: OverPoints) -> None:
    """The output layer by least squares on its inputs A.  Collective: as `over` is."""
    solver = ClosedForm()
    problem = UnitProblem((Term(A, Y),), "linear", RIDGE, weights[-1], solver.prepare(A, over))
    weights[-1][:] = solver.solve(problem, over)


def spread(own: Tile, count: int) -> Array:
    """At most `count` evenly spaced rows of a run.  Collective: no."""
    count = min(count, len(own))
    return own.start + np.arange(count) * len(own) // count


def _followers(chain: Chain) -> dict[int, str]:
    """For each block of random weights the activation that follows it."""
    found, block = {}, 0
    for i, map_ in enumerate(chain.maps):
        if map_.parameter_shape is not None:
            found[block] = chain.maps[i + 1].trained_as if i + 1 < len(chain.maps) else ""
            block += 1
    return found
