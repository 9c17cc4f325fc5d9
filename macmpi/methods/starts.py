"""A run starts from random weights, principal components, layers trained one by one or in stages, or a model.

The weights of the best constant are here too; no run may end worse than this constant.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from macmpi.config import Start
from macmpi.data.dataset import Dataset
from macmpi.half_steps.method import RANGE
from macmpi.mac import Mac
from macmpi.methods.choose import Method, choose
from macmpi.methods.embedding import elastic_embedding, principal_codes, principal_directions, rotation_to_signs
from macmpi.methods.neighbours import SEARCHED, neighbour_bits
from macmpi.nets.chain import Chain, Segment
from macmpi.nets.design import adjoint, apply, at, gram, mean_of, row_dots, squared_distances, weighed
from macmpi.nets.layers import Map
from macmpi.nets.losses import Loss
from macmpi.nets.losses.constant import best_constant, start_targets
from macmpi.parallel.streams import Stream, stream
from macmpi.plan.estimate import FROM_POINTS
from macmpi.plan.plan import Plan
from macmpi.plan.resolved import Progress, Resolved
from macmpi.reductions import EVERY, OverPoints, Rows, sum_over
from macmpi.solvers.cholesky import START, jitter
from macmpi.solvers.fitters import Trainer
from macmpi.solvers.w_gauss_newton import HessianFreeW
from macmpi.solvers.w_problem import SegmentProblem
from macmpi.state import State, block_views
from macmpi.typing import Array

GREEDY = 5
"""Iterations of MAC for each layer of the greedy start."""

AT_HAND = sum_over([EVERY])
"""Sums over all rows of arrays that this rank holds whole."""

EMBEDDING, REPULSION = 200, 100.0
"""Iterations of the elastic embedding, and its lambda."""

ROWS, NUMBERS = 50_000, 2**24
"""A staged layer is found from at most ROWS patches, or as many as it has units if these are more.  They are drawn from
the patches of some points, with NUMBERS numbers in all."""

RUN = 256
"""Points that go through a layer at a time."""

WHITE = 0.1
"""The share of the mean variance that is added to each variance before patches are whitened."""

SOFT, HARD = 0.5, 2.0
"""The width^2 of a codebook, in mean squared distances of a patch to its nearest word: SOFT where a unit is a word's
share, HARD where one word of a run is on, so that a W-step moves the scores by shares of 1."""

RIDGE = 1e-3
"""The ridge of the output layer, for each point and the mean variance of its inputs."""

ITERATIONS = 30
"""Newton's iterations of the output layer, at most."""


class Origin(NamedTuple):
    """Holds what a start reads from a file; all fields are None if a start reads no file.

    weights (P,): the weights of the net.
    coordinates (N, H): the coordinates of the training points, which are read by ranges of rows.
    last: the records that the training on the last piece of a stream has kept, by name.
    """

    weights: Array | None = None
    coordinates: Rows | None = None
    last: dict[str, Array] | None = None


def start(method: Method, origin: Origin) -> State[Any]:
    """Makes the first State of a run by [start] of the config.  Collective: yes."""
    keys, parts = method.plan.resolved.start, method.parts
    if coordinates_first(method.plan):
        return method.start_from(codes(method, origin), keys.seed, keys.range or RANGE)
    if opening := method.plan.of(method.plan.resolved.opening):
        opened = choose(opening, parts.data, parts.team).opened(0.0, keys.seed)  # type: ignore[attr-defined]
        state = method.start_at(opened.weights, False)
        state.seconds = opened.seconds
        return state
    if keys.method in ("auto", "uniform", "stochastic"):
        return method.start(0.0 if keys.method == "stochastic" else keys.range, keys.gradient_step, keys.seed)
    flat = np.zeros(method.plan.offsets.weights[-1])
    seen = on_subset(method) if keys.method in FROM_POINTS else method
    if keys.method == "greedy":
        flat[:] = greedy(seen)
    elif parts.team.rank == 0 and origin.weights is not None:
        flat[:] = origin.weights
    elif parts.team.rank == 0:
        flat[:] = staged(seen) if keys.method == "staged" else pca(seen, method.plan.n_train)
    parts.team.share_array(flat)
    state = method.start_at(flat, keys.gradient_step and keys.method not in ("staged", "model"))
    if method.plan.resolved.before:
        method.go_on(state, origin.last)  # type: ignore[attr-defined]  # that of a stream
    return state


