"""The best constant as a net: all weights into the outputs 0, their biases the mean of the targets."""

from __future__ import annotations

import numpy as np

from macmpi.data.dataset import Dataset
from macmpi.nets.chain import Chain
from macmpi.reductions import OverPoints
from macmpi.state import block_views
from macmpi.typing import Array

RARE = 1e-12
"""The least share of a class; the logarithm of a smaller one is no usable bias."""


def constant_weights(chain: Chain, flat: Array, data: Dataset, over: OverPoints, n: int) -> Array | None:
    """The weights (flat) with a last layer that gives the mean of Y, or the logarithms of the shares of classes.

    None where the outputs are not affine with biases.  n: training points.  Collective: where `over` is.
    """
    if chain.maps[-1].parameter_shape is None or "bias" not in chain.maps[-1].capabilities:
        return None
    (total,) = over(lambda rows: (data.Y[rows].sum(axis=0, dtype=float),))
    mean = total / n
    found = flat.copy()
    last = block_views(found, chain.block_shapes)[-1]
    last[:] = 0.0
    last[:, -1] = mean if data.classes is None else np.log(np.maximum(mean, RARE))
    return found
