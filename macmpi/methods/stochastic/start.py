"""A stochastic run starts from wide random layers, a code of principal components, an output layer that fits.

Only the code, the narrowest layer of all, is not random: random units there would lose most of what the points differ
in, while a wide layer of random units loses little.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from macmpi.methods.embedding import principal_directions
from macmpi.methods.stochastic.sample import Sample
from macmpi.nets.chain import Chain
from macmpi.nets.design import gram
from macmpi.nets.layers import is_plain
from macmpi.nets.layers.activation import function, is_function
from macmpi.nets.losses import Loss
from macmpi.nets.losses.constant import start_targets
from macmpi.parallel.balance import assign_by_cost
from macmpi.parallel.team import Team
from macmpi.typing import Array

RANGES, USUAL = {"sigmoid": 6.0}, 1.7
"""Range of random weights times sqrt(fan-in): wide where the slope at 0 is 1/4, else about Glorot and Bengio's."""

TIED = 1.0
"""Range of the weights of tied layers: wider ones make the outputs of the decoder many times too large."""

SPREADS, SPREAD = {"sigmoid": 1.0}, 0.5
"""Deviation of the code's first principal component before its activation: where that is still nearly linear."""

ONE_SIDED = frozenset({"relu"})
"""Activations whose codes are shifted by their deviation, so that most points lie on the side that has a slope."""


def random_jointly(draw: Callable[[int], Array], places: Sequence[slice], flat: Array, team: Team) -> Array:
    """Random weights, block by block assigned to ranks: draw(b) gives those of block b, which go to places[b].

    flat: of their size, shared by the ranks of a node.  Collective: yes.
    """
    owners = assign_by_cost([place.stop - place.start for place in places], team.size)
    for b in owners[team.rank]:
        flat[places[b]] = draw(b)
    team.gather_parts(flat, [[places[b] for b in rank] for rank in owners])
    return flat.copy()


def scale_random(chain: Chain, weights: list[Array], range_: float) -> None:
    """Scales uniform weights to the range asked for, or (0) to that of the next activation, or of tied layers.

    Collective: no.
    """
    tied = any("transposed" in m.capabilities for m in chain.maps)
    for block, after in _followers(chain).items():
        weights[block] *= range_ or (TIED if tied else RANGES.get(after, USUAL))


def code_of(chain: Chain) -> int | None:
    """The block of the layer that is narrower than all others, inputs and outputs too; None without one."""
    sizes, narrowest = chain.layer_sizes, min(chain.layer_sizes)
    place = sizes.index(narrowest)
    alone = sizes.count(narrowest) == 1 and 0 < place < len(sizes) - 1
    dense = len(chain.blocks) == len(sizes) - 1 and all("bias" in m.capabilities for m in chain.blocks)
    block = chain.layer_blocks[place - 1] if place else None
    if block is None or not alone or not dense or any(chain.reads):
        return None
    return block if is_plain(chain.blocks[block]) else None


def slope(chain: Chain) -> float:
    """The geometric mean of the hidden activations' steepest slopes; 1 where none is known.  Collective: no."""
    bent = [m.trained_as for m in chain.maps[:-1] if "elementwise" in m.own.capabilities]
    known = [function(name).steepest for name in bent if is_function(name)]
    return float(np.exp(np.mean(np.log(known)))) if known else 1.0


def principal_code(chain: Chain, weights: list[Array], sample: Sample) -> None:
    """The code's units: principal directions of their inputs, the first with the deviation of `SPREADS`.

    v_h = spread u_h / sqrt(l_1), c_h = -v_h^T mean (+ its deviation, one-sided), for directions u_h and variances l_h.
    Collective: yes.  Cost: n d^2 flops and an eigen-decomposition of (d, d).
    """
    block = code_of(chain)
    assert block is not None
    W, after = weights[block], _followers(chain)[block]
    A = sample.through(chain, weights, chain.whole.blocks.index(block))
    (total,) = sample.over(lambda rows: (gram(np.asarray(A[rows], np.float64)),))
    G = total / total[-1, -1]
    mean = G[-1, :-1]
    variances, directions = principal_directions(G[:-1, :-1] - np.outer(mean, mean), len(W))
    if not variances[0] > 0.0:
        return
    scale = SPREADS.get(after, SPREAD) / np.sqrt(variances[0])
    W[:, :-1] = scale * directions
    W[:, -1] = -W[:, :-1] @ mean
    if after in ONE_SIDED:
        W[:, -1] += scale * np.sqrt(np.maximum(variances, 0.0))


def fit_output(chain: Chain, weights: list[Array], loss: Loss, sample: Sample, found: Array, team: Team) -> None:
    """The output layer by least squares with a ridge on its inputs (Sample.fit).

    found: of its shape, shared by the ranks of a node.  Collective: yes.
    """
    A = sample.through(chain, weights, len(chain.maps) - 1)
    Y = start_targets(loss, sample.Y, sample.over).astype(A.dtype, copy=False)
    sample.fit(chain.maps[-1], A, Y, weights[-1], found, team)


def _followers(chain: Chain) -> dict[int, str]:
    """For each block of random weights the activation that follows it."""
    numbers, found = chain.whole.blocks, dict[int, str]()
    for i, b in enumerate(numbers):
        if b is not None and b not in found:
            found[b] = chain.maps[i + 1].trained_as if i + 1 < len(chain.maps) else ""
    return found
