"""All training methods have this base: the calls of the loop, first States, errors, the end, and random weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Generic

import numpy as np

from macmpi.data.dataset import Dataset
from macmpi.half_steps.context import HalfStepContext
from macmpi.half_steps.errors import errors_of
from macmpi.half_steps.problems import renew_metric
from macmpi.half_steps.w_step import fit, solve
from macmpi.parallel.streams import stream
from macmpi.parallel.team import Team
from macmpi.plan import tuned
from macmpi.plan.plan import Plan
from macmpi.solvers.descent import parabola_minimum
from macmpi.solvers.w_problem import SegmentProblem, gradients
from macmpi.state import Errors, MacState, Pause, RecordT, State, block_views, never
from macmpi.typing import Array

RANGE = 2.0
"""The range of random weights if start.range is 0: twice the paper's."""


COORDINATES = frozenset({"mu", "E_Q", "constraint"})
"""Columns that mean nothing for methods without coordinates."""

FLAT = "the validation error falls no more"
"""Words for the end of a run that waits for the validation error to fall."""

SETTLED = "settled at the largest mu"
"""Words for the end of a run whose mu grows each time the validation error has settled."""


STILL = "its codes are those of the net, or settled at the largest mu"
"""Words for the end of a run with codes, which may come before mu is the largest, once its codes change no more."""


@dataclass(frozen=True)
class MethodText:
    """Holds texts about a method for the console.

    how: how the method trains.
    end: with which weights the method ends.
    settled: why the method ends before the last iteration.
    without: columns of the table that have no meaning for the method.
    stepped: what moves the weights, for the message that weights are not finite.
    remedy: what may help if a run diverges.
    """

    how: str
    end: str = "after postprocessing"
    settled: str = SETTLED
    without: frozenset[str] = frozenset()
    stepped: str = "the W-step"
    remedy: str = "a smaller start.range or a larger penalty.ridge"


class TrainingMethod(Generic[RecordT]):
    """Moves a State from one iteration to the next, by a plan; a selection changes the plan.

    This base class is for the nested problem, min over W of E1 (eq. 1), without coordinates.
    Collective: methods that say so.
    """

    def __init__(self, plan: Plan, data: Dataset, team: Team) -> None:
        self.plan, self.data, self.team = plan, data, team
        self.parts = HalfStepContext(plan, data, team)

    @property
    def text(self) -> MethodText:
        """Texts about the method, for the console.  Collective: no."""
        raise NotImplementedError

    def new_record(self, state: State[MacState]) -> RecordT:
        """Makes the method's own record of a first State.  Collective: no."""
        raise NotImplementedError

    def sweep(self, state: State[RecordT], pause: Pause = never) -> bool:
        """Does one iteration; returns False if it was left in the middle, where the next sweep continues.

        pause: pause() tells whether the iteration is to be left now.  Collective: yes.
        """
        raise NotImplementedError

    def start(self, range_: float, gradient_step: bool, seed: int) -> State[RecordT]:
        """Makes a State of random weights, as `start_at` makes one of given weights.  Collective: yes.

        range_: the range of the weights, as in `random_weights`; 0: the method's own range.
        gradient_step: as in `start_at`.
        seed: the seed of the random streams.
        """
        return self.start_at(random_start(self.parts, range_, seed), gradient_step)

    def start_at(self, weights: Array, gradient_step: bool) -> State[RecordT]:
        """Makes a State of given weights (P,), with feasible coordinates and multipliers of 0.  Collective: yes.

        First, trainers fit layers after the regression of their segment if their weights are 0.  Weights are moved
        within their bounds, and zeros of sparse layers stay.

        gradient_step: whether to take a gradient step, if all layers have derivatives.  Only rank 0 computes the
            gradient if it has all points.
        """
        parts, plan, state = self.parts, self.plan, self._new_state(weights)
        for k, segment in enumerate(plan.chain.segments):
            if segment.trailing:
                parts.feasible(state)
                solve(parts, plan.work.untrained(k, state.weights), state)
        before = state.weights.copy()
        if gradient_step and plan.chain.differentiable:
            data, whole = self.data, (plan.chain.whole, plan.resolved.loss, plan.chain.block_shapes)
            nested = SegmentProblem(data.X, data.Y, 0.0, state.weights[None], *whole, point_weights=data.weights)
            slope = parts.points.once(len(weights), lambda: gradients(nested, nested.start, parts.over_points)[1][0])
            step_against(parts, state.weights, slope)
        state.weights[:] = parts.confined(state.weights, by=before)
        parts.feasible(state)
        return state.owned_by(self.new_record(state))

    def start_from(self, codes: Array, seed: int, range_: float) -> State[RecordT]:
        """Makes a State of given coordinates, whose weights come from a W-step that begins at random weights.

        codes (n, sum H): the coordinates of the points that this rank holds.
        seed, range_: the seed and the range of the random weights.  Collective: yes.
        """
        parts = self.parts
        state = self._new_state(parts.confined(random_start(parts, range_, seed)))
        with parts.points.writing(state.Z):
            state.Z[parts.points.own] = codes[parts.points.own]
        state.own.grams = self.team.array((self.plan.offsets.grams[-1],), np.float64)
        renew_metric(parts, state)
        fit(parts, range(len(self.plan.chain.segments)), state)
        state.own.metric_mu = 0.0
        renew_metric(parts, state)
        return state.owned_by(self.new_record(state))

    def _new_state(self, weights: Array) -> State[MacState]:
        """Makes a State of weights (P,); coordinates and multipliers, if it has any, are 0.  Collective: yes."""
        plan, shape = self.plan, (self.parts.points.count, sum(self.plan.chain.site_sizes))
        Z = self.team.array(shape, plan.dtype)
        state = State(weights.astype(plan.dtype), Z, plan.resolved.schedule.mu0, MacState())
        if plan.resolved.schedule.multipliers:
            state.own.multipliers = self.team.array(shape, plan.dtype)
        return state

    def begin(self, state: State[RecordT]) -> None:
        """Prepares the method for a first State or one of a checkpoint; here it does nothing.

        Collective: in methods that do something.
        """

    def move_multipliers(self, state: State[RecordT]) -> None:
        """Moves the multipliers; here there are none, and it does nothing.  Collective: if there are multipliers."""

    def evaluate(self, state: State[RecordT], feasible: bool = False) -> Errors:
        """Computes the errors of the weights that the run shows.  feasible: as in `errors_of`.  Collective: yes."""
        return errors_of(self.parts, replace(state, weights=state.result), feasible)

    def notes(self, state: State[RecordT]) -> dict[str, Any]:
        """Returns further keys of an iteration's record; "phase" if it is not "iteration".  Collective: no."""
        return {}

    def finish(self, state: State[RecordT]) -> State[RecordT]:
        """Ends the run: returns a State with the weights that it shows.

        Collective: in methods that make other weights.
        """
        return replace(state, weights=state.result.copy(), mu=state.mu_done or state.mu)


