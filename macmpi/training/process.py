"""This process and its system: stop signals, its launcher, memory that is ready, and how much of it there is."""

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
"""People and batch systems send these to end a process: LSF sends SIGUSR2 at the limit of time, SIGXCPU at that of the
processor, and SIGINT, SIGTERM where a job is killed."""

APART = 1.0
"""Seconds between two Ctrl-C of somebody who cannot wait; a launcher may pass one on twice."""

LOOK = 0.5
"""Seconds between two looks whether the launcher is alive."""

GRACE = 5.0
"""Seconds that a rank has to save a checkpoint once its launcher is gone."""

HELD = 4.0
"""Seconds that a stop signal waits at most for the ranks to meet: those that it has ended come no more."""

PATIENCE = 10.0
"""Seconds that a process waits at most for others that it cannot ask: a launcher kills those that take longer."""

KEPT = 31 << 20
"""Bytes, somewhat below the largest size that glibc learns."""


Handler = Callable[[int, FrameType | None], None] | signal.Handlers


_held = threading.Event()


def hold_stop_signals() -> None:
    """Lets stop signals wait until `on_stop_signals` has been told who is to have them, HELD seconds at most.

    Then this process ends with the exit code of a run that was stopped, 75: MPI, which it begins meanwhile, waits for
    ranks without an end, also for those that the signal has ended before they held it.  Collective: no.
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
    """Lets the handler have `STOP_SIGNALS`; SIGHUP stays ignored where it is so, as under nohup.  Collective: no."""
    for number in STOP_SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)
    _held.clear()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def ignore_stop_signals() -> None:
    """Lets stop signals change nothing from now on, the end of Python included: the run has ended.  Collective: no."""
    on_stop_signals(signal.SIG_IGN)


def on_continued(action: Callable[[], None]) -> None:
    """Lets `action` be called whenever this process goes on after it was suspended (SIGSTOP).  Collective: no."""
    signal.signal(signal.SIGCONT, lambda number, frame: action())


def end_with_launcher() -> None:
    """Starts a thread that ends this process where the one that has started it dies: SIGTERM, then SIGKILL.

    This process may hang as it writes a line: the launcher's end of its output stays open as long as any other rank has
    it.  The thread looks every LOOK seconds, since the system's own signal comes as soon as a thread of the launcher
    ends.
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
    """The reason that the sender of a stop signal has left in the file `WHY` names; else INTERRUPTED.

    Collective: no.
    """
    with suppress(KeyError, OSError):
        return Path(os.environ[WHY]).read_text()
    return INTERRUPTED


class Wish:
    """The wish that a run stop, which a signal may bring at any time.

    why: the reason; "" as long as nobody wants it to.
    complete: the run is done, and nothing interrupts it any more.
    """

    def __init__(self) -> None:
        self.why, self.complete = "", False
        self._came: set[int] = set()
        self._first = 0.0

    def _note(self, number: int, frame: FrameType | None) -> None:
        """Notes a signal, which asks for an end; a further one changes nothing.

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
    """The wish to stop that signals bring: a checkpoint and an orderly end, with exit code 75 (`mpi.STOPPED`).

    `Training` asks for it within and after each iteration, and gives the code (training/loop.py).
    """

    def __init__(self) -> None:
        super().__init__()
        on_stop_signals(self._note)


@contextmanager
def interruptible() -> Iterator[Wish]:
    """Lets Ctrl-C ask for an end inside, in the main thread, and one APART later raise KeyboardInterrupt.

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
    with suppress(OSError, ValueError, IndexError):
        started = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        return now() - started / os.sysconf("SC_CLK_TCK")
    return 0.0


@cache
def ready() -> None:
    """Lets the C library and BLAS take the memory that they keep, once a process, before training.  Collective: no.

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


@cache
def version_of(package: str) -> str:
    """The version of an installed package, "" where there is none.  Cost: some ms, once.  Collective: no."""
    from importlib import metadata

    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return ""


def peak_memory() -> float:
    """MB (of 1024 KB) that this process has had at most, shared pages that it touched included.  Collective: no."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
