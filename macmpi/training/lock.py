"""A lock lets one run at a time use a folder; the system releases it however its holder ends, even by kill -9."""

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
"""A run on another node, which locks do not reach, is noticed if it writes something within this number of seconds."""

ELSEWHERE = "move it away, or name another folder with --output"
"""The remedy for a run that finds a file in its folder that is not its own."""

MOUNTS = Path("/proc/self/mounts")
ONE_NODE = ("localflock", "nolock", "local_lock=flock", "local_lock=all")
"""Options of Lustre and NFS with which flock succeeds on each node whatever locks other nodes hold."""


class Lock:
    """Holds the lock file of a run directory; the end of its `with` gives the lock back.  Collective: no.

    The file stays and is used again; it says who held the lock last, and whether this run has given it back.

    If locks do not hold across nodes, or the file system has none, the content of the file decides.  A run is refused
    if the holder is alive on this host; or if the holder is on another host, has not given the lock back, and writes
    into the folder while this process watches it.  A run that was killed on another host blocks nobody.
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
        """Holds the lock if its file exists, and writes nothing.

        Returns the error that `claim` would meet, or None; also None if there is no file, since `claim` makes it.
        Raises UsageError, naming the holder, if another run holds the lock.
        """
        try:
            self._hold(os.O_RDWR)
        except (FileNotFoundError, NotADirectoryError):  # the folder can be made, or `files.check_folder` says why not
            return None
        except OSError as error:
            return error
        return None

    def claim(self, run: str = "") -> None:
        """Takes the lock, makes its file if there is none, and writes this process into the file as the holder.

        run: the id of the run.
        Raises UsageError, naming the holder, if another run holds it, or if no lock has written the file; OSError.
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
        """Reads who holds or held the lock from its file; returns {} if no lock has written it."""
        try:
            holder = json.loads(os.pread(file, 1000, 0))
        except ValueError:
            holder = {}
        return holder if isinstance(holder, dict) and {"host", "pid"} <= holder.keys() else {}


def hold_folder(folder: Path, wait: bool = True) -> int | None:
    """Locks a folder itself; returns the open file whose closing releases it, or None if it cannot be locked.

    Removing files from the folder does not release the lock.

    wait: whether to wait for another process of this node that holds the lock.
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
    """Tells whether another process holds the file for `PATIENCE` seconds more; if not, this one then holds it.

    So a process that is about to end is waited for.  Raises OSError if there are no locks.
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
    """Finds the mount option that restricts locks of `path`'s file system to one node; "" if there is none."""
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
    """Tells whether anybody writes into the folder within `WATCHED` seconds, as this host's clock counts them."""

    def now() -> dict[Path, tuple[int, int, int]]:
        return signs([*folder.glob("*"), *folder.glob("checkpoints/*")])

    waited, before = Waited(step=2.0), now()
    while waited() < WATCHED:
        time.sleep(min(1.0, WATCHED))
        if now() != before:
            return True
    return False


def signs(paths: Iterable[Path]) -> dict[Path, tuple[int, int, int]]:
    """Reads inode, size and time of each file, which change if somebody writes it.  Collective: no."""
    seen = {}
    for path in paths:
        with suppress(OSError):  # the file has gone meanwhile
            status = os.lstat(path)
            seen[path] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return seen


def _alive_here(holder: dict[str, Any]) -> bool:
    """Tells whether the holder of a lock is another process of this host that is alive."""
    pid, here = holder.get("pid"), holder.get("host") == platform.node() and not holder.get("ended")
    return here and isinstance(pid, int) and pid != os.getpid() and os.path.exists(f"/proc/{pid}")
