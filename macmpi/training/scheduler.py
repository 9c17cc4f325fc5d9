"""How long the batch system lets this job run."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import suppress

from macmpi import UsageError

JOBS = {"SLURM_JOB_ID": "Slurm", "PBS_JOBID": "PBS", "LSB_JOBID": "LSF", "FLUX_JOB_ID": "Flux"}
"""What tells that this is a job of a batch system."""

END, LIMIT = "SLURM_JOB_END_TIME", "PBS_WALLTIME"
"""The moment at which Slurm ends the job, in seconds since 1970; the seconds that PBS gives it, counted from here."""

LEAST = 1e-3

MARGIN, SHARE = 60.0, 0.1
"""What is kept for the end of a job: seconds, and at most this share of what is left.

Ranks have to end, and the clocks of a scheduler and of its nodes differ.
"""


def time_left() -> float:
    """Seconds to the end of the job, less a margin; inf outside of a batch system.  Raises UsageError where unknown."""
    end, limit = os.environ.get(END, ""), os.environ.get(LIMIT, "")
    if end.isdigit() or (end := _asked_of_slurm()):
        left = float(end) - time.time()
    elif limit.isdigit():
        left = float(limit)
    else:
        inside = [name for variable, name in JOBS.items() if variable in os.environ]
        if inside:
            raise UsageError(
                f"--max-time auto: this {inside[0]} job has neither {END} nor {LIMIT}; give --max-time H:MM:SS"
            )
        return float("inf")
    return max(left - min(MARGIN, SHARE * left), LEAST)


def _asked_of_slurm() -> str:
    """The seconds since 1970 at which squeue says that this job ends; "" where it does not."""
    job = os.environ.get("SLURM_JOB_ID", "")
    if not job:
        return ""
    command = ["squeue", "-h", "-j", job, "-o", "%e"]
    local = os.environ | {"SLURM_TIME_FORMAT": "standard"}
    with suppress(OSError, ValueError, OverflowError, subprocess.SubprocessError):
        said = subprocess.run(command, env=local, capture_output=True, text=True, check=True, timeout=30.0).stdout
        return f"{time.mktime(time.strptime(said.strip(), '%Y-%m-%dT%H:%M:%S')):.0f}"
    return ""
