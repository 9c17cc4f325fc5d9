"""W-problems of a state: the regressions of units and segments, pure functions of what is made once for a work list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from macmpi.half_steps.metrics import metrics, shift, unit_metric
from macmpi.half_steps.parts import First, Parts, by_position
from macmpi.nets.joint import Joint, JointLoss
from macmpi.nets.losses import Metric, Squared, times
from macmpi.plan.work_lists import Job, WorkList
from macmpi.reductions import EVERY, Made, Rows
from macmpi.solvers.grams import by_row
from macmpi.solvers.w_problem import LayerGram, SegmentProblem, UnitProblem, WProblem
from macmpi.state import MacState, State
from macmpi.typing import Array


@dataclass(frozen=True)
class WInputs:
    """The regressions of a work list are made of this, and of the weights and Grams of the state.

    coordinates: z_k - u_k of all sites, or sharded z_k; first: what never changes, if it is needed; features, rounded:
    what each segment multiplies, by points, and that as directions and Grams read it; cores: the targets of this rank's
    regressions that a quantiser follows; passed: what comes before units that something is added to, all of it.
    """

    parts: Parts
    state: State[MacState]
    metrics: tuple[Metric, ...]
    coordinates: Array
    first: First | None = None
    features: dict[int, Rows] = field(default_factory=dict)
    rounded: dict[int, Rows] = field(default_factory=dict)
    cores: dict[int, Array] = field(default_factory=dict)
    passed: dict[int, Rows] = field(default_factory=dict)


def prepare_w(parts: Parts, work: WorkList, state: State[MacState]) -> WInputs:
    """Prepares the regressions of a work list: features by points, then Allgatherv.  Collective: yes."""
    forms, Z = measured(parts, state) if work.jobs else ((), state.Z)
    first = parts.first(state) if 0 in work.features else None
    given = WInputs(parts, state, forms, Z, first)
    groups = parts.plan.chain.groups
    for k in work.segments | work.fresh:
        given.features[k] = given.rounded[k] = joined([parts.inputs(j, state) for j in groups[k]])
    for k in work.features:
        if len(groups[k]) > 1:
            given.features[k] = joined([parts.features(j, state) for j in groups[k]])
            given.rounded[k] = parts.rounded(k, given.features[k])
            continue
        kept = None if k else first
        made = kept.features if kept else parts.features(k, state)
        if parts.plan.resolved.regressions[k].by_unit and parts.plan.chain.segments[k].added:
            given.passed[k] = made
        given.features[k] = kept.unfolded if kept else parts.unfolded(k, made)
        given.rounded[k] = kept.rounded if kept else parts.rounded(k, given.features[k])
    for k in {job.segment for job in work.jobs_of(parts.team.rank)}:
        if parts.plan.chain.segments[k].trailing:
            given.cores[k] = _core_targets(given, k)
    return given


def measured(parts: Parts, state: State[MacState]) -> tuple[tuple[Metric, ...], Array]:
    """The metrics, and z_k - u_k of all sites; of sharded points, which may be many, z_k.  Collective: no."""
    forms = metrics(parts.plan, state)
    if parts.plan.sharded or not parts.plan.resolved.schedule.multipliers:
        return forms, state.Z
    return forms, state.Z - shift(parts.plan, forms, state.own.multipliers)


def targets(given: WInputs, k: int, units: slice = EVERY) -> Rows:
    """Units of segment k have to give z_k - u_k, or y.  Collective: no."""
    parts, columns = given.parts, given.parts.plan.chain.site_columns
    if k == len(columns):
        return parts.data.Y[:, units]
    z = given.coordinates[:, columns[k]]
    if not (parts.plan.sharded and parts.plan.resolved.schedule.multipliers):
        return z[:, units]
    u, form = given.state.own.multipliers[:, columns[k]], given.metrics[k]
    shape = len(z), z[:0, units].shape[1]
    return Made(lambda rows: (z[rows] - times(u[rows], form.inverse))[:, units], shape, z.dtype)


def targets_of_group(given: WInputs, k: int) -> Rows:
    """The targets of segment k and of those that share its weights, one after the other.  Collective: no."""
    return joined([targets(given, j) for j in given.parts.plan.chain.groups[k]])


def joined(parts: Sequence[Rows]) -> Rows:
    """Rows next to each other: (n, sum of their columns).  Collective: no."""
    if len(parts) == 1:
        return parts[0]
    width = sum(part.shape[1] for part in parts)
    made = Made(lambda rows: np.hstack([part[rows] for part in parts]), (len(parts[0]), width), parts[0].dtype)
    return made if any(_is_made(part) for part in parts) else made[EVERY]


def _is_made(rows: Rows) -> bool:
    match rows:
        case Made():
            return True
    return False


def unit_targets(given: WInputs, k: int, units: slice) -> Rows:
    """Units of segment k's regression have to give the targets of the segment, less what is added.  Collective: no."""
    if len(given.parts.plan.chain.groups[k]) > 1:
        return by_position(targets_of_group(given, k), given.parts.plan.chain.rows(k), units)
    own = given.parts.plan.chain.segments[k].fitted[0]
    if k in given.cores:
        return by_position(given.cores[k], own.positions, units)
    T = by_position(targets(given, k, slice(own.n_out)), own.positions, units)
    if k not in given.passed:
        return T
    A, segment = given.passed[k], given.parts.plan.chain.segments[k]
    added = [by_position(by_position(A, 1, columns), own.positions, units) for columns in segment.added]

    def rest(rows: Any) -> Array:
        return T[rows] - sum(part[rows] for part in added)

    return Made(rest, T.shape, T.dtype) if given.parts.plan.sharded else rest(EVERY)


