"""States at both ends of a run: from random or given weights, or given coordinates; and after postprocessing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from macmpi.half_steps.parts import Parts
from macmpi.half_steps.problems import renew_metric
from macmpi.half_steps.w_step import fit, solve
from macmpi.parallel.streams import stream
from macmpi.plan.plan import Plan
from macmpi.solvers.w_problem import SegmentProblem, gradients
from macmpi.state import MacState, State
from macmpi.typing import Array


def random_start(parts: Parts, range_: float, seed: int) -> Array:
    """`random_weights` as rank 0 draws them, for processors round orthogonal matrices in different ways.

    Collective: yes.
    """
    weights = random_weights(parts.plan, range_, seed)
    parts.team.share_array(weights)
    return weights


def start_from(parts: Parts, codes: Array, seed: int, range_: float) -> State[MacState]:
    """The given coordinates (N, sum H), and the weights of a W-step from random ones.  Collective: yes."""
    state = parts.new_state(parts.confined(random_start(parts, range_, seed)))
    with parts.points.writing(state.Z):
        state.Z[parts.points.own] = codes[parts.points.own]
    state.own.grams = parts.no_grams()
    renew_metric(parts, state)
    fit(parts, range(len(parts.plan.chain.segments)), state)
    state.own.metric_mu = 0.0
    renew_metric(parts, state)
    return state


def start_at(parts: Parts, weights: Array, gradient_step: bool) -> State[MacState]:
    """The given weights (flat), one gradient step, feasible coordinates, no multipliers.  Collective: yes.

    Where a layer has no derivative there is no gradient step.  Weights that have bounds are moved into them, and zeros
    of sparse layers stay.  Rank 0 alone computes the gradient where it has all points.
    """
    plan, state = parts.plan, parts.new_state(weights)
    for k, segment in enumerate(plan.chain.segments):
        if segment.trailing:
            parts.feasible(state)
            solve(parts, plan.work.untrained(k, state.weights), state)
    before = state.weights.copy()
    if gradient_step and plan.chain.differentiable:
        data, whole = parts.data, (plan.chain.whole, plan.resolved.loss, plan.chain.block_shapes)
        nested = SegmentProblem(data.X, data.Y, 0.0, state.weights[None], *whole, point_weights=data.weights)
        slope = parts.points.once(len(weights), lambda: gradients(nested, nested.start, parts.over_points)[1][0])
        parts.evaluation.gradient_step(state.weights, slope)
    state.weights[:] = parts.confined(state.weights, by=before)
    parts.feasible(state)
    return state


REFITS = 5
"""An inexact refit is made at most this number of times."""

REFIT = 1e-4
"""The relative fall of E1 + ridge below which an inexact refit is not repeated."""


def postprocess(parts: Parts, state: State[MacState]) -> State[MacState]:
    """Postprocessing: Z feasible, then a refit of the last layer, kept if E1 + ridge falls.  Collective: yes.

    Without coordinates there is nothing to do.  Those of many points that ranks hold apart are overwritten: memory may
    not hold them twice.
    The refit is repeated while it lowers E1 + ridge by more than `REFIT`, unless one is exact.
    """
    plan = parts.plan
    Z, moved = parts.points.spare(state.Z), state.own.multipliers
    own = replace(state.own, grams=state.own.grams.copy(), multipliers=np.zeros(moved.shape, moved.dtype))
    after = replace(state, weights=state.weights.copy(), Z=Z, own=own, mu=state.mu_done or state.mu)
    if not plan.chain.sites:
        return after
    parts.feasible(after)
    before, last = last_objective(parts, after), len(plan.chain.sites)
    for _ in range(1 if plan.resolved.regressions[-1].solver.exact else REFITS):
        kept = after.weights.copy()
        fit(parts, [last], after)
        now = last_objective(parts, after)
        if not now < before:
            after.weights[:] = kept
            break
        if before - now < REFIT * before:
            break
        before = now
    return after


def last_objective(parts: Parts, state: State[MacState]) -> float:
    """E1, and the last layer's ridge and other penalties, per point.  Collective: yes."""
    last = len(parts.plan.chain.segments) - 1
    shaping = parts.team.from_root(lambda: parts.shaping_of(state, [last]))
    return parts.evaluation.nested(parts.weights(state)).error + shaping / parts.points.weight


RANGE = 2.0
"""Twice the paper's range of random weights: where start.range is 0."""


def random_weights(plan: Plan, range_: float, seed: int) -> np.ndarray:
    """Random weights (P,), flat: w_kh ~ U[-range/sqrt(f_k), range/sqrt(f_k)] with fan-in f_k (section 4.2).

    Range 0 stands for RANGE.  Biases and the output layer are drawn alike; 0 where a trainer or a layer's own fitter
    will find the weights.  Collective: no.
    """
    flat = np.concatenate([random_block(plan, b, range_ or RANGE, seed) for b in range(len(plan.chain.blocks))])
    remember(plan, flat, seed)
    return flat


def remember(plan: Plan, flat: np.ndarray, seed: int) -> None:
    """Recurrent weights begin as a share of a matrix that keeps the length of a state, in place.

    It is the identity under activations that have no upper bound, and a random orthogonal matrix under others.
    Collective: no.
    """
    chain = plan.chain
    for first, block in zip(chain.maps, chain.whole.blocks[1:], strict=False):
        if first.memory and block is not None:
            state = first.remembered(stream(seed, "memory", block))
            flat[plan.offsets.block(block)].reshape(chain.block_shapes[block])[:, : len(state)] = state


def random_block(plan: Plan, block: int, range_: float, seed: int) -> np.ndarray:
    """The random weights of one parameter block, flat, in a stream of its own.  Collective: no.

    Those of L layers that are added to what skips carry are divided by L: together they add as much as one layer would,
    however deep the net is.
    """
    h, d = plan.chain.block_shapes[block]
    if block in plan.resolved.trainers or plan.chain.blocks[block].fitter:
        return np.zeros(h * d)
    map_, added = plan.chain.blocks[block].own, plan.chain.added
    bound = range_ / np.sqrt(map_.fan_in) / (len(added) if block in added else 1.0)
    drawn = stream(seed, "start", block).uniform(-1.0, 1.0, (h, d)) * bound
    return np.ravel(map_.zero_missing(drawn))
