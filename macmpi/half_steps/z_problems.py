"""Z-problems of a state, eq. (4) for some points, and the forms M_k in which the constraints z_k - f_k are measured.

A Z-problem is a pure function of what all points have in common.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from macmpi.half_steps.parts import Parts
from macmpi.nets.chain import with_data
from macmpi.nets.design import at, total_of
from macmpi.nets.losses import Metric, metric, times
from macmpi.parallel.points import Points
from macmpi.plan.plan import Plan
from macmpi.reductions import Rows as ByRows
from macmpi.solvers.z_problem import Rows, ZProblem
from macmpi.state import MacState, State
from macmpi.typing import Array


@dataclass(frozen=True)
class ZInputs:
    """The Z-problems of a half step are made of this.

    weights: of each block; Z and multipliers of all points that this rank holds (the latter may be empty); metrics:
    mu M_k of each site; features: what the first segment's regression multiplies.
    """

    parts: Parts
    weights: tuple[Array, ...]
    Z: Array
    multipliers: Array
    metrics: tuple[Metric, ...]
    features: ByRows


def prepare_z(parts: Parts, state: State[MacState]) -> ZInputs:
    """Prepares a Z-step, with the metric of its mu.  Collective: yes."""
    renew_metric(parts, state)
    return z_inputs(parts, state)


def z_inputs(parts: Parts, state: State[MacState]) -> ZInputs:
    """Collects what the Z-problems of the present state are made of.  Collective: yes."""
    weights, forms = parts.weights(state), metrics(parts.plan, state)
    return ZInputs(parts, weights, state.Z, state.own.multipliers, forms, parts.first(state).features)


def z_problem(given: ZInputs, rows: Rows, shifted: bool = True) -> ZProblem:
    """Eq. (4) for some points; without the shift by multipliers where `shifted` is False.  Collective: no."""
    parts, plan, moves = given.parts, given.parts.plan, given.parts.plan.resolved.schedule.multipliers
    return ZProblem(
        segments=(plan.features[0], *plan.chain.segments[1:]),
        sizes=plan.chain.site_sizes,
        weights=given.weights,
        loss=plan.resolved.loss,
        metrics=given.metrics,
        X=given.features[rows],
        Y=parts.data.Y[rows],
        Z=given.Z[rows],
        shift=shift(plan, given.metrics, given.multipliers[rows]) if shifted and moves else None,
        sides=_sides(given, rows),
    )


def _sides(given: ZInputs, rows: Rows) -> tuple[Array | None, ...]:
    """The data that the segments behind the first site read."""
    read = [segment.data for segment in given.parts.plan.chain.segments[1:]]
    return tuple(None if data is None else given.parts.data.X[rows, data[0] : data[1]] for data in read)


# --- metrics ----------------------------------------------------------------------------------------------------------


FLOOR, DAMPING = 1e-2, 0.1
"""Bounds of the metrics: least variance, in shares of a site's largest; identity added to a mean curvature of 1."""


def metrics(plan: Plan, state: State[MacState]) -> tuple[Metric, ...]:
    """mu M_k of each site.  Collective: no."""
    if plan.resolved.metric == "identity":
        return (metric(state.mu, plan.dtype),) * len(plan.chain.sites)
    forms, at = [], 0
    for h in plan.chain.site_sizes:
        shape = (h, h) if plan.resolved.metric == "curvature" else (h,)
        size = int(np.prod(shape))
        forms.append(metric(state.mu * state.own.metric[at : at + size].reshape(shape), plan.dtype))
        at += size
    return tuple(forms)


def unit_metric(plan: Plan, k: int, state: State[MacState]) -> Metric:
    """The form in which a hidden segment's own regression is measured: M_k without mu.  Collective: no."""
    if plan.resolved.metric == "identity":
        return metric(1.0, plan.dtype)
    return metric(state.own.metric[plan.chain.site_columns[k]], plan.dtype)


def shift(plan: Plan, forms: tuple[Metric, ...], multipliers: Array) -> Array:
    """u_k = M_k^-1 lambda_k of some points (n, sum H).  Collective: no."""
    sites = zip(plan.chain.site_columns, forms, strict=True)
    return np.hstack([times(multipliers[:, columns], form.inverse) for columns, form in sites])


def renew_metric(parts: Parts, state: State[MacState]) -> None:
    """The forms M_k at each new mu, from the state as it is then; within fixed bounds.

    "variance": 1 / variance of each coordinate.  "curvature": about the sample's mean of Phi_k^T Phi_k, damped.
    Both are scaled to a mean eigenvalue of 1.  Collective: yes.
    """
    plan, points, own = parts.plan, parts.points, state.own
    if plan.resolved.metric == "identity" or own.metric_mu == state.mu:
        return
    sites = [state.Z[:, columns] for columns in plan.chain.site_columns]
    if plan.resolved.metric == "variance":
        variances = [_variance(points, parts.data.weights, z) for z in sites]
        forms = [1.0 / np.maximum(v, FLOOR * v.max() or 1.0) for v in variances]
    else:
        forms = _curvatures(parts, [W.astype(float) for W in parts.weights(state)], sites)
    scaled = [F / (np.trace(F) / len(F) if F.ndim == 2 else F.mean()) for F in forms]
    own.metric, own.metric_mu = parts.in_pieces.agreed(np.concatenate([F.ravel() for F in scaled])), state.mu


def _variance(points: Points, weights: Array | None, z: Array) -> Array:
    """The variance of each column over all points, as they weigh.  Collective: where no rank sums alone."""

    def sums(of: Callable[[slice], Array]) -> Array:
        (found,) = points.over(lambda rows: (total_of(of(rows), at(weights, rows)),))
        return found / points.weight

    mean = sums(lambda rows: z[rows])
    return sums(lambda rows: np.square(z[rows] - mean))


def _curvatures(parts: Parts, weights: list[Array], sites: list[Array]) -> list[Array]:
    """M_k = E[J_{k+1}^T M_{k+1} J_{k+1}] of each site, damped, from the loss's mean curvature on.  Collective: yes.

    The means of the maps one after the other: E[Phi_k^T Phi_k] only where their derivatives are alike at all points.
    """
    plan, points = parts.plan, parts.points
    average, segments = points.average, plan.chain.segments
    X, Y = parts.data.X[points.sample], parts.data.Y[points.sample]
    inputs = [with_data(s, z[points.sample], X).astype(float) for s, z in zip(segments[1:], sites, strict=True)]
    F = average.rows(lambda rows: segments[-1].forward(weights, inputs[-1][rows]))
    M = average.mean(lambda rows: plan.resolved.loss.hessian(Y[rows], F[rows]), (F.shape[1], F.shape[1]))
    forms: list[Array] = []
    for segment, A in zip(reversed(segments[1:]), reversed(inputs), strict=True):
        M = segment.pullback(weights, A, M, average)
        forms.insert(0, _damped(M))
    return forms


def _damped(M: Array) -> Array:
    """M scaled to a mean eigenvalue of 1, negative ones left out, plus DAMPING I; I where M is nothing but rounding."""
    values, vectors = np.linalg.eigh(0.5 * (M + M.T))
    values = np.maximum(values, 0.0)
    mean = values.mean()
    scaled = values / mean if mean > np.finfo(float).tiny else np.ones(len(M))
    return (vectors * (scaled + DAMPING)) @ vectors.T
