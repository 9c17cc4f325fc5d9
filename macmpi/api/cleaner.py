"""A process watches a fit on ranks: if the fit is killed, the process ends the ranks and removes the fit's folder."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from macmpi.training.process import ignore_stop_signals

LOOK, LOOKS = 0.2, 300
"""Seconds between two looks, and the most attempts to clean up."""


def main() -> None:
    """Waits until the fit has ended, then kills its ranks that still run and removes its folder.

    The command line has the process id of the fit, and its folder.  Signals to all processes of a job do not end this
    process.  Collective: no.
    """
    ignore_stop_signals()
    fit, folder = int(sys.argv[1]), sys.argv[2]
    while os.getppid() == fit:
        time.sleep(LOOK)
    for _ in range(LOOKS):
        left = users(folder)
        for pid in left:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)
        if not left and not os.path.exists(folder):
            return
        time.sleep(LOOK)


def users(folder: str) -> list[int]:
    """Lists the processes whose command names a file of the folder: ranks, and mpiexec, whose proxies end with it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if f"{folder}/".encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


if __name__ == "__main__":
    main()
