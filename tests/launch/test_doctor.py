"""The doctor: a line for each thing that a run needs, a remedy for each that is not well."""

from __future__ import annotations

import py_compile
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from launch.cases import snapshot
from launch.launching import run_program

from macmpi import doctor
from macmpi.doctor import FAULT, FINE, RESERVE, WARNING, Finding, Machine
from macmpi.parallel import kernels
from macmpi.parallel.team import Team

PROGRAM = ("-m", "macmpi.doctor")
LINES = (
    *("MPI", "ranks", "/dev/shm", "HDF5", "kernel", "folder", "locks", "HDF5 file"),
    "start-up",
    *("dgemm", "BLAS threads", "Iallgatherv", "shared arrays"),
)


@pytest.mark.launch
def test_a_page_of_findings(tmp_path: Path) -> None:
    outcome = run_program(ranks=2, cwd=tmp_path, program=PROGRAM, code=0)
    for line in LINES:
        assert len(re.findall(rf"^{line} +({FINE}|{WARNING}) ", outcome.out, re.MULTILINE)) == 1, outcome.out
    assert re.search(r"^HDF5  +ok ", outcome.out, re.MULTILINE)
    assert re.search(r"^HDF5 file +ok ", outcome.out, re.MULTILINE)
    assert re.search(r"^/dev/shm .* MB free for 2 rank", outcome.out, re.MULTILINE)
    assert "microseconds" in outcome.out
    assert "one copy for the ranks of a node works" in outcome.out
    assert snapshot(tmp_path) == {}


@pytest.mark.launch
def test_a_folder_that_cannot_be_written_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outcome = run_program("--output", "file", ranks=2, cwd=tmp_path, program=PROGRAM, code=2)
    assert re.search(r"^folder +FAULT +file\n +-> cannot be written", outcome.out, re.MULTILINE)


@pytest.mark.parametrize(
    ("each", "cores", "kept", "variable", "verdict", "says"),
    [
        (0.5, 2, True, "", FINE, "0.5 s of a core a rank for imports, 24.0 s for 96 ranks on 2 cores"),
        (0.7, 2, True, "", WARNING, "33.6 s for 96 ranks"),
        (0.1, 96, True, "1", FINE, "0.1 s for 96 ranks on 96 cores"),
        (0.1, 96, False, "1", WARNING, "unset PYTHONDONTWRITEBYTECODE"),
        (0.1, 96, False, "", WARNING, "python -m compileall"),
    ],
)
def test_what_a_start_costs(
    each: float, cores: int, kept: bool, variable: str, verdict: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all ranks of the fullest host; sources that are compiled again by every rank are named."""
    monkeypatch.setattr(doctor, "seconds_of_import", lambda: (each, not kept))
    monkeypatch.setenv(doctor.UNWRITTEN, variable)
    found = doctor.start_up([Machine("other", 4, 4, None), Machine("full", 96, cores, None)])
    assert found.verdict == verdict
    assert says in str(found)


def test_sources_that_are_not_compiled_as_they_are_now_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of them it is, where Python may not keep what it has compiled."""
    folder = tmp_path / "tiny_program"
    folder.mkdir()
    sources = [folder / "__init__.py", folder / "part.py", folder / "launch.py"]
    for source, text in zip(sources, ("", "", "import tiny_program.part"), strict=True):
        source.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(doctor, "PROGRAM", "tiny_program.launch")
    monkeypatch.setattr(doctor, "PACKAGE", folder)
    monkeypatch.setenv(doctor.UNWRITTEN, "1")
    assert doctor.seconds_of_import()[1]
    monkeypatch.delenv(doctor.UNWRITTEN)
    assert doctor.seconds_of_import()[1]  # the process that it starts keeps what it has compiled
    assert not doctor.seconds_of_import()[1]
    monkeypatch.setenv(doctor.UNWRITTEN, "1")
    for source in sources:
        assert not doctor.seconds_of_import()[1]
        source.write_text(source.read_text() + "\n# later")
        assert doctor.seconds_of_import()[1]
        py_compile.compile(str(source))


LATER = ("h5py", "scipy.optimize", "scipy.stats", "scipy.sparse", "pandas", "sklearn", "matplotlib")
"""Libraries that no rank needs to start: those that read and write files, and those of single methods."""


def test_a_rank_starts_without_what_it_may_not_need() -> None:
    """Of many ranks on few cores each import is paid for as many times as there are ranks."""
    code = f"import sys, {doctor.PROGRAM}; print([name for name in {LATER} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_a_folder_that_is_not_there_yet_is_judged_by_the_one_above(tmp_path: Path) -> None:
    found = doctor.folder(tmp_path / "new" / "run")
    assert [f.verdict for f in found] == [FINE, FINE, FINE]
    assert str(tmp_path) in found[0].found
    assert list(tmp_path.iterdir()) == []


def test_locks_that_do_nothing_are_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.fcntl, "flock", lambda *arguments: None)
    (tmp_path / "file").write_text("")
    assert doctor.locks(tmp_path / "file").verdict == WARNING


