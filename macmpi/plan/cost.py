"""The cost model: the seconds of an iteration on P ranks of a machine, and the figures of a speedup.

    T(P) = crowding / speed [shared + sum over rounds of max_r seconds_r] + sum over messages (alpha steps + beta bytes)

seconds_r: of what the plan of P ranks assigns to rank r in a round (`plan/rounds.py`), at the rate of one rank,
measured (run/bench/workload.py) or counted (`plan/counted.py`); shared: what every rank does for itself.  A gather of b
bytes takes ceil(log2 P) steps and moves b (P - 1) / P of them into each rank; of more than an MPI sends before its
receivers are ready it waits for a handshake.  An exchange of columns takes P - 1 steps and a P-th of the bytes; that
of many ranks is one in two levels, with the steps of both and twice the bytes (parallel/columns.py).  Ranks meet before
each exchange, so that waiting is timed apart: a barrier of ceil(log2 P) steps more.  Rows of points and Grams of which
a node has one copy move between nodes alone.  What the model gives for more ranks than cores is a prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, log2

from macmpi.parallel.columns import group_size, messages
from macmpi.plan.plan import Plan
from macmpi.plan.rounds import Round, Work, rounds, work_list


def efficiency(speedup: float, ranks: int) -> float:
    """S / P."""
    return speedup / ranks


def karp_flatt(speedup: float, ranks: int) -> float:
    """The serial fraction that Amdahl's law needs for this speedup, (1/S - 1/P) / (1 - 1/P); NaN on one rank."""
    return (1.0 / speedup - 1.0 / ranks) / (1.0 - 1.0 / ranks) if ranks > 1 else float("nan")


@dataclass(frozen=True)
class Machine:
    """alpha: seconds of a step of a message; beta: seconds a byte; cores: of a node; speed: of a core, that of the
    machine which the work was measured on being 1; crowding: how many times longer work takes with all cores busy;
    handshake: seconds that a gather of more than `eager` bytes waits until its receivers are ready; meeting: of a step
    of the barrier before an exchange, alpha where it is not known."""

    alpha: float
    beta: float
    cores: int = 1
    speed: float = 1.0
    crowding: float = 1.0
    handshake: float = 0.0
    eager: int = 16_384
    meeting: float | None = None


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


def gather(machine: Machine, count: int, ranks: int, once: bool = False) -> float:
    """Seconds in which every rank, or once each node, gets the parts of `count` bytes that the others have."""
    copies = ceil(ranks / machine.cores) if once else ranks
    ready = machine.handshake if copies > 1 and count > machine.eager else 0.0
    return machine.alpha * ceil(log2(ranks)) + machine.beta * count * (copies - 1) / copies + ready


def exchange(machine: Machine, round_: Round, ranks: int) -> float:
    """Seconds of the exchange behind a round, the meeting before it included, as often as it comes."""
    if ranks == 1 or not round_.bytes:
        return 0.0
    match round_.verb:
        case "gather_columns":
            group = group_size(ranks)
            levels = 1 if group == 1 else 2
            each = messages(ranks, group) * machine.alpha + levels * machine.beta * round_.bytes / ranks
        case "shift_to_next":
            each = machine.alpha + machine.beta * round_.bytes / ranks
        case _:
            each = gather(machine, round_.bytes, ranks, round_.once)
    return round_.times * (each + meet(machine, ranks))


def meet(machine: Machine, ranks: int) -> float:
    """Seconds of the barrier before an exchange."""
    return (machine.alpha if machine.meeting is None else machine.meeting) * ceil(log2(ranks))


def predict(work: Work, plan: Plan, machine: Machine) -> Seconds:
    """An iteration on the plan's ranks."""
    return seconds_of(rounds(work, plan), rounds(work, replace(plan, ranks=1)), work.shared, plan.ranks, machine)


def seconds_of(found: Sequence[Round], alone: Sequence[Round], shared: float, ranks: int, machine: Machine) -> Seconds:
    """An iteration of these rounds on some ranks, and of those on one.  The first of both is the points'."""
    points, *others = found
    even = [r.total / ranks for r in alone]
    weights = sum(r.longest for r in others)
    computed = points.longest + weights + shared
    busy = machine.crowding if ranks > 1 else 1.0
    return Seconds(
        ideal=(sum(even) + shared / ranks) / machine.speed,
        uneven_points=(points.longest - even[0]) / machine.speed,
        uneven_weights=(weights - sum(even[1:])) / machine.speed,
        shared=shared * (1.0 - 1.0 / ranks) / machine.speed,
        crowding=(busy - 1.0) * computed / machine.speed,
        exchange=sum(exchange(machine, r, ranks) for r in found),
    )


def predict_all(sweeps: Sequence[tuple[Work, Plan]], machine: Machine, ranks: int) -> Seconds:
    """Several iterations, each with the plan that it had, on a given number of ranks."""
    total = NOTHING
    for work, plan in sweeps:
        total += predict(work, replace(plan, ranks=ranks), machine)
    return total


def ceiling(work: Work, plan: Plan) -> tuple[float, float, float]:
    """The largest speedup that any number of ranks reaches: of the Z-step by its points, of the W-step by its units, of
    the whole with what is shared; exchange and crowding left out."""
    most = max(len(plan.work.train.blocks), len(work_list(work, plan).jobs), 1)
    (z, *w), (z_least, *w_least) = (
        [r.longest for r in rounds(work, replace(plan, ranks=ranks))] for ranks in (1, most)
    )
    whole, least = z + sum(w) + work.shared, z_least + sum(w_least) + work.shared
    return _ratio(z, z_least), _ratio(sum(w), sum(w_least)), _ratio(whole, least)


def _ratio(a: float, b: float) -> float:
    return a / b if b else 1.0


def parmac(ranks: int, units: int, z: float, w: float, machine: Machine, unit_bytes: float) -> float:
    """The speedup that ParMAC's model gives: points stay, units go round a ring of the ranks, one epoch.

        T(P) = M (N/P) t_Z + ceil(M/P) (N t_W + 2 P t_c),  T(1) = M N (t_Z + t_W),  t_c = alpha + beta bytes

    z, w: seconds of the half steps on one rank, M N t_Z and M N t_W.
    """
    sent = 0.0 if ranks == 1 else machine.alpha + machine.beta * unit_bytes
    return (z + w) / (z / ranks + ceil(units / ranks) * (w / units + 2.0 * ranks * sent))