def _core_targets(given: WInputs, k: int) -> Array:
    """t + (a - q(a)), the targets of segment k's regression under a quantiser q; t are those of the segment.

    With a the present outputs of the regression, the present weights then stay where they are once q(a) = t.
    """
    segment, weights = given.parts.plan.chain.segments[k], given.parts.weights(given.state)
    after = segment.core + 1
    a = segment.part(0, after).forward(weights, given.parts.inputs(k, given.state))
    return targets(given, k) + a - segment.part(after, len(segment.maps)).forward(weights, a)


def layer_gram(given: WInputs, k: int) -> LayerGram:
    """The units of a segment share this, at the present Grams.  Collective: no."""
    plan, grams = given.parts.plan, given.state.own.grams
    G = grams[plan.offsets.gram(k)].reshape(plan.offsets.gram_shapes[k])
    dtype = np.dtype(np.float32) if plan.resolved.regressions[k].single else plan.dtype
    ridge = plan.unit_ridge(k, given.state.mu)
    return LayerGram(G, ridge, dtype, plan.chain.has_bias(k), plan.chain.segments[k].activation)


def w_problem(given: WInputs, job: Job, factor: Any = None) -> WProblem:
    """The regression of a job's weights, from the present ones.  factor: what is made of its Gram.  Collective: no.

    Its points are the positions of all points.
    """
    k, parts, plan, state = job.segment, given.parts, given.parts.plan, given.state
    shapes, segment, P = plan.chain.regressed_shapes(k), plan.chain.segments[k], plan.chain.rows(k)
    ridge, flat, restraints = plan.unit_ridge(k, state.mu), state.weights[job.place], plan.restraints(k, state.mu)
    if job.units is None:
        P, A, T, start = 1, given.features[k], targets_of_group(given, k), flat[None]
    else:
        A, T = by_position(given.features[k], P), unit_targets(given, k, job.units.rows)
        start = flat.reshape(-1, shapes[0][1])
    alike: dict[str, Any] = {
        "key": (plan.seed, state.iteration, k),
        "factor": factor,
        "points": P * parts.points.weight,
        "in_pieces": parts.points.in_pieces,
        "point_weights": by_row(parts.data.weights, P * parts.points.count),
    }
    if job.units is None:
        segments, loss = _net_and_loss(given, k)
        ridges = plan.ridges(k, state.mu)
        return SegmentProblem(A, T, ridge, start, segments, loss, shapes, ridges, restraints, **alike)
    mask, rounded = segment.fitted[0].connected, by_position(given.rounded[k], P)
    mask, shared = None if mask is None else mask[job.units.rows], layer_gram(given, k).G
    return UnitProblem(A, T, ridge, start, segment.activation, rounded, shared, restraints[0], mask, **alike)


def _net_and_loss(given: WInputs, k: int) -> tuple[Any, Any]:
    """The segments of a group as one, with their blocks numbered from 0, and the sum of their losses."""
    plan, state = given.parts.plan, given.state
    numbers, group = {block: i for i, block in enumerate(plan.chain.trained(k))}, plan.chain.groups[k]
    parts = [plan.features[j] if plan.chain.segments[j].leading else plan.chain.segments[j] for j in group]
    own = [replace(s, blocks=tuple(None if b is None else numbers[b] for b in s.blocks)) for s in parts]
    losses = [plan.resolved.loss if j == len(plan.chain.sites) else Squared(unit_metric(plan, j, state)) for j in group]
    if len(group) == 1:
        return own[0], losses[0]
    weights = tuple(plan.weight_of(j, state.mu) / plan.weight_of(k, state.mu) for j in group)
    inputs = tuple(given.parts.inputs(j, state).shape[1] for j in group)
    return Joint(tuple(own), inputs), JointLoss(tuple(losses), weights, tuple(s.n_out for s in own))
