"""Work lists: phases of tasks, done by each rank alone or by all ranks jointly, with an exchange behind each phase.

Which phases there are depends on where the points are, on the solvers and on how large Grams are; whoever carries a
list out, or predicts how long it takes, reads the phases alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from macmpi.parallel.tiles import Assigned, Tile, assigned, places

SPLITS = 32
"""At most this many numbers of early jobs are compared."""


@dataclass(frozen=True)
class Gram:
    """The Gram that the units of a segment share, or some rows of it.  place: where they lie among the Grams."""

    segment: int
    rows: Tile | None
    place: slice
    cost: float


@dataclass(frozen=True)
class Factor:
    """A task: all ranks together make the factor of a segment's large Gram, each some pieces of it."""

    segment: int


@dataclass(frozen=True)
class Job:
    """The atom of the W-step: a tile of units of a segment's parameter block, or, where `units` is None, a segment.

    Of a fitter that fits rows of the weights apart, `units` are such rows.

    place: where its weights lie in the flat buffer.
    """

    segment: int
    units: Tile | None
    place: slice
    cost: float


@dataclass(frozen=True)
class Tour:
    """Jobs that go round the ring of blocks of points, and come back."""

    jobs: tuple[Job, ...]


@dataclass(frozen=True)
class Layer:
    """A layer that a trainer fits: map number `map` of a segment.  place: where its weights lie."""

    segment: int
    map: int
    block: int
    place: slice
    cost: float


Task = Gram | Factor | Job | Tour | Layer


class Exchange(NamedTuple):
    """The exchange behind a phase, of "grams" or of "weights".

    parts: for each rank the places of its results; () where all ranks did the phase's tasks jointly: of Grams each has
        its part, of weights all, but rounded differently.
    """

    what: str
    parts: tuple[tuple[slice, ...], ...] = ()


@dataclass(frozen=True)
class Phase:
    """A phase of a work list, after which ranks exchange what they have made.

    joint: tasks that all ranks do together, one after the other.
    own: for each rank the tasks that it does alone.
    exchange: None where nothing is exchanged.
    """

    joint: tuple[Task, ...] = ()
    own: Assigned[Any] = ()
    exchange: Exchange | None = None

    def tasks(self, rank: int) -> tuple[Task, ...]:
        """The tasks in which a rank has a part, in their order."""
        return self.joint + (self.own[rank] if self.own else ())


@dataclass(frozen=True)
class WorkList:
    """Regressions and what they need, or layers that trainers fit, in phases.

    features: segments whose features ranks make before the first phase, each the rows of its own points.
    """

    phases: tuple[Phase, ...]
    features: tuple[int, ...] = ()

    def jobs_of(self, rank: int) -> tuple[Job, ...]:
        """The jobs in which a rank has a part."""
        return tuple(job for phase in self.phases for task in phase.tasks(rank) for job in _jobs(task))

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks of all ranks; joint ones once."""
        return tuple(t for p in self.phases for t in (*p.joint, *(t for rank in p.own for t in rank)))

    @cached_property
    def jobs(self) -> tuple[Job, ...]:
        """All jobs, each once."""
        return tuple(job for task in self.tasks for job in _jobs(task))

    @cached_property
    def grams(self) -> tuple[Gram, ...]:
        """The Grams that are made again, or their rows."""
        return tuple(gram for task in self.tasks for gram in _grams(task))

    @cached_property
    def segments(self) -> frozenset[int]:
        """The segments that have jobs."""
        return frozenset(job.segment for job in self.jobs)

    @cached_property
    def fresh(self) -> frozenset[int]:
        """The segments whose Gram is made again."""
        return frozenset(gram.segment for gram in self.grams)

    @property
    def widest(self) -> int:
        """The number of bytes of the largest Gram that ranks sum up jointly."""
        joint = (gram for phase in self.phases for task in phase.joint for gram in _grams(task))
        return 8 * max((gram.place.stop - gram.place.start for gram in joint), default=0)


def _jobs(task: Task) -> Iterator[Job]:
    match task:
        case Job():
            yield task
        case Tour():
            yield from task.jobs


def _grams(task: Task) -> Iterator[Gram]:
    match task:
        case Gram():
            yield task


def each_its_own(
    jobs: Sequence[Job], grams: Sequence[Gram], old: Sequence[Factor], new: Sequence[Factor], ranks: int
) -> tuple[Phase, ...]:
    """Every rank has all points: each does jobs, and rows of large Grams, of its own.

    old, new: factors of large Grams that stay as they are, and of those that are made again.
    """
    whole, rows = (tuple(g for g in grams if (g.rows is None) is alike) for alike in (True, False))
    during, late = assign_work(jobs, rows, ranks)
    made = [[gram for task in rank for gram in _grams(task)] for rank in during]
    solved = [[job for task in (*a, *b) for job in _jobs(task)] for a, b in zip(during, late, strict=True)]
    return _not_empty(
        Phase((*old, *whole), (), Exchange("grams") if whole else None),
        Phase((), during, Exchange("grams", places(made))) if rows else Phase(),
        Phase(tuple(new), late, Exchange("weights", places(solved))) if jobs else Phase(),
    )


def all_jointly(
    tasks: Sequence[Task], grams: Sequence[Gram] = (), old: Sequence[Factor] = (), new: Sequence[Factor] = ()
) -> tuple[Phase, ...]:
    """Makes phases in which all ranks do every task together, for each rank holds its own points alone.

    old, new: factors of large Grams that stay as they are, and of those that are made again.
    """
    return _not_empty(
        Phase((*old, *grams), (), Exchange("grams") if grams else None),
        Phase((*new, *tasks), (), Exchange("weights") if tasks else None),
    )


def by_one(jobs: Sequence[Job | Layer], ranks: int, copied: Sequence[Layer] = ()) -> tuple[Phase, ...]:
    """Makes a phase of jobs or layers, each done by one rank, by cost.

    copied: layers that every rank computes for itself, since their weights are rows of coordinates.
    """
    owned = assigned(jobs, ranks)
    own = tuple((*copied, *rank) for rank in owned)
    return _not_empty(Phase((), own, Exchange("weights", places(owned))))


def _not_empty(*phases: Phase) -> tuple[Phase, ...]:
    return tuple(phase for phase in phases if phase.joint or any(phase.own))


def assign_work(jobs: Sequence[Job], rows: Sequence[Gram], ranks: int) -> tuple[Assigned[Any], Assigned[Job]]:
    """By rank: rows of large Grams with early jobs, which need not wait for them; then late jobs.

    Early are as many of the costliest jobs that need not wait as make the busiest ranks of both phases least busy.
    """
    if not rows:
        return ((),) * ranks, assigned(jobs, ranks)
    waiting = {gram.segment for gram in rows}
    free = sorted((j for j in jobs if j.segment not in waiting), key=lambda j: (-j.cost, j.place.start))
    bound = [j for j in jobs if j.segment in waiting]

    def split(early: int, last: bool) -> tuple[Assigned[Any], Assigned[Job]]:
        """Assigns both phases, with this number of early jobs."""
        during: list[Any] = [*rows, *free[:early]]
        return assigned(during, ranks, last), assigned([*bound, *free[early:]], ranks, last)

    def longest(early: int) -> float:
        """Adds up what the busiest ranks of both phases have to do."""
        return float(sum(max(sum(task.cost for task in rank) for rank in phase) for phase in split(early, False)))

    counts = range(0, len(free) + 1, -(-(len(free) + 1) // SPLITS)) if ranks > 1 else [0]
    return split(min(counts, key=longest), True)
