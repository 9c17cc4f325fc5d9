"""One run at a time in a folder: a lock that the system releases however its holder ends, kill -9 included."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from macmpi import UsageError
from macmpi.console import warn
from macmpi.parallel.clock import Waited

PATIENCE = 1.0

WATCHED = 30.0
"""Seconds in which a run on another node must write something to be noticed, where locks do not reach that far."""

ELSEWHERE = "move it away, or name another folder with --output"
"""The remedy where a run finds in its folder what is not its own."""

MOUNTS = Path("/proc/self/mounts")
ONE_NODE = ("localflock", "nolock", "local_lock=flock", "local_lock=all")
"""Options of Lustre and NFS with which flock succeeds on each node whatever the others hold."""


class Lock:
    """The lock file of a run directory; `with` gives the lock back.  Collective: no.

    The file stays behind, says who held it last and whether that run has given it back, and is used again.
    Where locks do not reach from node to node, or there are none, the file is what is left: a holder that is alive on
    this host refuses, and so does one elsewhere that has not given the lock back and writes into the folder while it
    is watched.  A run that was killed there keeps nobody out.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None
        self._written: dict[str, Any] = {}

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            if self._written:
                with suppress(OSError):
                    self._write({**self._written, "ended": True})
            os.close(self._file)
            self._file = None

    def take(self) -> OSError | None:
        """Holds the lock if its file is there; gives the error that `claim` would meet, or None.  Nothing is written.

        None also where there is no file, and so no lock: `claim` makes it.  Raises UsageError naming the holder.
        """
        try:
            self._hold(os.O_RDWR)
        except (FileNotFoundError, NotADirectoryError):  # a folder can be made, or `files.check_folder` says why not
            return None
        except OSError as error:
            return error
        return None

    def claim(self, run: str = "") -> None:
        """Holds the lock and writes down who does, for a run with this id.

        Raises UsageError, naming the holder, and OSError.  A file of that name that no lock has written is refused.
        """
        if self._file is None:
            self._hold(os.O_RDWR | os.O_CREAT)
        since = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        self._written = {"host": platform.node(), "pid": os.getpid(), "since": since, "run": run}
        self._write(self._written)

    def _write(self, holder: dict[str, Any]) -> None:
        assert self._file is not None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, json.dumps(holder).encode() + b"\n", 0)

    def _hold(self, flags: int) -> None:
        file = os.open(self.path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            busy, doubt = _lock(file), one_node_option(self.path)
            doubt = doubt and f"whose locks hold on one node alone ({doubt})"
        except OSError as error:
            busy, doubt = _alive_here(self._holder(file)), f"without locks ({error.strerror})"
        holder = self._holder(file)
        if not holder and os.fstat(file).st_size:
            os.close(file)
            raise UsageError(f"{self.path} is no lock of a run: {ELSEWHERE}")
        if busy or (doubt and _elsewhere(holder) and _changes(self.path.parent)):
            os.close(file)
            raise UsageError(
                f"{self.path.parent} is in use by the run of host {holder.get('host', '?')}, "
                f"pid {holder.get('pid', '?')}, since {holder.get('since', '?')}: "
                "wait for it or stop it, or name another folder with --output"
            )
        if doubt:
            warn(f"{self.path.parent} lies on a file system {doubt}: make sure that no other run uses it")
        self._file = file

    @staticmethod
    def _holder(file: int) -> dict[str, Any]:
        """Who wrote the file; {} where it was no lock."""
        try:
            holder = json.loads(os.pread(file, 1000, 0))
        except ValueError:
            holder = {}
        return holder if isinstance(holder, dict) and {"host", "pid"} <= holder.keys() else {}


def hold_folder(folder: Path, wait: bool = True) -> int | None:
    """Holds a folder by a lock on itself; gives the file that ends it when it is closed, None where it cannot be held.

    No removal of the folder's files ends it.  Without `wait` another process of this node that holds it is not waited
    for.
    Collective: no.
    """
    with suppress(OSError):
        file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            return file
        except OSError:
            os.close(file)
    return None


def _lock(file: int) -> bool:
    """Tells whether another process holds the file for `PATIENCE` seconds more; else this one holds it.

    A process that is about to end does not.  Raises OSError where there are no locks.
    """
    waited = Waited()
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
        except (BlockingIOError, PermissionError):  # EAGAIN or EACCES: somebody holds it
            if waited() > PATIENCE:
                return True
        time.sleep(0.02)


def one_node_option(path: Path) -> str:
    """The option with which the file system of `path` is mounted so that its locks hold on one node alone, or ""."""
    deepest, options = -1, ""
    place = path.resolve()
    with suppress(OSError, ValueError):
        for line in MOUNTS.read_text(errors="replace").splitlines():
            point, _, those = line.split()[1:4]
            point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), point)
            if place.is_relative_to(point) and len(point) >= deepest:
                deepest, options = len(point), those
    return next((option for option in options.split(",") if option in ONE_NODE), "")


def _elsewhere(holder: dict[str, Any]) -> bool:
    """Tells whether a lock file names a run of another host that has not given the lock back."""
    return bool(holder) and holder.get("host") != platform.node() and not holder.get("ended")


def _changes(folder: Path) -> bool:
    """Tells whether anybody writes into the folder within `WATCHED` seconds, by no clock of another host."""

    def now() -> dict[Path, tuple[int, int, int]]:
        return signs([*folder.glob("*"), *folder.glob("checkpoints/*")])

    waited, before = Waited(step=2.0), now()
    while waited() < WATCHED:
        time.sleep(min(1.0, WATCHED))
        if now() != before:
            return True
    return False


def signs(paths: Iterable[Path]) -> dict[Path, tuple[int, int, int]]:
    """Inode, size and time of each file, which tell whether somebody has written it.  Collective: no."""
    seen = {}
    for path in paths:
        with suppress(OSError):  # gone meanwhile
            status = os.lstat(path)
            seen[path] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return seen


def _alive_here(holder: dict[str, Any]) -> bool:
    """Tells whether the holder of a lock is another process of this host, and alive."""
    pid, here = holder.get("pid"), holder.get("host") == platform.node() and not holder.get("ended")
    return here and isinstance(pid, int) and pid != os.getpid() and os.path.exists(f"/proc/{pid}")
