"""--max-time auto: what batch systems say of the end of a job."""

from __future__ import annotations

import pytest

from macmpi import UsageError, run, scheduler
from macmpi.team import Solo


@pytest.fixture(autouse=True)
def no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*scheduler.JOBS, scheduler.END, scheduler.LIMIT):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(scheduler.time, "time", lambda: 1_000_000.0)


def test_outside_of_a_batch_system_there_is_no_limit() -> None:
    assert scheduler.time_left() == float("inf")


@pytest.mark.parametrize(
    ("variable", "value", "left"),
    [
        ("SLURM_JOB_END_TIME", "1003600", 3600.0),
        ("SLURM_JOB_END_TIME", "999999", 1e-3),
        ("PBS_WALLTIME", "7200", 7200.0),
    ],
)
def test_the_seconds_left(variable: str, value: str, left: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, value)
    assert scheduler.time_left() == left
    assert run.parser().parse_args(["c.toml", "--max-time", "auto"]).max_time == left


@pytest.mark.parametrize("text", ["1:99:00", "0:60", "1e400", "inf", "nan", "-1", "0", "1:2:3:4", "", "soon"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(SystemExit) as end:
        run.parser().parse_args(["c.toml", "--max-time", text])
    assert end.value.code == 2


@pytest.mark.parametrize(("text", "seconds"), [("90", 90.0), ("1:30", 90.0), ("3:50:00", 13800.0), ("0:59.5", 59.5)])
def test_times(text: str, seconds: float) -> None:
    assert run.parser().parse_args(["c.toml", "--max-time", text]).max_time == seconds


@pytest.mark.parametrize(("variable", "name"), scheduler.JOBS.items())
def test_a_job_that_does_not_say_is_refused(variable: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "17")
    monkeypatch.setenv("SLURM_JOB_END_TIME", "soon")
    with pytest.raises(UsageError, match=f"this {name} job has neither"):
        run.run(Solo(), ["c.toml", "--max-time", "auto"])
