"""One run at a time in a folder: a lock that the system releases however its holder ends, kill -9 included."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import platform
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from macmpi import UsageError
from macmpi.console import warn

BUSY = (errno.EAGAIN, errno.EACCES)
PATIENCE = 1.0


class Lock:
    """The lock file of a run directory; `with` gives the lock back.  Collective: no.

    The file stays behind, says who held it last, and is taken anew.
    Where the file system has no locks, a holder that is alive on this host still refuses; one elsewhere is not seen.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def take(self) -> None:
        """Hold the lock if its file is there.  Nothing is written.  Raises UsageError naming the holder."""
        with suppress(OSError):
            self._hold(os.O_RDWR)

    def claim(self) -> None:
        """Hold the lock and write down who does.  Raises UsageError naming the holder, OSError."""
        if self._file is None:
            self._hold(os.O_RDWR | os.O_CREAT)
        assert self._file is not None
        holder = {"host": platform.node(), "pid": os.getpid(), "since": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, json.dumps(holder).encode() + b"\n", 0)

    def _hold(self, flags: int) -> None:
        file = os.open(self.path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            _lock(file)
        except OSError as error:
            holder = self._holder(file)
            if error.errno in BUSY or _alive_here(holder):
                os.close(file)
                raise UsageError(
                    f"{self.path.parent} is in use by the run of host {holder.get('host', '?')}, "
                    f"pid {holder.get('pid', '?')}, since {holder.get('since', '?')}: "
                    "wait for it or stop it, or name another folder with --output"
                ) from None
            warn(
                f"{self.path.parent} lies on a file system without locks ({error.strerror}): "
                "make sure that no other run uses it"
            )
        self._file = file

    @staticmethod
    def _holder(file: int) -> dict[str, Any]:
        """Who wrote the file; {} where that cannot be read."""
        try:
            found = json.loads(os.pread(file, 1000, 0))
        except ValueError:
            found = {}
        return found if isinstance(found, dict) else {}


def _lock(file: int) -> None:
    """Raises OSError where another process holds the file for `PATIENCE` seconds more, which one that ends does not."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in BUSY or time.monotonic() > end:
                raise
        time.sleep(0.02)


def _alive_here(holder: dict[str, Any]) -> bool:
    """The holder is another process of this host, and is there."""
    pid = holder.get("pid")
    if holder.get("host") != platform.node() or not isinstance(pid, int) or pid in (0, os.getpid()):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
