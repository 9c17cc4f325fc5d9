"""The rounds of stochastic MAC: the work of its ranks in an iteration by counted flops, and their exchanges.

A minibatch is a look at its points, slopes by parts, directions by units and a move; every REMADE_LATER-th makes
metrics and inverses again, every MEASURE-th a length, every ADAPT-th looks at the decrease (methods/stochastic/).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from macmpi.config import Stochastic
from macmpi.parallel import balance
from macmpi.plan.damped import damped
from macmpi.plan.directions import DirectionWork, sides_of
from macmpi.plan.estimate import widest_image
from macmpi.plan.inverses import inverse_flops, inverse_sizes
from macmpi.plan.minibatches import ADAPT, FACTS, MEASURE, PROBED, REMADE_LATER, minibatch
from macmpi.plan.plan import Plan
from macmpi.plan.rounds import Round, summed

PASSES = 3.7
"""Passes through the net for a point."""

METRIC = 4.0
"""Multiplications of two numbers of an image for its metric, a point."""


@dataclass(frozen=True)
class Rates:
    """flop/s of products: those of passes through the net, and of large matrices."""

    passes: float
    products: float


def minibatches(keys: Stochastic, plan: Plan) -> int:
    """Count the minibatches of the first iterations.  Collective: no."""
    n = plan.n_train
    of_epoch = max(n // minibatch(keys, n, 0, plan.choices.loss.labels), 1)
    return max(of_epoch // max(min(keys.records, of_epoch), 1), 1)


def minibatch_rounds(keys: Stochastic, plan: Plan, autoencoder: bool, rates: Rates) -> list[Round]:
    """The rounds of an iteration, the points' first.  Collective: no."""
    chain, P, item, parts = plan.chain, plan.ranks, plan.dtype.itemsize, plan.work.parts
    batches, N = minibatches(keys, plan), plan.n_train
    n = minibatch(keys, N, 0, plan.choices.loss.labels)
    renewed, measured, adapted = (-(-batches // every) for every in (REMADE_LATER, MEASURE, ADAPT))
    alone = min(renewed, batches)
    ridge = 0.0 if autoencoder and keys.ridge == "auto" else keys.ridge
    layers = damped(chain, plan.choices.loss, autoencoder, N / max(N // n, 1))
    sides = sides_of(chain, layers, math.inf if ridge else n)  # with a ridge inverses are applied to the whole gradient
    work = DirectionWork(chain.block_shapes, layers, sides)
    weights = plan.offsets.weights[-1]
    pass_ = 2.0 * n * chain.whole.multiplications / rates.passes
    applied = work.by_point / chain.whole.multiplications
    by_points = tuple(pass_ / N * count for count in parts.row_counts)

    def sums(passes: float, width: int, times: int) -> list[Round]:
        own = tuple(passes * seconds for seconds in by_points)
        return summed(own, width, times, parts, plan) if times else []

    turned = layers.spectral
    whole = tuple(2.0 * work.cost(jobs) / rates.passes for jobs in work.assigned(P))
    images = [float(m.n_out) for m in chain.maps[1:] if widest_image(chain) and "linear" not in m.capabilities]
    probing = sum(METRIC * size**2 * PROBED for size in images) / rates.products
    inverses = [flops / rates.products for flops in inverse_flops(chain.block_shapes, layers)]
    found = [
        *sums(PASSES / 3.0, FACTS, alone),
        *sums(2.0 * PASSES / 3.0 + applied, weights, alone),
        *sums(PASSES + applied, weights + FACTS, batches - alone),
        Round(whole, item * weights, plan.per_node, verb="gather_parts", times=batches),
        *sums(0.0, sum(d * d for _, d in chain.block_shapes), renewed),
        Round((0.0,) * P, item * weights, plan.per_node, verb="gather_parts", times=renewed + measured + adapted),
        *sums(0.0, 3, measured + adapted),
        *sums(0.0, 1, adapted),
        Round(
            _busiest(inverses, P),
            item * sum(inverse_sizes(chain.block_shapes, layers.low_rank)),
            plan.per_node,
            verb="gather_parts",
            times=renewed,
        ),
    ]
    if turned or layers.low_rank:
        widths = [side for h, d in chain.block_shapes for side in (d, h)]
        width = sum(side for j, side in enumerate(widths) if j in layers.low_rank or j // 2 in turned)
        found.append(Round((0.0,) * P, item * width, plan.per_node, verb="gather_parts", times=renewed))
    grams = item * sum(d * d for _, d in chain.block_shapes)
    found += [
        Round((0.0,) * P, item * weights, plan.per_node, verb="gather_parts", times=2 * renewed),
        Round((0.0,) * P, grams, plan.per_node, verb="gather_parts", times=renewed),
    ]
    bent = sum(m.n_out**2 for m in chain.maps[1:] if "elementwise" in m.capabilities)
    found += sums(0.0, chain.n_out**2 + bent, renewed)
    return [*found, Round(tuple(probing * share for share in _even(P)), 0, times=renewed)] if probing else found


def _even(ranks: int) -> tuple[float, ...]:
    return (1.0 / ranks,) * ranks


def _busiest(costs: list[float], ranks: int) -> tuple[float, ...]:
    owned = balance.assign_by_cost(costs, ranks, relieved=False)
    return tuple(sum(costs[j] for j in rank) for rank in owned)
