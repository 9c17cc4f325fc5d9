"""This process and its system: stop signals, memory that is ready, how much of it and of the time of a job there is.

How long the batch system lets the job run, when a checkpoint is due, and when the run must stop.
"""

from __future__ import annotations

import gc
import os
import re
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import FrameType

from macmpi import UsageError, shown
from macmpi.parallel.clock import now
from macmpi.parallel.launchers import parent_of

STOP_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGXCPU)
"""People and batch systems send these to end a process: LSF sends SIGUSR2 at the limit of time, SIGXCPU at that of the
processor, and SIGINT, SIGTERM where a job is killed."""

APART = 1.0
"""Seconds between two Ctrl-C of somebody who cannot wait; a launcher may pass one on twice."""

LOOK = 0.5
"""Seconds between two looks whether the launcher is alive."""

GRACE = 5.0
"""Seconds that a rank has to save a checkpoint once its launcher is gone."""

PATIENCE = 10.0
"""Seconds that a process waits at most for others that it cannot ask: a launcher kills those that take longer."""

KEPT = 31 << 20
"""Bytes, somewhat below the largest size that glibc learns."""


Handler = Callable[[int, FrameType | None], None] | signal.Handlers


def hold_stop_signals() -> None:
    """Lets stop signals wait until `on_stop_signals` has been told who is to have them.  Collective: no."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)


def on_stop_signals(handler: Handler) -> None:
    """Let the handler have them; SIGHUP stays ignored where it is so already, as under nohup.  Collective: no."""
    for number in STOP_SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def ignore_stop_signals() -> None:
    """Lets stop signals change nothing from now on, the end of Python included: the run has ended.  Collective: no."""
    on_stop_signals(signal.SIG_IGN)


def on_continued(action: Callable[[], None]) -> None:
    """Calls it when this process goes on after it was stopped (SIGSTOP).  Collective: no."""
    signal.signal(signal.SIGCONT, lambda number, frame: action())


def end_with_launcher() -> None:
    """From now on this process is asked to stop where the one that has started it dies, and killed if it does not.

    It may hang as it writes a line: the launcher's end of its output stays open as long as any other rank has it.  A
    thread looks every LOOK seconds: the system's own signal comes as soon as a thread of the launcher ends.
    Collective: no.
    """
    parent = os.getppid()

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=look, daemon=True).start()


INTERRUPTED, ANSWERED = "interrupted", "callback"
"""Why a run was stopped: by a signal, or since a callback answered so."""

WHY = "MACMPI_WHY"
"""The variable that names a file in which the sender of a stop signal says why; ranks that a fit starts have it."""


def why_stopped() -> str:
    """Says why a stop signal was sent.  Collective: no."""
    with suppress(KeyError, OSError):
        return Path(os.environ[WHY]).read_text()
    return INTERRUPTED


class Wish:
    """Somebody may wish that a run stop, in the present iteration or after it.  why: "" as long as nobody does.

    complete: the run is, and nothing interrupts it any more.
    """

    def __init__(self) -> None:
        self.why, self.complete = "", False
        self._came: set[int] = set()
        self._first = 0.0

    @property
    def asked(self) -> bool:
        """Tells whether somebody does."""
        return bool(self.why)

    def _note(self, number: int, frame: FrameType | None) -> None:
        """Any signal asks for an end, and once more does not hurt.

        Ctrl-C, and APART later again, is somebody who cannot wait: KeyboardInterrupt.  Where other signals came too it
        is a batch system, which goes through a list of its own.
        """
        if self._came == {number} == {signal.SIGINT} and now() - self._first > APART and not self.complete:
            raise KeyboardInterrupt
        if not self._came:
            self._first = now()
        self._came.add(number)
        self.why = why_stopped()


class StopRequest(Wish):
    """Stop signals ask for a checkpoint and an orderly end."""

    def __init__(self) -> None:
        super().__init__()
        on_stop_signals(self._note)


@contextmanager
def interruptible() -> Iterator[Wish]:
    """Within this, in the main thread, Ctrl-C asks for an end, and one APART later raises KeyboardInterrupt.

    Afterwards SIGINT does what it did before.  Collective: no.
    """
    wish = Wish()
    if threading.current_thread() is not threading.main_thread():
        yield wish
        return
    before = signal.signal(signal.SIGINT, wish._note)
    try:
        yield wish
    finally:
        signal.signal(signal.SIGINT, before)


def wait_for_others() -> None:
    """Sleeps twice as long as this process has lived, two to ten seconds: those started with it come as far by then.

    For processes that cannot ask each other.  Collective: no.
    """
    time.sleep(min(max(2.0, 2.0 * age("self")), PATIENCE))


def age(pid: int | str) -> float:
    """Seconds since a process was started; 0 where /proc does not say.  Collective: no."""
    try:
        started = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        return now() - started / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0


@cache
def ready() -> None:
    """The C library and BLAS take the memory that they keep, once a process, before training begins.  Collective: no.

    One large array comes and goes: from then on the C library (glibc) keeps the memory of smaller ones for the next,
    which it would give back to the system each time, and a half step would ask for 25,000 pages again.  The array is
    zeros that nobody writes, so that no page of it is touched: a rank of few points never needs as many.  The first
    products and exponentials allocate memory for all others, a millisecond or two for which other ranks would wait.
    """
    import numpy as np

    bytes(KEPT)
    for dtype in (np.float32, np.float64):
        A = np.ones((1024, 256), dtype)
        G = A.T @ A
        np.exp(-(A @ G), out=A)
    np.linalg.eigh(np.eye(64))


def spare_living() -> None:
    """Leaves what lives now out of Python's collections of garbage for good.  Collective: no.

    A full one takes 15 ms, at another time on each rank, and all wait.
    """
    gc.freeze()


def version_of(package: str) -> str:
    """The version of an installed package, "" where there is none.  Collective: no."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def peak_memory() -> float:
    """MB (of 1024 KB) that this process has had at most, shared pages that it touched included.  Collective: no."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


# --- the time that a run has ------------------------------------------------------------------------------------------

JOBS = {"SLURM_JOB_ID": "Slurm", "PBS_JOBID": "PBS", "LSB_JOBID": "LSF", "FLUX_JOB_ID": "Flux"}
"""These variables tell that this is a job of a batch system."""

END, LIMIT = "SLURM_JOB_END_TIME", "PBS_WALLTIME"
"""The moment at which Slurm ends the job, in seconds since 1970; the time that PBS gives it, from its start."""

TELLING = {"Slurm": END, "PBS": LIMIT}
"""Batch system -> its variable; no other system's counts in a job."""

