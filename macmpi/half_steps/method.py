"""The base of all training methods: what the loop asks of one, first States, errors, the end; and random weights."""

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
"""Twice the paper's range of random weights: where start.range is 0."""


COORDINATES = frozenset({"mu", "E_Q", "constraint"})
"""Columns that mean nothing where there are no coordinates."""

FLAT = "the validation error falls no more"
"""Why a run ends by itself that waits for the validation error to fall."""

SETTLED = "settled at the largest mu"
"""Why a run ends by itself whose mu grows each time the validation error has settled."""


STILL = "its codes are those of the net, or settled at the largest mu"
"""A run of codes may end by itself before mu is the largest: once they change no more."""


@dataclass(frozen=True)
class MethodText:
    """Texts about a method for the console.

    how: how it trains.
    end: which weights it ends with.
    settled: what has happened when it ends before the last iteration.
    without: columns of the table that mean nothing of it.
    stepped: what moves its weights, for the message where they are no numbers.
    remedy: what may help where a run diverges.
    """

    how: str
    end: str = "after postprocessing"
    settled: str = SETTLED
    without: frozenset[str] = frozenset()
    stepped: str = "the W-step"
    remedy: str = "a smaller start.range or a larger penalty.ridge"


class TrainingMethod(Generic[RecordT]):
    """A training method moves a State from one iteration to the next, as its plan says, which a selection changes.

    What a method does not say itself is done as for the nested problem, min over W of E1 (eq. 1), without coordinates.
    Collective: where a method says so.
    """

    def __init__(self, plan: Plan, data: Dataset, team: Team) -> None:
        self.plan, self.data, self.team = plan, data, team
        self.parts = HalfStepContext(plan, data, team)

    @property
    def text(self) -> MethodText:
        """The method, how it ends and how it fails, as the console says it.  Collective: no."""
        raise NotImplementedError

    def new_record(self, state: State[MacState]) -> RecordT:
        """Makes the method's own record of a first State.  Collective: no."""
        raise NotImplementedError

    def sweep(self, state: State[RecordT], pause: Pause = never) -> bool:
        """Does one iteration; gives False where `pause` has ended it in the middle, and the next sweep goes on there.

        Collective: yes.
        """
        raise NotImplementedError

    def start(self, range_: float, gradient_step: bool, seed: int) -> State[RecordT]:
        """Makes a State of random weights, as `start_at` does of given ones.  Collective: yes.

        range_: of the weights, as in `random_weights`; 0: the method's own.
        gradient_step: as in `start_at`.
        seed: of the random streams.
        """
        return self.start_at(random_start(self.parts, range_, seed), gradient_step)

    def start_at(self, weights: Array, gradient_step: bool) -> State[RecordT]:
        """Makes a State of given weights (P,): feasible coordinates, no multipliers.  Collective: yes.

        Layers behind the regression of their segment whose weights are 0 are fitted by their trainers first.  Then
        comes one gradient step, if it is asked for and all layers have derivatives.  Weights that have bounds are moved
        into them, and zeros of sparse layers stay.  Rank 0 alone computes the gradient where it has all points.
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
        """Makes a State of given coordinates, whose weights come from a W-step that begins with random ones.

        codes (n, sum H): the coordinates of the points that this rank holds.
        seed, range_: of the random weights.  Collective: yes.
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
        """Makes a State of weights (P,), with coordinates and multipliers, if there are any, 0.  Collective: yes."""
        plan, shape = self.plan, (self.parts.points.count, sum(self.plan.chain.site_sizes))
        Z = self.team.array(shape, plan.dtype)
        state = State(weights.astype(plan.dtype), Z, plan.resolved.schedule.mu0, MacState())
        if plan.resolved.schedule.multipliers:
            state.own.multipliers = self.team.array(shape, plan.dtype)
        return state

    def begin(self, state: State[RecordT]) -> None:
        """Makes what a first State, or one of a checkpoint, may lack; here nothing.  Collective: where it does."""

    def move_multipliers(self, state: State[RecordT]) -> None:
        """Does nothing where there are no multipliers.  Collective: where there are."""

    def evaluate(self, state: State[RecordT], feasible: bool = False) -> Errors:
        """Errors of the weights that the run shows.  Where Z is feasible, E_Q = E1.  Collective: yes."""
        return errors_of(self.parts, replace(state, weights=state.result), feasible)

    def notes(self, state: State[RecordT]) -> dict[str, Any]:
        """Further keys of an iteration's record; "phase" if it is not "iteration".  Collective: no."""
        return {}

    def finish(self, state: State[RecordT]) -> State[RecordT]:
        """The weights that the run shows.  Collective: where a method makes other ones."""
        return replace(state, weights=state.result.copy(), mu=state.mu_done or state.mu)


def step_against(parts: HalfStepContext, weights: Array, gradient: Array) -> None:
    """Moves flat weights against the gradient of E1 (a sum over points), in place.  Collective: yes.

    The step begins at 1/N, N the sum of the points' weights, is halved until E1 falls, and ends at the minimum of the
    parabola through E1, its slope and that value if E1 is lower there.
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
    """Gives every rank the random weights that rank 0 draws, for processors round orthogonal matrices differently.

    range_, seed: as in `random_weights`.  Collective: yes.
    """
    weights = random_weights(parts.plan, range_, seed)
    parts.team.share_array(weights)
    return weights


def random_weights(plan: Plan, range_: float, seed: int) -> np.ndarray:
    """Random weights (P,), flat: w_kh ~ U[-range/sqrt(f_k), range/sqrt(f_k)] with fan-in f_k (section 4.2).

    range_: 0 stands for RANGE.
    seed: of the random streams, of which each parameter block has its own.
    Biases and the output layer are drawn alike; weights that a trainer or a layer's own fitter will find are 0.
    Collective: no.
    """
    flat = np.concatenate([random_block(plan, b, range_ or RANGE, seed) for b in range(len(plan.chain.net.blocks))])
    remember(plan, flat, seed)
    return flat


def remember(plan: Plan, flat: np.ndarray, seed: int) -> None:
    """Replaces recurrent weights in `flat` (P,) by a share of a matrix that keeps the length of a state.

    It is the identity under activations that have no upper bound, and a random orthogonal matrix under others.
    Collective: no.
    """
    chain = plan.chain
    for first, block in zip(chain.maps, chain.whole.blocks[1:], strict=False):
        if first.own.memory and block is not None:
            state = first.own.remembered(stream(seed, "memory", block))
            flat[plan.offsets.block(block)].reshape(chain.block_shapes[block])[:, : len(state)] = state


def random_block(plan: Plan, block: int, range_: float, seed: int) -> np.ndarray:
    """Draws the random weights of one parameter block, flat, from a stream of its own.  Collective: no.

    Where skips join more than DEEP layers by addition, the weights of these L layers are divided by L: together they
    add as much as one layer would, however deep the net is.
    """
    chain = plan.chain.net
    (h, d), map_, added = chain.block_shapes[block], chain.blocks[block].own, chain.added
    if "centres" in map_.capabilities or map_.fitter:
        return np.zeros(h * d)
    bound = range_ / np.sqrt(map_.fan_in) / (len(added) if block in added and len(added) > tuned.DEEP else 1.0)
    drawn = stream(seed, "start", block).uniform(-1.0, 1.0, (h, d)) * bound
    return np.ravel(map_.zero_missing(drawn))
