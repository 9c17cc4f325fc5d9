"""One copy a node: stopped, resumed on other ranks and nodes, killed, and without memory for it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import h5py
import numpy as np
import pytest
from launch.cases import assert_same_run, checkpoints, curve, write_case
from launch.here import run_here
from launch.launching import LAUNCHER, Outcome, launched, run_program

pytestmark = pytest.mark.launch

STOPPED = 75
NODE = ("--set", 'parallel.data="node"')
SCRIPT = (Path(__file__).with_name("on_nodes.py"),)


def run_on(folder: Path, case: str, *arguments: object, ranks: int, **env: str) -> Outcome:
    words = (f"{case}.toml", "--output", "run", *arguments, *NODE)
    return run_program(*words, ranks=ranks, cwd=folder, program=SCRIPT, env=env, code=0)


def assert_same_as_replicated(folder: Path, case: str, length: int, *settings: str) -> None:
    """A run in this process, of that length; but for the config in the attributes all is the same."""
    run_here(f"{case}.toml", "--output", "straight", "--iterations", length, *NODE, *settings, cwd=folder, code=0)
    run_here(f"{case}.toml", "--output", "replicated", "--iterations", length, *settings, cwd=folder, code=0)
    assert_same_run(folder / "run", folder / "straight", every_checkpoint=False)
    for name in ("E1_train", "E1_val", "E_Q"):
        ours, theirs = ([record[name] for record in curve(folder / run)] for run in ("run", "replicated"))
        assert ours == theirs


def test_3_ranks_on_2_nodes_then_1_then_2_have_the_bits_of_one_process(tmp_path: Path) -> None:
    """Multipliers and labels; the 1 rank with replicated points.  tests/spmd has 5 ranks on 3 nodes."""
    write_case(tmp_path, "classifier")
    run_on(tmp_path, "classifier", "--iterations", 2, ranks=3, MACMPI_TEST_NODES="0,0,1")
    run_here("classifier.toml", "--output", "run", "--iterations", 3, "--resume", "auto", cwd=tmp_path, code=0)
    run_on(tmp_path, "classifier", "--iterations", 5, "--resume", "auto", ranks=2, MACMPI_TEST_NODES="0,1")
    assert_same_as_replicated(tmp_path, "classifier", 5)


def test_a_refit_that_nobody_has_asked_for_is_that_of_replicated_points(tmp_path: Path) -> None:
    """Where points live decides neither whether there is one nor its bits.  On two nodes."""
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 8))
    np.savez(tmp_path / "points.npz", X=X, Y=np.sin(2.0 * X[:, :2]) + random.normal(size=(60, 2)))
    keys = 'data = "points.npz"\nmethod.name = "stochastic"\nmodel.loss = "squared"\nmodel.hidden = [16]\n'
    (tmp_path / "noise.toml").write_text(keys)
    run_on(tmp_path, "noise", "--iterations", 12, ranks=2, MACMPI_TEST_NODES="0,1")
    assert_same_as_replicated(tmp_path, "noise", 12)
    ours, theirs = (h5py.File(tmp_path / run / "model.h5")["weights/refit"][()] for run in ("run", "replicated"))
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("method", ["mac", "stochastic"])
def test_a_refit_has_the_bits_of_replicated_points_and_their_run_goes_on_to_it(method: str, tmp_path: Path) -> None:
    """On two nodes."""
    write_case(tmp_path, "regression")
    settings = ("--set", f'method.name="{method}"', "--set", "run.refit=true")
    settings += ("--set", "penalty.mu_every=1") if method == "mac" else ()
    run_here("regression.toml", "--output", "run", "--iterations", 1, *settings, cwd=tmp_path, code=0)
    (tmp_path / "run" / "model.h5").unlink()
    again = (*settings, "--resume", "auto")
    run_on(tmp_path, "regression", "--iterations", 3, *again, ranks=3, MACMPI_TEST_NODES="0,0,1")
    assert_same_as_replicated(tmp_path, "regression", 3, *settings)
    ours, theirs = (h5py.File(tmp_path / run / "model.h5")["weights/refit"][()] for run in ("run", "replicated"))
    np.testing.assert_array_equal(ours, theirs)


def test_a_run_stopped_and_then_killed_goes_on_with_its_bits_and_leaves_no_memory(tmp_path: Path) -> None:
    """A checkpoint an iteration: rank 0 reads all rows while the others would like to go on."""
    write_case(tmp_path, "long")
    forever = ("long.toml", "--output", "run", "--iterations", 100_000, "--resume", "auto", *NODE)
    with launched(forever, 2, tmp_path) as running:
        running.until(lambda: len(checkpoints(tmp_path / "run")) > 1, "checkpoints")
        running.process.send_signal(signal.SIGUSR1)
        outcome = running.outcome()
        assert (outcome.code, outcome.err, outcome.shared) == (STOPPED, "", [])
    newest = checkpoints(tmp_path / "run")[0]
    with launched(forever, 2, tmp_path) as running:
        running.until(lambda: checkpoints(tmp_path / "run")[0] > newest, "further checkpoint")
        for pid in running.pids():
            os.kill(pid, signal.SIGKILL)
        outcome = running.outcome()
        assert outcome.code not in (0, STOPPED)
        assert outcome.left == []
        assert outcome.shared == [] or LAUNCHER.removes
    length = int(checkpoints(tmp_path / "run")[0].stem.split("-")[1]) + 2
    run_here("long.toml", "--output", "run", "--iterations", length, "--resume", "auto", *NODE, cwd=tmp_path, code=0)
    assert_same_as_replicated(tmp_path, "long", length)


def test_without_memory_every_rank_has_its_own_copy_and_one_line_says_so(tmp_path: Path) -> None:
    write_case(tmp_path, "classifier")
    outcome = run_on(tmp_path, "classifier", "--iterations", 3, ranks=2, MACMPI_TEST_FREE="1e6")
    assert outcome.err.count("\n") == 1
    assert "/dev/shm lacks 10 MB for the 11 MB that the ranks of a node would share" in outcome.err
    assert "what its node shares included" not in outcome.out
    assert_same_as_replicated(tmp_path, "classifier", 3)
