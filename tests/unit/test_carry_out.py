"""A work list is carried out phase by phase: joint tasks on every rank, own ones on their rank, then an exchange."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from unit.crew import crew

from macmpi.half_steps.w_step import carry_out, exchanged, located
from macmpi.parallel.points import Points, partition_points
from macmpi.parallel.team import Team
from macmpi.plan.work_lists import Exchange, Factor, Gram, Job, Layer, Phase, Tour, WorkList
from macmpi.reductions import OverPoints

JOBS = [Job(k, None, slice(k, k + 1), 1.0) for k in range(3)]
GRAM, LAYER = Gram(0, None, slice(0, 1), 1.0), Layer(0, 1, 1, slice(3, 4), 1.0)


class Diary:
    """Notes what it is asked to do."""

    def __init__(self, team: Team) -> None:
        rows = partition_points(30, team.size)
        self.points, self.notes = Points(rows, rows, team), list[Any]()
        self.given: Any = SimpleNamespace(parts=SimpleNamespace(points=self.points, team=team))

    def gram(self, gram: Gram, over_points: OverPoints) -> None:
        self.notes.append((gram, over_points is self.points.jointly))

    def factor(self, segment: int) -> None:
        self.notes.append(Factor(segment))

    def solve(self, job: Job) -> None:
        self.notes.append(job)

    def tour(self, jobs: Sequence[Job]) -> None:
        self.notes.append(Tour(tuple(jobs)))

    def train(self, layer: Layer) -> None:
        self.notes.append(layer)

    def exchange(self, exchange: Exchange) -> None:
        self.notes.append(exchange)


def test_phases_come_in_order_and_each_ends_with_its_exchange() -> None:
    first, last = Exchange("grams"), Exchange("weights", ((slice(0, 1),), (slice(1, 2),)))
    work = WorkList(
        (
            Phase((GRAM, Factor(2)), (), first),
            Phase((), ((GRAM, JOBS[0]), (JOBS[1], LAYER))),
            Phase((Tour((JOBS[2],)),), ((), ()), last),
        )
    )

    def notes(team: Team) -> list[Any]:
        diary: Any = Diary(team)
        carry_out(work, diary)
        return diary.notes

    joint, tour = [(GRAM, True), Factor(2), first], [Tour((JOBS[2],)), last]
    assert crew(2, notes) == [
        [*joint, (GRAM, False), JOBS[0], *tour],
        [*joint, JOBS[1], LAYER, *tour],
    ]
    assert work.jobs_of(0) == (JOBS[0], JOBS[2])
    assert work.jobs_of(1) == (JOBS[1], JOBS[2])
    assert sorted(job.segment for job in work.jobs) == [0, 1, 2]


def test_parts_are_gathered_and_joint_weights_are_those_of_the_first_rank() -> None:
    def found(team: Team) -> tuple[Any, Any]:
        parts, joint = np.zeros(2), np.full(2, float(team.rank))
        parts[team.rank] = 1.0 + team.rank
        exchanged(parts, Exchange("weights", ((slice(0, 1),), (slice(1, 2),))), team)
        exchanged(joint, Exchange("weights"), team)
        return parts, joint

    for theirs in crew(2, found):
        assert_array_equal(theirs, ([1.0, 2.0], [0.0, 0.0]))  # type: ignore[arg-type]


def test_an_error_carries_the_place_where_it_was_raised() -> None:
    with pytest.raises(np.linalg.LinAlgError) as raised, located("Z", slice(0, 9)), located("W", 2, None):
        np.linalg.cholesky(-np.eye(2))
    assert raised.value.located == ("W", 2, None)  # type: ignore[attr-defined]
    with located("W", 1, None):
        pass
