"""Checkpoints: killed while they are written, damaged, on a disk that fills up, read by other numbers of ranks."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from faults.conftest import Tally
from faults.struck import CASE, ITERATIONS, OFTEN, assert_no_work_lost, assert_nothing_left, go_on, here, strike
from launch.cases import assert_same_content, assert_same_run, checkpoints, curve, untimed, write_case
from launch.launching import Running, launched, run_program
from limits import small_files

from macmpi import UsageError, run
from macmpi.parallel.team import Team
from macmpi.training import checkpoint

pytestmark = pytest.mark.launch

STORAGE, STOPPED = 74, 75
KILLS, FLIPS = 40, 40
LONG = ("long.toml", "--output", "run", "--iterations", 100_000)
RANKS = (1, 2, 5, 12)
HUNG = 80.0


def iterations(folder: Path) -> int:
    """Lines of the curve so far, but for the start."""
    path = folder / "run" / "curve.jsonl"
    return path.read_bytes().count(b"\n") - 1 if path.exists() else 0


def under_way(running: Running, folder: Path, at_least: int = 2) -> None:
    running.until(lambda: iterations(folder) >= at_least, f"{at_least} iterations")


def in_process(folder: Path, *arguments: object) -> int:
    with here(folder):
        return run.run(Team(), [str(a) for a in arguments])


@pytest.mark.parametrize("case", range(KILLS))
def test_killed_while_checkpoints_are_written(case: int, tmp_path: Path, tally: Tally) -> None:
    """One rank at a random moment of a run that does little else than write checkpoints."""
    tally.row("kill -9 at 40 moments of writing")
    random = np.random.default_rng(case)
    write_case(tmp_path, "long")
    with launched(LONG, 2, tmp_path) as running:
        under_way(running, tmp_path)
        time.sleep(random.uniform(0.0, 0.3))
        victims = running.ranks()
        began = time.monotonic()
        os.kill(victims[int(random.integers(len(victims)))], signal.SIGKILL)
        running.process.wait(HUNG)
        tally.seconds(time.monotonic() - began)
        outcome = running.outcome()
    assert outcome.code not in (0, STOPPED)
    assert_nothing_left(outcome)
    newest = checkpoints(tmp_path / "run")[0]
    checkpoint.read(newest)
    length = int(newest.stem.split("-")[1])
    assert length >= iterations(tmp_path) - 1, "no more than the iteration under way is lost"
    words = ("long.toml", "--iterations", length + 2)
    assert in_process(tmp_path, *words, "--output", "run", "--resume", "auto") == 0
    assert in_process(tmp_path, *words, "--output", "straight") == 0
    assert_same_run(tmp_path / "run", tmp_path / "straight", every_checkpoint=False)


@pytest.mark.parametrize("fault", ["0:postprocess:5:kill", "0:model:5:kill", "0:model:5:full"])
def test_the_model_of_a_longer_run(fault: str, straight: Path, tmp_path: Path, tally: Tally) -> None:
    """A run that has a model.h5 already is made longer, and struck before the new one is written."""
    tally.row("struck before the model of a longer run")
    write_case(tmp_path, CASE)
    in_process(tmp_path, f"{CASE}.toml", "--output", "run", "--iterations", ITERATIONS - 2, *OFTEN)
    struck = strike(tmp_path, fault, 2, HUNG, "--resume", "auto")
    tally.seconds(struck.seconds)
    assert struck.outcome.code == STORAGE if fault.endswith("full") else struck.outcome.code not in (0, STOPPED)
    assert_nothing_left(struck.outcome)
    assert_no_work_lost(tmp_path, straight / "run")


@pytest.mark.parametrize("iteration", [2, 4, 5])
def test_nothing_half_written_stays(iteration: int, tmp_path: Path, tally: Tally) -> None:
    """Killed in the middle of a file that no later launch writes again: those save other iterations."""
    tally.row("killed while a file is written")
    struck = strike(tmp_path, f"0:write:{iteration}:kill", 2, HUNG)
    assert_nothing_left(struck.outcome)
    assert list((tmp_path / "run").rglob("*.tmp"))
    seldom = ("--set", "run.checkpoint_minutes=1e9", "--iterations", "9", "--resume", "auto")
    with here(tmp_path):
        assert run.run(Team(), [f"{CASE}.toml", "--output", "run", *seldom]) == 0
    assert list((tmp_path / "run").rglob("*.tmp")) == []


# --- damage -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("straight")
    write_case(folder, CASE)
    go_on(folder)
    return folder


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three iterations of the five, each with its checkpoint."""
    folder = tmp_path_factory.mktemp("half")
    write_case(folder, CASE)
    in_process(folder, f"{CASE}.toml", "--output", "run", "--iterations", ITERATIONS - 2, *OFTEN)
    (folder / "run" / "model.h5").unlink()
    return folder


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda content: content[: len(content) // 3],
    "last byte lost": lambda content: content[:-1],
    "empty": lambda content: b"",
    "not HDF5": lambda content: b"a,b,c\n" * 100,
    **{
        f"flip {i}": lambda content, i=i: (
            content[: (at := (i * 7919) % len(content))] + bytes([content[at] ^ (1 << i % 8)]) + content[at + 1 :]
        )
        for i in range(FLIPS)
    },
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged(
    damage: str, half: Path, straight: Path, tmp_path: Path, tally: Tally, capsys: pytest.CaptureFixture[str]
) -> None:
    tally.row("newest checkpoint damaged")
    folder = Path(shutil.copytree(half, tmp_path / "copy"))
    newest = checkpoints(folder / "run")[0]
    newest.write_bytes(DAMAGES[damage](newest.read_bytes()))
    if damage == "not HDF5":  # somebody else's, for all that can be told
        with pytest.raises(UsageError, match=f"{newest.name} is no file of a run in this folder"):
            go_on(folder)
        newest.unlink()
        go_on(folder)
        assert_same_run(folder / "run", straight / "run")
        return
    go_on(folder)
    assert capsys.readouterr().err.count(f"{newest.name} is damaged") == 1
    assert_same_run(folder / "run", straight / "run")


def test_all_damaged(half: Path, tmp_path: Path, tally: Tally) -> None:
    tally.row("newest checkpoint damaged")
    folder = Path(shutil.copytree(half, tmp_path / "copy"))
    for path in checkpoints(folder / "run"):
        path.write_bytes(b"")
    with pytest.raises(UsageError, match="no good checkpoint") as refusal:
        go_on(folder)
    assert refusal.value.exit_code == 2


# --- ranks ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """The same three iterations by each number of ranks."""
    found = {}
    for ranks in RANKS:
        found[ranks] = tmp_path_factory.mktemp("half")
        write_case(found[ranks], CASE)
        words = (f"{CASE}.toml", "--output", "run", "--iterations", ITERATIONS - 2, *OFTEN)
        run_program(*words, ranks=ranks, cwd=found[ranks], code=0)
    return found


@pytest.mark.parametrize("after", RANKS)
@pytest.mark.parametrize("before", RANKS)
def test_resumed_by_other_ranks(
    before: int, after: int, halves: dict[int, Path], straight: Path, tmp_path: Path, tally: Tally
) -> None:
    tally.row("resume on 1, 2, 5, 12 ranks from each")
    folder = Path(shutil.copytree(halves[before], tmp_path / "copy"))
    words = (f"{CASE}.toml", "--output", "run", "--iterations", ITERATIONS, *OFTEN, "--resume", "auto")
    assert_nothing_left(run_program(*words, ranks=after, cwd=folder, code=0))
    assert_same_run(folder / "run", straight / "run", every_checkpoint=False)


# --- disks ------------------------------------------------------------------------------------------------------------


def namespace(folder: Path, setup: str) -> tuple[str, ...]:
    """A prefix that mounts file systems of the launch's own, runs it, and keeps what lies in `run` after it."""
    script = f'{setup} && "$@"; code=$?; cp -r run/. kept; exit $code'
    return ("unshare", "--mount", "sh", "-c", script, "sh")


@pytest.fixture
def mounts(tmp_path: Path) -> Path:
    """Skips where this user may not mount."""
    (tmp_path / "run").mkdir()
    (tmp_path / "kept").mkdir()
    may = subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "none", tmp_path / "run"], capture_output=True)
    if may.returncode:
        pytest.skip("needs the right to mount")
    return tmp_path


