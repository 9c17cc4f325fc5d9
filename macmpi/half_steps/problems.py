"""A half step prepares its inputs once, and pure functions make its problems from them.

Z-problems, eq. (4), are for some points, with the forms M_k in which the constraints z_k - f_k are measured.
W-problems, eq. (3), are the regressions of units and segments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from macmpi.half_steps.context import HalfStepContext, Inputs
from macmpi.nets.chain import with_data
from macmpi.nets.design import at, total_of
from macmpi.nets.losses import Metric, Squared, metric, times
from macmpi.nets.regression import Joint, JointLoss, joined
from macmpi.parallel.points import Points
from macmpi.plan.plan import Plan
from macmpi.plan.work_lists import Job, WorkList
from macmpi.reductions import ALONE, LazyRows, Rows
from macmpi.solvers.grams import LayerGram, by_row
from macmpi.solvers.w_problem import SegmentProblem, UnitProblem, WProblem
from macmpi.solvers.z_problem import RowIndex, ZProblem
from macmpi.state import MacState, State
from macmpi.typing import Array

# --- Z-problems -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ZInputs:
    """Holds what a Z-step prepares once; from it `z_problem` makes eq. (4) for any points.

    weights: the weights of each parameter block.
    Z, multipliers (n, sum H): coordinates and multipliers of all points that this rank holds; multipliers may be
        missing.
    metrics: mu M_k for each site.
    features: the inputs of the first segment's regression.
    """

    parts: HalfStepContext
    weights: tuple[Array, ...]
    Z: Array
    multipliers: Array
    metrics: tuple[Metric, ...]
    features: Rows


def prepare_z(parts: HalfStepContext, state: State[MacState]) -> ZInputs:
    """Prepares a Z-step, with the metric of the present mu.  Collective: yes."""
    renew_metric(parts, state)
    return z_inputs(parts, state)


def z_inputs(parts: HalfStepContext, state: State[MacState]) -> ZInputs:
    """Collects the inputs of the present state's Z-problems.  Collective: yes."""
    weights, forms = parts.weights(state), metrics(parts.plan, state)
    return ZInputs(parts, weights, state.Z, state.own.multipliers, forms, parts.first(state).features)


def z_problem(given: ZInputs, rows: RowIndex, shifted: bool = True) -> ZProblem:
    """Makes the problem of eq. (4) for some points.

    shifted: whether the problem has the shift by the multipliers.  Collective: no.
    """
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
        sides=tuple(s.data and parts.data.X[rows][:, slice(*s.data)] for s in plan.chain.segments[1:]),
    )


# --- metrics ----------------------------------------------------------------------------------------------------------


FLOOR, DAMPING = 1e-2, 0.1
"""A variance counts at least as FLOOR times the largest of its site; DAMPING I is added to a mean curvature of 1."""


def metrics(plan: Plan, state: State[MacState]) -> tuple[Metric, ...]:
    """Returns mu M_k of each site.  Collective: no."""
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
    """Returns M_k without mu, the form that measures the regression of a hidden segment.  Collective: no."""
    if plan.resolved.metric == "identity":
        return metric(1.0, plan.dtype)
    return metric(state.own.metric[plan.chain.site_columns[k]], plan.dtype)


def shift(plan: Plan, forms: tuple[Metric, ...], multipliers: Array) -> Array:
    """Computes u_k = M_k^-1 lambda_k for some points, all sites side by side: (n, sum H).

    forms: mu M_k of each site, as `metrics` returns it.
    multipliers (n, sum H): lambda.  Collective: no.
    """
    sites = zip(plan.chain.site_columns, forms, strict=True)
    return np.hstack([times(multipliers[:, columns], form.inverse) for columns, form in sites])


