"""Launches the program as a user would: with a time limit, and with nothing left behind.

A launch gets a process group of its own and a mark in its environment, by which its ranks are found again wherever
the launcher has put them.
"""

from __future__ import annotations

import glob
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOOK = str(ROOT / "tests" / "hook")
"""In PYTHONPATH it lets MACMPI_FAULT strike (tests/striking.py)."""
MPIEXEC = Path(sys.executable).parent / "mpiexec"
PROGRAM = ("-m", "macmpi.run")
MARK = "MACMPI_TEST_LAUNCH"
LAUNCHER_VARIABLES = ("PMI", "OMPI_", "PRTE_", "PMIX_", "MPI_LOCAL", "HYDRA_", "HYDI_", "SLURM_", "MPIR_CVAR_", "FI_")
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
"""What Open MPI wants as root and with more ranks than cores; MPICH does not look at it."""


@dataclass(frozen=True)
class Launcher:
    """What an mpiexec does of its own accord, whatever the program.

    passes_on: signals of which it tells the ranks, and then ends with their code; of others it ends at once, with
    another one.  needs: without them it starts nothing.  removes: the ranks' shared memory, which therefore outlives a
    launcher that is killed too.  words: what it says itself, on standard error, of ranks that have ended in error.
    pmi: how its ranks find each other under srun, which then takes its place.
    """

    passes_on: frozenset[signal.Signals]
    needs: frozenset[str]
    removes: bool
    words: re.Pattern[str]
    pmi: str

    def without_its_words(self, text: str) -> str:
        return self.words.sub("", text)


LAUNCHERS = {
    "mpich": Launcher(
        passes_on=frozenset({signal.SIGUSR1, signal.SIGTERM, signal.SIGINT}),
        needs=frozenset(),
        removes=False,
        words=re.compile(r"(?!)"),
        pmi="pmi2",
    ),
    "openmpi": Launcher(
        passes_on=frozenset({signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU}),
        needs=frozenset({"HOME", "network"}),
        removes=True,
        words=re.compile(r"^-{74}\n(?:(?!-{74}\n).*\n)+-{74}\n|^\[(?:[\w.-]+:\d+|warn)\] .*\n", re.MULTILINE),
        pmi="pmix",
    ),
}
"""docs/reliability.md and docs/clusters.md tell users of these differences."""

LAUNCHER = LAUNCHERS["openmpi" if MPIEXEC.with_name("prterun").exists() else "mpich"]
"""The one of this environment; Intel's is MPICH's."""

THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")

LIMIT = 60.0
"""Seconds that a launch may take before the test calls it hung: no launch here needs more than a few."""


@dataclass(frozen=True)
class Outcome:
    """How a launch ended.  err: without what the launcher has said itself; left: the process ids that outlived the
    launcher by more than five seconds; shared: the segments of shared memory that nobody maps any more."""

    code: int
    out: str
    err: str
    left: list[int]
    shared: list[str]


