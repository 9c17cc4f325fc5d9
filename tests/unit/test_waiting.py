"""A rank that waits leaves its core to others: what it does between two polls, by the calls that it makes."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from macmpi.parallel import mpi, waiting
from macmpi.parallel.mpi import STOPPED, MPITeam

YIELDS = "yields"


def done(per_core: float, waited: float, monkeypatch: pytest.MonkeyPatch) -> object:
    """The seconds that a rank sleeps, or the word."""
    found: list[object] = []
    monkeypatch.setattr(waiting.time, "sleep", found.append)
    monkeypatch.setattr(waiting.os, "sched_yield", lambda: found.append(YIELDS))
    waiting.pauses(per_core)(waited)
    (one,) = found
    return one


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("per_core", "waited", "expected"),
    [
        (1.0, 0.0, YIELDS),
        (1.0, 0.019, YIELDS),
        (1.5, 0.0, waiting.NAP),
        (48.0, 0.019, waiting.NAP),
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
    monkeypatch.setattr(waiting.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(waiting.os, "environ", {"MPI_LOCALNRANKS": "12", "PMI_SIZE": "24"})
    assert waiting.sharing() == 6.0


class Left(Exception):
    """All ranks have been ended."""


class Rank(MPITeam):
    """A rank without any MPI, whose request is answered never, or after some polls."""

    def __init__(self, rank: int) -> None:
        self.rank, self.size, self.polls = rank, 2, 0
        self._pause = lambda waited: None
        self.set_clock(None, 100.0)

    def abort(self, code: int) -> NoReturn:
        raise Left(code)

    def asks(self, answered: float = float("inf")) -> Any:
        def test() -> bool:
            self.polls += 1
            assert self.polls < 1000, "it waits for ever"
            return self.polls > answered

        return SimpleNamespace(Test=test)


@pytest.mark.parametrize(("rank", "waits"), [(0, 101), (1, 105)])
def test_a_rank_that_has_waited_as_long_as_it_may_ends_all_rank_0_first(
    rank: int, waits: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second passes between two polls."""
    seconds = count()
    monkeypatch.setattr(mpi.time, "monotonic", lambda: float(next(seconds)))
    Rank(rank)._finish(Rank(rank).asks(answered=50), "an answer")
    assert capsys.readouterr().err == ""
    seconds = count()
    with pytest.raises(Left, match=str(STOPPED)):
        Rank(rank)._finish(Rank(rank).asks(), "an answer")
    assert next(seconds) == waits + 1
    assert f"rank {rank}/2: no answer from the other ranks for {waits - 1} s" in capsys.readouterr().err