def test_locks_of_one_node_are_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(doctor, "one_node_option", lambda path: "localflock")
    found = doctor.locks(tmp_path / "file")
    assert found.verdict == WARNING
    assert "localflock" in found.found


def test_remains_of_dead_programs_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    left = [f"/dev/shm/mpich_shm_{i}" for i in range(5)]
    monkeypatch.setattr(doctor, "leftovers", lambda: left)
    found = doctor.shared_memory(doctor.machines(Team()))
    assert (found.verdict, found.remedy) == (WARNING, f"rm {' '.join(left)}")


def test_remains_are_named_on_every_node() -> None:
    nodes = [Machine(name, 2, 2, PLENTY, [f"/dev/shm/sm_segment.{name}"]) for name in "abc"]
    found = doctor.shared_memory([Machine("clean", 2, 2, PLENTY), *nodes])
    for node in nodes:
        assert f"rm {node.left[0]} on {node.host}" in found.remedy
        assert f"1 segments of dead programs on {node.host}" in found.found


PLENTY = 1e9


@pytest.mark.parametrize(
    ("second", "verdict", "says"),
    [
        (Machine("b", 48, 48, 48 * RESERVE), FINE, ""),
        (Machine("b", 48, 48, 4.0 * RESERVE), FAULT, "48 ranks on b"),
        (Machine("b", 48, 48, None), WARNING, "not there on b"),
        (Machine("b", 48, 48, PLENTY, ["/dev/shm/mpich_shm_1"]), WARNING, "1 segments of dead programs on b"),
    ],
)
def test_every_node_needs_shared_memory_for_its_own_ranks(second: Machine, verdict: str, says: str) -> None:
    """1,000 ranks in all would ask for more than the first node has free; its own 48 do not."""
    first = Machine("a", 48, 48, 48 * RESERVE)
    found = doctor.shared_memory([first, second, *(Machine(f"c{i}", 48, 48, PLENTY) for i in range(20))])
    assert found.verdict == verdict
    assert says in found.found


def test_a_blas_that_takes_more_cores_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([0.0, 8.0])
    monkeypatch.setattr(doctor.time, "process_time", lambda: next(ticks))
    assert [f.verdict for f in doctor.products(Team())] == [FINE, FAULT]


def held(monkeypatch: pytest.MonkeyPatch, rates: tuple[float, float], names: tuple[str, str]) -> Finding:
    """What is said where a process with OPENBLAS_CORETYPE, and one without it, report these rates and kernels."""
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Slow")

    def report(environment: dict[str, str]) -> dict[str, Any]:
        free = "OPENBLAS_CORETYPE" not in environment
        return {"names": names[free], "arithmetic": names[free], "product": rates[free], "exp": 1.0}

    monkeypatch.setattr(kernels, "measured_with", report)
    return doctor.kernel(Team())


def test_a_variable_that_holds_the_machine_to_a_slower_kernel_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    found = held(monkeypatch, (52.0, 91.0), ("old", "new"))
    assert found.verdict == WARNING
    assert "old, 52 GFLOP/s" in found.found
    assert "without OPENBLAS_CORETYPE it has new, 91 GFLOP/s" in found.remedy
    assert held(monkeypatch, (91.0, 90.0), ("old", "new")).verdict == FINE
    assert held(monkeypatch, (52.0, 91.0), ("new", "new")).verdict == FINE, "a busy machine, and the same kernel"