def renew_metric(parts: HalfStepContext, state: State[MacState]) -> None:
    """Computes the metrics M_k of the sites again if mu has changed since they were made, and keeps them in the state.

    "variance": M_k is diagonal, 1 / variance of each coordinate, where a variance counts as at least FLOOR times the
    largest of its site. "curvature": M_k is about the mean of Phi_k^T Phi_k over the sample points, plus DAMPING I.
    Both are scaled to a mean eigenvalue of 1.  "identity" needs nothing.  Collective: yes.
    """
    plan, points, record = parts.plan, parts.points, state.own
    if plan.resolved.metric == "identity" or record.metric_mu == state.mu:
        return
    sites = [state.Z[:, columns] for columns in plan.chain.site_columns]
    if plan.resolved.metric == "variance":
        variances = [_variance(points, parts.data.weights, z) for z in sites]
        forms = [1.0 / np.maximum(v, FLOOR * v.max() or 1.0) for v in variances]
    else:
        forms = _curvatures(parts, [W.astype(float) for W in parts.weights(state)], sites)
    scaled = [F / (np.trace(F) / len(F) if F.ndim == 2 else F.mean()) for F in forms]
    record.metric = parts.shared_matrix.from_rank0(np.concatenate([F.ravel() for F in scaled]))
    record.metric_mu = state.mu


def _variance(points: Points, weights: Array | None, z: Array) -> Array:
    """Computes the variance of each column over all points, with their weights.  Collective: if `points.over` is."""

    def sums(of: Callable[[slice], Array]) -> Array:
        (total,) = points.over(lambda rows: (total_of(of(rows), at(weights, rows)),))
        return total / points.total_weight

    mean = sums(lambda rows: z[rows])
    return sums(lambda rows: np.square(z[rows] - mean))


def _curvatures(parts: HalfStepContext, weights: list[Array], sites: list[Array]) -> list[Array]:
    """Computes M_k = E[J_{k+1}^T M_{k+1} J_{k+1}] of each site, damped, beginning at the loss's mean curvature.

    Each mean is taken for one map at a time, so that M_k is E[Phi_k^T Phi_k] only if all points have the same
    derivatives.

    weights: float64.
    sites: the coordinates of each site.  Collective: yes.
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
    """Scales M to a mean eigenvalue of 1, with negative eigenvalues as 0, and adds DAMPING I; I replaces an M of 0."""
    values, vectors = np.linalg.eigh(0.5 * (M + M.T))
    values = np.maximum(values, 0.0)
    mean = values.mean()
    scaled = values / mean if mean > np.finfo(float).tiny else np.ones(len(M))
    return (vectors * (scaled + DAMPING)) @ vectors.T


# --- W-problems -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WInputs:
    """Holds what a W-step prepares once; from it and the state's Grams `w_problem` makes the regression of any job.

    coordinates (n, sum H): z_k - u_k of all sites.
    inputs: the inputs of the regression of each segment that has jobs or whose Gram is made again.
    at_hand: for segments that are fitted to the points at hand, the inputs of these points.
    """

    parts: HalfStepContext
    state: State[MacState]
    metrics: tuple[Metric, ...]
    coordinates: Rows
    inputs: dict[int, Inputs] = field(default_factory=dict)
    at_hand: dict[int, Inputs] = field(default_factory=dict)


def prepare_w(parts: HalfStepContext, work: WorkList, state: State[MacState]) -> WInputs:
    """Prepares the regressions of a work list: each rank makes features of its points, and an Allgatherv shares them.

    Collective: yes.
    """
    forms, Z = measured(parts, state) if work.jobs else ((), state.Z)
    first = parts.first(state) if 0 in work.features else None
    given = WInputs(parts, state, forms, Z)
    alone = len(parts.plan.chain.groups[0]) == 1
    for k in sorted(work.segments | work.fresh):
        given.inputs[k] = first if first and k == 0 and alone else parts.inputs_of_group(k, state)
    ours = {job.segment for job in work.jobs_of(parts.team.rank)}
    for k in sorted(work.segments):
        at_hand, by_unit = parts.plan.work.at_hand(k), parts.plan.resolved.regressions[k].by_unit
        of_core = parts.plan.chain.segments[k].quantised and by_unit and (at_hand or k in ours)
        T = _core_targets(given, k) if of_core else targets_of_group(given, k)
        given.inputs[k] = replace(given.inputs[k], targets=T, weights=parts.data.weights)
        if at_hand:
            given.at_hand[k] = _at_hand(given, k)
    return given


def _at_hand(given: WInputs, k: int) -> Inputs:
    """Gathers the inputs and targets of a segment's regression for the points at hand.  Collective: yes."""
    inputs, gather, share = given.inputs[k], given.parts.points.at_hand, given.parts.points.share
    features = gather(inputs.features)
    design = features if inputs.design is inputs.features else gather(inputs.design)
    rounded = design if inputs.rounded is inputs.design else gather(inputs.rounded)
    weights = None if inputs.weights is None else gather(inputs.weights)
    if share < 1.0 and not given.parts.plan.resolved.regressions[k].by_fitter:  # since the ridge is for all points
        weights = (np.ones(len(features)) if weights is None else weights) / share
    return Inputs(features, design, rounded, gather(inputs.targets), weights)


