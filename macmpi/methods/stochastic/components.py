"""A stochastic autoencoder of dense layers starts from layers that carry principal components, or are random.

Each layer, in turn, is one of two kinds.  With X the inputs, A what the layer reads, s its activation's `scale`:

- no wider than what it reads: its pre-activations are principal components of X, all that fit through the layers up to
  here, in random rotation: P = s CARRIED C R / rms(C R), small enough to pass the activation nearly undistorted, by
  least squares on A;
- wider: random weights, scaled so that the points spread its pre-activations by s WIDE (standard deviation, mean over
  the units), centred, with random biases of deviation s BIASES.

Narrow layers lose nothing that principal components keep, however many there are; wide ones are varied features, on the
scale on which the points differ.  With the output layer fitted (start.fit_output) the net begins well below PCA where
layers widen behind the code, and near PCA where all are narrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from macmpi.methods.embedding import principal_directions
from macmpi.methods.stochastic.sample import Sample
from macmpi.nets.chain import Chain
from macmpi.nets.design import gram
from macmpi.nets.layers import is_dense
from macmpi.nets.layers.activation import is_function
from macmpi.parallel.team import Team
from macmpi.typing import Array

SCALES, USUAL = {"sigmoid": 1.0}, 0.5
"""Scale s of an activation's argument: tanh(x) = 2 sigmoid(2 x) - 1."""

CARRIED = 0.6
"""Deviation of pre-activations that carry components, over s: larger ones are distorted layer after layer."""

WIDE, BIASES = 1.0, 1.5
"""Deviations, over s, of what the points and of what the random biases give to the pre-activations of wide layers."""

ONE_SIDED, SHIFT = frozenset({"relu", "leaky_relu"}), 2.0
"""Activations whose carrying units are shifted by SHIFT deviations, so that most points lie on the side of slope 1."""


@dataclass(frozen=True)
class Components:
    """mean (D,), variances (m,) and directions (m, D) of the leading principal components of the inputs."""

    mean: Array
    variances: Array
    directions: Array


def carries(chain: Chain) -> bool:
    """Tells whether all layers are dense, of weights of their own, with known activations between.  Collective: no."""
    numbers = chain.whole.blocks
    dense = all(map(is_dense, chain.blocks))
    alone = len([b for b in numbers if b is not None]) == len(chain.blocks) == len(chain.layer_sizes) - 1
    bent = [m for m, block in zip(chain.maps, numbers, strict=True) if block is None]
    plain = all(m.own is m for m in chain.maps) and all(is_function(m.trained_as) for m in bent)
    return dense and alone and plain and not any(chain.reads) and chain.ends_affine


def start_layers(chain: Chain, weights: list[Array], sample: Sample, empty: list[Array], team: Team) -> None:
    """All layers but the last, in place.  weights: at first uniform within 1 / sqrt(fan-in).

    empty: arrays of the weights' shapes, shared by the ranks of a node.  Inputs that do not vary leave weights as they
    are.  Collective: yes.  Cost: an eigen-decomposition (D, D), and for each layer that carries n d^2 + d^3 / 3 flops.
    """
    (total,) = sample.over(partial(_gram, np.asarray(sample.X, np.float64)))
    found = components_of(total / total[-1, -1])
    if not team.from_root(lambda: found.variances[0] > 0.0):
        return
    kept = chain.n_in
    for block, W in enumerate(weights[:-1]):
        place = chain.whole.blocks.index(block)
        after = chain.maps[place + 1].trained_as
        A, width = sample.through(chain, weights, place), W.shape[1] - 1
        kept = min(kept, len(W))
        if len(W) > width:
            (G,) = (total,) if block == 0 else sample.roughly(partial(_gram, A))
            spread(W, np.asarray(G / G[-1, -1], np.float64), SCALES.get(after, USUAL))
        else:
            V, c = carrying(found, W[:, :kept], after)
            if block == 0:
                W[:, :-1], W[:, -1] = V, c
            else:
                sample.fit(chain.maps[place], A, sample.mapped(V, c), W, empty[block], team)


def components_of(G: Array) -> Components:
    """All principal components, of G = mean of [x, 1]^T [x, 1]; those without variance have none."""
    mean = G[-1, :-1]
    variances, directions = principal_directions(G[:-1, :-1] - np.outer(mean, mean), len(mean))
    return Components(mean, np.maximum(variances, 0.0), directions)


def carrying(found: Components, drawn: Array, after: str) -> tuple[Array, Array]:
    """V (h, D) and c (h,): V x + c are the leading m components, rotated, before the activation `after`.

    drawn: (h, m) random numbers; its QR decomposition gives the rotation.
    """
    m = drawn.shape[1]
    Q, _ = np.linalg.qr(np.asarray(drawn, np.float64))
    spreads = np.sqrt(Q**2 @ found.variances[:m])
    length = CARRIED * SCALES.get(after, USUAL) / np.sqrt(np.mean(spreads**2))
    V = length * (Q @ found.directions[:m])
    shift = SHIFT * length * spreads if after in ONE_SIDED else 0.0
    return V, shift - V @ found.mean


def spread(W: Array, G: Array, scale: float) -> None:
    """Scales and centres random units [V, c], in place: G is the mean of [a, 1]^T [a, 1] over their inputs a.

    Then the mean over units of the deviation of V a is WIDE scale, and V a + c has the means BIASES scale u, for c
    drawn as u sqrt(1 / (3 d)), u of deviation 1 and d inputs.
    """
    V, mean = W[:, :-1].astype(np.float64), G[-1, :-1]
    drawn = W[:, -1] * np.sqrt(3.0 * V.shape[1])
    variances = ((V @ (G[:-1, :-1] - np.outer(mean, mean))) * V).sum(axis=1)
    deviation = float(np.sqrt(np.maximum(variances, 0.0)).mean())
    V *= WIDE * scale / deviation if deviation > 0.0 else 1.0
    W[:, :-1], W[:, -1] = V, BIASES * scale * drawn - V @ mean


def _gram(A: Array, rows: slice) -> tuple[Array]:
    return (gram(A[rows]),)
