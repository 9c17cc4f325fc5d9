"""macmpi.fit on several ranks, its own or those that it starts, is the fit of one process, bit for bit."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launch.launching import MARK, OPEN_MPI, environment, run_program
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array

import macmpi
from macmpi import UsageError
from macmpi.api import on_ranks
from macmpi.parallel.launchers import HERE_ALONE, of_its_own
from macmpi.training.lock import hold_folder

RANDOM = np.random.default_rng(11)
X = ROWS = RANDOM.normal(size=(90, 4))
CLASSES = np.array(["one", "two", "three"])[np.digitize(X[:, 0] - X[:, 1], [-0.5, 0.5])]
SHORT = {"run.max_iterations": 6}
LONG = {"run.max_iterations": 10**6, "stochastic.patience": 10**6}


@pytest.fixture(autouse=True)
def launched_by_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root too: a fit in this process starts an mpiexec with its variables."""
    for name, value in OPEN_MPI.items():
        monkeypatch.setenv(name, value)


SPMD = """
import inspect

import numpy as np
from mpi4py import MPI
import macmpi

X, Y = (np.load(name, allow_pickle=False) for name in ("X.npy", "Y.npy"))
first = MPI.COMM_WORLD.rank == 0
part = MPI.COMM_WORLD.Split(MPI.COMM_WORLD.rank % 2)
others = dict.fromkeys({*inspect.signature(macmpi.fit).parameters} - {"ranks", "comm"}, -1)
fits = {
    "world": macmpi.fit(**{"X": X, "Y": Y, "config": {"run.max_iterations": 6}} if first else others),
    "pieces": macmpi.fit(batches=[(X, Y)] if first else None, config={"run.max_iterations": 6}),
    "parts": macmpi.fit(X, Y, comm=part, config={"run.max_iterations": 6}),
    "alone": macmpi.fit(X, Y, comm=MPI.COMM_SELF, config={"run.max_iterations": 6}),
}
for name, model in fits.items():
    np.save(f"{name}-{MPI.COMM_WORLD.rank}.npy", np.concatenate([W.ravel() for W in model.weights]))
refused = [{"X": X, "Y": Y[:3]}, {"batches": []}, {"batches": 3}, {"batches": [(X, Y)], "output": "out"}]
refused = [one if first else others for one in refused]
refused += [{"comm": MPI.COMM_NULL}, {"X": X, "Y": Y} if first else {"ranks": 2}, {"ranks": 2, "comm": MPI.COMM_SELF}]
said = []
for one in refused:
    try:
        macmpi.fit(**one)
    except macmpi.UsageError as error:
        said.append(str(error))
np.save(f"refused-{MPI.COMM_WORLD.rank}.npy", said)
"""


def weights(model: macmpi.Model) -> np.ndarray:
    return np.concatenate([W.ravel() for W in model.weights])


@pytest.mark.launch
def test_every_rank_is_given_the_model_of_one_process(tmp_path: Path) -> None:
    """On all ranks, on parts of them, on each alone, of rank 0's pieces; and each is told of what is refused.

    The arguments are those of rank 0, whatever others say, but for ranks and comm.
    """
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "Y.npy", CLASSES)
    (tmp_path / "spmd.py").write_text(SPMD)
    run_program(program=["spmd.py"], ranks=3, cwd=tmp_path, code=0)
    expected = weights(macmpi.fit(X, CLASSES, config=SHORT))
    for name in ("world", "parts", "alone"):
        for rank in range(3):
            assert_array_equal(np.load(tmp_path / f"{name}-{rank}.npy"), expected)
    in_pieces = weights(macmpi.fit(batches=[(X, CLASSES)], config=SHORT))
    for rank in range(3):
        assert_array_equal(np.load(tmp_path / f"pieces-{rank}.npy"), in_pieces)
    refused = "X has 90 rows but Y has 3|there is none|batches = 3|leave X and out|comm: a|leave ranks out|give one of"
    for rank in range(3):
        for words, said in zip(refused.split("|"), np.load(tmp_path / f"refused-{rank}.npy"), strict=True):
            assert words in said


