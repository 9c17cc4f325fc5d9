"""Sharded runs: stopped, resumed on other numbers of ranks, refused."""

from __future__ import annotations

import os
import platform
import re
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from launch.cases import assert_same_run, checkpoints, curve, points, snapshot, write_case, write_config, write_h5
from launch.here import run_here
from launch.launching import Outcome, launched, run_program

pytestmark = pytest.mark.launch

STOPPED = 75


def run_in(folder: Path, case: str, *arguments: object, ranks: int, code: int = 0, output: str = "run") -> Outcome:
    """ranks = 0: in this process."""
    words = (f"{case}.toml", "--output", output, *arguments)
    if not ranks:
        return run_here(*words, cwd=folder, code=code)
    return run_program(*words, ranks=ranks, cwd=folder, code=code)


def test_rows_that_can_no_longer_be_read_end_a_run_with_their_numbers(tmp_path: Path) -> None:
    """The file loses its end while two ranks train: one message, one code, and no rank waits for the other."""
    write_config(
        tmp_path / "long.toml",
        {"hidden": [2]},
        {"parallel": {"data": "sharded", "rows": "file"}, "method": {"name": "mac"}},
    )
    np.save(tmp_path / "points.npy", points(1, 4000, 400))
    often = ("--set", "run.checkpoint_minutes=1e-9", "--set", "penalty.factor=1.001", "--iterations", 100_000)
    words = ("long.toml", "--output", "run", "--set", 'data.source="points.npy"', *often)
    with launched(words, 2, tmp_path) as running:
        running.until((tmp_path / "run" / "checkpoints" / "iteration-000001.h5").exists, "checkpoint")
        with (tmp_path / "points.npy").open("r+b") as file:
            file.truncate(3990 * 400 * 8)
        outcome = running.outcome()
    assert outcome.code == 2
    said = r"points\.npy: dataset X, rows [\d,]+ to (3,9\d\d) cannot be read: the file ends within them"
    assert re.search(said, outcome.err), outcome.err
    assert outcome.left == []


def test_a_run_stopped_and_then_killed_while_it_saves_goes_on_with_its_bits(tmp_path: Path) -> None:
    """A checkpoint an iteration, so that there is hardly a moment without one being written.

    The rows stay in their file but in the last launch and in the run that goes straight on.
    """
    write_case(tmp_path, "sharded")
    often = ("--set", "run.checkpoint_minutes=1e-9", "--set", "penalty.factor=1.01", "--resume", "auto")
    in_file = ("--set", 'parallel.rows="file"')
    without_end = ("sharded.toml", "--output", "run", "--iterations", 100_000, *often, *in_file)
    folder = tmp_path / "run" / "checkpoints"
    newest = folder / "iteration-000002.h5"
    with launched(without_end, 3, tmp_path) as running:
        running.until(newest.exists, "checkpoint")
        running.process.send_signal(signal.SIGUSR1)
        assert running.outcome().code == STOPPED
    last = curve(tmp_path / "run")[-1]["iteration"]
    newest = checkpoints(tmp_path / "run")[0]
    assert newest.name == f"iteration-{last:06d}.h5"
    with launched(without_end, 2, tmp_path) as running:
        running.until(lambda: checkpoints(tmp_path / "run")[0] > newest, "further checkpoint")
        running.until(lambda: any(folder.glob("rows.*.tmp")), "checkpoint under way")
        for pid in running.pids():
            os.kill(pid, signal.SIGKILL)
        outcome = running.outcome()
        assert outcome.code not in (0, STOPPED)
        assert outcome.left == []
    length = int(checkpoints(tmp_path / "run")[0].stem.split("-")[1]) + 2
    for output in ("run", "straight"):
        run_in(tmp_path, "sharded", "--iterations", length, *often, ranks=0, output=output)
    assert_same_run(tmp_path / "run", tmp_path / "straight", every_checkpoint=False)
    assert not list(folder.glob("*.tmp"))


