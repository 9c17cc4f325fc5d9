"""A work list has phases of tasks, done by one rank alone or by all ranks jointly; an exchange ends each phase.

The phases depend on where the points are, on the solvers and on the sizes of Grams.  The code that carries a list out,
or predicts how long it takes, reads nothing but the phases.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from macmpi.parallel.tiles import Assigned, Tile, assigned, places

SPLITS = 32
"""`assign_work` tries at most this many numbers of early jobs."""


@dataclass(frozen=True)
class Gram:
    """Is the task of summing a Gram that the units of a segment share, or some rows of it.

    rows: the rows; None: all.
    place: where the rows lie among the Grams.
    cost: the cost in multiplications.
    """

    segment: int
    rows: Tile | None
    place: slice
    cost: float


@dataclass(frozen=True)
class Factor:
    """Is the task of factoring a segment's large Gram, of which each rank makes some pieces."""

    segment: int


@dataclass(frozen=True)
class Job:
    """Is the task of solving a regression: the smallest piece of a W-step.

    units: a tile of units of the segment's parameter block, or rows of its weights if a fitter fits these one by one;
        None: all weights of the segment.
    place: where the weights lie in the flat buffer.
    cost: the cost that the solver estimates.
    """

    segment: int
    units: Tile | None
    place: slice
    cost: float


@dataclass(frozen=True)
class Tour:
    """Is the task of sending jobs round the ring of ranks, each of which trains them on its own points."""

    jobs: tuple[Job, ...]


@dataclass(frozen=True)
class Layer:
    """Is the task of fitting a layer by its trainer.

    map: the number of its map in the segment.
    block, place: its parameter block, and where its weights lie in the flat buffer.
    cost: the number of its weights.
    """

    segment: int
    map: int
    block: int
    place: slice
    cost: float


Task = Gram | Factor | Job | Tour | Layer


class Exchange(NamedTuple):
    """Describes the exchange after a phase, of "grams" or of "weights".

    parts: for each rank the places of its results.  () if all ranks did the tasks jointly; each then has a part of the
        Grams, or all weights, but rounded differently.
    """

    what: str
    parts: tuple[tuple[slice, ...], ...] = ()


@dataclass(frozen=True)
class Phase:
    """Is a phase of a work list, after which ranks exchange their results.

    joint: tasks that all ranks do together, one after the other.
    own: for each rank the tasks that it does alone.
    exchange: None if nothing is exchanged.
    """

    joint: tuple[Task, ...] = ()
    own: Assigned[Any] = ()
    exchange: Exchange | None = None

    def tasks(self, rank: int) -> tuple[Task, ...]:
        """Returns the tasks in which a rank has a part, in their order."""
        return self.joint + (self.own[rank] if self.own else ())


@dataclass(frozen=True)
class WorkList:
    """Lists, in phases, regressions with their Grams and factors, or layers that trainers fit.

    features: segments whose features are made before the first phase; each rank makes the rows of its own points.
    """

    phases: tuple[Phase, ...]
    features: tuple[int, ...] = ()

    def jobs_of(self, rank: int) -> tuple[Job, ...]:
        """Returns the jobs in which a rank has a part."""
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
        """The tasks of Grams that are made again, or of their rows."""
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
    """Makes phases for ranks that have all points; each rank does its own jobs, and its own rows of large Grams.

    grams: the Grams that are made again.
    old, new: the factors of large Grams that stay as they are, and of large Grams that are made again.
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
    """Makes phases in which all ranks do every task jointly, since each rank holds only its own points.

    grams: the Grams that are made again.
    old, new: the factors of large Grams that stay as they are, and of large Grams that are made again.
    """
    return _not_empty(
        Phase((*old, *grams), (), Exchange("grams") if grams else None),
        Phase((*new, *tasks), (), Exchange("weights") if tasks else None),
    )


def by_one(jobs: Sequence[Job | Layer], ranks: int, copied: Sequence[Layer] = ()) -> tuple[Phase, ...]:
    """Makes a phase of jobs or layers, which are assigned to ranks by cost.

    copied: layers that every rank computes for itself, since their weights are rows of coordinates.
    """
    owned = assigned(jobs, ranks)
    own = tuple((*copied, *rank) for rank in owned)
    return _not_empty(Phase((), own, Exchange("weights", places(owned))))


def _not_empty(*phases: Phase) -> tuple[Phase, ...]:
    return tuple(phase for phase in phases if phase.joint or any(phase.own))


def assign_work(jobs: Sequence[Job], rows: Sequence[Gram], ranks: int) -> tuple[Assigned[Any], Assigned[Job]]:
    """Assigns rows of large Grams with early jobs, which need not wait for these Grams, and then late jobs.

    The costliest of the jobs that need not wait are early, as many as keep the busiest ranks of both phases least busy.
    Returns for each phase the tasks of each rank.
    """
    if not rows:
        return ((),) * ranks, assigned(jobs, ranks)
    waiting = {gram.segment for gram in rows}
    free = sorted((j for j in jobs if j.segment not in waiting), key=lambda j: (-j.cost, j.place.start))
    bound = [j for j in jobs if j.segment in waiting]

    def split(early: int, last: bool) -> tuple[Assigned[Any], Assigned[Job]]:
        """Assigns both phases, with `early` early jobs."""
        during: list[Any] = [*rows, *free[:early]]
        return assigned(during, ranks, last), assigned([*bound, *free[early:]], ranks, last)

    def longest(early: int) -> float:
        """Adds up what the busiest ranks of both phases have to do."""
        return float(sum(max(sum(task.cost for task in rank) for rank in phase) for phase in split(early, False)))

    counts = range(0, len(free) + 1, -(-(len(free) + 1) // SPLITS)) if ranks > 1 else [0]
    return split(min(counts, key=longest), True)
