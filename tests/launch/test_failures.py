"""A fault in one rank ends all of them, quickly, with a message that names the rank; and then the run goes on."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from launch.cases import assert_same_run, checkpoints, curve, write_case
from launch.here import run_here
from launch.launching import Outcome, run_program
from striking import VARIABLE

from macmpi import UsageError, files, run
from macmpi.parallel.team import Team
from macmpi.results.model_file import load

pytestmark = pytest.mark.launch

INTERNAL, STORAGE = 70, 74
HANG = 50.0
"""Ten times the seconds within which such a launch is over; the program's own patience is half an hour."""


def faulty(
    folder: Path, kind: str, phase: str, rank: int, *arguments: object, iteration: int = 0, ranks: int = 2
) -> Outcome:
    write_case(folder, "autoencoder")
    words = ("autoencoder.toml", "--iterations", 6, "--output", "run", *arguments)
    fault = {VARIABLE: f"{rank}:{phase}:{iteration}:{kind}"}
    outcome = run_program(*words, ranks=ranks, cwd=folder, env=fault, timeout=HANG)
    assert f"fault: {kind} at rank {rank} in {phase}" in outcome.err
    return outcome


@pytest.mark.parametrize(("kind", "phase", "rank"), [("exception", "checkpoint", 0), ("exit", "z", 1)])
def test_an_unforeseen_error_ends_all_ranks(kind: str, phase: str, rank: int, tmp_path: Path) -> None:
    """tests/faults walks the other phases."""
    outcome = faulty(tmp_path, kind, phase, rank)
    assert outcome.code == INTERNAL, outcome.err
    assert f"rank {rank}/2" in outcome.err
    assert outcome.err.count("macmpi: ") == 1
    assert ("SystemExit" if kind == "exit" else "the fault that MACMPI_FAULT asks for") in outcome.err
    assert outcome.left == []


def test_a_known_error_in_one_rank_alone_ends_all_ranks(tmp_path: Path) -> None:
    """Known errors are raised on rank 0 for all ranks; one that is not must not leave the others waiting."""
    outcome = faulty(tmp_path, "known", "z", 1)
    assert outcome.code == INTERNAL, outcome.err
    assert outcome.err.count("macmpi: rank 1/2 failed") == 1
    assert "the fault that MACMPI_FAULT asks for" in outcome.err


def test_an_error_of_one_process_alone(tmp_path: Path) -> None:
    outcome = faulty(tmp_path, "exception", "w", 0, ranks=0)
    assert outcome.code == INTERNAL
    assert "rank 0/1" in outcome.err
    assert "the fault that MACMPI_FAULT asks for" in outcome.err


def test_the_run_goes_on_after_a_fault(tmp_path: Path) -> None:
    often = ("--set", "run.checkpoint_minutes=1e-9")
    assert faulty(tmp_path, "exception", "z", 1, *often, iteration=5).code == INTERNAL
    assert checkpoints(tmp_path / "run")[0].name == "iteration-000004.h5"
    arguments = ("autoencoder.toml", "--iterations", 6, *often)
    run_here(*arguments, "--output", "run", "--resume", "auto", cwd=tmp_path, code=0)
    run_here(*arguments, "--output", "straight", cwd=tmp_path, code=0)
    assert_same_run(tmp_path / "run", tmp_path / "straight")


def test_a_full_disk_is_a_warning_until_the_last_save(tmp_path: Path) -> None:
    outcome = faulty(tmp_path, "full", "checkpoint", 0, "--set", "run.checkpoint_minutes=1e-9", ranks=0)
    assert outcome.code == STORAGE, outcome.err
    lines = [line for line in outcome.err.splitlines() if not line.startswith("fault: ")]
    *earlier, last = lines
    assert len(earlier) == 12, "after both half steps of six iterations"
    assert all("No space left on device" in line and "training goes on" in line for line in earlier)
    assert "the last checkpoint could not be written" in last
    assert "the same command with --resume auto goes on from the start" in last
    assert curve(tmp_path / "run")[-1]["phase"] == "postprocess"
    assert (tmp_path / "run" / "model.h5").exists(), "what was trained is not lost with the checkpoint"


def test_a_run_whose_last_save_fails_names_the_iteration_that_it_goes_on_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_case(tmp_path, "autoencoder")
    often = ("--set", "run.checkpoint_minutes=1e-9")
    run_here("autoencoder.toml", "--iterations", 3, *often, "--output", "run", cwd=tmp_path, code=0)

    write = files.replace_file

    def full(path: Path, *arguments: Any) -> None:
        if path.parent.name == "checkpoints":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, *arguments)

    again = ("autoencoder.toml", "--iterations", 6, *often, "--resume", "auto", "--output", "run")
    with monkeypatch.context() as disk:
        disk.setattr(files, "replace_file", full)
        *_, last = run_here(*again, cwd=tmp_path, code=STORAGE).err.splitlines()
    assert "the last checkpoint could not be written" in last
    assert "the same command with --resume auto goes on from iteration 3" in last
    run_here(*again, cwd=tmp_path, code=0)
    run_here("autoencoder.toml", "--iterations", 6, *often, "--output", "straight", cwd=tmp_path, code=0)
    assert_same_run(tmp_path / "run", tmp_path / "straight")


