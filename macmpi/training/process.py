"""A process listens to stop signals, ends with its launcher, prepares its memory, and measures its age and its peak."""

from __future__ import annotations

import gc
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import FrameType

from macmpi.parallel.clock import now

STOP_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGXCPU)
"""People and batch systems send these to end a process: LSF sends SIGUSR2 at the time limit, SIGXCPU at the limit of
processor time, and SIGINT and SIGTERM to kill a job."""

APART = 1.0
"""Two Ctrl-C at least this number of seconds apart end a run at once; a launcher may pass a single one on twice."""

LOOK = 0.5
"""Seconds between two checks whether the launcher is alive."""

GRACE = 5.0
"""Seconds that a rank has to save a checkpoint once its launcher is gone."""

HELD = 4.0
"""A stop signal waits at most this number of seconds for the ranks to meet, as it may have ended some of them."""

PATIENCE = 10.0
"""A process waits at most this number of seconds for others that it cannot ask; launchers kill slower ones."""

KEPT = 31 << 20
"""The size in bytes of an array that comes and goes (`ready`), somewhat below the largest size that glibc learns."""


Handler = Callable[[int, FrameType | None], None] | signal.Handlers


_held = threading.Event()


def hold_stop_signals() -> None:
    """Holds stop signals back until `on_stop_signals` sets a handler.  Collective: no.

    If a signal waits for HELD seconds, this process ends with exit code 75, like a stopped run.  In this time MPI
    starts, and would wait forever for ranks that the signal ended before they held it back.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    if not _held.is_set():
        _held.set()
        threading.Thread(target=_end_where_held, daemon=True).start()


def _end_where_held() -> None:
    since = None
    while _held.is_set() and (since is None or now() - since < HELD):
        time.sleep(LOOK)
        since = (since or now()) if signal.sigpending() & {*STOP_SIGNALS} else None
    if _held.is_set():
        os._exit(os.EX_TEMPFAIL)


def on_stop_signals(handler: Handler) -> None:
    """Sets a handler for `STOP_SIGNALS`; SIGHUP stays ignored if it already is, as under nohup.  Collective: no."""
    for number in STOP_SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)
    _held.clear()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def ignore_stop_signals() -> None:
    """Ignores stop signals from now on, even while Python ends, since the run has ended.  Collective: no."""
    on_stop_signals(signal.SIG_IGN)


def on_continued(action: Callable[[], None]) -> None:
    """Calls `action` whenever this process continues after it was suspended (SIGSTOP).  Collective: no."""
    signal.signal(signal.SIGCONT, lambda number, frame: action())


def end_with_launcher() -> None:
    """Starts a thread that ends this process if its parent dies: by SIGTERM, and by SIGKILL after GRACE seconds.

    Without its launcher this process may hang as it writes a line, since the launcher's end of its output stays open as
    long as any other rank has it.  The thread looks every LOOK seconds; the system's own signal would come as soon as
    one thread of the launcher ends.  Collective: no.
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
"""Words for why a run was stopped: by a signal, or by the answer of a callback."""

WHY = "MACMPI_WHY"
"""The environment variable that names a file in which the sender of a stop signal says why; ranks of a fit have it."""


def why_stopped() -> str:
    """Reads the reason that the sender of a stop signal left in the file that `WHY` names; else INTERRUPTED.

    Collective: no.
    """
    with suppress(KeyError, OSError):
        return Path(os.environ[WHY]).read_text()
    return INTERRUPTED


class Wish:
    """Notes whether a run must stop; a signal may ask for a stop at any time.

    why: the reason; "" as long as the run need not stop.
    complete: the run is done, and nothing interrupts it any more.
    """

    def __init__(self) -> None:
        self.why, self.complete = "", False
        self._came: set[int] = set()
        self._first = 0.0

    def _note(self, number: int, frame: FrameType | None) -> None:
        """Notes a signal that asks for an end; further signals change nothing, except a second Ctrl-C.

        A second Ctrl-C, APART seconds after the first, raises KeyboardInterrupt: somebody cannot wait.  If other
        signals came too, it does not: a batch system sends several in turn.
        """
        if self._came == {number} == {signal.SIGINT} and now() - self._first > APART and not self.complete:
            raise KeyboardInterrupt
        if not self._came:
            self._first = now()
        self._came.add(number)
        self.why = why_stopped()


class StopRequest(Wish):
    """Notes stop signals, by which a run ends with a checkpoint and exit code 75 (`mpi.STOPPED`).

    `Training` (training/loop.py) checks for a request within and after each iteration, and returns the code.
    """

    def __init__(self) -> None:
        super().__init__()
        on_stop_signals(self._note)


@contextmanager
def interruptible() -> Iterator[Wish]:
    """Takes a Ctrl-C in its block as the wish to stop, and another one APART later as KeyboardInterrupt.

    Only the main thread does so.  Afterwards SIGINT does what it did before.  Collective: no.
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
    """Sleeps twice as long as this process has lived, two to ten seconds, since it cannot ask the other processes.

    After this time other processes of the same launch have started too.  Collective: no.
    """
    time.sleep(min(max(2.0, 2.0 * age("self")), PATIENCE))


def age(pid: int | str) -> float:
    """Returns the seconds since a process was started; 0 if /proc does not say.  Collective: no."""
    with suppress(OSError, ValueError, IndexError):
        started = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        return now() - started / os.sysconf("SC_CLK_TCK")
    return 0.0


@cache
def ready() -> None:
    """Makes the C library and BLAS allocate, once and before training, the memory that they keep.  Collective: no.

    A large array is allocated and freed.  From then on the C library (glibc) keeps the memory of smaller arrays for
    later ones; otherwise it would return the memory to the system each time, and a half step would ask for 25,000 pages
    again.  Nobody writes to the array, so none of its pages is touched, since a rank with few points never needs as
    many.  The first products and exponentials allocate memory for all later ones, which takes a millisecond or two, and
    other ranks would wait.
    """
    import numpy as np

    bytes(KEPT)
    for dtype in (np.float32, np.float64):
        A = np.ones((1024, 256), dtype)
        G = A.T @ A
        np.exp(-(A @ G), out=A)
    np.linalg.eigh(np.eye(64))


def spare_living() -> None:
    """Takes all objects that exist now out of Python's garbage collection for good.  Collective: no.

    A full collection takes 15 ms, at a different time on each rank, and the other ranks wait.
    """
    gc.freeze()


@cache
def version_of(package: str) -> str:
    """Returns the version of a package, "" if it is not installed.  Cost: some ms, once.  Collective: no."""
    from importlib import metadata

    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return ""


def peak_memory() -> float:
    """Returns this process's peak memory in MB (of 1024 KB), with the shared pages that it touched.  Collective: no."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
