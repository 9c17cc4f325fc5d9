"""Random initial weights."""

from __future__ import annotations

import numpy as np

from macmpi.parallel.streams import stream
from macmpi.plan.plan import Plan

RANGE = 2.0
"""Twice the paper's range of random weights: where start.range is 0."""


def random_weights(plan: Plan, range_: float, seed: int) -> np.ndarray:
    """Random weights (P,), flat: w_kh ~ U[-range/sqrt(f_k), range/sqrt(f_k)] with fan-in f_k (section 4.2).

    Range 0 stands for RANGE.  Biases and the output layer are drawn alike; 0 where a trainer or a layer's own fitter
    will find the weights.  Collective: no.
    """
    flat = np.concatenate([random_block(plan, b, range_ or RANGE, seed) for b in range(len(plan.chain.blocks))])
    remember(plan, flat, seed)
    return flat


def remember(plan: Plan, flat: np.ndarray, seed: int) -> None:
    """Recurrent weights begin as a share of a matrix that keeps the length of a state, in place.

    It is the identity under activations that have no upper bound, as Le, Jaitly and Hinton (2015) have it, and a random
    orthogonal matrix under others.  Collective: no.
    """
    for block, first in plan.chain.memories.items():
        units = first.n_out - first.n_in
        Q, R = np.linalg.qr(stream(seed, "memory", block).standard_normal((units, units)))
        W = flat[plan.offsets.block(block)].reshape(plan.chain.block_shapes[block])
        W[:, :units] = first.memory * (np.eye(units) if first.identity else Q * np.sign(np.diag(R)))


def random_block(plan: Plan, block: int, range_: float, seed: int) -> np.ndarray:
    """The random weights of one parameter block, flat, in a stream of its own.  Collective: no."""
    h, d = plan.chain.block_shapes[block]
    if block in plan.resolved.trainers or plan.chain.blocks[block].fitter:
        return np.zeros(h * d)
    map_ = plan.chain.blocks[block]
    drawn = stream(seed, "start", block).uniform(-1.0, 1.0, (h, d)) * (range_ / np.sqrt(map_.fan_in))
    return np.ravel(drawn if map_.connected is None else drawn * map_.connected)
