"""When a checkpoint is due: the first one soon, the others as often as the config says."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from launch.here import run_here

from macmpi import run
from macmpi.training import loop, time_limit
from macmpi.training.record import Curve


class Watch:
    """A clock that shows what a test has set."""

    def __init__(self) -> None:
        self.shows = 100.0

    def __call__(self) -> float:
        return self.shows


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    shown = Watch()
    monkeypatch.setattr(time_limit, "now", shown)
    return shown


@pytest.mark.parametrize("every", [0.06, 30.0, time_limit.FIRST, 600.0, 1e9])
def test_the_first_checkpoint_is_due_within_a_minute_and_the_others_as_often_as_the_config_says(
    every: float, watch: Watch
) -> None:
    """Whatever dies then has lost no more than that."""
    kept = time_limit.Pace(watch(), float("inf"), every)
    for length in (min(every, time_limit.FIRST), every, every):
        began = watch.shows
        watch.shows = began + 0.99 * length
        assert not kept.is_due()
        watch.shows = began + 1.01 * length
        assert kept.is_due()
        kept.saved(watch.shows)
        assert not kept.is_due()


@pytest.mark.parametrize("ending", ["checkpoint", "model"])
def test_a_run_without_time_ends_in_its_iteration_and_says_so_with_a_model_or_without(ending: str, table: Path) -> None:
    words = ("--set", "method.name=mac", "--max-time", "0.001", "--when-stopped", ending)
    outcome = run_here("points.toml", *words, "--output", "run", cwd=table, code=75)
    assert "stopped in iteration 1" in outcome.out
    assert (table / "run" / "model.h5").exists() == (ending == "model")


def test_a_suspension_is_no_stretch_that_must_fit_once_more(
    table: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Continued after 1,000 of 1,500 seconds the run has time for what is left, which takes none; see SIGCONT."""
    add = Curve.add

    def suspended(curve: Curve, record: dict[str, Any], left: float | None) -> None:
        add(curve, record, left)
        if record["phase"] == "iteration" and record["iteration"] == 1:
            watch.shows += 1000.0
            signal.raise_signal(signal.SIGCONT)

    monkeypatch.setattr(Curve, "add", suspended)
    for module in (run, loop):  # the machine's own clock may show less: it may have started a minute ago
        monkeypatch.setattr(module, "now", watch)
    words = ("--set", "method.name=mac", "--iterations", 3, "--max-time", 1500)
    run_here("points.toml", *words, "--output", "run", cwd=table, code=0)


def test_a_checkpoint_that_is_due_and_a_limit_that_is_over_after_a_suspension_are_taken(watch: Watch) -> None:
    """The clock of both goes on meanwhile, as the job's may."""
    kept = time_limit.Pace(watch(), 3600.0, 600.0)
    kept.saved(watch())
    watch.shows += 1800.0
    kept.pause()
    assert kept.is_due() and not kept.is_late()
    watch.shows += 1800.0
    assert kept.is_late()
