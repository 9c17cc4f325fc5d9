"""The work list of a W-step, or of a selection, is carried out here: its phases in order, an exchange behind each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from macmpi.parallel.clock import Clock
from macmpi.parallel.points import Points
from macmpi.parallel.team import Team
from macmpi.plan.work_lists import Exchange, Factor, Gram, Job, Layer, Task, Tour, WorkList
from macmpi.reductions import OverPoints
from macmpi.typing import Array


class Tasks(Protocol):
    """Each kind of task has a method that does it; results are kept until they are asked for or exchanged."""

    def gram(self, gram: Gram, over_points: OverPoints) -> None: ...

    def factor(self, segment: int) -> None: ...

    def solve(self, job: Job) -> None: ...

    def tour(self, jobs: Sequence[Job]) -> None: ...

    def train(self, layer: Layer) -> None: ...

    def exchange(self, exchange: Exchange) -> None: ...


def carry_out(work: WorkList, tasks: Tasks, points: Points, team: Team, clock: Clock) -> None:
    """Do what a work list asks of this rank, phase by phase.  Collective: yes."""
    for phase in work.phases:
        with clock("w"):
            for task in phase.joint:
                _do(task, tasks, points.jointly)
            for task in phase.own[team.rank] if phase.own else ():
                _do(task, tasks, points.over)
        if phase.exchange:
            tasks.exchange(phase.exchange)


def _do(task: Task, tasks: Tasks, over_points: OverPoints) -> None:
    match task:
        case Gram():
            tasks.gram(task, over_points)
        case Factor():
            tasks.factor(task.segment)
        case Job():
            tasks.solve(task)
        case Tour():
            tasks.tour(task.jobs)
        case Layer():
            tasks.train(task)


def exchanged(array: Array, exchange: Exchange, team: Team) -> None:
    """Give every rank what the others have found of an array, flat.  Collective: yes."""
    if exchange.parts:
        team.gather_parts(array, exchange.parts)
    elif exchange.what == "weights":
        team.share_array(array)  # what all have found jointly is rounded as on rank 0
    elif team.common(array):
        team.fence(array)  # each has written its part


@contextmanager
def located(half: str, *where: Any) -> Iterator[None]:
    """An error raised inside is `located`: ("Z", rows) or ("W", segment, tile of units).  Collective: no."""
    try:
        yield
    except Exception as error:
        error.__dict__.setdefault("located", (half, *where))
        raise
