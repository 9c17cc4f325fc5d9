"""This process asks of its system and its Python: stop signals, memory that is ready, how much it has used."""

from __future__ import annotations

import gc
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType

STOP_SIGNALS = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

PATIENCE = 10.0
"""Seconds that a process waits at most for others that it cannot ask: a launcher kills those that take longer."""

KEPT = 31 << 20
"""Bytes, somewhat below the largest size that glibc learns."""


def on_stop_signals(handler: Callable[[int, FrameType | None], None]) -> None:
    """Let the handler have them; SIGHUP stays ignored where it is so already, as under nohup.  Collective: no."""
    for number in STOP_SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


INTERRUPTED, ANSWERED = "interrupted", "callback"
"""Why a run was stopped: by a signal, or since a callback answered so."""


class Wish:
    """Somebody may wish that a run stop, in the present iteration or after it.  why: "" as long as nobody does."""

    def __init__(self) -> None:
        self.why = ""

    @property
    def asked(self) -> bool:
        """Tells whether somebody does."""
        return bool(self.why)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.why == INTERRUPTED and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.why = INTERRUPTED


class StopRequest(Wish):
    """Stop signals ask for a checkpoint and an orderly end."""

    def __init__(self) -> None:
        super().__init__()
        on_stop_signals(self._note)


@contextmanager
def interruptible() -> Iterator[Wish]:
    """Within this, in the main thread, a first Ctrl-C asks for an end, and a second one raises KeyboardInterrupt.

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
    time.sleep(min(max(2.0, 2.0 * _age()), PATIENCE))


def _age() -> float:
    """Seconds since this process was started; 0 where /proc does not say."""
    try:
        started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0


@cache
def ready_memory() -> None:
    """One large array comes and goes: from then on the C library (glibc) keeps the memory of smaller ones for the next.

    Else it gives that back to the system each time, and a half step asks for 25,000 pages again.  The array is zeros
    that nobody writes, so that no page of it is touched: a rank of few points never needs as many.  Collective: no.
    """
    bytes(KEPT)


@cache
def ready_products() -> None:
    """The first products and exponentials of a process allocate memory for all others.

    That takes a millisecond or two, for which the other ranks would wait.  Collective: no.
    """
    import numpy as np

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


def peak_memory() -> float:
    """MB (of 1024 KB) that this process has had at most, shared pages that it touched included.  Collective: no."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
