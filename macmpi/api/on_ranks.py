"""A fit may start ranks, which read the points from a file in memory; the fit reads the ranks' records as they come."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from macmpi import MacmpiError, NumericalError, StorageError, UsageError, shown
from macmpi.config import Config, dump
from macmpi.console import say, warn
from macmpi.data.dataset import Points
from macmpi.data.gathered import ARGUMENTS, COLUMNS, DECLARED, KEYS, SPARSE
from macmpi.data.series import USUAL
from macmpi.data.wide import SparseRows
from macmpi.parallel.launchers import ITS_OWN_WORDS, mpiexec, of_its_own, started
from macmpi.parallel.mpi import STOPPED
from macmpi.results.card import record_in
from macmpi.results.model import Model
from macmpi.results.model_file import load, save
from macmpi.results.reading import read_curve
from macmpi.training.lock import hold_folder
from macmpi.training.process import ANSWERED, WHY, interruptible
from macmpi.training.request import MOST_RANKS, Callback, Request
from macmpi.training.run_directory import check_inputs
from macmpi.training.time_limit import LEAST

MEMORY = Path("/dev/shm")
"""The folder whose files are kept in memory."""

POINTS = "points.npz"
"""The file in which the ranks find the points."""

PREFIX = "macmpi-fit-"
"""The names of fits' folders begin so."""

POLL = 0.05
"""Seconds between two looks at the files that the ranks write."""

STOP = signal.SIGUSR1
"""The signal that asks the ranks to stop; launchers pass it on."""

ERRORS: dict[int, type[MacmpiError]] = {kind.exit_code: kind for kind in (UsageError, NumericalError, StorageError)}
"""Exit code -> the error for which it stands."""


def fit_on_ranks(launcher: str, ranks: int, config: Config, points: Points | None, request: Request) -> Model:
    """Trains by `mpiexec -n ranks python -m macmpi.run`, and returns the model.

    launcher: the path of mpiexec.
    points: the points; None if the config names them.
    Raises UsageError, or the error with which the run failed.  Collective: no.
    """
    with _folder(points) as folder:
        settled = config
        if points is not None:
            declared = {name: np.array(A.tolist()) for name, A in points.arrays.items() if A.dtype.kind == "O"}
            sparse = [name for name, A in points.arrays.items() if isinstance(A, SparseRows)]
            table = {SPARSE: np.array(sparse, str), DECLARED: np.array([*declared], str)}
            table |= {} if points.columns is None else {COLUMNS: points.columns.as_array()}
            for note in points.columns.notes if points.columns else ():  # the ranks do not have these notes
                warn(note)
            np.savez(folder / POINTS, **(points.arrays | declared | table))
            done = {key: getattr(USUAL, key) for key in KEYS}  # the table has become arrays by these keys
            settled = replace(settled, data=replace(settled.data, source=str(folder / POINTS), **done))
        if request.start is not None:
            save(request.start, folder / "start.h5")
            settled = replace(settled, start=replace(settled.start, model=str(folder / "start.h5")))
        (folder / "fit.toml").write_text(dump(settled), encoding="utf-8")
        output = request.output or folder / "run"
        check_inputs(output, request.inputs)
        command = [launcher, "-n", str(ranks), sys.executable, "-m", "macmpi.run", str(folder / "fit.toml")]
        command += ["--output", str(output), "--when-stopped", "model"] + ["--overwrite"] * request.overwrite
        if request.max_time < float("inf"):
            command += ["--max-time", f"{max(request.max_time, LEAST)}"]
        curve = Tail(output / "curve.jsonl", since=(folder / "fit.toml").stat().st_mtime_ns)
        return _outcome(_follow(command, folder, curve, request.callback), folder, output)


def launcher_of(ranks: int, comm: Any) -> str:
    """Returns the path of the launcher.  Raises UsageError if the ranks cannot be started, or comm is given."""
    if comm is not None:
        raise UsageError("ranks starts processes, and comm names those that there are: give one of them")
    if isinstance(ranks, bool) or not isinstance(ranks, int | np.integer) or not 1 <= ranks <= MOST_RANKS:
        raise UsageError(f"ranks = {shown(ranks)}: a number of processes from 1 to {MOST_RANKS:,} is needed")
    count, _, name = started(os.environ)
    if count > 1:
        told = f"is one of {count} that were launched together: leave ranks out, or unset {name} if it is not"
        raise UsageError(f"ranks starts processes of its own, and this one {told}")
    found = mpiexec()
    if found is None:
        raise UsageError("ranks: there is no mpiexec; install an MPI, as by: pip install 'macmpi[mpich]'")
    return found


