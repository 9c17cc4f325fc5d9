"""A run that is stopped, killed or too short goes on with the bits of the run that was never stopped."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from launch.cases import (
    assert_same_content,
    assert_same_run,
    checkpoints,
    curve,
    snapshot,
    untimed,
    write_case,
)
from launch.here import run_here
from launch.launching import LAUNCHER, Outcome, Running, launched, run_program

from macmpi.results import model_file

pytestmark = pytest.mark.launch

CASE = "hasty"
STOPPED = 75
LONG = pytest.mark.long


def run_in(
    folder: Path, *arguments: object, ranks: int | None = None, code: int = 0, case: str = CASE, output: str = "run"
) -> Outcome:
    """ranks: None for a run in this process, 0 for a launch without mpiexec."""
    words = (f"{case}.toml", "--output", output, *arguments)
    if ranks is None:
        return run_here(*words, cwd=folder, code=code)
    return run_program(*words, ranks=ranks, cwd=folder, code=code)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six iterations in one go."""
    folder = tmp_path_factory.mktemp("straight")
    write_case(folder, CASE)
    run_in(folder, "--iterations", 6)
    mu = [record["mu"] for record in curve(folder / "run")]
    assert mu[3] < mu[4] < mu[5], "every history that the decisions rest on is to matter where the runs are cut"
    return folder / "run"


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a launch that ended after three of them."""
    folder = tmp_path_factory.mktemp("half")
    write_case(folder, CASE)
    run_in(folder, "--iterations", 3)
    return folder


@pytest.fixture
def stopped(half: Path, tmp_path: Path) -> Path:
    """A copy of it, to go on in."""
    return Path(shutil.copytree(half, tmp_path / "copy"))


def test_3_and_then_6_iterations_have_the_bits_of_6(stopped: Path, straight: Path) -> None:
    run_in(stopped, "--iterations", 6, "--resume", "auto", ranks=2)
    assert_same_run(stopped / "run", straight, every_checkpoint=False)


def test_multipliers_metrics_and_kept_factors_go_on_too(tmp_path: Path) -> None:
    """Cut where the next iteration uses the preconditioners of the last one, between two moves of the multipliers."""
    write_case(tmp_path, "classifier")
    run_in(tmp_path, "--iterations", 5, ranks=2, case="classifier")
    with h5py.File(checkpoints(tmp_path / "run")[0]) as file:
        assert np.abs(file["multipliers"][()]).max() > 0.0
        assert file["metric"].size and file["grams"].size
        assert 0.0 < file.attrs["reference"] < float("inf")
    run_in(tmp_path, "--iterations", 9, "--resume", "auto", case="classifier")
    run_in(tmp_path, "--iterations", 9, case="classifier", output="straight")
    assert_same_run(tmp_path / "run", tmp_path / "straight", every_checkpoint=False)
    records = curve(tmp_path / "run")
    assert max(record["multiplier"] for record in records) > 0.0
    assert len({record["mu"] for record in records[:6]}) > 1


def test_resume_auto_starts_where_there_is_nothing_and_ends_where_nothing_is_left(
    tmp_path: Path, straight: Path
) -> None:
    write_case(tmp_path, CASE)
    run_in(tmp_path, "--iterations", 6, "--resume", "auto")
    assert_same_run(tmp_path / "run", straight)
    before = snapshot(tmp_path)
    outcome = run_in(tmp_path, "--iterations", 6, "--resume", "auto")
    assert outcome.out.count("is finished (6 iterations); --iterations N with a larger N goes on") == 1
    assert outcome.err == ""
    assert snapshot(tmp_path) == before


def test_a_settled_run_is_not_sent_to_more_iterations(tmp_path: Path) -> None:
    """They would change nothing: other keys would, which no resumed run may change."""
    write_case(tmp_path, CASE)
    run_in(tmp_path, "--iterations", 200)
    last = curve(tmp_path / "run")[-1]["iteration"]
    assert last < 200
    before = snapshot(tmp_path)
    said = run_in(tmp_path, "--iterations", 300, "--resume", "auto").out
    assert f"run is finished (settled after {last} iterations): nothing is left to do" in said
    assert "a larger penalty.mu_max or a smaller penalty.tolerance, with another --output" in said
    assert "--iterations" not in said
    assert snapshot(tmp_path) == before


def test_an_existing_run_is_neither_overwritten_nor_touched(half: Path) -> None:
    before = snapshot(half)
    outcome = run_in(half, "--iterations", 6, code=2)
    assert outcome.err.count("holds a run already") == 1
    assert "--resume auto" in outcome.err
    assert snapshot(half) == before


def test_overwrite_removes_the_run_and_nothing_else(stopped: Path, straight: Path) -> None:
    (stopped / "run" / "notes.txt").write_text("mine")
    run_in(stopped, "--iterations", 6, "--overwrite")
    assert_same_run(stopped / "run", straight)
    assert (stopped / "run" / "notes.txt").read_text() == "mine"
    launches = json.loads((stopped / "run" / "provenance.json").read_text())["launches"]
    assert len(launches) == 1


def test_overwrite_and_resume_are_one_or_the_other(half: Path) -> None:
    before = snapshot(half)
    assert "give one of them" in run_in(half, "--overwrite", "--resume", "auto", code=2).err
    assert snapshot(half) == before


@pytest.mark.parametrize("named", ["nowhere.h5", f"{CASE}.toml", "of another run", "run"])
def test_what_resume_names_is_looked_at_before_the_folder_that_holds_a_run(
    named: str, half: Path, straight: Path
) -> None:
    before, path = snapshot(half), str(checkpoints(straight)[0]) if named == "of another run" else named
    said = {
        "nowhere.h5": "does not exist, or is no file",
        f"{CASE}.toml": "no checkpoint",
        "of another run": "is no checkpoint of the run that run holds: continue it with --resume auto",
        "run": "does not exist, or is no file",
    }[named]
    (line,) = run_in(half, "--iterations", 6, "--resume", path, code=2).err.splitlines()
    assert line.startswith(f"macmpi: --resume {path}")
    assert said in line
    assert snapshot(half) == before


def test_another_config_is_refused_by_the_names_of_its_keys(half: Path) -> None:
    before = snapshot(half)
    changes = ("--set", "start.seed=1", "--set", "model.hidden=[7,5,8]", "--set", "run.threads=1")
    outcome = run_in(half, "--iterations", 6, "--resume", "auto", *changes, code=2)
    assert outcome.err.count("start.seed (was 0, is 1)") == 1
    assert "model.hidden (was [7, 5, 7], is [7, 5, 8])" in outcome.err
    assert "run." not in outcome.err
    assert snapshot(half) == before


def test_a_named_checkpoint_goes_on_in_another_folder(half: Path, tmp_path: Path, straight: Path) -> None:
    config = write_case(tmp_path, CASE)
    saved = checkpoints(half / "run")[0]
    run_here(config, "--iterations", 6, "--resume", saved, "--output", "run", cwd=tmp_path, code=0)
    assert_same_content(tmp_path / "run" / "model.h5", straight / "model.h5")
    assert_same_content(checkpoints(tmp_path / "run")[0], checkpoints(straight)[0])


# --- stopped on the way -----------------------------------------------------------------------------------------------


def under_way(running: Running, folder: Path, iterations: int = 8) -> None:
    path = folder / "run" / "curve.jsonl"
    running.until(lambda: path.exists() and path.read_bytes().count(b"\n") > iterations, f"{iterations} iterations")


def long_run(folder: Path, ranks: int, end: Callable[[Running], None]) -> Outcome:
    write_case(folder, "long")
    with launched(("long.toml", "--output", "run", "--iterations", 100_000), ranks, folder) as running:
        under_way(running, folder)
        end(running)
        return running.outcome()


def assert_goes_on_undisturbed(folder: Path) -> None:
    """To two iterations beyond the stop, and compared with a run of that length."""
    length = int(checkpoints(folder / "run")[0].stem.split("-")[1]) + 2
    run_in(folder, "--iterations", length, "--resume", "auto", case="long")
    run_in(folder, "--iterations", length, case="long", output="straight")
    assert_same_run(folder / "run", folder / "straight", every_checkpoint=False)


@pytest.mark.parametrize(
    ("names", "ranks"),
    [("USR1", 2), ("HUP USR2 INT TERM XCPU INT", 0), *(pytest.param(name, 2, marks=LONG) for name in ("TERM", "INT"))],
)
def test_a_signal_asks_for_a_checkpoint_and_an_orderly_end(names: str, ranks: int, tmp_path: Path) -> None:
    """So do several, as a batch system sends them that wants a process to end."""

    def send(running: Running) -> None:
        for name in names.split():
            running.process.send_signal(getattr(signal, f"SIG{name}"))

    outcome = long_run(tmp_path, ranks, send)
    assert outcome.left == []
    if ranks and not {signal.Signals[f"SIG{name}"] for name in names.split()} <= LAUNCHER.passes_on:
        assert outcome.code not in (0, STOPPED)
        assert_goes_on_undisturbed(tmp_path)
        return
    assert outcome.code == STOPPED, outcome.err
    last = curve(tmp_path / "run")[-1]["iteration"]
    assert checkpoints(tmp_path / "run")[0].name == f"iteration-{last:06d}.h5"
    assert outcome.out.count("--resume auto") == 1
    assert not (tmp_path / "run" / "model.h5").exists()
    assert_goes_on_undisturbed(tmp_path)


def test_under_nohup_a_run_outlives_its_session(tmp_path: Path) -> None:
    write_case(tmp_path, "long")
    words = ("long.toml", "--output", "run", "--iterations", 100_000)
    with launched(words, 0, tmp_path, prefix=("nohup",)) as running:
        under_way(running, tmp_path)
        running.process.send_signal(signal.SIGHUP)
        newest = checkpoints(tmp_path / "run")[0]
        running.until(lambda: checkpoints(tmp_path / "run")[0] > newest, "checkpoint after SIGHUP")
        running.process.send_signal(signal.SIGTERM)
        assert running.outcome().code == STOPPED


def test_a_run_killed_at_any_moment_goes_on(tmp_path: Path) -> None:
    def kill(running: Running) -> None:
        for pid in running.pids():
            os.kill(pid, signal.SIGKILL)

    assert long_run(tmp_path, 2, kill).code != 0
    assert_goes_on_undisturbed(tmp_path)


def test_a_killed_launcher_takes_its_ranks_along(tmp_path: Path) -> None:
    outcome = long_run(tmp_path, 2, lambda running: running.process.kill())
    assert outcome.left == []


def test_max_time_stops_in_time_again_and_again(stopped: Path, straight: Path) -> None:
    """Every launch gets one half step further, however short its time."""
    for where, done in (
        ("in iteration 4", 3),
        ("after iteration 4", 4),
        ("in iteration 5", 4),
        ("after iteration 5", 5),
    ):
        words, ranks = ("--iterations", 6, "--resume", "auto", "--max-time", "0:00:00.001"), 2 if done == 3 else None
        outcome = run_in(stopped, *words, ranks=ranks, code=STOPPED)
        assert outcome.out.count(f"stopped {where}") == 1
        assert checkpoints(stopped / "run")[0].name == f"iteration-{done:06d}.h5"
    run_in(stopped, "--iterations", 6, "--resume", "auto", "--max-time", "0.001", code=STOPPED)
    run_in(stopped, "--iterations", 6, "--resume", "auto", "--max-time", "0.001")
    assert_same_run(stopped / "run", straight, every_checkpoint=False)


@pytest.mark.parametrize("ranks", [None, pytest.param(3, marks=LONG)])
def test_an_epoch_is_cut_between_its_minibatches(ranks: int | None, tmp_path: Path) -> None:
    """By too little time and, unless it is alone, by checkpoints on the way."""
    write_case(tmp_path, "minibatches")
    words = ("--iterations", 4, "--resume", "auto")
    launches, outputs = 1 if ranks else 4, list[str]()
    while len(outputs) < launches or "stopped in iteration" not in outputs[-1]:
        stopped = run_in(tmp_path, *words, "--max-time", 0.001, ranks=ranks, code=STOPPED, case="minibatches")
        outputs.append(stopped.out)
    with h5py.File(checkpoints(tmp_path / "run")[0]) as file:
        assert file.attrs["position"] > 0
    often = ("--set", "run.checkpoint_minutes=1e-9")
    run_in(tmp_path, *words, *often, case="minibatches")
    run_in(tmp_path, "--iterations", 4, case="minibatches", output="straight")
    assert untimed(curve(tmp_path / "run")) == untimed(curve(tmp_path / "straight"))
    assert_same_content(tmp_path / "run" / "model.h5", tmp_path / "straight" / "model.h5")


def test_a_run_killed_before_its_first_checkpoint_starts_again(tmp_path: Path, straight: Path) -> None:
    write_case(tmp_path, CASE)
    run_in(tmp_path, "--iterations", 6)
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    (tmp_path / "run" / "model.h5").unlink()
    run_in(tmp_path, "--iterations", 6, "--resume", "auto")
    assert_same_run(tmp_path / "run", straight)


@pytest.mark.parametrize("end", ["max_iterations", "converged"])
def test_a_run_killed_before_its_model_is_written_still_ends_there(end: str, tmp_path: Path) -> None:
    write_case(tmp_path, CASE)
    sooner = ("--set", "penalty.mu_max=10.0", "--set", "penalty.tolerance=0.5")
    arguments = ("--iterations", 6) if end == "max_iterations" else ("--iterations", 50, *sooner)
    run_in(tmp_path, *arguments)
    run = tmp_path / "run"
    assert (curve(run)[-1]["iteration"] == 6) is (end == "max_iterations")
    shutil.copytree(run, tmp_path / "undisturbed")
    (run / "model.h5").unlink()
    lines = (run / "curve.jsonl").read_text().splitlines(keepends=True)
    (run / "curve.jsonl").write_text("".join(lines[:-1]) + lines[-1][:20])
    run_in(tmp_path, *arguments, "--resume", "auto")
    assert_same_run(run, tmp_path / "undisturbed")


def unmarked(path: Path) -> None:
    with h5py.File(path, "a") as file:
        del file.attrs[model_file.MADE_FROM]


@pytest.mark.parametrize("left", ["of fewer iterations", "without its origin", "damaged"])
def test_another_model_is_not_taken_for_that_of_the_end(left: str, half: Path, tmp_path: Path, straight: Path) -> None:
    """A launch that was killed in the postprocessing, or whose disk was full, leaves the model of an earlier end."""
    write_case(tmp_path, CASE)
    shutil.copytree(half / "run", tmp_path / "run")
    run_in(tmp_path, "--iterations", 6, "--resume", "auto")
    spoil: dict[str, Callable[[Path], object]] = {
        "of fewer iterations": lambda path: shutil.copy(half / "run" / "model.h5", path),
        "without its origin": unmarked,
        "damaged": truncate,
    }
    spoil[left](tmp_path / "run" / "model.h5")
    run_in(tmp_path, "--iterations", 6, "--resume", "auto")
    assert_same_run(tmp_path / "run", straight, every_checkpoint=False)
    assert "is finished (6 iterations)" in run_in(tmp_path, "--iterations", 6, "--resume", "auto").out


def test_a_stopped_run_ends_with_the_model_of_where_it_was_stopped(stopped: Path) -> None:
    words = ("--iterations", 6, "--resume", "auto", "--max-time", 0.001)
    while "stopped after iteration 4" not in run_in(stopped, *words, code=STOPPED).out:
        pass
    run_in(stopped, "--iterations", 4, "--resume", "auto")
    run_in(stopped, "--iterations", 4, output="straight")
    assert untimed(curve(stopped / "run")) == untimed(curve(stopped / "straight"))
    assert_same_content(stopped / "run" / "model.h5", stopped / "straight" / "model.h5")
    assert "is finished (4 iterations)" in run_in(stopped, "--iterations", 4, "--resume", "auto").out


# --- damaged checkpoints ----------------------------------------------------------------------------------------------


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-200])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path) -> None:
    """One bit of one coordinate."""
    with h5py.File(path) as file:
        chunk = file["Z"].id.get_chunk_info(0)
    content = bytearray(path.read_bytes())
    content[chunk.byte_offset + 11] ^= 1
    path.write_bytes(content)


@pytest.fixture(scope="module")
def saved_often(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped after five iterations and has checkpoints of the last three."""
    folder = tmp_path_factory.mktemp("often")
    write_case(folder, CASE)
    run_in(folder, "--iterations", 5, "--set", "run.checkpoint_minutes=1e-9")
    assert len(checkpoints(folder / "run")) == 3
    return folder