def measured(parts: HalfStepContext, state: State[MacState]) -> tuple[tuple[Metric, ...], Rows]:
    """Returns mu M_k of each site, and z_k - u_k of all sites (n, sum H), which equals z if there are no multipliers.

    Collective: no.
    """
    forms, Z, u = metrics(parts.plan, state), state.Z, state.own.multipliers
    if not parts.plan.resolved.schedule.multipliers:
        return forms, Z
    moved = LazyRows(lambda rows: Z[rows] - shift(parts.plan, forms, u[rows]), (len(Z), Z.shape[1]), Z.dtype)
    return forms, parts.points.here(moved)


def targets(given: WInputs, k: int) -> Rows:
    """Returns the targets of segment k: z_k - u_k, or y of the last segment.  Collective: no."""
    sites = given.parts.plan.chain.site_columns
    return given.parts.data.Y if k == len(sites) else given.coordinates[:, sites[k]]


def targets_of_group(given: WInputs, k: int) -> Rows:
    """Returns the targets of segment k and of the segments that share its weights, joined.  Collective: no.

    If units are fitted one by one, targets of columns that the segments only pass on are left out.
    """
    plan = given.parts.plan
    n = plan.chain.views[k].map.n_out if plan.resolved.regressions[k].by_unit else None
    return joined([targets(given, j)[:, :n] for j in plan.chain.groups[k]])


def unit_targets(given: WInputs, k: int, units: slice) -> Rows:
    """Returns the targets of some units of segment k's regression, one row for each row of its design.

    These are the targets of the segment, minus what a skip adds to the units' outputs.  Collective: no.
    """
    inputs = given.at_hand.get(k, given.inputs[k])
    passed = inputs.features if given.parts.plan.chain.segments[k].added else None
    return given.parts.points.here(given.parts.plan.chain.views[k].targets(inputs.targets, passed, units))


def _core_targets(given: WInputs, k: int) -> Rows:
    """Makes t + (a - q(a)), the targets of segment k's regression before a quantiser q.

    t are the targets of the segment, and a the present outputs of the regression: once q(a) = t, the present weights
    fit exactly.
    """
    segment, weights = given.parts.plan.chain.segments[k], given.parts.weights(given.state)
    weights, T = tuple(W.copy() for W in weights), targets(given, k)  # the state's weights change before these are read
    A, after = given.parts.inputs(k, given.state), segment.core + 1

    def make(rows: Any) -> Array:
        a = segment.part(0, after).forward(weights, A[rows])
        return T[rows] + a - segment.part(after, len(segment.maps)).forward(weights, a)

    return given.parts.points.here(LazyRows(make, (len(A), segment.n_out), A.dtype))


