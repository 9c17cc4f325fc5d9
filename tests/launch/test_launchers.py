"""Launchers: the wrong one, none, and one without an MPI library."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from launch.cases import assert_same_run, snapshot, write_case
from launch.here import run_here
from launch.launching import LAUNCHER, run_program

pytestmark = pytest.mark.launch

COUNTS = ["PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"]
RANKS = {"PMI_SIZE": "PMI_RANK", "OMPI_COMM_WORLD_SIZE": "OMPI_COMM_WORLD_RANK", "SLURM_STEP_NUM_TASKS": "SLURM_PROCID"}


@pytest.mark.parametrize("variable", COUNTS)
def test_a_process_alone_in_its_world_names_the_variable_and_the_remedies(variable: str, tmp_path: Path) -> None:
    """What a process sees that an mpiexec of another MPI has started, or none: a later rank may be the only one."""
    write_case(tmp_path, "few")
    before = snapshot(tmp_path)
    env = {variable: "3", RANKS[variable]: "0" if variable.startswith("OMPI") else "2"}
    outcome = run_program("few.toml", cwd=tmp_path, env=env, timeout=50.0, code=2)
    assert outcome.out == ""
    assert len(outcome.err.splitlines()) == 1
    remedies = ("srun --mpi=pmi2",) if variable.startswith("SLURM") else ("mpiexec", "MPI4PY_LIBMPI")
    for words in (f"{variable} says that 3 processes", *remedies, f"unset {variable}"):
        assert words in outcome.err
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("network", ["up", "down"])
@pytest.mark.every_case
def test_links_between_nodes_decide_nothing_on_one_node(network: str, tmp_path: Path) -> None:
    """A cluster's modules choose a provider and an interface that this MPI does not know; a network may be down, even
    its loopback."""
    write_case(tmp_path, "few")
    env = {"FI_PROVIDER": "psm3", "FI_TCP_IFACE": "hsn0"}
    prefix = ("unshare", "-rn") if network == "down" else ()
    if prefix and subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no network of its own for a process here")
    outcome = run_program("few.toml", "--iterations", 1, ranks=2, cwd=tmp_path, prefix=prefix, env=env)
    starts = network == "up" or "network" not in LAUNCHER.needs
    assert (outcome.code == 0) == (tmp_path / "runs").exists() == starts, outcome.err


def test_ranks_that_are_bound_to_cores_share_those_of_their_launcher(tmp_path: Path) -> None:
    """Two ranks, each bound to a core of its own: together they have what mpiexec has."""
    bound = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"
    asked = "from macmpi.parallel.launchers import cores; os.write(1, b'%d\\n' % cores())"
    for prefix, many in (((), len(os.sched_getaffinity(0))), (("taskset", "-c", min(os.sched_getaffinity(0))), 1)):
        outcome = run_program(ranks=2, cwd=tmp_path, program=("-c", f"{bound}; {asked}"), prefix=prefix, code=0)
        assert outcome.out.split() == [str(many)] * 2


def test_a_rank_that_ends_the_others_leaves_its_exit_code(tmp_path: Path) -> None:
    write_case(tmp_path, "few")
    (tmp_path / "codes").mkdir()
    env = {"MACMPI_FAULT": "1:z:1:exception", "MACMPI_EXIT_CODES": str(tmp_path / "codes")}
    run_program("few.toml", ranks=2, cwd=tmp_path, env=env, code=70)
    assert [path.name for path in (tmp_path / "codes").iterdir()] == ["70"]


@pytest.mark.parametrize(
    ("settings", "fault", "code", "said"),
    [
        (["--set", "model.hiddn=[3]"], "", 2, "model.hiddn"),
        ([], "0:model:1:full", 74, "could not be written"),
        ([], "1:z:2:usr1", 75, "stopped"),
    ],
)
def test_code_and_message_arrive_where_a_launcher_kills_those_that_end_later(
    settings: list[str], fault: str, code: int, said: str, tmp_path: Path
) -> None:
    """srun --kill-on-bad-exit does, and reported 143 without a message."""
    write_case(tmp_path, "autoencoder")
    (tmp_path / "codes").mkdir()
    env = {"MACMPI_TEST_CODES": str(tmp_path / "codes")} | ({"MACMPI_FAULT": fault} if fault else {})
    words = ("autoencoder.toml", "--iterations", 3, *settings)
    outcome = run_program(*words, ranks=2, cwd=tmp_path, program=(Path(__file__).with_name("killing.py"),), env=env)
    codes = [(tmp_path / "codes" / f"code-{rank}").read_text() for rank in range(2)]
    assert codes == [str(code)] * 2, outcome.err
    spoken = [line for line in (outcome.out + outcome.err).splitlines() if said in line and "fault: " not in line]
    assert len(spoken) == 1, spoken


@pytest.fixture
def no_mpi(tmp_path: Path) -> dict[str, str]:
    """An mpi4py that finds no MPI library; rank 0 is the last to see it."""
    (tmp_path / "empty" / "mpi4py").mkdir(parents=True)
    (tmp_path / "empty" / "mpi4py" / "__init__.py").write_text("")
    late = 'import os, time\ntime.sleep("0" in map(os.environ.get, ("PMI_RANK", "OMPI_COMM_WORLD_RANK")))\n'
    (tmp_path / "empty" / "mpi4py" / "MPI.py").write_text(late + 'raise RuntimeError("cannot load MPI library")\n')
    from launch.launching import ROOT

    return {"PYTHONPATH": f"{tmp_path / 'empty'}:{ROOT}"}


def test_without_a_library_the_remedy_is_named_once(no_mpi: dict[str, str], tmp_path: Path) -> None:
    write_case(tmp_path, "few")
    outcome = run_program("few.toml", ranks=2, cwd=tmp_path, env=no_mpi, timeout=50.0, code=2)
    assert len(outcome.err.splitlines()) == 1
    assert "pip install" in outcome.err
    assert not (tmp_path / "runs").exists()


def test_one_process_needs_no_mpi(no_mpi: dict[str, str], tmp_path: Path) -> None:
    """Neither plain Python nor one rank of mpiexec, inside a larger step of Slurm too.

    Their results lie in runs/<name of the config> by default.
    """
    step = {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "2"}
    for name in ("with", "without", "mpiexec"):
        (tmp_path / name).mkdir()
        write_case(tmp_path / name, "few")
    run_here("few.toml", "--iterations", 3, cwd=tmp_path / "with", code=0)
    for name, ranks, env in (("without", 0, no_mpi), ("mpiexec", 1, no_mpi | step)):
        run_program("few.toml", "--iterations", 3, ranks=ranks, cwd=tmp_path / name, env=env, code=0)
    for name in ("without", "mpiexec"):
        assert_same_run(tmp_path / "with" / "runs" / "few", tmp_path / name / "runs" / "few")
