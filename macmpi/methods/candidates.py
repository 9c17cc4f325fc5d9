"""Candidates of a selection in the W-step, regression by regression, and their costs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from macmpi.plan.plan import Plan
from macmpi.plan.selectable import FEWEST, STEP, ridges_of, widths_of
from macmpi.typing import Array

CRITERIA: dict[str, Callable[[int], float]] = {
    "aic": lambda n: 1.0,
    "bic": lambda n: 0.5 * math.log(n),
    "mdl": lambda n: 0.5 * max(math.log(n / (2.0 * math.pi)), 0.0),
}
"""A parameter costs this in units of epsilon^2 in addition to E1, half the sum of squares, for n points: half of what
it costs in addition to -2 log likelihood = sum of squares / epsilon^2."""


@dataclass(frozen=True)
class Candidates:
    """The regression of segment `segment`: what a linear layer reads, radial basis functions or what is before it.

    counts: candidates of its inputs, of centres several.  widths, ridges: candidates; () where there is nothing to
    choose.  layer: the hidden layer of radial basis functions, -1 of a dense one.  block: of the linear layer.  price:
    of a parameter, in the scale of E1; a centre has `own` of them, and each of its `outputs` a weight.
    """

    segment: int
    layer: int
    block: int
    counts: Array
    widths: tuple[float, ...]
    ridges: tuple[float, ...]
    price: float
    own: int
    outputs: int

    def cost(self, counts: Array, degrees: Array | float | None = None) -> Array:
        """C = price (own M + outputs M) of M inputs; where ridges are compared, the second M is the degrees."""
        if degrees is None:
            return self.price * (self.own + self.outputs) * counts
        return self.price * (self.own * counts + self.outputs * degrees)


def candidates_of(plan: Plan) -> list[Candidates]:
    """The regressions that a selection compares; numbers of centres up to the plan's own.  Collective: no."""
    keys, chain, found = plan.resolved.selection, plan.chain, list[Candidates]()
    ridges = ridges_of(plan.resolved)
    chosen = [k for k, segment in enumerate(chain.segments) if segment.leading or k in ridges]
    a_parameter, epsilons = CRITERIA[keys.criterion](plan.n_train), keys.epsilons(len(chosen))
    for k, epsilon2 in zip(chosen, epsilons, strict=True):
        segment, price, block = chain.segments[k], a_parameter * epsilon2, chain.segments[k].regressed[0]
        (units, inputs), layer, own, widths = chain.block_shapes[block], -1, 0, tuple[float, ...]()
        counts = np.array([inputs])
        if segment.leading:
            first = segment.maps[0]
            layer = next(i for i, m in enumerate(plan.hidden) if m is first)
            steps = keys.sizes[layer] if keys.sizes else np.arange(FEWEST, first.n_out, STEP)
            counts, own, widths = np.unique([*steps, first.n_out]), first.n_in, widths_of(plan.resolved, layer)
        found.append(Candidates(k, layer, block, counts, widths, ridges.get(k, ()), price, own, units))
    return found
