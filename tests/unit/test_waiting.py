"""A rank that waits leaves its core to others: what it does between two polls, by the calls that it makes."""

from __future__ import annotations

import pytest

from macmpi.parallel import waiting

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
