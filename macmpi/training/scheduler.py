"""The batch system tells how long this job may run."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from macmpi import UsageError

JOBS = {"SLURM_JOB_ID": "Slurm", "PBS_JOBID": "PBS", "LSB_JOBID": "LSF", "FLUX_JOB_ID": "Flux"}
"""These variables tell that this is a job of a batch system."""

END, LIMIT = "SLURM_JOB_END_TIME", "PBS_WALLTIME"
"""The moment at which Slurm ends the job, in seconds since 1970; the seconds that PBS gives it, counted from here."""

ARRAY = ("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID")
"""Slurm tells a task of an array job both; the number of its last task's job stands for all of them too."""

TELLING = {"Slurm": END, "PBS": LIMIT}
"""Batch system -> its variable; no other system's counts in a job."""

LEAST = 1e-3

MARGIN, SHARE = 60.0, 0.1
"""MARGIN seconds, at most SHARE of what is left, are kept for the end: ranks have to end, and clocks differ."""


def time_left() -> float:
    """Seconds to the end of the job, less a margin; inf outside of a batch system.  Raises UsageError where unknown."""
    inside = [name for variable, name in JOBS.items() if variable in os.environ]
    told = {name: os.environ.get(variable, "") for name, variable in TELLING.items() if not inside or name in inside}
    end, limit = (_number(told.get(name, "")) for name in TELLING)
    if end is None:
        end = _asked_of_slurm()
    if end is not None:
        left = end - time.time()
    elif limit is not None:
        left = limit
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
