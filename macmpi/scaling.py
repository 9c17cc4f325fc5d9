"""Speedup against processors: its figures, and a cost model that predicts the seconds of an iteration on P ranks.

    T(P) = crowding / speed [shared + max_r z_r + max_r f_r + max_r w_r] + sum over messages (alpha steps + beta bytes)

z_r, f_r, w_r: seconds of the points, shared factors and units that the plan of P ranks deals to rank r, each at the
rate measured on one rank; shared: what every rank does for itself.  A gather of b bytes takes ceil(log2 P) steps and
moves b (P - 1) / P of them into each rank.  What the model gives for more ranks than cores is a prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, log2

from macmpi.deals import Deal
from macmpi.plan import Plan


def efficiency(speedup: float, ranks: int) -> float:
    """S / P."""
    return speedup / ranks


def karp_flatt(speedup: float, ranks: int) -> float:
    """The serial fraction that Amdahl's law needs for this speedup, (1/S - 1/P) / (1 - 1/P); NaN on one rank."""
    return (1.0 / speedup - 1.0 / ranks) / (1.0 - 1.0 / ranks) if ranks > 1 else float("nan")


@dataclass(frozen=True)
class Machine:
    """alpha: seconds of a step of a message; beta: seconds a byte; cores: of a node; speed: of a core, that of the
    machine which the work was measured on being 1; crowding: how many times longer work takes with all cores busy."""

    alpha: float
    beta: float
    cores: int = 1
    speed: float = 1.0
    crowding: float = 1.0


@dataclass(frozen=True)
class Work:
    """Seconds of an iteration on one rank, by what they are dealt by.

    point: of a point in the Z-step.  factor, unit: of a share and of a job of the W-step, for each segment, in units
    of the cost that the plan gives it.  shared: of what every rank does for itself.  anew: the first segment's factor
    is made too, as in an iteration with a selection.
    """

    point: float
    factor: tuple[float, ...]
    unit: tuple[float, ...]
    shared: float
    anew: bool = False

    def scaled(self, by: float) -> Work:
        """Every rate times a number."""
        factor, unit = (tuple(by * rate for rate in rates) for rates in (self.factor, self.unit))
        return Work(by * self.point, factor, unit, by * self.shared, self.anew)


@dataclass(frozen=True)
class Loads:
    """Seconds of each rank in the three rounds of an iteration, and the bytes exchanged after each."""

    points: tuple[float, ...]
    factors: tuple[float, ...]
    units: tuple[float, ...]
    bytes: tuple[int, int, int]

    @property
    def rounds(self) -> tuple[tuple[float, ...], ...]:
        return self.points, self.factors, self.units


@dataclass(frozen=True)
class Seconds:
    """An iteration on P ranks: its even share, and what is lost to each cause.  total: their sum."""

    ideal: float
    uneven_points: float
    uneven_weights: float
    shared: float
    crowding: float
    exchange: float

    @property
    def total(self) -> float:
        return sum(vars(self).values())

    def __add__(self, other: Seconds) -> Seconds:
        return Seconds(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))


NOTHING = Seconds(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def deal_of(work: Work, plan: Plan) -> Deal:
    """What is dealt in the W-step."""
    return plan.deal(range(len(plan.chain.segments))) if work.anew else plan.all_units


def loads(work: Work, plan: Plan) -> Loads:
    """What the plan's own deal gives to each of its ranks.  Cost: the deal's."""
    deal, sites = deal_of(work, plan), sum(plan.chain.site_sizes)
    return Loads(
        points=tuple(work.point * count for count in plan.train.row_counts),
        factors=tuple(sum(work.factor[s.segment] * s.cost for s in rank) for rank in deal.shares),
        units=tuple(sum(work.unit[j.segment] * j.cost for j in rank) for rank in deal.jobs),
        bytes=(
            plan.dtype.itemsize * plan.n_train * sites,
            8 * sum(p.stop - p.start for rank in deal.shared_parts for p in rank),
            plan.dtype.itemsize * sum(p.stop - p.start for rank in deal.weight_parts for p in rank),
        ),
    )


def gather(machine: Machine, count: int, ranks: int) -> float:
    """Seconds in which every rank gets the parts of `count` bytes that the others have; 0 on one rank."""
    return machine.alpha * ceil(log2(ranks)) + machine.beta * count * (ranks - 1) / ranks


def predict(work: Work, plan: Plan, machine: Machine) -> Seconds:
    """An iteration on the plan's ranks."""
    given, ranks = loads(work, plan), plan.ranks
    means = [sum(round_) / ranks for round_ in given.rounds]
    points, factors, units = (max(round_) - mean for round_, mean in zip(given.rounds, means, strict=True))
    exchange = sum(gather(machine, count, ranks) for count in given.bytes)
    computed = sum(max(round_) for round_ in given.rounds) + work.shared
    busy = machine.crowding if ranks > 1 else 1.0
    return Seconds(
        ideal=(sum(means) + work.shared / ranks) / machine.speed,
        uneven_points=points / machine.speed,
        uneven_weights=(factors + units) / machine.speed,
        shared=work.shared * (1.0 - 1.0 / ranks) / machine.speed,
        crowding=(busy - 1.0) * computed / machine.speed,
        exchange=exchange,
    )


def predict_all(sweeps: Sequence[tuple[Work, Plan]], machine: Machine, ranks: int) -> Seconds:
    """Several iterations, each with the plan that it had, on so many ranks."""
    total = NOTHING
    for work, plan in sweeps:
        total += predict(work, replace(plan, ranks=ranks), machine)
    return total


def ceiling(work: Work, plan: Plan) -> tuple[float, float, float]:
    """The largest speedup that any number of ranks reaches: of the Z-step by its points, of the W-step by its units, of
    the whole with what is shared; exchange and crowding left out."""
    most = max(len(plan.train.blocks), sum(len(rank) for rank in deal_of(work, plan).jobs), 1)
    one, all_ = (loads(work, replace(plan, ranks=ranks)) for ranks in (1, most))
    (z, f, w), (z_max, f_max, w_max) = ([max(round_) for round_ in given.rounds] for given in (one, all_))
    whole, least = z + f + w + work.shared, z_max + f_max + w_max + work.shared
    return _ratio(z, z_max), _ratio(f + w, f_max + w_max), _ratio(whole, least)


def _ratio(a: float, b: float) -> float:
    return a / b if b else 1.0


def parmac(ranks: int, units: int, z: float, w: float, machine: Machine, unit_bytes: float) -> float:
    """The speedup that ParMAC's model gives: points stay, units go round a ring of the ranks, one epoch.

        T(P) = M (N/P) t_Z + ceil(M/P) (N t_W + 2 P t_c),  T(1) = M N (t_Z + t_W),  t_c = alpha + beta bytes

    z, w: seconds of the half steps on one rank, M N t_Z and M N t_W.
    """
    sent = 0.0 if ranks == 1 else machine.alpha + machine.beta * unit_bytes
    return (z + w) / (z / ranks + ceil(units / ranks) * (w / units + 2.0 * ranks * sent))