ENDLESS = ("unlimited", "infinite", "infinity")
"""So batch systems and their users call the limit of a job that has none; some of their programs say -1."""

LEAST = 1e-3

MARGIN, SHARE = 60.0, 0.1
"""MARGIN seconds, at most SHARE of what is left, are kept for the end: ranks have to end, and clocks differ."""

FIRST = 60.0
"""Seconds to the first checkpoint at most, whatever is set between the others: before it a death loses all."""

SPARE = 1.5
"""A stretch of training and a checkpoint may take this many times as long as the longest so far."""


def seconds_of(text: str) -> float | None:
    """Seconds of "90", "1:30", "3:50:00", "1-12:00:00" (a day and a half), "2h30m", or of a word of `ENDLESS` (inf).

    None where the text is no such time.
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
    """Seconds that a run has, of a limit as `seconds_of` or "auto", counted from a moment (None: from the present one).

    Of "auto" they count from the start of the job, wherever in it the run begins.  Raises UsageError.
    """
    ran = None if since is None else max(time.time() - since, 0.0)
    if limit == "auto":
        return time_left(job_age() if ran is None else ran)
    if not (seconds := seconds_of(limit)):
        from macmpi.parallel.command import TIMES

        raise UsageError(f"--max-time {shown(limit)} is not a time: {TIMES}")
    return max(seconds - (ran or 0.0), LEAST)


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
    """Seconds to the end of a job that has run for so long, less a margin; inf without a limit, and outside of a job.

    Raises UsageError where it is unknown.  Collective: no.
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
    """The seconds that a batch system says; None where it says none, as by NOT_SET or 0."""
    return float("inf") if text == "-1" else seconds_of(text) if text != "0" else None


def _asked_of_slurm() -> float | None:
    """The seconds that squeue says are left to this job; None where it does not.

    The number of an array's last task stands for all of them too: squeue then answers with a line for each.
    """
    job = os.environ.get("SLURM_JOB_ID", "")
    command = ["squeue", "-h", "-j", job, "-o", "%A %L"]
    with suppress(OSError, ValueError, subprocess.SubprocessError):
        said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30.0).stdout if job else ""
        return _limit(dict(line.split(" ", 1) for line in said.splitlines()).get(job, "").strip())
    return None


# --- the pace ---------------------------------------------------------------------------------------------------------


class Pace:
    """Seconds between pauses and of checkpoints.  For rank 0 alone.  Collective: no.

    began: when the run did; max_time: seconds that it has; every: seconds between checkpoints.
    """

    def __init__(self, began: float, max_time: float, every: float) -> None:
        self.began, self.max_time, self.every = began, max_time, every
        self.longest = self.saving = 0.0
        self.has_saved = self.late = False
        self.saved_at = self.paused_at = now()

    def pause(self) -> None:
        """Begins a stretch of training."""
        self.paused_at = now()

    def is_late(self) -> bool:
        """Ends a stretch; tells whether no time is left for as long a one as the longest so far, and a checkpoint."""
        self.longest = max(self.longest, now() - self.paused_at)
        self.pause()
        self.late = not self.suffices(SPARE * (self.longest + self.saving))
        return self.late

    def suffices(self, seconds: float) -> bool:
        """Tells whether there is time for that many seconds more."""
        return now() - self.began + seconds <= self.max_time

    def is_due(self) -> bool:
        """Tells whether a checkpoint must be written."""
        return now() - self.saved_at > (self.every if self.has_saved else min(self.every, FIRST))

    def saved(self, began: float) -> None:
        """Notes that a checkpoint has been written, which was begun at `began`."""
        self.saved_at = self.paused_at = now()
        self.has_saved = True
        self.saving = max(self.saving, self.saved_at - began)
