"""A State has errors: E1 on both sets, E_Q, constraint, multipliers, misclassified points, zeros; and gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from macmpi.half_steps.context import HalfStepContext
from macmpi.half_steps.problems import ZInputs, metrics, prepare_z, z_inputs, z_problem
from macmpi.nets.design import at, row_dots, total_of, weighed
from macmpi.nets.losses import times
from macmpi.nets.segment import Tape
from macmpi.plan.plan import Plan
from macmpi.state import Errors, Gradients, MacState, State
from macmpi.typing import Array


def errors_of(parts: HalfStepContext, state: State[Any], feasible: bool = False) -> Errors:
    """Computes the errors of a state.  Collective: yes.

    The training error of a net of radial basis functions has the ridge of the objective, as in eq. (6).

    feasible: whether Z is feasible; E_Q is then E1, which saves a pass.
    """
    weights, resolved = parts.weights(state), parts.plan.resolved
    train, validation = parts.nested(weights), parts.nested(weights, validation=True)
    E_Q, constraint, work, move = train.error, 0.0, 0.0, 0.0
    if not feasible and parts.plan.chain.sites:
        E_Q, constraint, work, move = _penalised(parts, state)
    ridge = _nested_ridge(parts, state) / parts.points.total_weight
    zeros = parts.zeros(weights)
    errors = Errors(train.error + ridge, validation.error, E_Q, constraint, move=move, ridge=ridge, zeros=zeros)
    if resolved.schedule.multipliers:
        sizes = np.abs(state.own.multipliers[parts.points.own])
        largest = parts.team.max_over_ranks({"multiplier": float(sizes.max(initial=0.0))})
        errors = errors._replace(lagrangian=E_Q - work, multiplier=largest["multiplier"])
    if resolved.loss.labels:
        errors = errors._replace(wrong_train=train.wrong, wrong_validation=validation.wrong)
    if resolved.schedule.gradients:
        errors = errors._replace(gradients=gradients_of(parts, state))
    return errors


def _penalised(parts: HalfStepContext, state: State[MacState]) -> tuple[float, float, float, float]:
    """Computes E_Q (eq. 3) and sum lambda^T (z - f), both per point, and the mean squares of z - f and mu M (z - f).

    Returns E_Q, the mean square of z - f, the sum, and the mean square of mu M (z - f); all with points' weights.
    Cost: one pass through the net.  Collective: yes.
    """
    given, width = z_inputs(parts, state), sum(parts.plan.chain.site_sizes)

    def add(rows: slice, out: Array) -> None:
        p, point_weights = z_problem(given, rows, shifted=False), at(parts.data.weights, rows)
        F = p.outputs(p.Z)
        missed = p.missed(p.Z, F)
        C = np.hstack(missed)
        D = weighed(C, point_weights)
        out[:2] = total_of(p.weigh(p.Z, missed, F[-1]), point_weights), np.einsum("nh,nh->", C, D, dtype=float)
        if len(given.multipliers):
            out[2] = -np.einsum("nh,nh->", given.multipliers[rows], D, dtype=float)
            squares = [np.square(times(c, m.M)).sum(axis=1) for c, m in zip(missed, p.metrics, strict=True)]
            out[3] = sum(float(total_of(s, point_weights)) for s in squares)

    E_Q, constraint, work, move = (parts.total(add, 4) / parts.points.total_weight).tolist()
    return E_Q, constraint / width, work, move / width


def _nested_ridge(parts: HalfStepContext, state: State[Any]) -> float:
    """Computes lambda ||W||^2 of eq. (6), the same for all mu; 0 if the ridge depends on mu.  Collective: no."""
    plan, shaping = parts.plan, parts.plan.resolved.shaping
    if not plan.has_basis or shaping.scale != "objective" or shaping.until_mu == 0.0:
        return 0.0
    at = replace(state, mu=min(state.mu, shaping.until_mu))
    return parts.shaping_of(at, range(len(plan.chain.segments)), ridge_alone=True)


NUMBERS = 3
"""This many sums come with the two gradients: squares of dE_Q/dz, of p_k - lambda_k, and of lambda_k."""


def gradients_of(parts: HalfStepContext, state: State[MacState]) -> Gradients:
    """Computes the norms of `Gradients` at a state.  Cost: the cost of `slopes_of`.  Collective: yes."""
    by_w, nested, (by_z, lacks, size) = slopes_of(parts, state)

    def norms() -> Gradients:
        share = float(np.sqrt(lacks / size)) if size else 0.0
        squares = np.array([by_w @ by_w + by_z, nested @ nested, size])
        penalised, of_net, multipliers = (np.sqrt(squares) / parts.points.total_weight).tolist()
        return Gradients(penalised, of_net, multipliers, share)

    return parts.team.from_root(norms)


def slopes_of(parts: HalfStepContext, state: State[MacState]) -> tuple[Array, Array, Array]:
    """Sums over points dE_Q/dW and dE1/dW, both (P,) and with the ridge, and `NUMBERS` sums of squares.

    It makes the metric of the present mu if there is none.
    Cost: about ten passes through the net, and the memory of two weights' sums for each of a rank's blocks.
    Collective: yes.
    """
    plan, given = parts.plan, prepare_z(parts, state)
    P = plan.offsets.weights[-1]

    def add(rows: slice, out: Array) -> None:
        _add_points(given, rows, out[:P], out[P : 2 * P], out[2 * P :])

    sums = parts.total(add, 2 * P + NUMBERS)
    shrinks = ridge_gradient(parts, state)
    return sums[:P] + shrinks, sums[P : 2 * P] + shrinks, sums[2 * P :]


def _add_points(given: ZInputs, rows: slice, by_w: Array, nested: Array, numbers: Array) -> None:
    """Adds the shares of some points to both gradients (P,), and to the sums of squares.  Collective: no."""
    parts, weights, problem = given.parts, given.weights, z_problem(given, rows)
    plan, chain, Z = parts.plan, parts.plan.chain, problem.Z
    F, tapes = problem.taped(Z)
    pulls, point_weights = problem.pulls(problem.missed(Z, F), F[-1]), at(parts.data.weights, rows)
    first, whole = problem.segments[0].tape(weights, problem.X), chain.whole.tape(weights, parts.data.X[rows])
    for tape, pull in zip([first, *tapes], pulls, strict=True):
        _add_slopes(plan, tape, weighed(pull, point_weights), by_w)
    exact = -problem.loss.residual(problem.Y, whole.F)
    _add_slopes(plan, whole, weighed(exact, point_weights), nested)
    ends = [*chain.sites, len(chain.maps)]
    for k in range(len(tapes) - 1, -1, -1):
        for step in reversed(whole.steps[ends[k] : ends[k + 1]]):
            exact = step.tangent.vjp(exact)
        slope = tapes[k].tangent.vjp(pulls[k + 1]) - pulls[k]
        numbers += [float(total_of(row_dots(A, A), point_weights)) for A in (slope, pulls[k] - exact, exact)]


def _add_slopes(plan: Plan, tape: Tape, dF: Array, out: Array) -> None:
    """Adds sum_n dF[n]^T df/dW of a segment's parameter blocks to `out` (P,).  Collective: no."""
    for block, slope in zip(tape.blocks, tape.weight_vjp(dF), strict=True):
        out[plan.offsets.block(block)] += slope.ravel()


def ridge_gradient(parts: HalfStepContext, state: State[MacState]) -> Array:
    """Computes the gradient of the ridge with respect to W, (P,), float64, on the scale of E_Q and at the present mu.

    A metric multiplies the ridge of a unit's own regression as it multiplies the unit's errors: mu ridge M V.
    Collective: no.
    """
    plan, weights, forms = parts.plan, parts.weights(state), metrics(parts.plan, state)
    out = np.zeros(plan.offsets.weights[-1])
    for k, regression in plan.resolved.regressions.items():
        apart = k < len(forms) and regression.by_unit and plan.resolved.shaping.scale == "unit"
        for b, ridge in zip(plan.chain.regressed(k), plan.ridges(k, state.mu), strict=True):
            V = np.where(plan.chain.blocks[b].own.penalised, weights[b].astype(float), 0.0)
            weighed = times(V.T, forms[k].M).T if apart else plan.penalty_weight(k, state.mu) * V
            out[plan.offsets.block(b)] += ridge * weighed.ravel()
    return out