def layer_gram(given: WInputs, k: int) -> LayerGram:
    """Collects the present Gram of segment k's regression, its ridge and what else solvers read.  Collective: no."""
    plan, grams = given.parts.plan, given.state.own.grams
    side = plan.offsets.sides[k]
    G = grams[plan.offsets.gram(k)].reshape(side, side)
    dtype = np.dtype(np.float32) if plan.resolved.regressions[k].single else plan.dtype
    ridge = plan.unit_ridge(k, given.state.mu)
    view = plan.chain.views[k]
    return LayerGram(G, ridge, dtype, view.bias, plan.chain.segments[k].activation, view.sparse)


def w_problem(given: WInputs, job: Job, factor: Any = None) -> WProblem:
    """Makes the regression of a job, from the present weights: a `UnitProblem` for units, else a `SegmentProblem`.

    The regression reads all points that this rank holds, or the points at hand.

    factor: the factor of the Gram, as the solver's system has prepared it, if it has one.  Collective: no.
    """
    k, parts, plan, state = job.segment, given.parts, given.parts.plan, given.state
    view, ridge, flat = plan.chain.views[k], plan.unit_ridge(k, state.mu), state.weights[job.place]
    restraints, P = plan.restraints(k, state.mu), 1 if job.units is None else view.rows_per_point
    inputs = given.at_hand.get(k, given.inputs[k])
    alike: dict[str, Any] = {
        "key": (plan.seed, state.iteration, k),
        "factor": factor,
        "points": P * parts.points.total_weight,
        "shared_matrix": ALONE if k in given.at_hand else parts.points.shared_matrix,
        "point_weights": by_row(inputs.weights, P * len(inputs.features)),
    }
    if job.units is None:
        segments, loss = _net_and_loss(given, k)
        of = flat[None], segments, loss, view.shapes, plan.ridges(k, state.mu), restraints
        return SegmentProblem(inputs.design, parts.points.here(inputs.targets), ridge, *of, **alike)
    A, rounded = view.by_row(inputs.design), view.by_row(inputs.rounded)
    T, start = unit_targets(given, k, job.units.rows), flat.reshape(-1, view.shapes[0][1])
    exists, activation = at(view.map.connected, job.units.rows), view.segments[0].activation
    alike["shared"] = layer_gram(given, k).G
    return UnitProblem(A, T, ridge, start, activation, rounded, restraints[0], exists, plan.resolved.running, **alike)


def _net_and_loss(given: WInputs, k: int) -> tuple[Any, Any]:
    """Joins the segments of segment k's group to one net, with blocks numbered from 0, and sums their losses.

    The weight of a loss is its segment's penalty weight divided by segment k's.
    """
    plan, state = given.parts.plan, given.state
    numbers, group = {block: i for i, block in enumerate(plan.chain.regressed(k))}, plan.chain.groups[k]
    whole = [plan.features[j] if plan.chain.segments[j].leading else plan.chain.segments[j] for j in group]
    segments = [replace(s, blocks=tuple(None if b is None else numbers[b] for b in s.blocks)) for s in whole]
    losses = [plan.resolved.loss if j == len(plan.chain.sites) else Squared(unit_metric(plan, j, state)) for j in group]
    if len(group) == 1:
        return segments[0], losses[0]
    weights = tuple(plan.penalty_weight(j, state.mu) / plan.penalty_weight(k, state.mu) for j in group)
    inputs = tuple(given.parts.inputs(j, state).shape[1] for j in group)
    widths = tuple(s.n_out for s in segments), tuple(targets(given, j).shape[1] for j in group)
    maps, blocks = tuple(m for s in segments for m in s.maps), tuple(b for s in segments for b in s.blocks)
    return Joint(maps, blocks, segments=tuple(segments), widths=inputs), JointLoss(tuple(losses), weights, *widths)
