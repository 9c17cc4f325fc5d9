"""The batch system tells how long this job may run."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from macmpi import UsageError
from macmpi.parallel.launchers import parent_of
from macmpi.training.process import age

JOBS = {"SLURM_JOB_ID": "Slurm", "PBS_JOBID": "PBS", "LSB_JOBID": "LSF", "FLUX_JOB_ID": "Flux"}
"""These variables tell that this is a job of a batch system."""

END, LIMIT = "SLURM_JOB_END_TIME", "PBS_WALLTIME"
"""The moment at which Slurm ends the job, in seconds since 1970; the seconds that PBS gives it."""

ARRAY = ("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID")
"""Slurm tells a task of an array job both; the number of its last task's job stands for all of them too."""

TELLING = {"Slurm": END, "PBS": LIMIT}
"""Batch system -> its variable; no other system's counts in a job."""

LEAST = 1e-3

MARGIN, SHARE = 60.0, 0.1
"""MARGIN seconds, at most SHARE of what is left, are kept for the end: ranks have to end, and clocks differ."""


def seconds_left(limit: float | str, since: float | None) -> float:
    """Seconds that a run has, of a limit in seconds or "auto", which count from a moment (None: from the present one).

    Of "auto" they count from the start of the job, wherever in it the run begins.  Raises UsageError.
    """
    ran = None if since is None else max(time.time() - since, 0.0)
    if isinstance(limit, str):
        return time_left(job_age() if ran is None else ran)
    return max(limit - (ran or 0.0), LEAST)


def job_age() -> float:
    """Seconds since this job began here: the age of the oldest process above this one that tells the same job.

    0 outside of a batch system.  Collective: no.
    """
    own = {f"{name}={os.environ[name]}".encode() for name in JOBS if name in os.environ}
    pid, oldest = os.getpid(), 0.0
    with suppress(OSError):
        while own and own <= set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")):
            oldest, pid = age(pid), parent_of(pid)
    return oldest


def time_left(ran: float) -> float:
    """Seconds to the end of a job that has run for so long, less a margin; inf outside of a batch system.

    Raises UsageError where it is unknown.  Collective: no.
    """
    inside = [name for variable, name in JOBS.items() if variable in os.environ]
    told = {name: os.environ.get(variable, "") for name, variable in TELLING.items() if not inside or name in inside}
    end, limit = (_number(told.get(name, "")) for name in TELLING)
    if end is None:
        end = _asked_of_slurm()
    if end is not None:
        left = end - time.time()
    elif limit is not None:
        left = limit - ran
    elif wrong := next((name for name, text in told.items() if text), ""):
        text = f"{TELLING[wrong]}={told[wrong]!r} is not a number of seconds"
        raise UsageError(f"--max-time auto: {text}; correct it, or give --max-time H:MM:SS")
    elif inside:
        unset = f" ({TELLING[inside[0]]} is not set)" if inside[0] in TELLING else ""
        raise UsageError(
            f"--max-time auto: this {inside[0]} job does not say how long it may run{unset}; give --max-time H:MM:SS"
        )
    else:
        return float("inf")
    return max(left - min(MARGIN, SHARE * left), LEAST)


def _number(text: str) -> float | None:
    """Seconds; None where the text is none, or no such number."""
    with suppress(ValueError):
        if 0.0 <= (found := float(text)) < float("inf"):
            return found
    return None


def _asked_of_slurm() -> float | None:
    """The seconds since 1970 at which squeue says that this job ends; None where it does not."""
    import subprocess

    job, tasks, task = (os.environ.get(name, "") for name in ("SLURM_JOB_ID", *ARRAY))
    if not job:
        return None
    job = f"{tasks}_{task}" if tasks and task else job
    command = ["squeue", "-h", "-j", job, "-o", "%e"]
    local = os.environ | {"SLURM_TIME_FORMAT": "standard"}
    with suppress(OSError, ValueError, OverflowError, subprocess.SubprocessError):
        said = subprocess.run(command, env=local, capture_output=True, text=True, check=True, timeout=30.0).stdout
        return time.mktime(time.strptime(said.strip(), "%Y-%m-%dT%H:%M:%S"))
    return None
