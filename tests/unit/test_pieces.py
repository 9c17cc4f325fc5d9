"""Seconds of the pieces of a step: a piece has its own, and what is timed is there."""

from __future__ import annotations

import functools
import sys
from importlib import import_module
from types import SimpleNamespace

import pieces
import pytest
from pieces import PIECES, Watch, table


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that moves only when it is told to."""
    hand = SimpleNamespace(now=0.0)
    monkeypatch.setattr(pieces.time, "perf_counter", lambda: hand.now)
    return hand


@pytest.fixture
def watched(clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> tuple[Watch, SimpleNamespace]:
    """A module whose step takes 1 s, then two looks of 2 s each, in which it waits for 4 s."""

    def wait() -> None:
        clock.now += 4.0

    def look() -> None:
        clock.now += 2.0
        module.wait()

    def step(fails: bool = False) -> None:
        clock.now += 1.0
        module.look()
        module.look()
        if fails:
            raise ValueError

    module = SimpleNamespace(wait=wait, look=look, step=step)
    monkeypatch.setitem(sys.modules, "a_module", module)
    watch = Watch()
    for name, piece in (("step", "step"), ("look", "look"), ("wait", "meets")):
        watch.wrap(f"a_module:{name}", piece)
    return watch, module


def test_a_piece_has_its_own_seconds_and_a_meeting_the_name_of_the_piece_it_is_in(
    watched: tuple[Watch, SimpleNamespace],
) -> None:
    watch, module = watched
    module.step()
    assert not watch.seconds
    watch.on = True
    module.step()
    assert watch.seconds == {"step": 1.0, "look": 4.0, "meets in look": 8.0}


def test_a_piece_that_fails_has_ended(watched: tuple[Watch, SimpleNamespace]) -> None:
    watch, module = watched
    watch.on = True
    with pytest.raises(ValueError):
        module.step(fails=True)
    module.look()
    assert watch.seconds == {"step": 1.0, "look": 6.0, "meets in look": 12.0}


def test_every_piece_is_a_function_of_the_program() -> None:
    for place in PIECES:
        module, path = place.split(":")
        assert callable(functools.reduce(getattr, path.split("."), import_module(module))), place


def test_lost_is_the_mean_of_ranks_less_their_share_of_one() -> None:
    *_, row = table({"all": 2.0}, [{"all": 1.1}, {"all": 1.3}])
    assert row == "| all | 1000.0 | 1100.0 | 1300.0 | 200.0 |"
