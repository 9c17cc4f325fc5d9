"""A rank that waits leaves its core to others: what it does between two polls, by the calls that it makes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle, repeat
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macmpi.parallel import clock, launchers
from macmpi.parallel.mpi import STOPPED, MPITeam

YIELDS = "yields"


def done(per_core: float, waited: float, monkeypatch: pytest.MonkeyPatch) -> object:
    """The seconds that a rank sleeps, or the word."""
    found: list[object] = []
    monkeypatch.setattr(clock.time, "sleep", found.append)
    monkeypatch.setattr(clock.os, "sched_yield", lambda: found.append(YIELDS))
    clock.pauses(per_core)(waited)
    (one,) = found
    return one


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("per_core", "waited", "expected"),
    [
        (1.0, 0.0, YIELDS),
        (1.0, 0.019, YIELDS),
        (1.5, 0.0, clock.NAP),
        (48.0, 0.019, clock.NAP),
        (1.0, 0.02, 0.001),
        (1.0, 1.0, 0.005),
        (4.0, 1.0, 0.005),
        (1.0, 60.0, 0.02),
        (12.0, 1.0, 0.015),
        (48.0, 0.1, 0.006),
        (48.0, 60.0, 0.02),
    ],
)
def test_a_rank_sleeps_the_longer_the_longer_it_waits_and_the_more_share_its_core(
    per_core: float, waited: float, expected: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert done(per_core, waited, monkeypatch) == pytest.approx(expected)


def test_ranks_for_each_core_are_those_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cores that affinity and control group leave them, as `launchers.cores` knows them."""
    monkeypatch.setattr(launchers.os, "cpu_count", lambda: 64)
    monkeypatch.setattr(launchers, "cores", lambda: 2)
    monkeypatch.setattr(launchers.os, "environ", {"MPI_LOCALNRANKS": "12", "PMI_SIZE": "24"})
    assert launchers.sharing() == 6.0


class Left(Exception):
    """All ranks have been ended."""


class Rank(MPITeam):
    """A rank without any MPI, whose request is answered never, or after some polls."""

    def __init__(self, rank: int) -> None:
        self.rank, self.size, self.polls = rank, 2, 0
        self._pause = lambda waited: None
        self.set_deadline(100.0)

    def abort(self, code: int) -> NoReturn:
        raise Left(code)

    def asks(self, answered: float = float("inf")) -> Any:
        def test() -> bool:
            self.polls += 1
            assert self.polls < 100_000, "it waits for ever"
            return self.polls > answered

        return SimpleNamespace(Test=test)


class Watch:
    """A clock that goes on by what each look costs: a step, or a suspension."""

    def __init__(self, steps: Iterable[float]) -> None:
        self._shows, self._steps = 0.0, iter(steps)

    def __call__(self) -> float:
        self._shows += next(self._steps)
        return self._shows


@pytest.mark.parametrize(("rank", "waits"), [(0, 100), (1, 104)])
def test_a_rank_that_has_waited_as_long_as_it_may_ends_all_rank_0_first(
    rank: int, waits: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sixteenth of a second passes between two polls."""
    monkeypatch.setattr(clock.time, "monotonic", Watch(repeat(2.0**-4)))
    Rank(rank)._finish(Rank(rank).asks(answered=50), "an answer")
    assert capsys.readouterr().err == ""
    own = Rank(rank)
    with pytest.raises(Left, match=str(STOPPED)):
        own._finish(own.asks(), "an answer")
    assert own.polls == 16 * waits + 2
    assert f"rank {rank}/2: no answer from the other ranks for {waits} s" in capsys.readouterr().err


SUSPENSIONS = st.lists(st.tuples(st.integers(1, 900), st.floats(1.0, 1e7)), max_size=6)
"""Looks before which a rank was suspended, and for how many seconds."""


@settings(deadline=None, max_examples=30)
@given(steps=st.lists(st.floats(0.01, clock.STEP), min_size=1, max_size=20), suspensions=SUSPENSIONS)
def test_a_suspension_of_a_rank_is_no_waiting_however_long_and_often_it_is(
    steps: list[float], suspensions: list[tuple[int, float]]
) -> None:
    """It gives up once the seconds in which it could run exceed the deadline; a suspension counts as one STEP."""
    deadline, long = 10.0, dict(suspensions)
    taken = [long.get(look, step) for look, step in zip(range(2_000), cycle(steps), strict=False)]
    own = Rank(0)
    own.set_deadline(deadline)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock.time, "monotonic", Watch([0.0, *taken]))
        with pytest.raises(Left):
            own._finish(own.asks(), "an answer")
    looks = own.polls - 1
    could_run = [min(step, clock.STEP) for step in taken[:looks]]
    rounded = looks * np.spacing(sum(taken[:looks]))  # of the watch, whose differences are taken
    assert sum(could_run) + rounded > deadline >= sum(could_run[:-1]) - rounded


def test_a_rank_that_departs_leaves_its_suspension_out_too(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Rank(0)
    own._comm = SimpleNamespace(Ibarrier=lambda: own.asks(answered=20))
    monkeypatch.setattr(clock.time, "monotonic", Watch([0.0, 0.01, 1e4, *repeat(0.01, 100)]))
    monkeypatch.setattr(clock.time, "sleep", lambda seconds: None)
    own.depart()
    assert own.polls == 21
