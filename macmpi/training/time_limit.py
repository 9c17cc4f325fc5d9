"""A run's time is limited by the batch system or by --max-time; the pace says when a checkpoint or the end is due."""

from __future__ import annotations

import os
import re
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from macmpi import UsageError, shown
from macmpi.parallel.clock import now
from macmpi.parallel.launchers import parent_of
from macmpi.training.process import age

JOBS = {"SLURM_JOB_ID": "Slurm", "PBS_JOBID": "PBS", "LSB_JOBID": "LSF", "FLUX_JOB_ID": "Flux"}
"""Environment variables that show that this is a job of a batch system."""

TELLING = {"Slurm": "SLURM_JOB_END_TIME", "PBS": "PBS_WALLTIME"}
"""Batch system -> its variable: for Slurm the end of the job in seconds since 1970, for PBS its time from the start.
In a job only the variable of its own system counts."""

ENDLESS = ("unlimited", "infinite", "infinity")
"""Words of batch systems and their users for a job without a limit; some of their programs say -1."""

LEAST = 1e-3
"""A run has at least this number of seconds, so that one whose time is over still says so with a checkpoint."""

MARGIN, SHARE = 60.0, 0.1
"""MARGIN seconds, but at most SHARE of the time left, are kept for the end: ranks have to end, and clocks differ."""

FIRST = 60.0
"""The first checkpoint comes within this number of seconds, whatever is set for others: a death before loses all."""

SPARE = 1.5
"""A stretch of training and a checkpoint are expected to take at most this many times as long as the longest so far."""


def seconds_of(text: str) -> float | None:
    """Reads seconds from "90", "1:30", "3:50:00", "1-12:00:00" (a day and a half), "2h30m"; a word of `ENDLESS` is inf.

    Returns None if the text is no such time.
    """
    if text.lower() in ENDLESS:
        return float("inf")
    if named := re.fullmatch(r"(?=.)(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", text):
        hours, minutes, seconds = (int(part or 0) for part in named.groups())
        text = str(3600 * hours + 60 * minutes + seconds)
    days, dash, rest = text.rpartition("-")
    try:
        parts = [float(days or "nan") if dash else 0.0, *(float(part) for part in rest.split(":"))]
    except ValueError:
        return None
    parts += [0.0] * (4 - len(parts)) if dash else []  # after days come hours, which need no minutes
    total = 86400.0 * parts[0] + sum(part * 60.0**i for i, part in enumerate(reversed(parts[1:])))
    whole = all(part < 60.0 for part in parts[2:])  # 1:99 is a slip of the pen
    return total if len(parts) <= 4 and 0.0 <= total < float("inf") and min(parts) >= 0.0 and whole else None


def seconds_left(limit: str, since: float | None) -> float:
    """Returns the seconds that a run has left.

    limit: as `seconds_of` reads it, or "auto" for the limit of the job, which counts from the start of the job.
    since: the time at which the limit begins, in seconds since 1970; None: now, or with "auto" the job's start.
    Raises UsageError.
    """
    ran = None if since is None else max(time.time() - since, 0.0)
    if limit == "auto":
        return time_left(job_age() if ran is None else ran)
    if not (seconds := seconds_of(limit)):
        from macmpi.parallel.command import TIMES

        raise UsageError(f"--max-time {shown(limit)} is not a time: {TIMES}")
    return max(seconds - (ran or 0.0), LEAST)


def job_age() -> float:
    """Returns the seconds since this job began on this host; 0 outside of a batch system.

    It is the age of the oldest process above this one with the same job in its environment.  Collective: no.
    """
    own = {f"{name}={os.environ[name]}".encode() for name in JOBS if name in os.environ}
    pid, oldest = os.getpid(), 0.0
    with suppress(OSError):
        while own and own <= set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")):
            oldest, pid = age(pid), parent_of(pid)
    return oldest


def time_left(ran: float) -> float:
    """Returns the seconds to the end of a job, less a margin; inf without a limit, and outside of a job.

    ran: the seconds for which the job has run.
    Raises UsageError if the job's limit is unknown.  Collective: no.
    """
    inside = [name for variable, name in JOBS.items() if variable in os.environ]
    told = {name: os.environ.get(variable, "") for name, variable in TELLING.items() if not inside or name in inside}
    end, limit = (_limit(told.get(name, "")) for name in TELLING)
    left = (None if limit is None else limit - ran) if end is None else end - time.time()
    if end is None and (asked := _asked_of_slurm()) is not None:
        left = asked
    why = next((f"{TELLING[name]}={text!r} is no time" for name, text in told.items() if text), "")
    if left is None and (why or inside):
        unset = f" ({TELLING[inside[0]]} is not set)" if not why and inside[0] in TELLING else ""
        why = why or f"this {inside[0]} job does not say how long it may run{unset}"
        raise UsageError(f"--max-time auto: {why}; give --max-time H:MM:SS")
    return float("inf") if left is None else max(left - min(MARGIN, SHARE * left), LEAST)


def _limit(text: str) -> float | None:
    """Reads the seconds that a batch system gives; None if it gives no limit, for instance NOT_SET or 0."""
    return float("inf") if text == "-1" else seconds_of(text) if text != "0" else None


def _asked_of_slurm() -> float | None:
    """Asks squeue for the seconds that are left to this job; returns None if it does not say.

    An array's last task has the number of the whole array: squeue then answers with a line for each task.
    """
    job = os.environ.get("SLURM_JOB_ID", "")
    command = ["squeue", "-h", "-j", job, "-o", "%A %L"]
    with suppress(OSError, ValueError, subprocess.SubprocessError):
        said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30.0).stdout if job else ""
        return _limit(dict(line.split(" ", 1) for line in said.splitlines()).get(job, "").strip())
    return None


# --- the pace ---------------------------------------------------------------------------------------------------------


class Pace:
    """Decides on rank 0 when a checkpoint is due, and whether time is left.  Collective: no.

    began: when the run began, by `clock.now`.
    max_time: the seconds that the run has from then on.
    every: the seconds between two checkpoints.
    """

    def __init__(self, began: float, max_time: float, every: float) -> None:
        self.began, self.max_time, self.every = began, max_time, every
        self.longest = self.saving = 0.0
        self.has_saved = self.late = False
        self.saved_at = self.paused_at = now()

    def pause(self) -> None:
        """Begins a stretch of training: the time between two points at which the run may stop."""
        self.paused_at = now()

    def is_late(self) -> bool:
        """Ends a stretch of training; tells whether no time is left for the longest stretch and a checkpoint."""
        self.longest = max(self.longest, now() - self.paused_at)
        self.pause()
        self.late = not self.suffices(SPARE * (self.longest + self.saving))
        return self.late

    def suffices(self, seconds: float) -> bool:
        """Tells whether there is time for that many seconds more."""
        return now() - self.began + seconds <= self.max_time

    def is_due(self) -> bool:
        """Tells whether a checkpoint is due: `every` seconds after the last one, the first after at most FIRST."""
        return now() - self.saved_at > (self.every if self.has_saved else min(self.every, FIRST))

    def saved(self, began: float) -> None:
        """Notes that a checkpoint has been written whose writing began at `began`."""
        self.saved_at = self.paused_at = now()
        self.has_saved = True
        self.saving = max(self.saving, self.saved_at - began)
