"""Stochastic MAC on the pieces of a stream: each goes on from the numbers that the one before has left in its model.

Nobody knows how many points there will be, so that all so far stand for them: in the first ridge, in the size of
minibatches, and in the Gram of inputs, a mean over all of them; the average of the weights is over the last part of all
steps.  Inverses are made again at the beginning of a piece, whose scaling may be another.
"""

from __future__ import annotations

import numpy as np

from macmpi.data.dataset import share_arrays
from macmpi.methods.stochastic.method import Stochastic
from macmpi.methods.stochastic.schedule import Running
from macmpi.state import Errors, StochasticState
from macmpi.typing import Array


class Stream(Stochastic):
    """Stochastic MAC on a piece as a Method: an iteration is a pass over it.  Collective: where a method says so."""

    def evaluate(self, state: Running, feasible: bool = False) -> Errors:
        """Errors at the validation points, which stand for all of the piece too.  Collective: yes."""
        found = self.parts.nested(self.layout.blocks(state.result), validation=True)
        wrong = (found.wrong, found.wrong) if self.plan.resolved.loss.labels else (None, None)
        return Errors(found.error, found.error, found.error, 0.0, wrong_train=wrong[0], wrong_validation=wrong[1])

    def go_on(self, state: Running, last: dict[str, Array] | None) -> None:
        """The first State of a piece takes what the piece before has left, in this scaling.  Collective: yes.

        last: on rank 0, as of `kept`.
        """
        names = ("average", "step", "grams", "numbers")
        arrays = share_arrays(self.team, [last[name] for name in names] if last else [])
        own, dtype, new = state.own, self.plan.dtype, self.curvature.settled
        own.average, own.step, grams = (np.array(A, dtype) for A in arrays[:3])
        before, n = self.plan.resolved.before, self.plan.n_train
        own.grams[new:] = grams[new:]
        own.grams[:new] += (grams[:new] - own.grams[:new]) * (before / (before + n))
        own.damping, own.length, own.measured, own.level, steps = arrays[3].tolist()
        own.steps = int(steps)


def kept(weights: Array, own: StochasticState, points: int) -> dict[str, Array]:
    """Copies of what the next piece goes on from.  points: of the stream so far.  Collective: no."""
    arrays = {"weights": weights, "average": own.average, "step": own.step, "grams": own.grams}
    numbers = np.array([own.damping, own.length, own.measured, own.level, own.steps], float)
    return {name: A.copy() for name, A in arrays.items()} | {"numbers": numbers, "points": np.array([points])}
