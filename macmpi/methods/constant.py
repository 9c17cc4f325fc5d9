"""The best constant as a net: all weights into the outputs 0, their biases the constant."""

from __future__ import annotations

from macmpi.nets.chain import Chain
from macmpi.nets.losses import Loss
from macmpi.nets.losses.constant import best_constant
from macmpi.reductions import OverPoints
from macmpi.state import block_views
from macmpi.typing import Array


def constant_weights(
    chain: Chain, flat: Array, loss: Loss, Y: Array, over: OverPoints, n: float, point_weights: Array | None = None
) -> Array | None:
    """The weights (flat) with a last layer that gives the best constant of a loss.

    A convolution has one bias a channel: it gives the mean of the constants of its pixels, the best one of squares.
    Biases behind a tied layer give it where the weights of that layer are 0, those of the encoder's too.
    None where the outputs are not affine with biases.  n: the weight of the training points, point_weights:
    of each (None: 1).  Collective: where `over` is.
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
