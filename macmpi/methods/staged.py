"""The staged start: filters and codebooks found layer by layer without targets, then the output layer from targets.

It is a cascade as it is built by hand, features, codebook, histogram, classifier, each stage by an algorithm of its
own; what trains all of it jointly begins there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from macmpi.methods.choose import Method
from macmpi.nets.chain import Segment
from macmpi.nets.design import row_dots, squared_distances
from macmpi.nets.layers import Map
from macmpi.nets.losses import Loss
from macmpi.parallel.streams import Stream, stream
from macmpi.reductions import EVERY, sum_over
from macmpi.solvers.centres import Trainer
from macmpi.solvers.w_gauss_newton import HessianFreeW
from macmpi.solvers.w_problem import SegmentProblem
from macmpi.state import block_views
from macmpi.typing import Array

ROWS, NUMBERS = 50_000, 2**24
"""A layer is found from at most ROWS patches, drawn from those of some points, of NUMBERS numbers in all; from as many
patches as it has units where these are more."""

RUN = 256
"""Points that go through a layer at a time."""

WHITE = 0.1
"""The share of the mean variance that is added to each variance before patches are whitened."""

SOFT = 0.5
"""The width^2 of a codebook, in mean squared distances between a patch and the word nearest to it."""

RIDGE = 1e-3
"""The ridge of the output layer, for each point and the mean variance of its inputs."""

ITERATIONS = 30
"""Newton's iterations of the output layer, at most."""


def staged(method: Method) -> Array:
    """Weights (flat) of a net trained stage by stage.  Collective: no (rank 0).

    Cost: `centres` of at most ROWS rows for each hidden layer, a pass through the net, and some tens of gradients of
    the output layer.
    """
    chain, data = method.plan.chain, method.parts.data
    keys, trainer = method.plan.resolved.start, method.plan.resolved.stage
    flat = np.zeros(method.plan.offsets.weights[-1])
    weights, A = list(block_views(flat, chain.block_shapes)), data.X
    begins = [i for i, m in enumerate(chain.maps) if m.parameter_shape is not None]
    for block, (first, after) in enumerate(pairwise(begins)):
        random = stream(keys.seed, "staged", block)
        patches = sample_of(chain.maps[first], A, random)
        elementwise = "elementwise" in chain.maps[first + 1].capabilities
        weights[block][:] = (filters if elementwise else codebook)(patches, len(weights[block]), trainer, random)
        A = _through(chain.part(first, after), weights, A)
    output = Segment(chain.maps[begins[-1] :], (0, *[None] * (len(chain.maps) - begins[-1] - 1)))
    weights[-1][:] = fitted(output, method.plan.resolved.loss, A, data.Y)
    return flat


def sample_of(map_: Map, A: Array, random: Stream) -> Array:
    """Some of the rows that a map's weights multiply, those of whole points drawn again: (rows, columns), float64."""
    units = (map_.parameter_shape or (0, 0))[0]
    points = max(NUMBERS // (map_.positions * map_.columns), -(-units // map_.positions))
    rows = map_.unfold(A[random.permutation(len(A))[:points]])
    chosen: Array = rows[random.permutation(len(rows))[: max(ROWS, units)]].astype(np.float64)
    return chosen


def filters(rows: Array, units: int, trainer: Trainer, random: Stream) -> Array:
    """W = [V, c]: V a + c is the mean over all words of ||T a - w||^2 less that of each word, scaled to a square of 1.

    T whitens the rows, and a trainer finds the words w of these; under a rectifier this is the triangle code of Coates,
    Ng and Lee (2011), of squared distances.
    """
    mean = rows.mean(axis=0)
    rows = rows - mean
    T = whitening(rows)
    words = trainer.fit(rows @ T, units, None, random)
    V = 2.0 * (words - words.mean(axis=0)) @ T
    squares = row_dots(words, words)
    c = squares.mean() - squares
    size = np.sqrt(np.mean((rows @ V.T + c) ** 2)) or 1.0
    return np.hstack([V, (c - V @ mean)[:, None]]) / size


def whitening(rows: Array) -> Array:
    """(S + WHITE tr(S) / D I)^(-1/2) of centred rows with covariance S (D, D)."""
    S = rows.T @ rows / len(rows)
    variances, directions = np.linalg.eigh(S)
    raised = np.maximum(variances, 0.0) + (WHITE * variances.mean() or 1.0)
    found: Array = (directions / np.sqrt(raised)) @ directions.T
    return found


def codebook(rows: Array, units: int, trainer: Trainer, random: Stream) -> Array:
    """W = [2 w, -||w||^2] / width^2 for the words w that a trainer finds of the rows.

    The softmax of W [a, 1] is that of -||a - w||^2 / width^2: the share of each word in a row.
    """
    words = trainer.fit(rows, units, None, random)
    nearest = squared_distances(rows, words).min(axis=1)
    scale = 1.0 / (SOFT * nearest.mean() or 1.0)
    return scale * np.hstack([2.0 * words, -row_dots(words, words)[:, None]])


def fitted(output: Segment, loss: Loss, A: Array, Y: Array) -> Array:
    """Weights of an output layer that reads A (n, D): the least of its loss and a ridge."""
    shape = output.maps[0].parameter_shape
    assert shape is not None
    ridge = RIDGE * len(A) * (A.var(axis=0, dtype=float).mean() or 1.0)
    problem = SegmentProblem(A, Y, ridge, np.zeros((1, shape[0] * shape[1])), output, loss, (shape,))
    solver = HessianFreeW(iterations=ITERATIONS, cg_iterations=50, cg_tolerance=0.01, tolerance=1e-4)
    return solver.solve(problem, sum_over([EVERY])).reshape(shape)


def _through(layer: Segment, weights: Sequence[Array], A: Array) -> Array:
    """The outputs of a layer, some points at a time."""
    B = np.empty((len(A), layer.n_out), A.dtype)
    for first in range(0, len(A), RUN):
        rows = slice(first, first + RUN)
        B[rows] = layer.forward(weights, A[rows])
    return B
