"""A few cases of the fault suite (`make faults` walks all of them), bounded at ten times what is promised."""

from __future__ import annotations

import platform
import signal
from pathlib import Path

import pytest
from faults.struck import (
    CASE,
    HUNG,
    STARTUP,
    STOPPED,
    assert_no_work_lost,
    assert_nothing_left,
    go_on,
    stop_rank,
    strike,
)
from launch.cases import write_case
from launch.launching import launched, run_program

pytestmark = pytest.mark.launch

INTERNAL, USAGE = 70, 2


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nothing strikes."""
    folder = tmp_path_factory.mktemp("straight")
    write_case(folder, CASE)
    go_on(folder)
    return folder / "run"


@pytest.mark.parametrize(
    ("fault", "ranks", "promised", "code"),
    [
        ("2:exchange:2:kill", 3, 5.0, None),
        ("1:gather_parts:3:memory", 2, 2.0, INTERNAL),
    ],
)
def test_no_fault_loses_work(
    fault: str, ranks: int, promised: float, code: int | None, tmp_path: Path, straight: Path
) -> None:
    struck = strike(tmp_path, fault, ranks, STARTUP + HUNG * promised)
    assert struck.outcome.code == code or (code is None and struck.outcome.code not in (0, STOPPED))
    assert struck.seconds < HUNG * promised
    assert_nothing_left(struck.outcome)
    assert_no_work_lost(tmp_path, straight)


def test_a_rank_that_ends_while_submodels_travel(tmp_path: Path) -> None:
    keys = ("--set", 'parallel.data="sharded"', "--set", 'w_step.schedule="ring"')
    struck = strike(tmp_path, "1:shift_to_next:3:kill", 3, STARTUP + HUNG * 5.0, *keys)
    assert struck.outcome.code not in (0, STOPPED)
    assert_nothing_left(struck.outcome)
    (tmp_path / "straight").mkdir()
    write_case(tmp_path / "straight", CASE)
    go_on(tmp_path / "straight", *keys)
    assert_no_work_lost(tmp_path, tmp_path / "straight" / "run", *keys)


def test_the_others_give_up_on_a_rank_that_is_stopped(tmp_path: Path) -> None:
    struck, deadline = stop_rank(tmp_path, "1:z:3:stop", 2)
    said = f"rank 0/2: no answer from the other ranks for {deadline:g} s while waiting for "
    assert struck.outcome.err.count(said) == 1
    assert_nothing_left(struck.outcome)


def test_the_second_run_of_a_folder_names_the_first(tmp_path: Path) -> None:
    write_case(tmp_path, "long")
    words = ("long.toml", "--output", "run", "--iterations", 100_000)
    with launched(words, 2, tmp_path) as first:
        first.until((tmp_path / "run" / "curve.jsonl").exists, "curve")
        outcome = run_program(*words, "--resume", "auto", cwd=tmp_path, code=USAGE)
        assert f"in use by the run of host {platform.node()}, pid " in outcome.err
        first.process.send_signal(signal.SIGUSR1)
        assert first.outcome().code == STOPPED