def on_subset(method: Method) -> Method:
    """Returns a method on points that every rank has: `method` itself, or another one on the points at hand.

    Collective: yes.
    """
    parts, data = method.parts, method.parts.at_hand()
    if data is parts.data:
        return method
    return choose(method.plan.of_subset(len(data.X), len(data.X_val)), data, parts.team)


def coordinates_first(plan: Plan) -> bool:
    """Tells whether a start gives coordinates instead of weights, so that the first half step is a W-step."""
    word = plan.resolved.start.method
    return word in ("elastic_embedding", "file") or (plan.has_basis and word in ("pca", "itq"))


def codes(method: Method, origin: Origin) -> Array:
    """Makes coordinates (N, H) of the net's one site, for the points that this rank holds.  Collective: yes.

    Rank 0 computes the coordinates.  If not all points are at hand, those of the other points come from the linear map
    that fits the points at hand best.  After a layer of codes each row becomes the nearest code.
    """
    keys, H, parts = method.plan.resolved.start, sum(method.plan.chain.site_sizes), method.parts
    given = keys.method == "file"
    if not H:
        return np.zeros((parts.points.count, 0))
    seen, found = method if given else on_subset(method), origin.coordinates
    if parts.team.rank == 0 and not given:
        X = seen.parts.data.X.astype(np.float64)
        if keys.method in ("pca", "itq"):
            found = principal_codes(X, H, 0.5 * (keys.range or RANGE), seen.parts.data.weights)
            found = found @ _rotation(found, keys, seen.parts.data.weights)
        else:
            found = elastic_embedding(X, H, keys.width, REPULSION, EMBEDDING, keys.seed)
    if given or parts.points.share == 1.0:
        Z = parts.points.given(found, H)
    else:
        W = np.zeros((H, method.plan.chain.n_in + 1))
        if found is not None:
            W[:] = _least_squares(X, np.asarray(found), seen.parts.data.weights)
        parts.team.share_array(W)
        Z = parts.points.rows(lambda rows: apply(parts.data.X[rows], W), H, np.dtype(np.float64))
    if code := method.plan.chain.segments[0].maps[-1].code:
        own = Z[parts.points.own]
        Z[parts.points.own] = code.forward(None, own - 0.5 if given else own)
    return Z


def mirrored(of: Resolved) -> bool:
    """Tells whether the net is an autoencoder whose decoder has the sizes of its encoder in reverse order."""
    return of.autoencoder and len(of.units) % 2 == 1 and of.units == of.units[::-1]


