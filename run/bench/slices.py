"""Processes that take turns on one core, each a slice of a turn's seconds: what a machine's swings cost, all pay alike.

A process is stopped (SIGSTOP) while the others have their slices; the processor's clock counts none of that.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition, Thread


class Slices:
    """turn: seconds in which each process has had its slice.  A context, in which the turns go on."""

    def __init__(self, turn: float) -> None:
        self.turn = turn
        self._shares: dict[subprocess.Popen[str], float] = {}
        self._changed = Condition()
        self._over = False
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Slices:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._over = True
            self._changed.notify()
        self._thread.join()

    @contextmanager
    def hold(self, process: subprocess.Popen[str], share: float) -> Iterator[None]:
        """Has a process take its turns, for a share of their seconds against those of the other ones, until it ends."""
        process.send_signal(signal.SIGSTOP)
        with self._changed:
            self._shares[process] = share
            self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                del self._shares[process]
                self._changed.notify()
            process.send_signal(signal.SIGCONT)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._over or self._shares)
                if self._over:
                    return
                turn = list(self._shares.items())
            for process, share in turn:
                self._slice(process, self.turn * share / sum(share for _, share in turn))

    def _slice(self, process: subprocess.Popen[str], seconds: float) -> None:
        """Lets a process run for some seconds, or until it ends."""
        end = time.monotonic() + seconds
        with self._changed:
            if process not in self._shares:
                return
            process.send_signal(signal.SIGCONT)
            self._changed.wait_for(lambda: process not in self._shares, timeout=max(end - time.monotonic(), 0.0))
            if process in self._shares:
                process.send_signal(signal.SIGSTOP)
