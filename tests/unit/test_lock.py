"""The lock of a run directory: one holder at a time, and none after its process has ended."""

from __future__ import annotations

import errno
import itertools
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from macmpi import UsageError
from macmpi.training import lock
from macmpi.training.lock import Lock

HOLD = """
import sys
from pathlib import Path
from macmpi.training.lock import Lock
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


@pytest.mark.parametrize("verb", ["take", "claim"])
@pytest.mark.parametrize("content", ["my key\n", "{}", "[1]", '{"host": "here"}'])
def test_a_file_that_no_lock_has_written_is_refused_and_kept(content: str, verb: str, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text(content)
    with pytest.raises(UsageError, match="lock is no lock of a run: move it away"):
        getattr(Lock(path), verb)()
    assert path.read_text() == content


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*arguments: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(lock.fcntl, "flock", flock)


@pytest.fixture
def one_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path.parent / f"{tmp_path.name}-mounts"
    mounts.write_text(f"none / tmpfs rw 0 0\na@tcp:/fs {tmp_path} lustre rw,localflock,user_xattr 0 0\n")
    monkeypatch.setattr(lock, "MOUNTS", mounts)


def test_without_locks_a_living_holder_of_this_host_refuses(no_locks: None, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text(json.dumps({"host": platform.node(), "pid": os.getppid()}))
    with pytest.raises(UsageError, match=f"pid {os.getppid()}"):
        Lock(path).claim()


@pytest.mark.parametrize("system", ["no_locks", "one_node"])
@pytest.mark.parametrize(
    ("holder", "writes", "refused"),
    [
        ({"host": "elsewhere", "pid": 7}, True, True),
        ({"host": "elsewhere", "pid": 7}, False, False),
        ({"host": "elsewhere", "pid": 7, "ended": True}, True, False),
        ({}, True, False),
        ({"host": platform.node(), "pid": 1, "ended": True}, True, False),
    ],
    ids=["it writes", "it was killed", "it has ended", "nobody", "it was here and has ended"],
)
def test_where_locks_do_not_reach_a_run_elsewhere_refuses_while_it_writes(
    system: str,
    holder: dict[str, object],
    writes: bool,
    refused: bool,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    request.getfixturevalue(system)
    path, curve = tmp_path / "lock", tmp_path / "curve.jsonl"
    path.write_text(json.dumps(holder) if holder else "")
    ticks = iter(range(1000))
    monkeypatch.setattr(lock.time, "monotonic", lambda: 10.0 * next(ticks))
    monkeypatch.setattr(lock.time, "sleep", lambda seconds: writes and curve.write_text("x" * next(ticks)))
    if refused:
        with pytest.raises(UsageError, match="in use by the run of host elsewhere, pid 7"):
            Lock(path).take()
        assert json.loads(path.read_text()) == holder
    else:
        Lock(path).claim()
        assert "make sure that no other run uses it" in capsys.readouterr().err


def test_a_suspension_is_no_watching(no_locks: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of both runs at once, as with all jobs of a machine: the other one writes a while after they go on."""
    path, curve = tmp_path / "lock", tmp_path / "curve.jsonl"
    path.write_text(json.dumps({"host": "elsewhere", "pid": 7}))
    moments, looks = itertools.chain([0.0, 0.0, 1e5], itertools.count(1e5 + 1.0)), itertools.count()
    monkeypatch.setattr(lock.time, "monotonic", lambda: next(moments))
    monkeypatch.setattr(lock.time, "sleep", lambda seconds: next(looks) > 5 and curve.touch())
    with pytest.raises(UsageError, match="in use by the run of host elsewhere, pid 7"):
        Lock(path).take()


@pytest.mark.parametrize(
    ("mounts", "option"),
    [
        ("a /data lustre rw,flock 0 0", ""),
        ("a /data lustre rw,localflock 0 0", "localflock"),
        ("a /data nfs rw,vers=3,nolock,local_lock=all 0 0", "nolock"),
        ("a /data nfs4 rw,local_lock=none 0 0", ""),
        ("a /data nfs4 rw,local_lock=flock 0 0", "local_lock=flock"),
        ("a /dat lustre rw,localflock 0 0", ""),
        ("a / lustre rw,localflock 0 0\nb /data/my\\040runs ext4 rw 0 0", ""),
        ("b / ext4 rw 0 0\na /data/my\\040runs lustre rw,localflock 0 0", "localflock"),
        ("damaged", ""),
    ],
)
def test_the_mount_tells_whose_locks_hold_on_one_node(
    mounts: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "MOUNTS", tmp_path / "mounts")
    (tmp_path / "mounts").write_text(mounts + "\n")
    assert lock.one_node_option(Path("/data/my runs/x/lock")) == option


def test_without_locks_a_dead_holder_does_not_refuse(no_locks: None, tmp_path: Path) -> None:
    with holder(tmp_path / "other") as dead:
        pass
    path = tmp_path / "lock"
    path.write_text(json.dumps({"host": platform.node(), "pid": dead.pid}))
    Lock(path).claim()