def pca(method: Method, of_all: int) -> Array:
    """Makes weights (P,) from principal components of the points at hand.  Collective: no (rank 0).

    Each layer projects its centred inputs on their leading principal directions, scaled so that the first has deviation
    start.range / 2; units beyond the number of inputs get random directions.  The methods "itq" and "neighbours" rotate
    a layer of bits until its outputs are nearest to their signs, and "neighbours" continues with a loss on neighbours.
    The decoder of a mirrored autoencoder is fitted by least squares to the encoder's pre-activations, the output layer
    to the targets.
    of_all: the number of all points, of which `neighbours` is a share.
    Cost: N D^2 flops and an eigen-decomposition per layer; for "neighbours" also the cost of `neighbour_bits`.
    """
    of, chain, data = method.plan.resolved, method.plan.chain.net, method.parts.data
    keys = of.start
    flat = np.zeros(method.plan.offsets.weights[-1])
    weights = block_views(flat, chain.block_shapes)
    dense = [W for W, m in zip(weights, chain.blocks, strict=True) if "bias" in m.capabilities]
    K = len(of.units)
    encoder = K // 2 + 1 if mirrored(of) else K
    A, layer_inputs, w = data.X.astype(np.float64), [], data.weights
    for k in range(K + 1):
        W, activation = dense[k], chain.maps[2 * k + 1] if 2 * k + 1 < len(chain.maps) else None
        if k < encoder:
            found = _project(W, A, keys, k, w)
            if activation is not None and activation.code:
                R = _rotation(found, keys, w)
                W[:], found = R.T @ W, found @ R
                if keys.method == "neighbours":
                    drawn = stream(keys.seed, "neighbours").permutation(len(A))[:SEARCHED]
                    W[:] = neighbour_bits(A[drawn], W, keys.neighbours / of_all)
                    found = A @ W[:, :-1].T + W[:, -1]
            layer_inputs.append(found)
        elif k < K:
            W[:] = _least_squares(A, layer_inputs[K - 1 - k], w)
        else:
            W[:] = _least_squares(A, start_targets(of.loss, data.Y, AT_HAND, w).astype(np.float64), w)
        A = A @ W[:, :-1].T + W[:, -1]
        if activation is not None and activation.parameter_shape is None:
            A = activation.forward(None, A)
    return flat


def _project(W: Array, A: Array, keys: Start, layer: int, weights: Array | None = None) -> Array:
    """Fills W with the leading principal directions of A, whose rows have weights; returns the pre-activations."""
    mean = mean_of(A, weights)
    spread = np.cov(A - mean, rowvar=False, bias=True, aweights=weights).reshape(A.shape[1], -1)
    variances, directions = principal_directions(spread, len(W))
    if len(directions) < len(W):
        extra = stream(keys.seed, "pca", layer).standard_normal((len(W) - len(directions), A.shape[1]))
        directions = np.vstack([directions, extra / np.sqrt(A.shape[1])])
    W[:, :-1] = directions * (0.5 * (keys.range or RANGE) / max(np.sqrt(max(variances[0], 0.0)), 1e-12))
    W[:, -1] = -W[:, :-1] @ mean
    return A @ W[:, :-1].T + W[:, -1]


def _rotation(V: Array, keys: Start, weights: Array | None) -> Array:
    """Finds the rotation of "itq" and "neighbours" from at most ROWS rows of V (n, H); other starts have I."""
    if keys.method not in ("itq", "neighbours"):
        return np.eye(V.shape[1])
    random = stream(keys.seed, "itq")
    rows = random.permutation(len(V))[:ROWS]
    return rotation_to_signs(V[rows], random.standard_normal((V.shape[1],) * 2), at(weights, rows))


def _least_squares(A: Array, T: Array, weights: Array | None = None) -> Array:
    """Solves the ridge regression of T (N, w) on A (N, D), whose rows have weights (N,), for W = [V, c]."""
    G = gram(A, weights=weights)
    G[np.diag_indices_from(G)] += jitter(G, START)
    return np.linalg.solve(G, adjoint(weighed(T, weights), A).T).T


