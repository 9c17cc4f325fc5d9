"""The slopes of a minibatch, with the inverses of Grams and metrics applied to their factors; the points probed.

For layer k with inputs [a, 1] and outputs s: G_k = mean of [a, 1] [a, 1]^T, and M_k the metric of s (solvers/metrics).
The direction of the weights,

    D_k = -(M_k + a_k I)^-1 (dE1/dW_k) (G_k + b_k I)^-1,   a_k b_k = damping,

is the least-squares fit of the layer to the coordinates s - (M_k + a_k I)^-1 dE1/ds: MAC in the metric M_k, its Z-step
and its W-step each to first order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from macmpi.methods.stochastic.inverses import GRAM, METRIC, Inverse
from macmpi.nets.design import adjoint
from macmpi.nets.layers import is_plain
from macmpi.plan.directions import Sides
from macmpi.solvers.metrics import Seen
from macmpi.typing import Array


def probed_of(n: int, weights: Array | None, most: int, ordered: bool = False) -> slice | Array:
    """Chooses at most `most` of n points in a random order: the first ones; of `ordered` ones some, evenly spaced.

    Where they weigh differently (n,), it is as many as `most`, spaced evenly along the running sum of their weights:
    heavy points several times.
    """
    if weights is None:
        return slice(0, None, max(-(-n // most), 1)) if ordered else slice(0, most)
    sums = np.cumsum(weights)
    count = most if n and sums[-1] > 0.0 else 0
    marks = (np.arange(count) + 0.5) / most
    found: Array = np.minimum(np.searchsorted(sums, marks * (sums[-1] if n else 0.0)), n - 1)
    return found


def put_slopes(seen: Seen, inverses: Sequence[Sequence[Inverse]], sides: Sides, out: Sequence[Array]) -> None:
    """Puts the sum over points of M_k^-1 (dE1/dW_k) G_k^-1 into `out`, each inverse only where `sides` says so.

    dE1/dW_k = Q^T [A, 1], for the derivatives Q (n, h) of the losses by the layer's outputs and its inputs A:

        M^-1 (Q^T [A, 1]) G^-1 = (Q M^-1)^T ([A, 1] G^-1).

    inverses: of G and M of each layer that `sides` asks for.
    Cost: 4 n d h flops a layer, and 2 n h^2, 2 n d^2 for its inverses.
    """
    put = set[int]()
    for step, Q in seen.tape.backwards(-seen.residual):
        assert step.block is not None
        k = step.block
        outputs, inputs = sides[k]
        if k in put:
            out[k] += step.map.weight_vjp(step.W, step.A, Q)
            continue
        put.add(k)
        if not is_plain(step.map):
            out[k][:] = step.map.weight_vjp(step.W, step.A, Q)
            continue
        if outputs:
            Q = inverses[k][METRIC].of_rows(Q)
        if inputs:
            np.matmul(Q.T, inverses[k][GRAM].of_rows(step.A), out=out[k])
        else:
            adjoint(Q, step.A, out=out[k])