def test_a_nan_in_the_last_ranks_rows_is_refused_before_anything_is_created(tmp_path: Path) -> None:
    write_case(tmp_path, "minibatches")
    X = points(1, 403, 9)
    X[-1, 2] = np.nan
    write_h5(tmp_path / "points.h5", X=X, X_val=points(2, 40, 9))
    before = snapshot(tmp_path)
    outcome = run_in(tmp_path, "minibatches", ranks=2, code=2)
    assert outcome.err == "macmpi: points.h5: dataset X is nan at [402, 2]; remove or fill it\n"
    assert outcome.out == ""
    assert outcome.left == []
    assert snapshot(tmp_path) == before


ELSEWHERE = (Path(__file__).with_name("elsewhere.py"),)


def run_elsewhere(folder: Path, *arguments: object, code: int) -> Outcome:
    """Two ranks, the second in folder/there, with config and data of its own; nothing is created where that is refused.

    Paths are relative.
    """
    before, env = snapshot(folder), {"MACMPI_TEST_ELSEWHERE": str(folder / "there")}
    words = ("sharded.toml", "--iterations", 2, *arguments)
    outcome = run_program(*words, ranks=2, cwd=folder, program=ELSEWHERE, env=env, code=code)
    if code:
        assert outcome.err.count("\n") == 1
        assert f"rank 1 on {platform.node()}" in outcome.err
        assert snapshot(folder) == before
    return outcome


def test_a_rank_that_sees_another_folder_another_file_or_none_is_named_before_anything_is_created(
    tmp_path: Path,
) -> None:
    write_case(tmp_path, "sharded")
    there = tmp_path / "there"
    there.mkdir()
    absolute = ("--output", tmp_path / "run")
    assert "does not exist; on rank 0: X (403, 9)" in run_elsewhere(tmp_path, *absolute, code=2).err
    write_h5(there / "points.h5", X=points(7, 403, 9))
    assert "other data there than rank 0 (other rows" in run_elsewhere(tmp_path, *absolute, code=2).err
    shutil.copy(tmp_path / "points.h5", there)
    assert "do not write to one folder" in run_elsewhere(tmp_path, "--output", "run", code=2).err
    (tmp_path / "on").mkdir()
    (tmp_path / "on" / "checkpoints").symlink_to("/proc/self/cwd/disk")  # of each node
    for place in (tmp_path, there):
        (place / "disk").mkdir()
    assert "do not write to one folder" in run_elsewhere(tmp_path, "--output", tmp_path / "on", code=2).err
    run_elsewhere(tmp_path, *absolute, code=0)
    run_here("sharded.toml", "--output", "straight", "--iterations", 2, cwd=tmp_path, code=0)
    assert_same_run(tmp_path / "run", tmp_path / "straight")


def test_a_rank_that_sees_another_checkpoint_or_none_is_named(tmp_path: Path) -> None:
    """As of a folder that lies on a disk of its node, under the path of rank 0's."""
    write_case(tmp_path, "sharded")
    there = tmp_path / "there"
    for folder, seed in ((tmp_path, "1"), (there, "2")):
        folder.mkdir(exist_ok=True)
        if folder == there:
            shutil.copy(tmp_path / "points.h5", there)
            shutil.copy(tmp_path / "sharded.toml", there)
        run_here(
            "sharded.toml", "--output", "run", "--set", f"start.seed={seed}", "--iterations", 1, cwd=folder, code=0
        )
    resume = ("--resume", f"run/checkpoints/{checkpoints(tmp_path / 'run')[0].name}", "--output", tmp_path / "run")
    error = run_elsewhere(tmp_path, *resume, "--set", "start.seed=1", code=2).err
    assert "found another checkpoint there than rank 0" in error
    copy = bytearray(checkpoints(tmp_path / "run")[0].read_bytes())
    copy[len(copy) // 2] ^= 1
    checkpoints(there / "run")[0].write_bytes(copy)
    assert "cannot be read" in run_elsewhere(tmp_path, *resume, "--set", "start.seed=1", code=2).err
    checkpoints(there / "run")[0].unlink()
    assert "cannot be read" in run_elsewhere(tmp_path, *resume, "--set", "start.seed=1", code=2).err
