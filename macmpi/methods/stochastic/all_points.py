"""Stochastic MAC can take all points at once: the half steps then have no noise, and every step lowers the error.

With the curvature M (x) G of each layer and the last step P, both of all points,

    D = -(M (x) G + damping)^-1 dE1/dW,   W <- W + t (x D + y P),

where (x, y) minimises the damped Gauss-Newton model of E1 in that plane.  With `cg_iterations`, D solves the model
itself, (H + damping) D = -dE1/dW, by conjugate gradients, which begin at a multiple of P and are preconditioned by the
curvature above (Martens, 2010).  t is halved until E1 plus ridge falls.  The damping follows the ratio of actual to
predicted decrease (Levenberg; Marquardt), and never falls below a floor, since otherwise the net would learn its
training points by heart.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from macmpi.half_steps.method import MethodText
from macmpi.methods.stochastic.method import Stochastic
from macmpi.methods.stochastic.passes import Drawn, Passed, Points
from macmpi.methods.stochastic.schedule import Running
from macmpi.nets.design import row_dots
from macmpi.parallel.shared_work import Sum
from macmpi.plan import tuned
from macmpi.solvers.descent import conjugate_gradients, least_in_plane
from macmpi.state import Pause, never
from macmpi.typing import Array


class AllPoints(Stochastic):
    """Trains by steps on all points; an iteration is one step.  Collective: methods that say so.

    Every rank moves all weights, since each has the whole D, and lengths come from rank 0.
    """

    _passed: Passed | None = None
    """The pass of all points at the present weights; None: it is still to be done."""

    @property
    def text(self) -> MethodText:
        """Names the first damping, and says how directions are made.  Collective: no."""
        cg = self.plan.resolved.stochastic.cg_iterations
        made = f", directions by {cg} CG iterations" if cg else ""
        how = f"stochastic MAC, all points at once: damping {self.damping.first:g}{made}{self.ridge.words}"
        return replace(super().text, how=how, end="at the end")

    def begin(self, state: Running) -> None:
        """Moves the Grams to memory that the ranks of a node share.  Collective: yes."""
        self.curvature.share(state)

    def sweep(self, state: Running, pause: Pause = never) -> bool:
        """Takes one step; if no length lowers the objective, takes none and raises the damping.  Collective: yes.

        Cost: nine passes through the net, and four for each CG iteration.
        """
        own, ridge, rows = state.own, self.ridge.at(state.own.steps), self.schedule.drawn(state.iteration, 0)
        passed = self._passed or self._pass(rows, state)
        error, before = self._objective(passed, ridge, state), state.weights.copy()
        points = Points(rows, passed.tapes, passed.n, ridge, self.damping.of_length(own.damping, passed.loss) + ridge)
        damping = self.damping.of_inverses(own.damping, passed.loss) + ridge
        self.curvature.note(passed.tapes, passed.probed, state)
        self.curvature.refresh(passed.tapes, passed.probed, damping, state)
        self.curvature.complete(state)
        own.step, predicted = self._planned(passed, points, state)
        del passed, points
        for halvings in range(tuned.HALVINGS_WHOLE + 1):
            np.add(before, own.step, out=state.weights)
            self._passed = None  # frees the tapes before the next ones are made
            self._passed = self._pass(rows, state)
            if (fallen := error - self._objective(self._passed, ridge, state)) > 0.0:
                ratio = 0.0 if halvings else fallen / predicted
                own.damping = self.damping.adapted(own.damping, ratio, tuned.ADAPTED_WHOLE)
                break
            own.step *= 0.5
        else:
            state.weights[:], own.step, self._passed = before, np.zeros_like(before), None
            own.damping = min(tuned.DAMPING_RAISED * own.damping, tuned.DAMPING_MOST)
        own.steps += 1
        state.completed()
        return True

    def _pass(self, rows: Drawn, state: Running) -> Passed:
        """Passes all points through the net at the present weights.  Collective: yes."""
        with self.team.clock("z"):
            return self.passes.losses(rows, state)

    def _objective(self, passed: Passed, ridge: float, state: Running) -> float:
        """Computes E1 plus the ridge.  Collective: yes, if there is a ridge."""
        return passed.loss + (ridge and ridge * self.team.from_root(lambda: self.model.ridge_value(state.weights)))

    def _planned(self, passed: Passed, points: Points, state: Running) -> tuple[Array, float]:
        """Computes the step to the model's minimum in the plane of the direction and the last step, and its decrease.

        passed: the pass of all points.
        points: all points, with ridge and damping of the model.  Collective: yes.
        """
        with self.team.clock("z"):
            slopes = self.passes.slopes(passed, points.ridge, state)
        if self.plan.resolved.stochastic.cg_iterations:
            gradient = slopes.put(slice(None), np.empty_like(state.weights)) / float(passed.n)
            direction = self._solved(gradient, points, state)
        else:
            direction = self.directions.whole(slopes, passed.n, points.damping, state).copy()
        ways = [direction, state.own.step] if state.own.step.any() else [direction]
        b, H = self.model.within(ways, points, state)
        lengths = self.team.from_root(lambda: least_in_plane(H, b))
        step = sum(x * way for x, way in zip(lengths.astype(direction.dtype), ways, strict=True))
        return step, float(lengths @ b - 0.5 * lengths @ H @ lengths)

    def _solved(self, gradient: Array, points: Points, state: Running) -> Array:
        """Solves (H + damping) p = -gradient by preconditioned CG, begun at a share of the last step.

        gradient: (P,), as p is.  Collective: yes.
        """
        from_rank0, dtype = self.parts.shared_matrix.from_rank0, gradient.dtype
        start, R = tuned.CARRIED_ON * state.own.step, -gradient
        if start.any():
            R -= self.model.product(start, points)

        def product(P: Array, last: bool) -> tuple[Array, Array | None, Array]:
            HP = self.model.product(P[0].astype(dtype, copy=False), points)[None]
            return from_rank0(row_dots(P, HP)), None if last else HP, P

        def precondition(R: Array) -> Array:
            return -self.directions.whole(Sum(R, 0, np.add), 1.0, points.damping, state)[None]

        iterations = self.plan.resolved.stochastic.cg_iterations
        solved = conjugate_gradients(
            start[None], R[None], product, precondition, iterations, tuned.CG_TOLERANCE, from_rank0=from_rank0
        )
        return solved[0]