ENCLOSING = {
    "Slurm": "SLURM_JOB_ID SLURM_JOBID SLURM_NNODES SLURM_NODELIST=node[7-8] SLURM_JOB_NODELIST=node[7-8] SLURM_NPROCS "
    "SLURM_TASKS_PER_NODE SLURM_STEP_NUM_TASKS SLURM_PROCID=0 SLURM_STEP_ID=0 PMI_SIZE PMI_RANK=0 PMI_FD=9",
    "PBS and LSF": "PBS_JOBID PBS_NODEFILE=/none LSB_JOBID LSB_MCPU_HOSTS=node7 LSB_DJOB_NUMPROC OMPI_COMM_WORLD_SIZE "
    "OMPI_COMM_WORLD_RANK=0 PMIX_RANK=0 PMIX_NAMESPACE PALS_RANKID=0 PE_HOSTFILE=/none HYDRA_LAUNCHER=ssh",
}
"""Variables of jobs that a process may be in, as the only rank of a launch there; 1 where nothing else is said."""


def enclose(system: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts this process into a job, in which no process can be started any more."""
    for word in ENCLOSING[system].split():
        name, _, value = word.partition("=")
        monkeypatch.setenv(name, value or "1")
    for name in ("srun", "blaunch", "ssh", "pbs_tmrsh", "rsh"):
        (folder / name).write_text("#!/bin/sh\nexit 1\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.launch
@pytest.mark.parametrize("rows", ["dense", "sparse"])
def test_ranks_that_a_fit_starts_give_the_model_of_one_process(
    rows: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a job and one of its steps too; sparse columns have long tails, and none is compressed."""
    far = np.random.default_rng(1)
    X = ROWS if rows == "dense" else csr_array(far.standard_cauchy((90, 120)) * (far.random((90, 120)) < 0.1))
    told: list[dict[str, Any]] = []
    enclose("Slurm", tmp_path, monkeypatch)
    here = macmpi.fit(X, CLASSES, config=SHORT)
    there = macmpi.fit(X, CLASSES, config=SHORT, ranks=2, callback=told.append)
    assert_array_equal(weights(there), weights(here))
    assert_array_equal(there.predict(X), here.predict(X))
    assert [(r["iteration"], r["E1_val"]) for r in there.history] == [
        (r["iteration"], r["E1_val"]) for r in here.history
    ]
    assert told == there.history


@pytest.mark.launch
def test_ranks_are_stopped_by_a_callback_and_by_ctrl_c_with_the_model_so_far(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []

    def wish(record: dict[str, Any]) -> bool:
        told.append(record)
        return record["iteration"] >= 2

    def interrupt(record: dict[str, Any]) -> None:
        told.append(record)
        if record["iteration"] == 2 and record["phase"] == "iteration":
            signal.raise_signal(signal.SIGINT)

    def signal_the_ranks(record: dict[str, Any]) -> None:
        told.append(record)
        if record["iteration"] == 2 and record["phase"] == "iteration":
            children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
            for child in (int(c) for c in children if b"macmpi.run" in Path(f"/proc/{c}/cmdline").read_bytes()):
                os.kill(child, signal.SIGUSR1)

    alike = X[CLASSES == "one"][:9], CLASSES[CLASSES == "one"][:9]
    wishes = (wish, "callback"), (interrupt, "interrupted"), (signal_the_ranks, "interrupted")
    for callback, why in wishes:
        told.clear()
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            own = {"output": tmp_path / why, "overwrite": True, "callback": callback}
            model = macmpi.fit(X, CLASSES, validation=alike, config=LONG, ranks=2, **own)
        assert any(str(one.message).startswith("the arguments of fit: no validation point is") for one in warned)
        assert told == model.history
        assert model.history[-1]["phase"] == "postprocess"
        assert model.history[-1]["ended"] == model.card.training.ended == why
        assert macmpi.load(tmp_path / why / "model.h5").card.training.ended == why
        assert any("the fit was interrupted" in str(one.message) for one in warned) == (why == "interrupted")
        assert set(model.predict(X)) <= set(CLASSES)


@pytest.mark.launch
def test_ranks_go_on_from_a_model_and_keep_a_run_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a job too."""
    enclose("PBS and LSF", tmp_path, monkeypatch)
    first = macmpi.fit(X, CLASSES, config=SHORT)
    here, there = (
        macmpi.fit(X, CLASSES, start=first, config=SHORT, **own) for own in ({}, {"ranks": 2, "output": tmp_path / "r"})
    )
    assert_array_equal(weights(there), weights(here))
    assert (tmp_path / "r" / "model.h5").exists()


@pytest.mark.launch
def test_ranks_refuse_points_in_the_words_of_one_process() -> None:
    said = []
    for ranks in (None, 2):
        with pytest.raises(UsageError) as refused:
            macmpi.fit(X, X - 9.0, loss="logistic", ranks=ranks)
        said.append(str(refused.value))
    assert said[0] == said[1]


def test_without_an_mpiexec_ranks_are_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_ranks, "mpiexec", lambda: None)
    with pytest.raises(UsageError, match="pip install"):
        macmpi.fit(X, CLASSES, ranks=2)


def test_a_rank_starts_no_ranks_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_ranks, "started", lambda environment: (2, 0, "PMI_SIZE"))
    with pytest.raises(UsageError, match="leave ranks out, or unset PMI_SIZE"):
        macmpi.fit(X, CLASSES, ranks=2)


def test_what_a_job_and_a_launch_have_said_goes_and_what_user_and_site_say_stays() -> None:
    own = {"SLURM_CONF": "a", "OMPI_MCA_btl": "tcp", "PRTE_MCA_rmaps": "b", "OMPI_ALLOW_RUN_AS_ROOT": "1", "HOME": "/"}
    own |= {"MPI4PY_LIBMPI": "c", "OMP_NUM_THREADS": "1", "LD_LIBRARY_PATH": "d", "MPIR_CVAR_CH4_NETMOD": "ofi"}
    others = {word.partition("=")[0]: "1" for text in ENCLOSING.values() for word in text.split()}
    kept = of_its_own(own | others)
    assert {name: value for name, value in kept.items() if name not in HERE_ALONE} == own
    assert HERE_ALONE.items() <= kept.items()


@pytest.mark.parametrize("where", ["memory", "usual"])
def test_folders_of_fits_that_were_killed_are_removed_by_the_next_one(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that nobody holds, in memory and where a fit lies that has no space there; all else stays."""
    (tmp_path / "next").mkdir()
    places = {"memory": tmp_path / "next", "usual": tmp_path / "next"} | {where: tmp_path}
    monkeypatch.setattr(on_ranks, "MEMORY", places["memory"])
    monkeypatch.setattr(tempfile, "tempdir", str(places["usual"]))
    own = on_ranks.PREFIX
    killed, alive, other = (tmp_path / name for name in (f"{own}a", f"{own}b", "other"))
    for folder in (killed, alive, other):
        folder.mkdir()
        (folder / on_ranks.POINTS).touch()
    (tmp_path / f"{own}c").symlink_to(other)
    held = hold_folder(alive)
    with on_ranks._folder(None) as own_one:
        left = {path.name for path in tmp_path.iterdir()} - {"next", own_one.name}
    assert held is not None
    os.close(held)
    assert left == {alive.name, other.name, f"{own}c"}
    assert (other / on_ranks.POINTS).exists()


KILLED_MAKERS = """
import os, subprocess, sys, tempfile
from pathlib import Path
from types import SimpleNamespace
from macmpi.api import on_ranks

where = Path(sys.argv[1])
on_ranks.MEMORY, tempfile.tempdir = where / "memory", str(where)
nobody = SimpleNamespace(kill=lambda: None, wait=lambda: None)
on_ranks.subprocess = SimpleNamespace(Popen=lambda *words, **keys: nobody, DEVNULL=None)

def make(calls):
    def kill(event, arguments):
        nonlocal calls
        if event in ("os.mkdir", "fcntl.flock", "os.remove", "os.rmdir"):
            calls -= 1
            if calls < 0:
                os.kill(os.getpid(), 9)

    sys.addaudithook(kill)
    with on_ranks._folder(None) as folder:
        (folder / "points.npz").touch()
        (folder / "run").mkdir()
        (folder / "run" / "model.h5").touch()
    os._exit(0)

code, calls = 9, 0
while code == 9:
    if (pid := os.fork()) == 0:
        make(calls)
    code, calls = os.waitpid(pid, 0)[1], calls + 1
    print(code, len(list(where.iterdir())), end=" ")
    on_ranks.remove_abandoned(where)
    print(len(list(where.iterdir())))
"""


def test_whenever_a_fit_is_killed_the_next_one_removes_its_folder(tmp_path: Path) -> None:
    """Before and behind each step of making it and of removing it; its watcher has been killed, too."""
    words = [sys.executable, "-c", KILLED_MAKERS, str(tmp_path)]
    said = subprocess.run(words, env=environment(), capture_output=True, text=True, check=True).stdout
    found = [[int(number) for number in line.split()] for line in said.splitlines()]
    assert found == [[9, 0, 0], *[[9, 1, 0]] * (len(found) - 2), [0, 0, 0]]
    assert len(found) >= 7, "made, held, filled, and emptied file by file"


def test_a_folder_that_is_removed_before_it_is_held_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another fit, which takes it for one of a fit that was killed."""
    hold = on_ranks.hold_folder
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def late(folder: Path, wait: bool = True) -> int | None:
        if wait and not taken:
            taken.append(folder)
            on_ranks.remove_abandoned(tmp_path)
        return hold(folder, wait)

    taken: list[Path] = []
    monkeypatch.setattr(on_ranks, "hold_folder", late)
    folder, held = on_ranks._new_folder(None)
    assert taken != [folder]
    assert held is not None
    on_ranks.remove_abandoned(tmp_path)
    assert [*tmp_path.iterdir()] == [folder]
    os.close(held)


KILLED_FIT = """
import numpy as np, macmpi
X = np.random.default_rng(0).normal(size=(90, 3))
print("it starts", flush=True)
keys = {"method.name": "mac", "penalty.factor": 1.0001, "run.max_iterations": 100_000}
macmpi.fit(X, hidden=[5], config=keys, ranks=2, callback=lambda record: print("it is under way", flush=True))
"""

NOTHING_LEFT = 30.0
"""Seconds in which all must be gone: some tenths of one on a machine that is not busy."""


def kill_a_fit(folder: Path, number: signal.Signals, lines: int, wait: float = 0.0) -> None:
    """Sends the signal to a fit that has printed some lines, and waits until its processes and its folder have gone."""
    mark = f"{MARK}={uuid.uuid4().hex}"
    env = environment(**dict([mark.split("=")]))
    fit = subprocess.Popen([sys.executable, "-c", KILLED_FIT], env=env, cwd=folder, stdout=subprocess.PIPE)
    assert fit.stdout is not None
    for _ in range(lines):
        assert fit.stdout.readline().startswith(b"it ")
    time.sleep(wait)
    fit.send_signal(number)
    folders, left = set[str](), dict[int, str]()
    end = time.monotonic() + NOTHING_LEFT
    while time.monotonic() < end:
        left = commands_of(mark, but=fit.pid)
        folders |= {found for text in left.values() for found in re.findall(rf"\S*/{on_ranks.PREFIX}\w+", text)}
        if not left and not any(map(os.path.exists, folders)):
            break
        time.sleep(0.05)
    for pid in left:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    assert (left, [path for path in folders if os.path.exists(path)]) == ({}, [])
    assert fit.wait() == -number


def commands_of(mark: str, but: int) -> dict[int, str]:
    """Processes with this in their environment, and what they were started by."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark.encode() in (path / "environ").read_bytes() and path.name != str(but):
                found[int(path.name)] = (path / "cmdline").read_text().replace("\0", " ")
    return found


@pytest.mark.launch
def test_a_fit_that_is_killed_takes_its_ranks_and_its_folder_along(tmp_path: Path) -> None:
    kill_a_fit(tmp_path, signal.SIGKILL, lines=2)


@pytest.mark.launch
def test_a_run_that_is_overwritten_tells_nothing_of_the_one_before(tmp_path: Path) -> None:
    """Its curve lies there until the ranks begin their own."""
    told: list[dict[str, Any]] = []
    keys: dict[str, Any] = {"config": SHORT, "output": tmp_path / "run"}
    macmpi.fit(X, CLASSES, seed=1, **keys)
    model = macmpi.fit(X, CLASSES, seed=2, **keys, overwrite=True, ranks=2, callback=told.append)
    assert told == model.history
