"""The lock of a run directory: one holder at a time, and none after its process has ended."""

from __future__ import annotations

import errno
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from macmpi import UsageError, lock
from macmpi.lock import Lock

HOLD = """
import sys
from pathlib import Path
from macmpi.lock import Lock
Lock(Path(sys.argv[1])).claim()
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock."""
    command = [sys.executable, "-c", HOLD, str(path)]
    env = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("verb", ["take", "claim"])
def test_the_second_is_told_who_the_first_is(verb: str, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with holder(path) as first:
        content = path.read_bytes()
        with pytest.raises(UsageError, match=f"in use by the run of host {platform.node()}, pid {first.pid}, since 2"):
            getattr(Lock(path), verb)()
        assert path.read_bytes() == content


def test_a_killed_holder_holds_no_more(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with holder(path) as first:
        first.kill()
        first.wait()
        second = Lock(path)
        second.take()
        second.claim()
    assert json.loads(path.read_text())["pid"] == os.getpid()


def test_a_holder_that_is_about_to_end_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lock"
    with holder(path) as first:
        monkeypatch.setattr(lock.time, "sleep", lambda seconds: first.kill() or first.wait())
        Lock(path).claim()


def test_to_take_a_lock_that_is_not_there_creates_nothing(tmp_path: Path) -> None:
    Lock(tmp_path / "lock").take()
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_taken_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_bytes(b"\xff not JSON" * 1000)
    Lock(path).claim()
    assert json.loads(path.read_text())["host"] == platform.node()


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*arguments: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(lock.fcntl, "flock", flock)


@pytest.mark.parametrize("host", [platform.node(), "elsewhere"])
def test_without_locks_a_living_holder_of_this_host_refuses(
    host: str, no_locks: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "lock"
    path.write_text(json.dumps({"host": host, "pid": os.getppid()}))
    if host == "elsewhere":
        Lock(path).claim()
        assert "file system without locks" in capsys.readouterr().err
    else:
        with pytest.raises(UsageError, match=f"pid {os.getppid()}"):
            Lock(path).claim()


def test_without_locks_a_dead_holder_does_not_refuse(no_locks: None, tmp_path: Path) -> None:
    with holder(tmp_path / "other") as dead:
        pass
    path = tmp_path / "lock"
    path.write_text(json.dumps({"host": platform.node(), "pid": dead.pid}))
    Lock(path).claim()
