"""The runs of a sweep as processes: as many at once as there are cores, each with a console of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from macmpi import UsageError
from macmpi.parallel.clock import now
from macmpi.parallel.launchers import mpiexec
from macmpi.sweep.checked import Run
from macmpi.training.process import StopRequest

CONSOLE = "console.txt"

SAID = "macmpi: "
"""Messages begin with this."""

PAUSE = 0.05
"""Seconds between two looks at the processes."""

UNBOUND = {
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "I_MPI_PIN": "off",
}
"""Each mpiexec would bind its ranks to the first cores, and several of them to the same ones."""


@dataclass(frozen=True)
class Ended:
    """A process has ended: "finished", "stopped" or "failed", with its last words; seconds on the wall clock."""

    run: Run
    state: str
    seconds: float
    words: str = ""


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


def places(ranks: int, threads: int) -> int:
    """Counts the runs that the cores take at once, at least 1."""
    return max(1, cores() // (ranks * threads))


def command(path: Path, run: Run, ranks: int) -> list[str]:
    """The command line of a run.  Raises UsageError where there is no mpiexec for several ranks."""
    program = [sys.executable, "-m", "macmpi.run", str(path), *run.combination.words]
    program += ["--output", str(run.folder), "--resume", "auto"]
    if ranks == 1:
        return program
    launcher = mpiexec()
    if launcher is None:
        raise UsageError(f"--ranks {ranks}: there is no mpiexec here; pip install mpich, or leave out --ranks")
    return [launcher, "-n", str(ranks), *program]


def carry_out(
    lines: Sequence[tuple[Run, list[str]]], jobs: int, stop: StopRequest, ended: Callable[[Ended], None]
) -> bool:
    """Run command lines, `jobs` at once, and tell of each that has ended.  Gives whether all were started.

    Once somebody asks for a stop, all are asked to stop with a checkpoint, and no other is started.  Raises
    KeyboardInterrupt where it is asked for again, and OSError; no process is left behind then.
    """
    waiting, under_way, told = list(lines), list[_Process](), False
    with _none_left(under_way):
        while under_way or (waiting and not stop.asked):
            while waiting and len(under_way) < jobs and not stop.asked:
                under_way.append(_Process(*waiting.pop(0)))
            if stop.asked and not told:
                told = True
                for process in under_way:
                    process.ask_to_stop()
            for process in [one for one in under_way if one.process.poll() is not None]:
                under_way.remove(process)
                ended(process.outcome(told))
            time.sleep(PAUSE)
    return not waiting


@contextmanager
def _none_left(under_way: Sequence[_Process]) -> Iterator[None]:
    try:
        yield
    finally:
        for process in under_way:
            process.kill()


class _Process:
    """A run under way, in a session of its own: Ctrl-C in a terminal goes to the sweep alone, which passes it on."""

    def __init__(self, run: Run, line: Sequence[str]) -> None:
        self.run, self.began = run, now()
        run.folder.mkdir(parents=True, exist_ok=True)
        self.console = run.folder / CONSOLE
        with self.console.open("ab") as console:
            self.before = console.tell()
            self.process = subprocess.Popen(
                line,
                env=UNBOUND | dict(os.environ),
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def ask_to_stop(self) -> None:
        """mpiexec passes this signal on to its ranks."""
        self.process.send_signal(signal.SIGUSR1)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def outcome(self, told: bool) -> Ended:
        """Says how the process has ended.  told: it was asked to stop, and may not have been able to answer yet."""
        code, seconds = self.process.returncode, now() - self.began
        if code == 0:
            return Ended(self.run, "finished", seconds)
        if code == 75 or told:
            return Ended(self.run, "stopped", seconds)
        return Ended(self.run, "failed", seconds, f"exit code {code}: {last_words(self.console, self.before)}")


def last_words(console: Path, before: int) -> str:
    """The last message of a run that failed, else its last line.  before: bytes of the console that are older."""
    try:
        text = console.read_bytes()[before:].decode(errors="replace")
    except OSError:
        text = ""
    lines = [line for line in text.splitlines() if line.strip()] or ["it said nothing"]
    return next((line.removeprefix(SAID) for line in reversed(lines) if line.startswith(SAID)), lines[-1])
