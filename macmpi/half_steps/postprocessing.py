"""The postprocessing step: feasible coordinates, then a refit of the last layer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from macmpi.half_steps.parts import Parts
from macmpi.half_steps.w_step import fit
from macmpi.state import MacState, State

REFITS = 5
"""An inexact refit is made at most this number of times."""

REFIT = 1e-4
"""The relative fall of E1 + ridge below which an inexact refit is not repeated."""


def postprocess(parts: Parts, state: State[MacState]) -> State[MacState]:
    """Postprocessing: Z feasible, then a refit of the last layer, kept if E1 + ridge falls.  Collective: yes.

    Without coordinates there is nothing to do.  Sharded coordinates are overwritten: memory may not hold them twice.
    The refit is repeated while it lowers E1 + ridge by more than `REFIT`, unless one is exact.
    """
    plan = parts.plan
    Z = state.Z if plan.sharded else parts.team.array(state.Z.shape, state.Z.dtype)
    moved = state.own.multipliers
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