@pytest.mark.parametrize(("damage", "ranks"), [(truncate, None), (empty, None), (flip, 2)])
def test_a_damaged_checkpoint_is_noticed_and_the_one_before_used(
    damage: Callable[[Path], None], ranks: int | None, saved_often: Path, tmp_path: Path, straight: Path
) -> None:
    folder = Path(shutil.copytree(saved_often, tmp_path / "copy"))
    damage(checkpoints(folder / "run")[0])
    outcome = run_in(folder, "--iterations", 6, "--resume", "auto", ranks=ranks)
    assert outcome.err.count("iteration-000005.h5 is damaged") == 1
    assert_same_run(folder / "run", straight, every_checkpoint=False)


def test_a_damaged_checkpoint_does_not_push_out_a_good_one(saved_often: Path, tmp_path: Path) -> None:
    """The run goes on from the one before the two newest; with only one kept, that one must not be a damaged one."""
    folder = Path(shutil.copytree(saved_often, tmp_path / "copy"))
    for path in checkpoints(folder / "run")[:2]:
        empty(path)
    resume = ("--iterations", 6, "--resume", "auto", "--set", "run.keep_checkpoints=1")
    outcome = run_in(folder, *resume, "--max-time", 0.001, code=STOPPED)
    assert outcome.out.count("stopped after iteration 4") == 1
    run_in(folder, *resume)


def test_no_good_checkpoint_is_an_error_that_touches_nothing(saved_often: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(saved_often, tmp_path / "copy"))
    for path in checkpoints(folder / "run"):
        truncate(path)
    before = snapshot(folder)
    outcome = run_in(folder, "--iterations", 6, "--resume", "auto", code=2)
    assert outcome.err.count("no good checkpoint") == 1
    assert outcome.err.count("is damaged") == 3
    assert snapshot(folder) == before
