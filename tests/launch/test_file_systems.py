"""File systems without locks, as NFS without lockd, or without fsync: all is read and written all the same."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from launch.cases import write_case
from launch.launching import run_program
from launch.one_by_one import ONE_BY_ONE

from macmpi.doctor import WARNING

pytestmark = pytest.mark.launch

NO_LOCKS = """
#include <errno.h>
int flock(int file, int operation) { errno = ENOLCK; return -1; }
"""


NO_FSYNC = """
#include <errno.h>
int fsync(int file) { errno = EINVAL; return -1; }
"""


@pytest.fixture
def no_locks(tmp_path: Path) -> dict[str, str]:
    """An environment in which flock answers that there are no locks."""
    return {"LD_PRELOAD": preloaded(tmp_path, NO_LOCKS)}


def preloaded(folder: Path, code: str) -> str:
    """A library with functions that take the place of the system's."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    source, library = folder / "instead.c", folder / "instead.so"
    source.write_text(code)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    return str(library)


@pytest.mark.parametrize("variable", ["unset", "TRUE", "BEST_EFFORT"])
@pytest.mark.every_case
def test_data_models_and_checkpoints_are_read_without_locks(
    variable: str, no_locks: dict[str, str], tmp_path: Path
) -> None:
    """Sharded data, resumed from a checkpoint that stays on the disk; its model; the same file as ordinary data.

    variable: what the environment tells HDF5 to do, which it obeys before a program's wish.
    """
    if variable != "unset":
        no_locks["HDF5_USE_FILE_LOCKING"] = variable
    write_case(tmp_path, "sharded")
    (tmp_path / "whole.toml").write_text(re.sub(r'"sharded"', '"replicated"', (tmp_path / "sharded.toml").read_text()))
    lines = ("sharded.toml --iterations 1", "sharded.toml --iterations 2 --resume auto", "whole.toml --iterations 1")
    listed = json.dumps([[str(tmp_path), *line.split()] for line in lines])
    outcome = run_program(listed, cwd=tmp_path, program=(ONE_BY_ONE,), env=no_locks, code=0)
    assert outcome.err.count("file system without locks") == 3
    predict = ("-m", "macmpi.predict")
    files = ("runs/sharded/model.h5", "points.h5", "--output", "out.npz")
    run_program(*files, cwd=tmp_path, program=predict, env=no_locks, code=0)


def test_files_are_written_where_there_is_no_fsync(tmp_path: Path) -> None:
    """The run, a prediction and a sharded checkpoint end as on any file system."""
    env = {"LD_PRELOAD": preloaded(tmp_path, NO_FSYNC)}
    write_case(tmp_path, "sharded")
    run_program("sharded.toml", "--iterations", 1, cwd=tmp_path, env=env, code=0)
    files = ("runs/sharded/model.h5", "points.h5", "--output", "out.npz")
    run_program(*files, cwd=tmp_path, program=("-m", "macmpi.predict"), env=env, code=0)


NO_MORE_THAN_OTHERS = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()
"""root may enter any folder unless these rights are taken from it."""


@pytest.mark.parametrize(
    "words",
    [
        ("macmpi.run", "closed/few.toml"),
        ("macmpi.run", "few.toml", "--output", "closed/run"),
        ("macmpi.run", "few.toml", "--set", 'data.source="closed/points.npz"'),
        ("macmpi.predict", "closed/model.h5", "points.npz", "--output", "out.npz"),
        ("macmpi.report", "closed"),
    ],
)
def test_a_folder_that_one_may_not_enter_is_refused_in_one_line(words: tuple[str, ...], tmp_path: Path) -> None:
    write_case(tmp_path, "few")
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed").chmod(0)
    try:
        outcome = run_program(cwd=tmp_path, program=("-m", *words), prefix=NO_MORE_THAN_OTHERS, code=2)
    finally:
        (tmp_path / "closed").chmod(0o700)
    assert outcome.err.startswith("macmpi: ") and outcome.err.count("\n") == 1, outcome.err
    assert "closed" in outcome.err
    assert not list((tmp_path / "closed").iterdir())


def test_the_doctor_says_that_there_are_no_locks(no_locks: dict[str, str], tmp_path: Path) -> None:
    outcome = run_program("--output", "new", cwd=tmp_path, program=("-m", "macmpi.doctor"), env=no_locks, code=0)
    assert re.search(rf"^locks +{WARNING} +fail \(No locks available\)$", outcome.out, re.MULTILINE)
    assert re.search(rf"^HDF5 file +{WARNING} .*\n.*HDF5_USE_FILE_LOCKING=FALSE", outcome.out, re.MULTILINE)