def step_against(parts: HalfStepContext, weights: Array, gradient: Array) -> None:
    """Moves weights (P,) along minus the gradient (P,) of E1, a sum over points, in place.  Collective: yes.

    The step begins at 1 / N, with N the sum of the points' weights, and is halved until E1 falls.  Then the minimum of
    the parabola through E1 at the beginning, its slope and the lower value is taken, if E1 is lower there.
    """
    N, shapes = parts.points.total_weight, parts.plan.chain.block_shapes
    start, slope = weights.copy(), parts.team.from_root(lambda: -float(gradient @ gradient) / N)

    def error_at(step: float) -> float:
        weights[:] = start - step * gradient
        return parts.nested(block_views(weights, shapes)).error

    before, step = error_at(0.0), 1.0 / N
    while (after := error_at(step)) >= before and step > 1e-20:
        step *= 0.5
    best = float(parabola_minimum(before, slope, step, after))
    if not (best < np.inf and error_at(best) < after):
        error_at(step)


# --- random weights ---------------------------------------------------------------------------------------------------


def random_start(parts: HalfStepContext, range_: float, seed: int) -> Array:
    """Gives every rank the random weights of rank 0, since processors round orthogonal matrices differently.

    range_, seed: as in `random_weights`.  Collective: yes.
    """
    weights = random_weights(parts.plan, range_, seed)
    parts.team.share_array(weights)
    return weights


def random_weights(plan: Plan, range_: float, seed: int) -> np.ndarray:
    """Draws random weights (P,), w_kh ~ U[-range/sqrt(f_k), range/sqrt(f_k)] with fan-in f_k (section 4.2).

    Biases and the output layer are drawn in the same way; weights that a trainer or a layer's own fitter will find are
    0.

    range_: 0 stands for RANGE.
    seed: the seed of the random streams, of which each parameter block has its own.  Collective: no.
    """
    flat = np.concatenate([random_block(plan, b, range_ or RANGE, seed) for b in range(len(plan.chain.net.blocks))])
    remember(plan, flat, seed)
    return flat


def remember(plan: Plan, flat: np.ndarray, seed: int) -> None:
    """Replaces recurrent weights in `flat` (P,) by a multiple of a matrix that keeps the length of a state.

    The matrix is the identity for activations without an upper bound, and a random orthogonal matrix for others.
    Collective: no.
    """
    chain = plan.chain
    for first, block in zip(chain.maps, chain.whole.blocks[1:], strict=False):
        if first.own.memory and block is not None:
            state = first.own.remembered(stream(seed, "memory", block))
            flat[plan.offsets.block(block)].reshape(chain.block_shapes[block])[:, : len(state)] = state


def random_block(plan: Plan, block: int, range_: float, seed: int) -> np.ndarray:
    """Draws the random weights of one parameter block, flat, from a stream of its own.  Collective: no.

    If more than DEEP layers are added to skips, the weights of these L layers are divided by L, so that together they
    add as much as one layer would, however deep the net is.
    """
    chain = plan.chain.net
    (h, d), map_, added = chain.block_shapes[block], chain.blocks[block].own, chain.added
    if "centres" in map_.capabilities or map_.fitter:
        return np.zeros(h * d)
    bound = range_ / np.sqrt(map_.fan_in) / (len(added) if block in added and len(added) > tuned.DEEP else 1.0)
    return np.ravel(map_.zero_missing(stream(seed, "start", block).uniform(-1.0, 1.0, (h, d)) * bound))