def environment(**changes: str) -> dict[str, str]:
    """One thread a rank, this source tree, and no variable of a launcher that the tests themselves run under."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHER_VARIABLES)}
    env.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    places = [str(ROOT), *([HOOK] if "MACMPI_FAULT" in changes else []), os.environ.get("PYTHONPATH")]
    env["PYTHONPATH"] = os.pathsep.join(filter(None, places))
    env["MACMPI_DATA"] = str(Path(os.environ.get("MACMPI_DATA", "data")).resolve())
    return env | OPEN_MPI | changes


def command(
    arguments: Sequence[object], ranks: int, program: Sequence[object] = PROGRAM, prefix: Sequence[object] = ()
) -> list[str]:
    """ranks = 0: plain Python, without mpiexec.  prefix: what starts the whole line."""
    if ranks and not MPIEXEC.exists():
        pytest.skip(f"no mpiexec next to {sys.executable}: pip install '.[mpich]'")
    start = [MPIEXEC, "-n", ranks] if ranks else []
    return [str(part) for part in (*prefix, *start, sys.executable, *program, *arguments)]


@dataclass
class Running:
    """A launch under way."""

    process: subprocess.Popen[bytes]
    mark: str
    files: tuple[Path, Path]
    before: set[str]
    left: list[int] = field(default_factory=list)

    def pids(self) -> list[int]:
        """The launch's processes that are alive, the launcher among them."""
        found = []
        for path in glob.glob("/proc/[0-9]*/environ"):
            pid = int(path.split("/")[2])
            try:
                with open(path, "rb") as file:
                    marked = f"{MARK}={self.mark}".encode() in file.read()
            except OSError:
                continue
            if marked and pid != os.getpid():
                found.append(pid)
        return sorted(found)

    def ranks(self) -> list[int]:
        """The processes of the ranks: Pythons, and not their launchers."""
        programs = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0] for pid in self.pids()}
        return [pid for pid, program in programs.items() if "python" in Path(os.fsdecode(program)).name]

    def text(self) -> tuple[str, str]:
        out, err = (path.read_text(errors="replace") for path in self.files)
        return out, err

    def until(self, condition: Callable[[], bool], what: str, timeout: float = LIMIT) -> None:
        """Wait for something that the run does."""
        end = time.monotonic() + timeout
        while not condition():
            if self.process.poll() is not None or time.monotonic() > end:
                pytest.fail(f"no {what}; return code {self.process.returncode}\n" + "\n".join(self.text()))
            time.sleep(0.01)

    def outcome(self, timeout: float = LIMIT) -> Outcome:
        """Wait for the end.  A launch that hangs fails the test."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running after {timeout:g} s: {self.process.args}\n" + "\n".join(self.text()))
        self.left = self.gone(5.0)
        out, err = self.text()
        return Outcome(code, out, LAUNCHER.without_its_words(err), self.left, sorted(self.abandoned()))

    def abandoned(self) -> set[str]:
        """New segments of shared memory that nobody maps, at two looks: other launches come and go at the same time."""
        shared = _shared_memory() - self.before
        if shared and (shared := shared - _in_use()):
            time.sleep(0.3)
            shared &= _shared_memory() - _in_use()
        return shared

    def gone(self, timeout: float) -> list[int]:
        """The processes that are still there after `timeout` seconds: none, if all is well."""
        end = time.monotonic() + timeout
        while (alive := self.pids()) and time.monotonic() < end:
            time.sleep(0.05)
        return alive


@contextmanager
def launched(
    arguments: Sequence[object],
    ranks: int,
    cwd: Path,
    program: Sequence[object] = PROGRAM,
    env: dict[str, str] | None = None,
    prefix: Sequence[object] = (),
) -> Iterator[Running]:
    """A launch that is over, with all its processes and its shared memory, when the block ends."""
    line, mark, shared = command(arguments, ranks, program, prefix), uuid.uuid4().hex, _shared_memory()
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder, "out"), Path(folder, "err")
        with files[0].open("wb") as out, files[1].open("wb") as err:
            process = subprocess.Popen(
                line,
                cwd=cwd,
                env=environment(**(env or {})) | {MARK: mark},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        running = Running(process, mark, files, shared)
        try:
            yield running
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            for pid in running.pids():
                _kill(pid)
            if left := _shared_memory() - shared:
                for path in left - _in_use():
                    Path(path).unlink(missing_ok=True)


SEGMENTS = ("/dev/shm/mpich_sh", "/dev/shm/sm_segment")
"""Names of MPICH's segments of shared memory, and of Open MPI's, begin so."""


def _shared_memory() -> set[str]:
    """Killed and aborted runs leave these behind."""
    return {path for start in SEGMENTS for path in glob.glob(f"{start}*")}


def _in_use() -> set[str]:
    """Those that belong to another launch, under way at the same time."""
    found: set[str] = set()
    for path in glob.glob("/proc/[0-9]*/maps"):
        try:
            with open(path) as file:
                found.update(line.split()[5] for line in file if any(start in line for start in SEGMENTS))
        except OSError:
            continue
    return found


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def run_program(
    *arguments: object,
    ranks: int = 0,
    cwd: Path,
    program: Sequence[object] = PROGRAM,
    env: dict[str, str] | None = None,
    timeout: float = LIMIT,
    code: int | None = None,
    prefix: Sequence[object] = (),
) -> Outcome:
    """Launch and wait.  code: the exit code that the test counts on, checked here so that the output is shown."""
    with launched(arguments, ranks, cwd, program, env, prefix) as running:
        outcome = running.outcome(timeout)
    assert code is None or outcome.code == code, (
        f"exit code {outcome.code}, not {code}: {running.process.args}\n{outcome.out}\n{outcome.err}"
    )
    return outcome
