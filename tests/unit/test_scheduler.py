"""--max-time auto: what batch systems say of the end of a job."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from macmpi import UsageError, run
from macmpi.parallel.serial import Serial
from macmpi.training import scheduler


@pytest.fixture(autouse=True)
def no_job(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in (*scheduler.JOBS, scheduler.END, scheduler.LIMIT):
        monkeypatch.delenv(name, raising=False)
    with monkeypatch.context() as clock:
        clock.setattr(scheduler.time, "time", lambda: 1_000_000.0)
        yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("variable", "value", "left"),
    [
        ("SLURM_JOB_END_TIME", "1003600", 3600.0 - 60.0),
        ("SLURM_JOB_END_TIME", "1000300", 300.0 - 30.0),
        ("SLURM_JOB_END_TIME", "999999", 1e-3),
        ("PBS_WALLTIME", "7200", 7200.0 - 60.0),
    ],
)
def test_the_seconds_left(variable: str, value: str, left: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute is kept for the end, of a short job a tenth."""
    monkeypatch.setenv(variable, value)
    assert scheduler.time_left() == left
    assert run.parser().parse_args(["c.toml", "--max-time", "auto"]).max_time == left


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        ("1970-01-12T14:46:40", 3600.0 - 60.0),
        ("1970-01-12T13:46:40", 1e-3),
        *((answer, None) for answer in ("N/A", "", "soon", "99999-01-12T14:46:40")),
    ],
)
def test_slurm_is_asked_where_the_environment_lacks_the_end(
    answer: str, left: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older Slurm sets no SLURM_JOB_END_TIME.  The end is in local time, 1,003,600 seconds after 1970 in UTC."""
    squeue = tmp_path / "squeue"
    squeue.write_text(f'#!/bin/sh\n[ "$*" = "-h -j 17 -o %e" ] && echo "{answer}"\n')
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    for name in scheduler.ARRAY:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    if left is None:
        with pytest.raises(UsageError, match="this Slurm job does not say"):
            scheduler.time_left()
    else:
        assert scheduler.time_left() == left


def test_slurm_is_asked_for_the_one_task_of_an_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of the array's last job stands for all of them: squeue would answer with a line for each."""
    squeue = tmp_path / "squeue"
    squeue.write_text('#!/bin/sh\n[ "$3" = 17_2 ] && echo 1970-01-12T14:46:40\n')
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    for name, value in (("SLURM_JOB_ID", "17"), *zip(scheduler.ARRAY, ("17", "2"), strict=True), ("TZ", "UTC")):
        monkeypatch.setenv(name, value)
    time.tzset()
    assert scheduler.time_left() == 3600.0 - 60.0


def test_every_form_of_a_time_is_documented_where_a_user_looks(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.parser().parse_args(["c.toml", "--max-time", "soon"])
    page = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"
    for text in (run.parser().format_help(), capsys.readouterr().err, page.read_text(encoding="utf-8")):
        assert re.search(r"(?<!:)\bMM:SS", text) and "H:MM:SS" in text and "seconds" in text


@pytest.mark.parametrize(
    "text", ["1:99:00", "0:60", "1e400", "inf", "nan", "-1", "0", "1:2:3:4", "", "soon", "2h30", "h", "0h0m", "30m2h"]
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(SystemExit) as end:
        run.parser().parse_args(["c.toml", "--max-time", text])
    assert end.value.code == 2


@pytest.mark.parametrize(("variable", "name"), scheduler.JOBS.items())
def test_a_job_that_does_not_say_is_refused(variable: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a word of variables that are another system's."""
    monkeypatch.setenv(variable, "17")
    for other in scheduler.TELLING.keys() - {name}:
        monkeypatch.setenv(scheduler.TELLING[other], "soon")
    with pytest.raises(UsageError, match=f"this {name} job does not say how long it may run") as refused:
        run.run(Serial(), ["c.toml", "--max-time", "auto"])
    named = {system for system, variable in scheduler.TELLING.items() if variable in str(refused.value)}
    assert named == {name} & scheduler.TELLING.keys()
