"""Errors of a State: E1 on both sets, E_Q, the constraint, multipliers, misclassified points, zeros."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from macmpi.half_steps.gradients import gradients_of
from macmpi.half_steps.parts import Parts
from macmpi.half_steps.z_problems import z_inputs, z_problem
from macmpi.state import Errors, State


def errors_of(parts: Parts, state: State[Any], feasible: bool = False) -> Errors:
    """Errors at the present weights and coordinates.  Where Z is feasible, E_Q = E1.  Collective: yes.

    The training error of a net of radial basis functions holds the ridge of the objective, as in eq. (6).
    """
    train = parts.evaluation.nested(parts.weights(state))
    validation = parts.evaluation.nested(parts.weights(state), validation=True)
    ridge, zeros = _nested_ridge(parts, state) / parts.points.weight, parts.zeros(parts.weights(state))
    errors = Errors(train.error + ridge, validation.error, train.error, 0.0, zeros=zeros, ridge=ridge)
    if not feasible and parts.plan.chain.sites:
        given = z_inputs(parts, state)
        E_Q, constraint, work, move = parts.evaluation.penalised(
            lambda rows: z_problem(given, rows, shifted=False), given.multipliers
        )
        errors = errors._replace(E_Q=E_Q, constraint=constraint, move=move)
        if parts.plan.resolved.schedule.multipliers:
            errors = errors._replace(lagrangian=E_Q - work)
    if parts.plan.resolved.schedule.multipliers:
        lagrangian = errors.E_Q if errors.lagrangian is None else errors.lagrangian
        own = np.abs(state.own.multipliers[parts.points.own])
        largest = parts.team.max_over_ranks({"multiplier": float(own.max(initial=0.0))})
        errors = errors._replace(lagrangian=lagrangian, multiplier=largest["multiplier"])
    if parts.plan.resolved.loss.labels:
        errors = errors._replace(wrong_train=train.wrong, wrong_validation=validation.wrong)
    if parts.plan.resolved.schedule.gradients:
        errors = errors._replace(gradients=gradients_of(parts, state))
    return errors


def _nested_ridge(parts: Parts, state: State[Any]) -> float:
    """lambda ||W||^2 of eq. (6), one for all mu: none where the ridge grows with mu.  Collective: no."""
    plan, shaping = parts.plan, parts.plan.resolved.shaping
    if not plan.has_basis or shaping.scale != "objective" or shaping.until_mu == 0.0:
        return 0.0
    at = replace(state, mu=min(state.mu, shaping.until_mu))
    return parts.ridge_of(at, range(len(plan.chain.segments)))
