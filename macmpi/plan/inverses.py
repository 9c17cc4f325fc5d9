"""The work of stochastic MAC's inverses of Grams and metrics, by counted flops, and which rank makes which.

They are counted in one order everywhere: of G_1, M_1, G_2, M_2, ....
"""

from __future__ import annotations

from collections.abc import Sequence

from macmpi.parallel import balance
from macmpi.plan.damped import Damped

DECOMPOSED = 4.0
"""Eigenvectors of all of a matrix cost this many times as much as an inverse."""

DOUBLE = 2.0
"""And an inverse in double precision, as the Gram of a layer whose metric is the identity has, this many times."""

SLOW = 400.0
"""Small matrices keep no core busy: n rows take as long as n^2 (n + SLOW) numbers in products."""

PRODUCTS = 5.0
"""Products of a matrix with its leading eigenvectors, to renew them and their eigenvalues."""


def inverse_flops(shapes: Sequence[tuple[int, int]], layers: Damped) -> list[float]:
    """Flops of each inverse of layers of these shapes (h, d); of an identity metric 1.  Collective: no."""

    def flops(j: int, side: int) -> float:
        if j % 2 and j // 2 in layers.identity:
            return 1.0
        if j in layers.low_rank:
            return 2.0 * PRODUCTS * side**2 * layers.low_rank[j]
        effort = DECOMPOSED if j // 2 in layers.spectral else DOUBLE if j // 2 in layers.identity else 1.0
        return 2.0 * effort * side**2 * (side + SLOW)

    return [flops(2 * k + i, side) for k, (h, d) in enumerate(shapes) for i, side in enumerate((d, h))]


def assign_inverses(costs: Sequence[float], ranks: int) -> tuple[tuple[int, ...], ...]:
    """Assigns inverses by layers in order, as units are, where that is as even as one by one.

    A rank then reads the inverses that it has made itself.  Collective: no.
    """
    apart = balance.assign_by_cost(costs, ranks)
    layers = balance.assign_in_order([a + b for a, b in zip(costs[::2], costs[1::2], strict=True)], ranks)
    paired = tuple(tuple(j for k in rank for j in (2 * k, 2 * k + 1)) for rank in layers)
    busiest, least = (max(sum(costs[j] for j in rank) for rank in owners) for owners in (paired, apart))
    return paired if busiest <= (1.0 + balance.IN_ORDER) * least else apart
