"""Z-problems of a state: eq. (4) for some points, pure functions of what all points have in common."""

from __future__ import annotations

from dataclasses import dataclass

from macmpi.half_steps.metrics import metrics, renew_metric, shift
from macmpi.half_steps.parts import Parts
from macmpi.nets.losses import Metric
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