def assert_goes_on(folder: Path, straight: Path) -> None:
    """From what was left, once there is space again."""
    shutil.rmtree(folder / "run")
    shutil.move(folder / "kept", folder / "run")
    checkpoint.read(checkpoints(folder / "run")[0])
    go_on(folder)
    assert_same_run(folder / "run", straight / "run")


@pytest.mark.parametrize("kilobytes", [64, 92, 124, 156])
def test_full_disk(kilobytes: int, mounts: Path, straight: Path, tally: Tally) -> None:
    """A tmpfs with space for start.h5 and that number of checkpoints, of 30 kB each."""
    tally.row("disk full, quota, read-only")
    write_case(mounts, CASE)
    words = (f"{CASE}.toml", "--output", "run", "--iterations", ITERATIONS, *OFTEN)
    prefix = namespace(mounts, f"mount -t tmpfs -o size={kilobytes}k none run")
    outcome = run_program(*words, ranks=2, cwd=mounts, prefix=prefix, code=STORAGE)
    assert "No space left on device" in outcome.err
    assert "training goes on" in outcome.err
    assert "Traceback" not in outcome.err
    assert f"\n{ITERATIONS:6d} " in outcome.out, "the iterations go on"
    assert_nothing_left(outcome)
    if checkpoints(mounts / "kept"):
        assert_goes_on(mounts, straight)


