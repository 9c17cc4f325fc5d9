"""How long the batch system lets this job run."""

from __future__ import annotations

import os
import time

from macmpi import UsageError

JOBS = {"SLURM_JOB_ID": "Slurm", "PBS_JOBID": "PBS", "LSB_JOBID": "LSF", "FLUX_JOB_ID": "Flux"}
"""What tells that this is a job of a batch system."""

END, LIMIT = "SLURM_JOB_END_TIME", "PBS_WALLTIME"
"""The moment at which Slurm ends the job, in seconds since 1970; the seconds that PBS gives it, counted from here."""

LEAST = 1e-3


def time_left() -> float:
    """Seconds to the end of the job; inf outside of a batch system.  Raises UsageError where it does not say."""
    for variable, past in ((END, time.time()), (LIMIT, 0.0)):
        if (text := os.environ.get(variable, "")).isdigit():
            return max(float(text) - past, LEAST)
    inside = [name for variable, name in JOBS.items() if variable in os.environ]
    if inside:
        raise UsageError(
            f"--max-time auto: this {inside[0]} job has neither {END} nor {LIMIT}; give --max-time H:MM:SS"
        )
    return float("inf")
