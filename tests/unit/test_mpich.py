"""MPICH's transport and its segments: the user's choice stands, and only segments that nobody maps are left over."""

from __future__ import annotations

import mmap
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from macmpi.parallel import mpi

NETMOD = "MPIR_CVAR_CH4_NETMOD"
ONE_NODE = {"MPI_LOCALNRANKS": "4", "PMI_SIZE": "4"}


def configured(
    monkeypatch: pytest.MonkeyPatch, prefix: Path, environment: dict[str, str], machine: int = 4, found_here: int = 4
) -> dict[str, str]:
    """The environment after `configure` in a Python installed at `prefix`.

    machine: its cores; found_here: those that this rank finds it may use.
    """
    found = dict(environment)
    with monkeypatch.context() as patched:
        patched.setattr(mpi.os, "cpu_count", lambda: machine)
        patched.setattr(mpi, "sharing", lambda: 4 / found_here)
        patched.setattr(mpi.sys, "prefix", str(prefix))
        patched.setattr(mpi.os, "environ", found)
        mpi.configure()
    assert found.pop("UCX_DEBUG_SIGNO") == "0"  # everywhere: a run's SIGHUP is nobody else's
    return found


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A prefix with the library that MPICH's wheel brings."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libmpi.so.12").touch()
    return tmp_path


@pytest.mark.parametrize("environment", [ONE_NODE, {}, {**ONE_NODE, "HOME": "/"}], ids=["ranks", "alone", "other keys"])
def test_the_wheel_on_one_node_gets_its_transport(
    environment: dict[str, str], wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = {"FI_PROVIDER": "psm3", "FI_TCP_IFACE": "hsn0"}  # of a cluster's modules
    for given in (environment, environment | links):
        assert configured(monkeypatch, wheel, given) == {**environment, NETMOD: "ofi", "FI_PROVIDER": "sockets"}


@pytest.mark.parametrize(("machine", "few_rounds"), [(4, False), (2, True)])
def test_ranks_take_the_same_algorithms_whatever_each_finds_of_its_cores(
    machine: int, few_rounds: bool, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launcher's affinity is one core while it looks at the machine: a rank that asked then waited for ever."""
    first, second = (configured(monkeypatch, wheel, ONE_NODE, machine, found_here) for found_here in (4, 1))
    assert first == second
    assert (first.keys() >= mpi.FEW_ROUNDS.keys()) == few_rounds


@pytest.mark.parametrize(
    "environment",
    [
        {**ONE_NODE, NETMOD: "ucx", "FI_PROVIDER": "psm3"},
        {**ONE_NODE, NETMOD: ""},
        {**ONE_NODE, "MPI4PY_LIBMPI": "/opt/libmpi.so"},
        {"MPI_LOCALNRANKS": "2", "PMI_SIZE": "4"},
        {"PMI_SIZE": "4"},
    ],
    ids=["chosen", "chosen empty", "other library", "two nodes", "unknown nodes"],
)
def test_nothing_else_is_changed(environment: dict[str, str], wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert configured(monkeypatch, wheel, environment) == environment


@pytest.mark.parametrize("chosen", [None, "ucx"])
def test_open_mpi_is_kept_from_a_component_that_complains(
    chosen: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"PMIX_RANK": "0"} | ({"OMPI_MCA_osc": chosen} if chosen else {})
    assert configured(monkeypatch, tmp_path, given) == given | {"OMPI_MCA_osc": chosen or "^ucx"}


# --- a library by another name ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chosen", "reason", "named"),
    [
        ("libmpich.so.12", "libmpi.so.12: cannot open shared object file: No such file", "libmpi.so.12"),
        ("libmpi.so.12", "libmpi.so.12: cannot open shared object file: No such file", ""),
        ("libmpich.so.12", "cannot load MPI library", ""),
        ("", "libmpi.so.12: cannot open shared object file: No such file", ""),
        ("missing/libmpich.so.12", "libmpi.so.12: cannot open shared object file: No such file", ""),
    ],
)
def test_a_library_by_another_name_is_to_be_linked_by_the_one_that_is_asked_for(
    chosen: str, reason: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian's MPICH; the user has named a file that is there."""
    path = tmp_path / chosen if chosen else ""
    if chosen and "/" not in chosen:
        Path(path).touch()
    monkeypatch.setenv("MPI4PY_LIBMPI", str(path))
    found = mpi.misnamed(reason)
    assert (f"ln -s {path} ~/mpi/{named}" in found) if named else found == ""


# --- segments ---------------------------------------------------------------------------------------------------------

OTHER_PROCESS = """
import mmap, sys
file = open(sys.argv[1], "r+b")
mapped = mmap.mmap(file.fileno(), 0)
print("mapped", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Path]]:
    """Segments by who maps them: this process, another one, nobody; and a file of another name."""
    monkeypatch.setattr(mpi, "SEGMENTS", str(tmp_path / "mpich_sh"))
    monkeypatch.setattr(mpi, "REMOVED", str(tmp_path / "sm_segment"))
    named = {"own": "mpich_shm_1", "other": "mpich_shar_2", "dead": "mpich_shm_3", "alien": "sem.mpich_sh"}
    found = {who: tmp_path / name for who, name in named.items()}
    for path in found.values():
        path.write_bytes(bytes(mmap.PAGESIZE))
    with ExitStack() as stack:
        file = stack.enter_context(found["own"].open("r+b"))
        stack.enter_context(mmap.mmap(file.fileno(), 0))
        command = [sys.executable, "-c", OTHER_PROCESS, str(found["other"])]
        other = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        assert other.stdout is not None
        assert other.stdout.readline() == "mapped\n"
        yield found


def test_leftovers_are_the_segments_that_no_process_maps(segments: dict[str, Path]) -> None:
    assert mpi.leftovers() == [str(segments["dead"])]
    others = [segments["dead"].with_name(name) for name in ("mpich_shar_0", "sm_segment.host.0.1.0")]
    for path in others:
        path.touch()
    assert mpi.leftovers() == sorted(map(str, [*others, segments["dead"]]))


def test_a_rank_unlinks_what_it_maps_and_nothing_else(segments: dict[str, Path]) -> None:
    for _ in range(2):  # the second time its names are gone
        mpi.unname_shared_memory()
        assert {who for who, path in segments.items() if not path.exists()} == {"own"}
    assert mpi.leftovers() == [str(segments["dead"])]
