"""W-problems of a state: the regressions of units and segments, pure functions of what is made once for a work list."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from macmpi.half_steps.parts import Inputs, Parts
from macmpi.half_steps.z_problems import metrics, shift, unit_metric
from macmpi.nets.joint import Joint, JointLoss
from macmpi.nets.losses import Metric, Squared
from macmpi.nets.regression import joined
from macmpi.plan.work_lists import Job, WorkList
from macmpi.reductions import ALONE, Made, Rows
from macmpi.solvers.grams import LayerGram, by_row
from macmpi.solvers.w_problem import SegmentProblem, UnitProblem, WProblem
from macmpi.state import MacState, State
from macmpi.typing import Array


@dataclass(frozen=True)
class WInputs:
    """The regressions of a work list are made of this, and of the weights and Grams of the state.

    coordinates: z_k - u_k of all sites; first: what never changes, if it is needed; inputs: what each segment's
    regression reads; cores: the targets of this rank's regressions that a quantiser follows; at_hand: of regressions
    that are fitted to points at hand.
    """

    parts: Parts
    state: State[MacState]
    metrics: tuple[Metric, ...]
    coordinates: Rows
    first: Inputs | None = None
    inputs: dict[int, Inputs] = field(default_factory=dict)
    cores: dict[int, Rows] = field(default_factory=dict)
    at_hand: dict[int, AtHand] = field(default_factory=dict)


class AtHand(NamedTuple):
    """The rows of the points at hand: what a regression reads, its targets, weights (n,) where there are some."""

    inputs: Inputs
    targets: Array
    weights: Array | None


def prepare_w(parts: Parts, work: WorkList, state: State[MacState]) -> WInputs:
    """Prepares the regressions of a work list: features by points, then Allgatherv.  Collective: yes."""
    forms, Z = measured(parts, state) if work.jobs else ((), state.Z)
    first = parts.first(state) if 0 in work.features else None
    given = WInputs(parts, state, forms, Z, first)
    alone = len(parts.plan.chain.groups[0]) == 1
    for k in sorted(work.segments | work.fresh):
        given.inputs[k] = first if first and k == 0 and alone else parts.inputs_of_group(k, state)
    own = {job.segment for job in work.jobs_of(parts.team.rank)}
    for k in sorted(work.segments):
        at_hand = parts.plan.work.at_hand(k)
        if parts.plan.chain.segments[k].trailing and (at_hand or k in own):
            given.cores[k] = _core_targets(given, k)
        if at_hand:
            given.at_hand[k] = _at_hand(given, k)
    return given


def _at_hand(given: WInputs, k: int) -> AtHand:
    """Gathers what the regression of a segment reads of the points at hand.  Collective: yes."""
    own, regression = given.inputs[k], given.parts.plan.resolved.regressions[k]
    gather, share, w = given.parts.points.at_hand, given.parts.points.share, given.parts.data.weights
    features = gather(own.features)
    design = features if own.design is own.features else gather(own.design)
    rounded = design if own.rounded is own.design else gather(own.rounded)
    T = given.cores[k] if regression.by_unit and k in given.cores else targets_of_group(given, k)
    weights = None if w is None else gather(w)
    if share < 1.0 and not regression.by_fitter:  # the ridge is that of all points
        weights = (np.ones(len(features)) if weights is None else weights) / share
    return AtHand(Inputs(features, design, rounded), gather(T), weights)


def measured(parts: Parts, state: State[MacState]) -> tuple[tuple[Metric, ...], Rows]:
    """The metrics, and z_k - u_k of all sites.  Collective: no."""
    forms, Z, u = metrics(parts.plan, state), state.Z, state.own.multipliers
    if not parts.plan.resolved.schedule.multipliers:
        return forms, Z
    moved = Made(lambda rows: Z[rows] - shift(parts.plan, forms, u[rows]), (len(Z), Z.shape[1]), Z.dtype)
    return forms, parts.points.here(moved)


def targets(given: WInputs, k: int) -> Rows:
    """Segment k has to give z_k - u_k, or y.  Collective: no."""
    sites = given.parts.plan.chain.site_columns
    return given.parts.data.Y if k == len(sites) else given.coordinates[:, sites[k]]


def targets_of_group(given: WInputs, k: int) -> Rows:
    """The targets of segment k and of those that share its weights, one after the other.  Collective: no."""
    return joined([targets(given, j) for j in given.parts.plan.chain.groups[k]])


def unit_targets(given: WInputs, k: int, units: slice) -> Rows:
    """Units of segment k's regression have to give the targets of the segment, less what is added.  Collective: no."""
    few, inputs = given.at_hand.get(k), given.inputs[k]
    T = few.targets if few else given.cores[k] if k in given.cores else targets_of_group(given, k)
    passed = (few.inputs if few else inputs).features if given.parts.plan.chain.segments[k].added else None
    return given.parts.points.here(given.parts.plan.chain.views[k].targets(T, passed, units))


