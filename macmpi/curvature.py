"""What a minibatch says of a net: gradient, and running averages that measure each layer's inputs and outputs.

For layer k with inputs [a, 1] and outputs s: G_k = mean of [a, 1] [a, 1]^T, M_k = mean of Phi^T B^T B Phi, with Phi the
derivative of the net's outputs with respect to s and B^T B the loss's Hessian.  The direction of the weights,

    D_k = -(M_k + a_k I)^-1 (dE1/dW_k) (G_k + b_k I)^-1,   a_k b_k = damping,

is the least-squares fit of the layer to the coordinates s - (M_k + a_k I)^-1 dE1/ds: MAC in the metric M_k, its Z-step
and its W-step each to first order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import linalg

from macmpi.chain import Tape
from macmpi.layers import Array, Tangent
from macmpi.layers.design import gram
from macmpi.losses import Loss


@dataclass(frozen=True)
class Layout:
    """Where the layers' numbers lie in flat buffers: weights (h, d), d with the bias, Grams (d, d), metrics (h, h)."""

    shapes: tuple[tuple[int, int], ...]

    @cached_property
    def weights(self) -> tuple[slice, ...]:
        return _runs([h * d for h, d in self.shapes])

    @cached_property
    def squares(self) -> tuple[slice, ...]:
        """Grams and metrics in turn: G_1, M_1, G_2, M_2, ..."""
        return _runs([n * n for h, d in self.shapes for n in (d, h)])

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers in all weights, and in all Grams and metrics."""
        return self.weights[-1].stop, self.squares[-1].stop

    def place(self, layer: int, rows: slice) -> slice:
        """Where some rows of a layer's weights lie."""
        start, d = self.weights[layer].start, self.shapes[layer][1]
        return slice(start + rows.start * d, start + rows.stop * d)

    def blocks(self, flat: Array) -> list[Array]:
        """Views (h, d) of the weights, or of anything of their shape."""
        return [flat[part].reshape(shape) for part, shape in zip(self.weights, self.shapes, strict=True)]

    def pairs(self, flat: Array) -> list[tuple[Array, Array]]:
        """Views (G_k, M_k)."""
        sides = [n for h, d in self.shapes for n in (d, h)]
        views = [flat[part].reshape(n, n) for part, n in zip(self.squares, sides, strict=True)]
        return list(zip(views[::2], views[1::2], strict=True))


def _runs(sizes: Sequence[int]) -> tuple[slice, ...]:
    ends = np.cumsum(sizes).tolist()
    return tuple(slice(end - size, end) for size, end in zip(sizes, ends, strict=True))


def slopes(tape: Tape, dF: Array) -> list[Array]:
    """What backpropagation brings to the outputs of each layer with weights: (n, h_k) for k = 1, 2, ..."""
    found = []
    for i, step in reversed(list(enumerate(tape.steps))):
        if step.W is not None:
            found.append(dF)
        if i:
            dF = step.tangent.vjp(dF)
    return found[::-1]


def add_gradient(loss: Loss, tape: Tape, Y: Array, out: Sequence[Array]) -> float:
    """Adds the sum over points of dE1/dW_k to `out`, and gives the sum of losses.  Cost: 4 n D H flops a layer."""
    pulls = slopes(tape, -loss.residual(Y, tape.F))
    layers = [step for step in tape.steps if step.W is not None]
    for total, step, pull in zip(out, layers, pulls, strict=True):
        total += step.map.weight_vjp(step.W, step.A, pull)
    return float(loss.value(Y, tape.F).sum(dtype=float))


def add_curvature(
    loss: Loss, tape: Tape, Y: Array, probe: Array, out: Sequence[tuple[Array, Array]], weight: float = 1.0
) -> None:
    """Adds `weight` times the sums of [a, 1] [a, 1]^T and g g^T of each layer, g backpropagated from B^T probe.

    probe (n, L): standard normal numbers, so that g g^T has the mean M_k.
    """
    whole = Tangent(lambda dF: dF, lambda dF: dF)
    pulls = slopes(tape, loss.root(Y, tape.F).after(whole).vjp(probe))
    layers = [step for step in tape.steps if step.W is not None]
    for (G, M), step, pull in zip(out, layers, pulls, strict=True):
        G += weight * gram(step.A)
        M += weight * (pull.T @ pull)


def damped_inverses(G: Array, M: Array, damping: float) -> tuple[Array, Array]:
    """(G + b I)^-1 and (M + a I)^-1 with a b = damping and a / b the ratio of their mean eigenvalues; in float64."""
    means = [max(float(np.trace(A)) / len(A), 1e-30) for A in (G, M)]
    ratio, root = np.sqrt(means[0] / means[1]), np.sqrt(damping)
    return _inverse(G, ratio * root), _inverse(M, root / ratio)


def _inverse(A: Array, more: float) -> Array:
    A = A.astype(np.float64)
    A[np.diag_indices_from(A)] += more
    factor, failed = linalg.lapack.dpotrf(A, lower=1)
    if failed:
        return np.linalg.pinv(A)
    found, _ = linalg.lapack.dpotri(factor, lower=1)
    return np.tril(found) + np.tril(found, -1).T
