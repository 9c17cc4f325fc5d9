"""Compare the cost model with ParMAC's; ask it for several iterations, more points, and how far ranks help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from macmpi.plan.cost import Machine, Rates, Seconds, predict, rounds
from macmpi.plan.plan import Plan


def parmac(ranks: int, units: int, z: float, w: float, machine: Machine, unit_bytes: float, epochs: int = 1) -> float:
    """The speedup that ParMAC's model gives: points stay, units go round a ring of the ranks for e epochs.

        T(P) = M (N/P) t_Z + ceil(M/P) (e N t_W + (e + 1) P t_c),  T(1) = M N (t_Z + e t_W),  t_c = alpha + beta bytes

    z, w: seconds of the half steps on one rank, M N t_Z and M N e t_W.
    """
    sent = 0.0 if ranks == 1 else machine.alpha + machine.beta * unit_bytes
    return (z + w) / (z / ranks + ceil(units / ranks) * (w / units + (epochs + 1) * ranks * sent))


def grown(work: Rates, by: float) -> Rates:
    """The work of `by` times as many points: what is counted by points is a rate already.  Collective: no."""
    factor, unit = (tuple(by * rate for rate in rates) for rates in (work.factor, work.unit))
    return replace(work, factor=factor, unit=unit)


def scaled(work: Rates, by: float) -> Rates:
    """Every rate times a number."""
    return replace(grown(work, by), point=by * work.point, shared=by * work.shared)


def predict_all(sweeps: Sequence[tuple[Rates, Plan]], machine: Machine, ranks: int) -> Seconds:
    """Several iterations, each with the plan that it had, on a given number of ranks."""
    found = [vars(predict(work, replace(plan, ranks=ranks), machine)).values() for work, plan in sweeps]
    return Seconds(*map(sum, zip(*found, strict=True)))


def ceiling(work: Rates, plan: Plan) -> tuple[float, float, float]:
    """The largest speedup that any number of ranks reaches: of the Z-step by its points, of the W-step by its units, of
    the whole with what is shared; exchange and crowding left out."""
    most = max(len(plan.work.train.blocks), len(work.tasks(plan).jobs), 1)
    (z, *w), (z_most, *w_most) = ([r.longest for r in rounds(work, replace(plan, ranks=n))] for n in (1, most))
    one, many = ((a, sum(b), a + sum(b) + work.shared) for a, b in ((z, w), (z_most, w_most)))
    by_points, by_units, whole = (a / b if b else 1.0 for a, b in zip(one, many, strict=True))
    return by_points, by_units, whole
