"""Each layer of a net is damped by stochastic MAC by two shifts, or in the eigenvectors of its Gram and metric.

Wide Grams and metrics with shifts are inverted in their leading eigenvectors alone.

The method, its inverses and the cost model ask here (methods/stochastic, plan/cost.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from macmpi.nets.chain import Chain
from macmpi.nets.losses import Loss

TURNS = 2.0
"""The most that a layer's slope may cost to be turned into eigenvectors and back, in passes of a minibatch forth and
back through the layer."""

WIDE, LEADING = 384, 8
"""A Gram or metric of at least WIDE columns is inverted in the LEADING-th part of its eigenvectors."""


@dataclass(frozen=True)
class Damped:
    """identity: layers whose metric is the identity: a linear output layer of the squared error; spectral: other layers
    that are damped in eigenvectors (methods/stochastic/inverses.py); dense: the net is an autoencoder of dense layers:
    narrow ones are spectral, and layers of an identity metric are damped by the same formula.  low_rank: of G_1, M_1,
    G_2, M_2, ..., counted from 0, those that are inverted in leading eigenvectors (the same place), and
    in how many.
    """

    identity: frozenset[int]
    spectral: frozenset[int]
    dense: bool
    low_rank: Mapping[int, int] = field(default_factory=dict)


def damped(chain: Chain, loss: Loss, autoencoder: bool, points: float) -> Damped:
    """Chooses by counted flops.  points: n, of a minibatch.  Collective: no.

    Turning a layer (h, d) costs 4 h d (h + d), passes of n points forth and back 6 n h d.  The layer that reads the
    inputs has shifts: inputs have directions of little variance, mostly noise, which are better damped.  So have all
    layers where some are neither dense nor sparse, or share weights, and all of regressions and labels.  Wide ones are
    inverted in leading eigenvectors wherever all layers are dense.
    """
    last = chain.whole.blocks[-1]
    bare = last is not None and chain.maps[-1].parameter_shape is not None and loss.unit_hessian
    identity = frozenset({last} if bare and last is not None else ())
    blocks = [b for b in chain.whole.blocks if b is not None]
    dense = all({"linear", "bias"} <= m.capabilities for m in chain.blocks) and len(blocks) == len(set(blocks))
    if not dense:
        return Damped(identity, frozenset(), False)
    spectral = _narrow(chain, blocks[0], points) - identity if autoencoder else frozenset[int]()
    sides = ((j, side) for k, (h, d) in enumerate(chain.block_shapes) for j, side in ((2 * k, d), (2 * k + 1, h)))
    wide = {j: side // LEADING for j, side in sides if side >= WIDE and j // 2 not in spectral}
    known = {2 * k + 1 for k in identity}
    return Damped(identity, spectral, autoencoder, {j: r for j, r in wide.items() if j not in known})


def _narrow(chain: Chain, first: int, points: float) -> frozenset[int]:
    """Layers after the first whose slopes are cheap to turn into eigenvectors.  Collective: no."""
    shapes = enumerate(chain.block_shapes)
    return frozenset(k for k, (h, d) in shapes if k != first and 4 * (h + d) <= TURNS * 6 * points)
