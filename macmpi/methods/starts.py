"""A run starts from random weights, principal components, layers trained one by one or in stages, or a model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from macmpi.config import Start
from macmpi.data.dataset import Dataset
from macmpi.half_steps.ends import RANGE
from macmpi.mac import Mac
from macmpi.methods.embedding import elastic_embedding, principal_codes, principal_directions
from macmpi.methods.protocol import Method
from macmpi.methods.staged import staged
from macmpi.nets.design import adjoint, gram
from macmpi.nets.losses.constant import start_targets
from macmpi.parallel.streams import stream
from macmpi.plan.penalty import Progress
from macmpi.plan.plan import Plan
from macmpi.plan.resolved import Resolved
from macmpi.reductions import EVERY, sum_over
from macmpi.solvers.regular import START, jitter
from macmpi.state import State, block_views
from macmpi.typing import Array

GREEDY = 5
"""Iterations of each layer of the greedy start."""

AT_HAND = sum_over([EVERY])
"""Sums over points that are all at hand."""

EMBEDDING, REPULSION = 200, 100.0
"""Iterations of the elastic embedding, and its lambda."""


@dataclass(frozen=True)
class Origin:
    """A run may begin with weights (flat) or coordinates (N, H) from a file; they are None for other starts."""

    weights: Array | None = None
    coordinates: Array | None = None


def start(method: Method, origin: Origin) -> State[Any]:
    """The first State of a run, as [start] says.  Collective: yes."""
    keys = method.plan.resolved.start
    if coordinates_first(method.plan):
        return method.start_from(codes(method, origin), keys.seed, range_of(keys))
    if keys.method in ("auto", "uniform"):
        return method.start(keys.range, keys.gradient_step, keys.seed)
    flat = np.zeros(method.plan.offsets.weights[-1])
    if keys.method == "greedy":
        flat[:] = greedy(method)
    elif method.parts.team.rank == 0 and origin.weights is not None:
        flat[:] = origin.weights
    elif method.parts.team.rank == 0:
        flat[:] = (staged if keys.method == "staged" else pca)(method)
    method.parts.team.share_array(flat)
    return method.start_at(flat, keys.gradient_step and keys.method not in ("staged", "model"))


def range_of(keys: Start) -> float:
    """start.range, where 0 stands for RANGE."""
    return keys.range or RANGE


def coordinates_first(plan: Plan) -> bool:
    """The start gives coordinates, and the first half step is a W-step."""
    word = plan.resolved.start.method
    return word in ("elastic_embedding", "file") or (plan.has_basis and (word == "pca" or not plan.chain.sites))


def codes(method: Method, origin: Origin) -> Array:
    """Coordinates (N, H) of the net's one site, made by rank 0; of a code of bits their bits.  Collective: yes."""
    keys, H = method.plan.resolved.start, sum(method.plan.chain.site_sizes)
    Z: Array = method.parts.team.array((method.plan.n_train, H), np.float64)
    if not H:
        return Z
    if method.parts.team.rank == 0:
        X = method.parts.data.X.astype(np.float64)
        if origin.coordinates is not None:
            Z[:] = origin.coordinates
        elif keys.method == "pca":
            Z[:] = principal_codes(X, H, 0.5 * range_of(keys), method.parts.data.weights)
        else:
            Z[:] = elastic_embedding(X, H, keys.width, REPULSION, EMBEDDING, keys.seed)
        if "bits" in method.plan.chain.segments[0].maps[-1].capabilities:
            Z[:] = np.greater(Z, 0.0 if origin.coordinates is None else 0.5)
    method.parts.team.share_array(Z)
    return Z


def mirrored(of: Resolved) -> bool:
    """An autoencoder whose decoder has the sizes of its encoder in reverse."""
    return of.autoencoder and len(of.units) % 2 == 1 and of.units == of.units[::-1]


