"""Losses, E1 and E_Q, and the two exact splittings of E_Q: by point (Z-problems) and by unit (W-problems).

All values are sums over points, with the paper's 1/2; a record divides them by N.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from macmpi.chain import Chain
from macmpi.layers import Array


@dataclass(frozen=True)
class Loss:
    """A loss by point: value(Y, F) -> (n,) and its descent direction residual(Y, F) = -dvalue/dF (n, L).

    `quadratic` says that its Hessian with respect to F is the identity.
    """

    value: Callable[[Array, Array], Array]
    residual: Callable[[Array, Array], Array]
    quadratic: bool


def row_dots(A: Array, B: Array) -> Array:
    """sum_h A[n, h] B[n, h], shape (n,)."""
    return np.einsum("nh,nh->n", A, B)


def _squared(Y: Array, F: Array) -> Array:
    R = Y - F
    return 0.5 * row_dots(R, R)


LOSSES = {"squared": Loss(_squared, np.subtract, quadratic=True)}


@dataclass(frozen=True)
class ZProblem:
    """Eq. (4) for some points: min over z of loss(y, f_{K+1}(z_K)) + sum_k mu_k/2 ||z_k - f_k(z_{k-1})||^2.

    X (n, D), Y (n, L), Z (n, H_1 + ... + H_K): the rows of the points; mu: one value a site.
    Points are independent: the answer for some rows is those rows of the answer.
    """

    chain: Chain
    weights: tuple[Array, ...]
    loss: Loss
    mu: tuple[float, ...]
    X: Array
    Y: Array
    Z: Array

    def sites(self, Z: Array) -> list[Array]:
        """The views z_1, ..., z_K of the columns of Z."""
        return split_sites(self.chain, Z)

    def values(self, Z: Array, rows: Array | slice = slice(None)) -> Array:
        """The objective of eq. (4) at Z (n', sum H) for the given rows of the problem: (n',)."""
        inputs = [self.X[rows], *self.sites(Z)]
        F = [s.forward(self.weights, A) for s, A in zip(self.chain.segments, inputs, strict=True)]
        return self.combine(self.Y[rows], inputs[1:], F)

    def combine(self, Y: Array, Z: Sequence[Array], F: Sequence[Array]) -> Array:
        """The objective by point from the segments' outputs F = [f_1(x), ..., f_{K+1}(z_K)]."""
        total = self.loss.value(Y, F[-1])
        for mu, z, f in zip(self.mu, Z, F, strict=False):
            c = z - f
            total += (0.5 * mu) * row_dots(c, c)
        return total


def split_sites(chain: Chain, Z: Array) -> list[Array]:
    """Views z_1 (n, H_1), ..., z_K (n, H_K) of the columns of Z (n, sum H)."""
    bounds = np.cumsum([0, *chain.site_sizes])
    return [Z[:, a:b] for a, b in pairwise(bounds)]


@dataclass(frozen=True)
class Term:
    """One sum of a W-problem: inputs (N, D), targets (N, w)."""

    inputs: Array
    targets: Array


@dataclass(frozen=True)
class WProblem:
    """Some units of one parameter block, over W = [V, c] of shape (w, D + 1), eq. (3) split by unit:

    min 1/2 sum_terms sum_n ||t_n - s(W [a_n; 1])||^2 + ridge/2 ||V||^2.

    The ridge leaves the biases c alone.  A dense layer has one term; shared weights
    have several.  Units are independent: the answer for some units is those rows of the answer.
    `activation` is a row of layers.activation.FUNCTIONS.  `shared` is what the units of a layer have in
    common: the value of the solver's `prepare`.
    """

    terms: tuple[Term, ...]
    activation: str
    ridge: float
    W: Array
    shared: Array


Partial = Callable[[slice], tuple[Array, ...]]
OverPoints = Callable[[Partial], tuple[Array, ...]]
"""Sums what a partial gives (fresh arrays) for each run of points, in order: one round of a W-solver."""


def sum_over(chunks: Sequence[slice]) -> OverPoints:
    """Sums over chunks of points, in their order, on this rank alone.  Collective: no."""

    def total(partial: Partial) -> tuple[Array, ...]:
        sums = partial(chunks[0])
        for rows in chunks[1:]:
            for s, part in zip(sums, partial(rows), strict=True):
                s += part
        return sums

    return total


def nested_errors(chain: Chain, loss: Loss, weights: Sequence[Array], X: Array, Y: Array) -> Array:
    """E1 of eq. (1) by point: (n,)."""
    return loss.value(Y, chain.forward(weights, X))


def nested_gradient(
    chain: Chain, loss: Loss, weights: Sequence[Array], X: Array, Y: Array, chunks: Sequence[slice]
) -> Array:
    """Gradient of E1 (eq. 1) with respect to all weights, flat, by backpropagation; summed over chunks in order."""
    total = [np.zeros(shape) for shape in chain.block_shapes]
    maps = [(m, b) for segment in chain.segments for m, b in zip(segment.maps, segment.blocks, strict=True)]
    for rows in chunks:
        A, tape = X[rows], []
        for map_, block in maps:
            W = None if block is None else weights[block]
            B, tangent = map_.linearise(W, A)
            tape.append((map_, block, W, A, tangent))
            A = B
        dB = -loss.residual(Y[rows], A)
        for map_, block, W, A, tangent in reversed(tape):
            if block is not None:
                total[block] += map_.weight_vjp(W, A, dB)
            dB = tangent.vjp(dB)
    return np.concatenate([g.ravel() for g in total])