@contextmanager
def _folder(points: Points | None) -> Iterator[Path]:
    """Makes a folder, in memory if there is space for the points, that is removed however this process ends.

    This process holds its lock as long as it lives.
    """
    arrays = (points.arrays if points else {}).values()
    needed = 1.1 * sum(A.dtype.itemsize * np.prod(A.shape) for A in arrays) + 2**20
    where = MEMORY if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 2.0 * needed else None
    for place in (MEMORY, Path(tempfile.gettempdir())):  # the second is used if there is no space in memory
        remove_abandoned(place)
    folder, held = _new_folder(where)
    words = [sys.executable, "-m", "macmpi.api.cleaner", str(os.getpid()), str(folder)]
    cleaner = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if held is not None:
            os.close(held)
        cleaner.kill()
        cleaner.wait()


def _new_folder(where: Path | None) -> tuple[Path, int | None]:
    """Makes a folder and locks it, again if another fit has removed it before it was locked (`remove_abandoned`)."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=where))
        held = hold_folder(folder)
        if os.path.exists(folder):
            return folder, held
        if held is not None:
            os.close(held)


def remove_abandoned(where: Path) -> None:
    """Removes folders of this user's fits that were killed together with all their processes: no process locks these.

    It removes them whatever files they have, since a fit may have been killed while it made or removed its folder.
    Collective: no.
    """
    for path in where.glob(f"{PREFIX}*"):
        with suppress(OSError):
            if path.lstat().st_uid == os.getuid() and (held := hold_folder(path, wait=False)) is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(held)


@dataclass
class Tail:
    """Reads a growing file: `lines` returns the lines that were added since it was last called.

    path: the path of the file.
    at: the number of bytes that have been read.
    since: a time in ns; a file that was last changed before this time is old, and will be replaced.
    """

    path: Path
    at: int = 0
    since: int = 0

    def lines(self) -> list[str]:
        """Returns the new whole lines; none if the file does not exist yet."""
        try:
            with self.path.open("rb") as file:
                if os.fstat(file.fileno()).st_mtime_ns < self.since:
                    return []
                file.seek(self.at)
                text = file.read()
        except OSError:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self.at += len(whole)
        return whole.decode(errors="replace").splitlines()


def _follow(command: list[str], folder: Path, curve: Tail, callback: Callback | None) -> int:
    """Runs the command of the ranks, prints their lines, and returns their exit code.

    A first Ctrl-C asks the ranks to stop, and so does a true answer of the callback.

    folder: the folder of the fit.
    curve: the learning curve that they write; each of its records goes to the callback.
    """
    out, err, why = Tail(folder / "out"), folder / "err", folder / "why"
    alone = of_its_own(os.environ) | {WHY: str(why)}
    with out.path.open("wb") as stdout, err.open("wb") as stderr, interruptible() as wish:
        process = subprocess.Popen(
            command, stdout=stdout, stderr=stderr, stdin=subprocess.DEVNULL, env=alone, start_new_session=True
        )
        told = False
        try:
            while True:
                ended = process.poll() is not None
                for line in out.lines():
                    if not line.startswith(f"model: {folder}"):  # this file is gone when the fit has ended
                        say(line)
                for record in filter(None, map(record_in, curve.lines())):
                    if callback and callback(record):
                        wish.why = wish.why or ANSWERED
                if ended:  # the signal may have come before the ranks could handle it
                    return STOPPED if told and process.returncode not in (0, *ERRORS) else process.returncode
                if wish.why and not told:
                    why.write_text(wish.why)
                    process.send_signal(STOP)
                    told = True
                with suppress(subprocess.TimeoutExpired):
                    process.wait(POLL)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def _outcome(code: int, folder: Path, output: Path) -> Model:
    """Returns the model that the ranks have written; if there is none, raises the error with which they ended.

    code: their exit code.
    folder: the folder of the fit, where their errors were written.
    output: the run directory.
    """
    said = (folder / "err").read_text(encoding="utf-8", errors="replace").strip()
    said = said.replace(f'data.source = "{folder / POINTS}"', ARGUMENTS).replace(str(folder / POINTS), ARGUMENTS)
    began, kept = (folder / "fit.toml").stat().st_mtime_ns, output / "model.h5"  # not the model of an earlier run
    if code in (0, 70, STOPPED) and os.path.exists(kept) and kept.stat().st_mtime_ns >= began:
        for line in said.splitlines():
            if line.startswith("macmpi: "):
                warn(line.removeprefix("macmpi: "))
        return replace(load(kept), history=read_curve(output / "curve.jsonl")[0])
    if code == STOPPED:
        raise MacmpiError("the ranks were stopped before there was a model")
    own = said[said.rfind("macmpi: ") :].removeprefix("macmpi: ") if "macmpi: " in said else said
    own = ITS_OWN_WORDS.split(own)[0].rstrip() or said
    raise ERRORS.get(code, MacmpiError)(own or f"the ranks ended with exit code {code}")