@pytest.mark.parametrize(
    ("phase", "ranks", "named"),
    [("gather_rows", 0, r"the Z-step gave point \d+ a coordinate"), ("gather_parts", 2, r"the W-step gave layer \d a")],
)
def test_a_number_that_is_not_finite_is_named_and_the_checkpoint_before_it_kept(
    phase: str, ranks: int, named: str, tmp_path: Path
) -> None:
    often = ("--set", "run.checkpoint_minutes=1e-9")
    outcome = faulty(tmp_path, "nan", phase, ranks // 2, *often, iteration=3, ranks=ranks)
    assert outcome.code == INTERNAL
    assert re.search(rf"iteration 3: {named} .*not finite, unit \d", outcome.err), outcome.err
    assert "Traceback" not in outcome.err
    assert outcome.err.count("macmpi: ") == 1
    assert checkpoints(tmp_path / "run")[0].name == "iteration-000002.h5"


def test_a_model_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    outcome = faulty(tmp_path, "full", "model", 0, ranks=0)
    assert outcome.code == STORAGE, outcome.err
    assert outcome.err.count("model.h5 could not be written: No space left on device; free space in run") == 1
    assert "the same command with --resume auto goes on from iteration 6" in outcome.err
    arguments = ("autoencoder.toml", "--iterations", 6)
    run_here(*arguments, "--output", "run", "--resume", "auto", cwd=tmp_path, code=0)
    run_here(*arguments, "--output", "straight", cwd=tmp_path, code=0)
    assert_same_run(tmp_path / "run", tmp_path / "straight")


@pytest.mark.parametrize(
    ("case", "reader"), [("autoencoder", "macmpi.data.loading.load"), ("sharded", "macmpi.data.loading.survey")]
)
def test_the_deadline_of_the_config_holds_while_data_are_read(
    case: str, reader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large data may take longer than ranks wait for a config."""
    deadlines: list[float] = []

    class Waiting(Team):
        def set_deadline(self, deadline: float) -> None:
            deadlines.append(deadline)

    def reading(*arguments: Any) -> NoReturn:
        raise UsageError(f"read after {deadlines}")

    config = write_case(tmp_path, case)
    monkeypatch.setattr(reader, reading)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"^read after \[12345\.0\]$"):
        run.run(Waiting(), [str(config), "--set", "run.deadline=12345.0"])


def test_a_folder_is_refused_before_the_points_are_given_to_the_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = write_case(tmp_path, "autoencoder").name
    run_here(name, "--iterations", 0, "--output", "run", cwd=tmp_path, code=0)

    def loading(*arguments: Any) -> NoReturn:
        raise AssertionError("loaded")

    monkeypatch.setattr("macmpi.data.loading.Source.load", loading)
    for words in ((), ("--resume", "auto", "--set", "model.hidden=[3]")):
        outcome = run_here(name, "--output", "run", *words, cwd=tmp_path, code=2)
        assert "another --output" in outcome.err or "name another folder with --output" in outcome.err


def config(folder: Path, activation: str, **tables: str) -> str:
    words = [
        f"[{table}]\n{keys}"
        for table, keys in {"model": f'hidden = [20]\nactivation = "{activation}"', **tables}.items()
    ]
    (folder / "run.toml").write_text("\n".join(['data = "heavy.npz"', *words]))
    return "run.toml"


def heavy(folder: Path) -> None:
    """Columns without a variance, and targets without one."""
    X = np.random.default_rng(0).standard_cauchy((800, 8))
    np.savez(folder / "heavy.npz", X=X, Y=np.stack([X[:, 0] * np.tanh(X[:, 1]), X[:, 2]], axis=1))


def test_a_run_that_diverges_does_not_say_that_it_is_finished(tmp_path: Path) -> None:
    """Full-batch descent far beyond the longest stable step: each step is longer than the last, and all are finite."""
    heavy(tmp_path)
    method = {"method": 'name = "sgd"', "baseline": "rate = 30.0\nbatch = 640"}
    arguments = (config(tmp_path, "tanh", **method), "--iterations")
    run_here(*arguments, 0, "--output", "begun", cwd=tmp_path, code=0)
    outcome = run_here(*arguments, 4, "--output", "run", cwd=tmp_path, code=INTERNAL)
    assert "finished" not in outcome.out
    assert max(len(line) for line in outcome.out.splitlines()) <= 120
    (line,) = outcome.err.splitlines()
    assert line.startswith("macmpi: training went wrong after iteration 0: at the end E1 (training) is ")
    assert "(predict the mean)" in line
    assert "a smaller baseline.rate" in line
    model, start = (load(tmp_path / "run" / name).weights for name in ("model.h5", "start.h5"))
    assert all(np.array_equal(*pair) for pair in zip(model, start, strict=True))
    assert checkpoints(tmp_path / "run")
    assert curve(tmp_path / "run")[-1]["phase"] == "postprocess"