def greedy(method: Method) -> Array:
    """Trains layers one by one, each by MAC as an autoencoder of its inputs; returns weights (P,).  Collective: yes.

    The decoder of a mirrored autoencoder takes the decoding weights; other layers above keep their random start.
    """
    of, chain, data, team = method.plan.resolved, method.plan.chain.net, method.parts.data, method.parts.team
    keys = of.start
    flat = method.start(keys.range or RANGE, False, keys.seed).weights.astype(np.float64)
    weights = block_views(flat, chain.block_shapes)
    K = len(of.units)
    both = mirrored(of)
    A, A_val, before = data.X, data.X_val, "linear"
    for k, activation in enumerate(of.activations[: K // 2 + 1 if both else K]):
        inputs = Dataset(A, A, A_val, A_val, data.scaling_x, data.scaling_x, "")
        inputs = replace(inputs, weights=data.weights, weights_val=data.weights_val)
        layer = Mac(method.plan.of_layer(k, before, A.shape[1], GREEDY), inputs, team)
        encoding, decoding = layer.parts.weights(_train_layer(layer, keys))
        weights[k][:] = encoding
        if both:
            weights[K - k][:] = decoding
        A, A_val = (layer.plan.chain.segments[0].forward([encoding], B) for B in (A, A_val))
        before = "linear" if activation == "softmax" else activation
    return flat


def _train_layer(layer: Mac, keys: Start) -> State[Any]:
    """Trains an autoencoder of one layer by GREEDY iterations of MAC from random weights; returns its state.

    Collective: yes.
    """
    state = layer.start(keys.range or RANGE, True, keys.seed)
    layer.begin(state)
    for i in range(GREEDY):
        layer.sweep(state)
        before, state.history.e1_val = state.history.e1_val, layer.evaluate(state).validation
        progress = Progress(i + 1, state.mu, before, state.history.e1_val)
        state.mu = layer.team.from_root(lambda p=progress: layer.plan.resolved.schedule.decide(p)).mu  # type: ignore[misc]
    return state


def constant_weights(
    chain: Chain, flat: Array, loss: Loss, Y: Array, over: OverPoints, n: float, point_weights: Array | None = None
) -> Array | None:
    """Copies weights `flat` (P,) and changes the last layer so that the net's output is the best constant of a loss.

    A convolution has one bias per channel, which becomes the mean over pixels; this is the best bias for squared
    errors.  If the last layer has only biases, after a tied layer, the weights of the tied layer become 0, also in the
    encoder.  Returns None if the outputs are not affine with biases.
    n: the sum of the training points' weights; point_weights: the weights (None: 1).  Collective: if `over` is.
    """
    if chain.maps[-1].parameter_shape is None or "bias" not in chain.maps[-1].capabilities:
        return None
    found = flat.copy()
    weights, numbers = block_views(found, chain.block_shapes), chain.whole.blocks
    multiplied = numbers[-1] if chain.ends_affine else numbers[-2]
    if numbers[-1] is None or multiplied is None:
        return None
    last = weights[numbers[-1]]
    weights[multiplied][:] = 0.0
    last[:] = 0.0
    last[:, -1] = best_constant(loss, Y, over, n, point_weights).reshape(-1, len(last)).mean(axis=0)
    return found


def staged(method: Method) -> Array:
    """Trains a net stage by stage; returns weights (P,).  Collective: no (rank 0).

    Filters and codebooks are found layer by layer without targets, then the output layer from targets, as in cascades
    built by hand: features, codebook, histogram and classifier, each by its own algorithm.  Joint training begins with
    these weights.
    Cost: `centres` of at most ROWS rows for each hidden layer, a pass through the net, and some tens of gradients of
    the output layer.
    """
    chain, data = method.plan.chain.net, method.parts.data
    keys, trainer = method.plan.resolved.start, method.plan.resolved.stage
    flat = np.zeros(method.plan.offsets.weights[-1])
    weights, A = list(block_views(flat, chain.block_shapes)), data.X
    begins = [i for i, m in enumerate(chain.maps) if m.parameter_shape is not None]
    for block, (first, after) in enumerate(pairwise(begins)):
        random = stream(keys.seed, "staged", block)
        patches = sample_of(chain.maps[first], A, random, data.weights)
        activation, units = chain.maps[first + 1], len(weights[block])
        if activation.run_length == 1:
            weights[block][:] = filters(patches, units, trainer, random)
        else:
            width2 = HARD if activation.code else SOFT
            runs = units // activation.run_length
            weights[block][:] = codebook(patches, units, trainer, random, runs, width2)
        layer = chain.part(first, after)
        A = np.concatenate([layer.forward(weights, A[begin : begin + RUN]) for begin in range(0, len(A), RUN)])
    output = Segment(chain.maps[begins[-1] :], (0, *[None] * (len(chain.maps) - begins[-1] - 1)))
    weights[-1][:] = fitted(output, method.plan.resolved.loss, A, data.Y, data.weights)
    return flat


def sample_of(map_: Map, A: Array, random: Stream, weights: Array | None = None) -> Array:
    """Draws some of the rows (rows, columns) that a map's weights multiply, float64.

    To save memory, points of A (n, n_in) are drawn first, in proportion to their weights.  Then ROWS of their rows are
    drawn, or as many as the map has units if this is more.
    """
    units = (map_.parameter_shape or (0, 0))[0]
    of_one, drawn = map_.unfold(A[:1]), np.arange(len(A))
    if weights is not None:
        ends = np.cumsum(weights, dtype=float)
        drawn = np.searchsorted(ends, (drawn + 0.5) * (ends[-1] / len(A)))
    points = max(NUMBERS // of_one.size, -(-units // len(of_one)))
    rows = map_.unfold(A[random.permutation(drawn)[:points]])
    return rows[random.permutation(len(rows))[: max(ROWS, units)]].astype(np.float64)


def filters(rows: Array, units: int, trainer: Trainer, random: Stream) -> Array:
    """Finds W = [V, c] such that unit w of V a + c is the mean over v of ||T a - v||^2, minus ||T a - w||^2.

    T whitens the rows, and a trainer finds a word v of the whitened rows for each unit; all of W is scaled so that the
    mean square is 1.  Under a rectifier this is the triangle code of Coates, Ng and Lee (2011), with squared distances.
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
    """Computes (S + WHITE tr(S) / D I)^(-1/2) for centred rows with covariance S (D, D)."""
    variances, directions = np.linalg.eigh(rows.T @ rows / len(rows))
    raised = np.maximum(variances, 0.0) + (WHITE * variances.mean() or 1.0)
    return (directions / np.sqrt(raised)) @ directions.T


def codebook(rows: Array, units: int, trainer: Trainer, random: Stream, runs: int = 1, width2: float = SOFT) -> Array:
    """Finds W = [2 w, -||w||^2] / width^2 (units, D + 1) for words w that a trainer finds for rows (n, D).

    The softmax of W [a, 1] is the softmax of -||a - w||^2 / width^2, which is the share of each word in a row.
    runs: the number of groups into which the columns are cut, each with units / runs words of its own.
    width2: width^2, in mean squared distances of a row to the word nearest to it.
    """
    W = np.zeros((units, rows.shape[1] + 1))
    for i, columns in enumerate(np.array_split(np.arange(rows.shape[1]), runs)):
        part, own = rows[:, columns], slice(units * i // runs, units * (i + 1) // runs)
        words = trainer.fit(part, units // runs, None, random)
        nearest = squared_distances(part, words).min(axis=1)
        scale = 1.0 / (width2 * nearest.mean() or 1.0)
        W[own, columns] = 2.0 * scale * words
        W[own, -1] = -scale * row_dots(words, words)
    return W


def fitted(output: Segment, loss: Loss, A: Array, Y: Array, weights: Array | None = None) -> Array:
    """Fits an output layer that reads A (n, D): minimises the loss, with the points' weights (n,), plus a ridge."""
    shape = output.maps[0].parameter_shape
    assert shape is not None
    if weights is None:
        n, variance = float(len(A)), A.var(axis=0, dtype=float).mean()
    else:
        n, variance = weights.sum(), mean_of(np.square(A - mean_of(A, weights)), weights).mean()
    start, ridge = np.zeros((1, shape[0] * shape[1])), RIDGE * n * (variance or 1.0)
    problem = SegmentProblem(A, Y, ridge, start, output, loss, (shape,), point_weights=weights)
    solver = HessianFreeW(iterations=ITERATIONS, cg_iterations=50, cg_tolerance=0.01, tolerance=1e-4)
    return solver.solve(problem, AT_HAND).reshape(shape)
