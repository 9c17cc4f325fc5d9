"""Commands that need no MPI, under mpiexec: the first process does the work, once, and all end as it does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from launch.here import run_here
from launch.launching import run_program

COMMAND = ("-m", "macmpi")


def test_commands_that_need_no_mpi_are_done_once(tmp_path: Path) -> None:
    """What they print and write is what one process alone prints and writes, and so is the exit code."""
    random = np.random.default_rng(0)
    X = random.normal(size=(30, 2))
    np.savez(tmp_path / "points.npz", X=X, Y=X[:, 0])
    (tmp_path / "run.toml").write_text('data = "points.npz"\nmodel.loss = "squared"\nmodel.hidden = [2]\n')
    run_here("run.toml", "--iterations", 1, "--output", "run", cwd=tmp_path, code=0)
    found = []
    for ranks in (0, 3):
        words = ("predict", "run/model.h5", "points.npz", "--output", "out.csv")
        done = run_program(*words, cwd=tmp_path, program=COMMAND, ranks=ranks, code=0)
        found.append((done.out, done.err, (tmp_path / "out.csv").read_bytes()))
        (tmp_path / "out.csv").unlink()
    assert found[0] == found[1]
    refused = run_program("show", "none.h5", cwd=tmp_path, program=COMMAND, ranks=3, code=2)
    assert refused.err.count("macmpi: none.h5 is not a model") == 1
