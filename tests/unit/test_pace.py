"""When a checkpoint is due: the first one soon, the others as often as the config says."""

from __future__ import annotations

from pathlib import Path

import pytest
from launch.here import run_here

from macmpi.training import pace


class Watch:
    """A clock that shows what a test has set."""

    def __init__(self) -> None:
        self.shows = 100.0

    def __call__(self) -> float:
        return self.shows


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    shown = Watch()
    monkeypatch.setattr(pace, "now", shown)
    return shown


@pytest.mark.parametrize("every", [0.06, 30.0, pace.FIRST, 600.0, 1e9])
def test_the_first_checkpoint_is_due_within_a_minute_and_the_others_as_often_as_the_config_says(
    every: float, watch: Watch
) -> None:
    """Whatever dies then has lost no more than that."""
    kept = pace.Pace(watch(), float("inf"), every)
    for length in (min(every, pace.FIRST), every, every):
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
