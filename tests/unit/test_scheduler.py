"""--max-time auto: what batch systems say of the end of a job."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from macmpi import UsageError, run
from macmpi.parallel.command import parser_of
from macmpi.parallel.team import Team
from macmpi.training import time_limit


@pytest.fixture(autouse=True)
def no_job(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in (*time_limit.JOBS, *time_limit.TELLING.values(), "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"):
        monkeypatch.delenv(name, raising=False)
    with monkeypatch.context() as clock:
        clock.setattr(time_limit.time, "time", lambda: 1_000_000.0)
        yield


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
    assert time_limit.time_left(0.0) == left
    args = parser_of("run").parse_args(["c.toml", "--max-time", "auto"])
    assert time_limit.seconds_left(args.max_time, args.since) == left


def squeue(answer: str, folder: Path, monkeypatch: pytest.MonkeyPatch, job: str = "17") -> None:
    """Puts a squeue that gives this answer, and fails without one, in front of all others; this is a job of Slurm."""
    (folder / "squeue").write_text(
        f'#!/bin/sh\n[ "$*" = "-h -j {job} -o %A %L" ] && [ -n "{answer}" ] && echo "{answer}"\n'
    )
    (folder / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", job)


ENDLESS = ["UNLIMITED", "unlimited", "infinite", "INFINITE", "Infinity", "-1"]
UNKNOWN = ["N/A", "NOT_SET", "INVALID", "soon", "None", "0", ""]
TIMES = {
    "0:00": 0.0,
    "1:00:00": 3600.0,
    "10:00": 600.0,
    "0:30": 30.0,
    "2-01:00:00": 176400.0,
    "365-00:00:00": 31536000.0,
}


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        *((word, float("inf")) for word in ENDLESS),
        *((word, None) for word in UNKNOWN),
        *TIMES.items(),
    ],
)
@pytest.mark.every_case
def test_a_limit_is_a_time_or_there_is_none_or_it_is_unknown(
    answer: str, left: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As squeue says it, and as PBS does.  What is not known is refused, and never no time, or no limit."""
    for asked in ("squeue", time_limit.TELLING["PBS"]):
        with monkeypatch.context() as job:
            if asked == "squeue":
                squeue(f"17 {answer}" if answer else "", tmp_path, job)
            else:
                job.setenv("PBS_JOBID", "17")
                job.setenv(asked, answer)
            if left is None:
                with pytest.raises(UsageError, match=r"does not say|is no time"):
                    time_limit.time_left(0.0)
            else:
                assert time_limit.time_left(0.0) == max(left - min(60.0, 0.1 * left), time_limit.LEAST)


@pytest.mark.parametrize("word", [*ENDLESS, *UNKNOWN])
def test_slurm_is_asked_where_the_environment_says_no_moment(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    squeue("17 1:00:00", tmp_path, monkeypatch)
    monkeypatch.setenv(time_limit.TELLING["Slurm"], word)
    assert time_limit.time_left(0.0) == (float("inf") if word in ENDLESS else 3600.0 - 60.0)


def test_slurm_is_asked_for_the_one_task_of_an_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of the array's last job stands for all of them: squeue answers with a line for each.

    An array around the job, whose variables are inherited, is another matter.
    """
    squeue("16 2:00:00\n17 1:00:00\n18 3:00:00", tmp_path, monkeypatch)
    assert time_limit.time_left(0.0) == 3600.0 - 60.0
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "5")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "2")
    assert time_limit.time_left(0.0) == 3600.0 - 60.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90.0), ("1:30", 90.0), ("2h30m", 9000.0), ("1-12", 129600.0), ("1-00:30", 88200.0), ("1-0:0:1", 86401.0)],
)
def test_what_is_a_time(text: str, seconds: float) -> None:
    assert time_limit.seconds_left(text, None) == seconds


def test_every_form_of_a_time_is_documented_where_a_user_looks() -> None:
    with pytest.raises(UsageError, match="--max-time 'soon' is not a time") as refused:
        time_limit.seconds_left("soon", None)
    page = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"
    for text in (parser_of("run").format_help(), str(refused.value), page.read_text(encoding="utf-8")):
        assert re.search(r"(?<!:)\bMM:SS", text) and "H:MM:SS" in text and "seconds" in text


@pytest.mark.parametrize(
    "text",
    [
        "1:99:00",
        "0:60",
        "1e400",
        "inf",
        "nan",
        "-1",
        "0",
        "1:2:3:4",
        "",
        "soon",
        "2h30",
        "h",
        "0h0m",
        "30m2h",
        "1-",
        "-1:00",
        "1-2-3",
        "1-1:2:3:4",
        "1-1:60",
    ],
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--max-time "):
        time_limit.seconds_left(text, None)


@pytest.mark.parametrize(("variable", "name"), time_limit.JOBS.items())
def test_a_job_that_does_not_say_is_refused(variable: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a word of variables that are another system's."""
    monkeypatch.setenv(variable, "17")
    for other in time_limit.TELLING.keys() - {name}:
        monkeypatch.setenv(time_limit.TELLING[other], "soon")
    with pytest.raises(UsageError, match=f"this {name} job does not say how long it may run") as refused:
        run.run(Team(), ["c.toml", "--max-time", "auto"])
    named = {system for system, variable in time_limit.TELLING.items() if variable in str(refused.value)}
    assert named == {name} & time_limit.TELLING.keys()


def test_a_limit_counts_from_the_moment_that_is_given_or_from_the_start_of_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A limit of seconds otherwise from now, a limit that is a moment from nowhere."""
    left = time_limit.seconds_left
    monkeypatch.setattr(time_limit, "job_age", lambda: 900.0)
    assert [left("600", since) for since in (None, 999_900.0, 1_000_001.0)] == [600.0, 500.0, 600.0]
    assert [left("600", since) for since in (999_400.0, 0.0)] == [time_limit.LEAST] * 2
    assert left("unlimited", 999_900.0) == float("inf") == left("auto", 999_900.0)
    monkeypatch.setenv("PBS_WALLTIME", "7200")
    assert [left("auto", since) for since in (None, 999_900.0)] == [7200.0 - 900.0 - 60.0, 7200.0 - 100.0 - 60.0]
    monkeypatch.setenv("SLURM_JOB_END_TIME", "1003600")
    assert [left("auto", since) for since in (None, 999_900.0)] == [3600.0 - 60.0] * 2


@pytest.mark.parametrize("text", ["soon", "nan", "inf", "1.5", ""])
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(SystemExit) as end:
        parser_of("run").parse_args(["c.toml", "--since", text])
    assert end.value.code == 2


AGE = "from macmpi.training.time_limit import job_age; print(job_age())"


@pytest.mark.parametrize("inherited", [False, True])
def test_a_job_is_as_old_as_the_oldest_process_that_tells_it(inherited: bool) -> None:
    """A script that has worked before it starts the program, inside of another job or of none."""
    outer = {
        **os.environ,
        "PYTHONPATH": str(Path(run.__file__).parents[1]),
        **({"PBS_JOBID": "1"} if inherited else {}),
    }
    script = f'env PBS_JOBID=2 sh -c \'sleep 0.4; "$0" -c "{AGE}"; :\' "{sys.executable}"'
    began = time.monotonic()
    said = subprocess.run(
        ["sh", "-c", f"sleep 0.8; {script}; :"], env=outer, capture_output=True, text=True, check=True
    )
    whole = time.monotonic() - began
    assert 0.39 <= float(said.stdout) <= whole - 0.79


def test_without_a_job_there_is_no_age() -> None:
    assert time_limit.job_age() == 0.0