def _core_targets(given: WInputs, k: int) -> Rows:
    """t + (a - q(a)), the targets of segment k's regression under a quantiser q; t are those of the segment.

    With a the present outputs of the regression, the present weights then stay where they are once q(a) = t.
    """
    segment, weights = given.parts.plan.chain.segments[k], given.parts.weights(given.state)
    weights, T = tuple(W.copy() for W in weights), targets(given, k)  # others are solved for before these are read
    A, after = given.parts.inputs(k, given.state), segment.core + 1

    def make(rows: Any) -> Array:
        a = segment.part(0, after).forward(weights, A[rows])
        found: Array = T[rows] + a - segment.part(after, len(segment.maps)).forward(weights, a)
        return found

    return given.parts.points.here(Made(make, (len(A), segment.n_out), A.dtype))


def layer_gram(given: WInputs, k: int) -> LayerGram:
    """The units of a segment share this, at the present Grams.  Collective: no."""
    plan, grams = given.parts.plan, given.state.own.grams
    G = grams[plan.offsets.gram(k)].reshape(plan.offsets.gram_shapes[k])
    dtype = np.dtype(np.float32) if plan.resolved.regressions[k].single else plan.dtype
    ridge = plan.unit_ridge(k, given.state.mu)
    view = plan.chain.views[k]
    return LayerGram(G, ridge, dtype, view.bias, plan.chain.segments[k].activation, view.sparse)


def w_problem(given: WInputs, job: Job, factor: Any = None) -> WProblem:
    """The regression of a job's weights, from the present ones.  factor: what is made of its Gram.  Collective: no.

    Its points are the rows of all points.
    """
    k, parts, plan, state = job.segment, given.parts, given.parts.plan, given.state
    view, ridge, flat = plan.chain.views[k], plan.unit_ridge(k, state.mu), state.weights[job.place]
    restraints, P = plan.restraints(k, state.mu), 1 if job.units is None else view.rows_per_point
    few = given.at_hand.get(k)
    inputs, weights = (few.inputs, few.weights) if few else (given.inputs[k], parts.data.weights)
    alike: dict[str, Any] = {
        "key": (plan.seed, state.iteration, k),
        "factor": factor,
        "points": P * parts.points.weight,
        "in_pieces": ALONE if few else parts.points.in_pieces,
        "point_weights": by_row(weights, P * len(inputs.features)),
    }
    if job.units is None:
        T = few.targets if few else parts.points.here(targets_of_group(given, k))
        segments, loss = _net_and_loss(given, k)
        of = flat[None], segments, loss, view.shapes, plan.ridges(k, state.mu), restraints
        return SegmentProblem(inputs.design, T, ridge, *of, **alike)
    A, rounded = view.by_row(inputs.design), view.by_row(inputs.rounded)
    T, start = unit_targets(given, k, job.units.rows), flat.reshape(-1, view.shapes[0][1])
    exists, activation = view.existing(job.units.rows), view.segments[0].activation
    alike["shared"] = layer_gram(given, k).G
    return UnitProblem(A, T, ridge, start, activation, rounded, restraints[0], exists, **alike)


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
