"""What this process asks of its system: to be told of stop signals, to keep freed memory, how much it has used."""

from __future__ import annotations

import resource
import signal
from types import FrameType

STOP_SIGNALS = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)

KEPT = 31 << 20
"""Bytes, somewhat below the largest size that glibc learns."""


class StopRequest:
    """SIGUSR1, SIGTERM and SIGINT ask for a checkpoint and an orderly end, in the present iteration or after it."""

    def __init__(self) -> None:
        self.asked = False
        for name in STOP_SIGNALS:
            signal.signal(name, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.asked = True


def keep_freed_memory() -> None:
    """One large array comes and goes: from then on the C library (glibc) keeps the memory of smaller ones for the next.

    Else it gives that back to the system each time, and a half step asks for 25,000 pages again.  Collective: no.
    """
    bytearray(KEPT)


def peak_memory() -> float:
    """MB (of 1024 KB) that this process has had at most, shared pages that it touched included.  Collective: no."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
