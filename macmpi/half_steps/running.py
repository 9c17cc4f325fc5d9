"""W-steps on running sums: behind a minibatch's Z-step its part of the sums over points is made again, and no other.

A regression in closed form reads sums over points alone, G = [A, 1]^T [A, 1] and T^T [A, 1].  Of each minibatch of
stored coordinates its own part of them is kept; where the others' coordinates stay, all parts together are the sums
over all points.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from macmpi.half_steps.problems import WInputs
from macmpi.half_steps.w_step import Solving, exchanged
from macmpi.plan.work_lists import Exchange
from macmpi.reductions import OverPoints, Partial
from macmpi.typing import Array


class Running(Solving):
    """The tasks of a W-step behind the Z-step of one minibatch, from the sums that the State keeps of each.

    At first those of all minibatches are made.  Collective: where a method says so.
    """

    def __init__(self, minibatch: int, given: WInputs, plain: bool, factors: dict[int, Any]) -> None:
        super().__init__(given, plain, factors)
        plan, own = given.parts.plan, given.state.own
        self._weights, self._parts = plan.offsets.weights[-1], plan.resolved.minibatches
        self._again = range(minibatch, minibatch + 1) if len(own.sums) else range(self._parts)
        if not len(own.sums):
            own.sums = np.zeros(self._parts * (self._weights + plan.offsets.grams[-1]))
        self._sums = own.sums.reshape(self._parts, -1)

    def summed(self, what: str, place: slice, over_points: OverPoints) -> OverPoints:
        """Sums up what becomes "grams" or "weights": of the present minibatch again, of the others as kept.

        Collective: where `over_points` is.
        """
        kept = self._of(what)[:, place]

        def total(partial: Partial) -> tuple[Array, ...]:
            for i in self._again:
                some = self.given.parts.points.minibatch(i, self._parts)
                (found,) = over_points(lambda rows, some=some: partial(some(rows)))  # type: ignore[misc]
                kept[i] = found.ravel()
            return (kept.sum(axis=0).reshape(found.shape),)

        return total

    def exchange(self, exchange: Exchange) -> None:
        """Gives all ranks the Grams, or the weights, that each has made, and the sums behind them.  Collective: yes."""
        super().exchange(exchange)
        if exchange.parts:
            for i in self._again:
                exchanged(self._of(exchange.what)[i], exchange, self.given.parts.team)

    def _of(self, what: str) -> Array:
        return self._sums[:, self._weights :] if what == "grams" else self._sums[:, : self._weights]
