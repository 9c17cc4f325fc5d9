"""What a process learns from its launcher's variables, and what it leaves behind where it ends all of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from macmpi.parallel import launchers
from macmpi.parallel.launchers import alone, in_task, speaks, started


def hydra(size: int, rank: int) -> dict[str, str]:
    return {"PMI_SIZE": str(size), "PMI_RANK": str(rank)}


def open_mpi(size: int, rank: int) -> dict[str, str]:
    return {"OMPI_COMM_WORLD_SIZE": str(size), "OMPI_COMM_WORLD_RANK": str(rank)}


def srun(tasks: int, task: int) -> dict[str, str]:
    return {"SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": str(tasks), "SLURM_PROCID": str(task)}


def flux_run(tasks: int, task: int) -> dict[str, str]:
    return {"FLUX_JOB_SIZE": str(tasks), "FLUX_TASK_RANK": str(task)}


SCRIPT = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"}


@pytest.mark.parametrize(
    ("environment", "processes", "this"),
    [
        pytest.param({}, 1, 0, id="no launcher"),
        pytest.param(hydra(3, 2), 3, 2, id="mpiexec"),
        pytest.param(open_mpi(3, 2), 3, 2, id="Open MPI's mpiexec"),
        pytest.param(srun(4, 3), 4, 3, id="srun without PMI"),
        pytest.param(srun(4, 3) | {"PMIX_RANK": "3"}, 4, 3, id="srun with PMIx"),
        pytest.param(srun(4, 3) | hydra(4, 3), 4, 3, id="srun with PMI2"),
        pytest.param(SCRIPT, 1, 0, id="plain in a batch script"),
        pytest.param(SCRIPT | {"SLURM_STEP_NUM_TASKS": "1"}, 1, 0, id="plain in an interactive step"),
        pytest.param(SCRIPT | hydra(4, 2), 4, 2, id="mpiexec in a batch script"),
        pytest.param(srun(2, 1) | hydra(4, 2), 4, 2, id="mpiexec that reaches its nodes by srun"),
        pytest.param(srun(4, 0) | hydra(1, 0), 1, 0, id="mpiexec of one inside a larger step"),
        pytest.param(srun(4, 2) | hydra(1, 0), 1, 0, id="the same in a later task: it speaks for itself"),
        pytest.param(srun(4, 2) | open_mpi(2, 1), 2, 1, id="Open MPI's mpiexec inside a larger step"),
        pytest.param(srun(4, 2) | hydra(4, 2) | open_mpi(1, 0), 1, 0, id="the same where srun speaks PMI2"),
        pytest.param(flux_run(4, 3), 4, 3, id="flux run without PMI"),
        pytest.param(flux_run(4, 2) | hydra(4, 2), 4, 2, id="flux run with PMI"),
        pytest.param(flux_run(4, 2) | hydra(1, 0), 1, 0, id="mpiexec of one inside a task of flux run"),
        pytest.param(hydra(3, 1) | open_mpi(1, 0), 3, 1, id="two mpiexecs: the larger, which is refused if wrong"),
        pytest.param({"PMI_SIZE": "many", "PMI_RANK": "first"}, 1, 0, id="no numbers"),
    ],
)
def test_the_innermost_launcher_counts(environment: dict[str, str], processes: int, this: int) -> None:
    assert started(environment)[:2] == (processes, this)


def test_tasks_that_nothing_connects_are_told_what_does() -> None:
    assert "flux run -o pmi=simple" in launchers.alone(flux_run(2, 1))
    assert "SLURM_MPI_TYPE=pmi2" in launchers.alone(srun(2, 1))
    assert "MPI4PY_LIBMPI" in launchers.alone(hydra(2, 1))


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment without a launcher's variables, to which a test adds."""
    for name in (*launchers.SRUN, *launchers.MPIEXECS[0], *launchers.MPIEXECS[1], launchers.TASK, launchers.SOCKET):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize("task", [0, 3])
@pytest.mark.parametrize("above", [os.getpid, os.getppid], ids=["this process", "a shell around it"])
def test_of_the_tasks_that_srun_has_started_the_first_speaks(
    task: int, above: object, variables: pytest.MonkeyPatch
) -> None:
    process = above()  # type: ignore[operator]
    if process == 1:
        pytest.skip("the shell around it has ended")
    for name, value in (srun(4, task) | {launchers.TASK: str(process)}).items():
        variables.setenv(name, value)
    assert in_task()
    assert speaks() == (task == 0)


def test_a_process_that_has_inherited_a_tasks_variables_speaks_for_itself(variables: pytest.MonkeyPatch) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    for name, value in (srun(4, 3) | {launchers.TASK: str(gone.pid)}).items():
        variables.setenv(name, value)
    assert not in_task()
    assert speaks()


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("parent", ["prterun", "prted", "hydra_pmi_proxy", "python"])
def test_of_the_processes_that_an_mpiexec_has_started_the_first_speaks(
    parent: str, rank: int, variables: pytest.MonkeyPatch
) -> None:
    """And so does one that a rank has started, which has inherited its variables."""
    for name, value in open_mpi(3, rank).items():
        variables.setenv(name, value)
    variables.setattr(launchers, "_program", lambda pid: parent if pid == os.getppid() else "")
    assert speaks() == (rank == 0 or parent == "python")


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        (srun(4, 3), "srun --mpi=pmi2"),
        (srun(4, 3) | {"SLURM_MPI_TYPE": "none"}, "SLURM_MPI_TYPE=pmi2"),
        (srun(4, 3) | {"SLURM_MPI_TYPE": "pmi2"}, "srun --mpi=list"),
        (hydra(4, 3), "MPI4PY_LIBMPI"),
        (open_mpi(4, 3), "mpiexec of this Python's environment"),
    ],
)
def test_the_remedy_of_ranks_that_do_not_find_each_other_is_another_than_what_is_set(
    environment: dict[str, str], named: str
) -> None:
    assert named in alone(environment)
    assert f"--mpi={environment.get('SLURM_MPI_TYPE', 'pmi2')};" not in alone(environment)


@pytest.mark.parametrize("folder", ["codes", "missing"])
def test_a_rank_that_ends_all_leaves_its_exit_code(folder: str, tmp_path: Path) -> None:
    (tmp_path / "codes").mkdir()
    command = [sys.executable, "-c", "from macmpi.parallel.team import Team; Team().abort(75)"]
    env = os.environ | {"MACMPI_EXIT_CODES": str(tmp_path / folder)}
    assert subprocess.run(command, env=env, timeout=60).returncode == 75
    assert [path.name for path in (tmp_path / "codes").iterdir()] == (["75"] if folder == "codes" else [])