def pca(method: Method) -> Array:
    """Weights (flat) from principal components.  Collective: no (rank 0).

    Each layer projects its centred inputs on their leading principal directions, scaled so that the first has
    deviation start.range / 2; units beyond the number of inputs get random directions.  The decoder of a mirrored
    autoencoder is fitted by least squares to the encoder's pre-activations, the output layer to the targets.
    Cost: N D^2 flops a layer and an eigen-decomposition.
    """
    of, chain, data = method.plan.resolved, method.plan.chain, method.parts.data
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
            layer_inputs.append(_project(W, A, keys, k, w))
        elif k < K:
            W[:] = _least_squares(A, layer_inputs[K - 1 - k], w)
        else:
            targets = start_targets(method.plan.resolved.loss, data.Y, AT_HAND, w)
            W[:] = _least_squares(A, targets.astype(np.float64), w)
        A = A @ W[:, :-1].T + W[:, -1]
        if activation is not None and activation.parameter_shape is None:
            A = activation.forward(None, A)
    return flat


def _project(W: Array, A: Array, keys: Start, layer: int, weights: Array | None = None) -> Array:
    """Fill W with the leading principal directions of A, whose rows have weights; gives the pre-activations."""
    mean = A.mean(axis=0) if weights is None else weights @ A / weights.sum()
    spread = np.cov(A - mean, rowvar=False, bias=True, aweights=weights).reshape(A.shape[1], -1)
    variances, directions = principal_directions(spread, len(W))
    if len(directions) < len(W):
        extra = stream(keys.seed, "pca", layer).standard_normal((len(W) - len(directions), A.shape[1]))
        directions = np.vstack([directions, extra / np.sqrt(A.shape[1])])
    W[:, :-1] = directions * (0.5 * range_of(keys) / max(np.sqrt(max(variances[0], 0.0)), 1e-12))
    W[:, -1] = -W[:, :-1] @ mean
    return A @ W[:, :-1].T + W[:, -1]


def _least_squares(A: Array, T: Array, weights: Array | None = None) -> Array:
    """W = [V, c] of the ridge regression of T (N, w) on A (N, D), whose rows have weights (N,)."""
    G = gram(A, weights=weights)
    G[np.diag_indices_from(G)] += jitter(G, START)
    return np.linalg.solve(G, adjoint(T if weights is None else weights[:, None] * T, A).T).T


def greedy(method: Method) -> Array:
    """Weights (flat) from layers trained one by one, each by MAC as an autoencoder of its inputs.  Collective: yes.

    The decoder of a mirrored autoencoder takes the decoding weights; other layers above keep their random start.
    """
    of, chain, data, team = method.plan.resolved, method.plan.chain, method.parts.data, method.parts.team
    keys = of.start
    begun = method.start(range_of(keys), False, keys.seed)
    flat = begun.weights.astype(np.float64)
    weights = block_views(flat, chain.block_shapes)
    K = len(of.units)
    both = mirrored(of)
    A, A_val, before = data.X, data.X_val, "linear"
    for k, activation in enumerate(of.activations[: K // 2 + 1 if both else K]):
        inputs = Dataset(A, A, A_val, A_val, data.scaling_x, data.scaling_x, "")
        inputs = replace(inputs, weights=data.weights, weights_val=data.weights_val)
        layer = Mac(method.plan.of_layer(k, before, A.shape[1], GREEDY), inputs, team, method.parts.clock)
        encoding, decoding = layer.parts.weights(_trained(layer, keys))
        weights[k][:] = encoding
        if both:
            weights[K - k][:] = decoding
        A, A_val = (layer.plan.chain.segments[0].forward([encoding], B) for B in (A, A_val))
        before = "linear" if activation == "softmax" else activation
    return flat


def _trained(layer: Mac, keys: Start) -> State[Any]:
    state = layer.start(range_of(keys), True, keys.seed)
    layer.begin(state)
    for i in range(GREEDY):
        layer.sweep(state)
        before, state.history.e1_val = state.history.e1_val, layer.evaluate(state).validation
        progress = Progress(i + 1, state.mu, before, state.history.e1_val)
        state.mu = layer.team.from_root(lambda p=progress: layer.plan.resolved.schedule.decide(p)).mu  # type: ignore[misc]
    return state