def test_no_space_at_all(mounts: Path, tally: Tally) -> None:
    tally.row("disk full, quota, read-only")
    write_case(mounts, CASE)
    prefix = namespace(mounts, "mount -t tmpfs -o size=4k,nr_inodes=4 none run")
    outcome = run_program(f"{CASE}.toml", "--output", "run", ranks=2, cwd=mounts, prefix=prefix, code=2)
    assert outcome.err.count("macmpi: cannot write to run: No space left on device") == 1


def test_quota(tmp_path: Path, straight: Path, tally: Tally) -> None:
    """Files of at most 28 kB: no space for start.h5 and for a checkpoint.  One process: the limit is MPICH's too."""
    tally.row("disk full, quota, read-only")
    write_case(tmp_path, CASE)
    words = (f"{CASE}.toml", "--output", "run", "--iterations", ITERATIONS, *OFTEN)
    outcome = run_program(*words, ranks=0, cwd=tmp_path, prefix=small_files(28 * 1024), code=STORAGE)
    assert outcome.err.count("File too large; training goes on") == 1 + 2 * ITERATIONS, "start.h5, both half steps"
    assert untimed(curve(tmp_path / "run"))[: ITERATIONS + 1] == untimed(curve(straight / "run"))[: ITERATIONS + 1]


def test_read_only_at_the_start(mounts: Path, half: Path, tally: Tally) -> None:
    tally.row("disk full, quota, read-only")
    shutil.copytree(half, mounts, dirs_exist_ok=True)
    words = (f"{CASE}.toml", "--output", "run", "--iterations", ITERATIONS, *OFTEN, "--resume", "auto")
    prefix = namespace(mounts, "mount --bind run run && mount -o remount,ro,bind run")
    foreseen = run_program(*words, "--check", ranks=2, cwd=mounts, prefix=prefix, code=0)
    outcome = run_program(*words, ranks=2, cwd=mounts, prefix=prefix, code=2)
    (said,) = re.findall(r"macmpi: (cannot write to run/\S+: Read-only file system.*)", outcome.err)
    assert re.findall(r"^output +(.*)", foreseen.out, re.MULTILINE) == [said]
    for saved in checkpoints(half / "run"):
        assert_same_content(saved, mounts / "run" / "checkpoints" / saved.name)


def test_read_only_on_the_way(mounts: Path, tally: Tally) -> None:
    """The folder of the checkpoints turns read-only under a run, which is then asked to stop."""
    tally.row("disk full, quota, read-only")
    write_case(mounts, "long")
    with launched(LONG, 2, mounts, prefix=("unshare", "--mount")) as running:
        under_way(running, mounts, 4)
        saved = mounts / "run" / "checkpoints"
        other = mounts / "read-only"
        other.mkdir()
        for mount in (("--bind", saved, other), ("-o", "remount,ro,bind", other), ("--move", other, saved)):
            subprocess.run(["nsenter", "-m", "-t", str(running.process.pid), "mount", *map(str, mount)], check=True)
        running.until(lambda: "Read-only file system; training goes on" in running.text()[1], "warning")
        running.process.send_signal(signal.SIGUSR1)
        outcome = running.outcome()
    assert outcome.code == STORAGE
    assert "Traceback" not in outcome.err
    newest = checkpoints(mounts / "run")[0]
    checkpoint.read(newest)
    words = ("long.toml", "--iterations", int(newest.stem.split("-")[1]) + 2)
    assert in_process(mounts, *words, "--output", "run", "--resume", "auto") == 0
    assert in_process(mounts, *words, "--output", "straight") == 0
    assert_same_run(mounts / "run", mounts / "straight", every_checkpoint=False)
