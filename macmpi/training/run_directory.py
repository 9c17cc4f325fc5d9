"""The run directory: config.toml, provenance.json, curve.jsonl, start.h5, checkpoints/, model.h5.  For rank 0 alone."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from contextlib import suppress
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import macmpi
from macmpi import StorageError, UsageError, __version__, files
from macmpi.console import warn
from macmpi.machine.hosts import version_of
from macmpi.machine.lock import Lock
from macmpi.parallel import kernels
from macmpi.parallel.launchers import cores
from macmpi.plan.resolved import Resolved
from macmpi.state import State
from macmpi.training import checkpoint
from macmpi.training.held import CONFIG, PROVENANCE, Held, files_in, judge, launches, sealed
from macmpi.training.request import Request


class RunDirectory:
    """One run's folder.  overwrite: the run that it holds already is removed.  Collective: no (rank 0).

    run: the id of the run; start_sha256: of the scaling of the points, where the run began with a model, which has a
    say in it.
    """

    def __init__(self, path: Path, overwrite: bool = False) -> None:
        self.path, self.overwrite = path, overwrite
        self.checkpoints = path / "checkpoints"
        self.curve = path / "curve.jsonl"
        self.start = path / "start.h5"
        self.model = path / "model.h5"
        self.refit = self.checkpoints / "refit.h5"
        self.lock = Lock(path / "lock")
        self.run, self.start_sha256 = files.new_id(), ""
        self.held = Held()
        self._signs: Any = None

    def judge(self, asked: Request, of: Resolved, without_points: bool = False) -> Held:
        """Finds what the folder holds for a run of this config, as of `held.judge`, under the lock if it is there.

        Raises UsageError, also where another run is using the folder.
        """
        self.lock.take()
        self._signs = _signs(self.path)
        self.held = judge(self.path, asked, of, without_points)
        self.run = self.held.run or self.run
        return self.held

    def check_data(self, sha256: str, source: str) -> None:
        """Raises UsageError where the run of the folder is of other data, or was begun with another model."""
        then = self.held.labels or {"data_sha256": sha256, "start_sha256": self.start_sha256}
        if then["data_sha256"] != sha256:
            raise UsageError(
                f"cannot resume {self.path}: the data have changed since (data.source = {source!r}); "
                "use another --output"
            )
        if then["start_sha256"] != self.start_sha256:
            raise UsageError(
                f"cannot resume {self.path}: start.model is not the model that the run began with, by which its data "
                "are scaled; put that back, or use another --output"
            )

    def create(self, of: Resolved, facts: dict[str, Any]) -> None:
        """Make the folder and write config.toml and provenance.json (one entry a launch).  Raises UsageError.

        Nothing is written but the lock where the folder has changed since it was judged.
        """
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            writers = {self.run, files.run_of(self.lock.path)} - {""}
            self.lock.claim(self.run)
            if _signs(self.path) != self._signs:
                raise UsageError(f"another run has used {self.path} while this one read its data: start it again")
            for folder, run in product((self.path, self.checkpoints), writers):
                for path in folder.glob(f"*.{run}.tmp"):
                    path.unlink()  # of a launch that was killed while it wrote
            config_toml, content = self.path / CONFIG, sealed(of.text, self.run)
            if not os.path.exists(config_toml) or config_toml.read_bytes() != content:
                files.replace_file(config_toml, content, self.run)
            for path in self.held.files if self.overwrite else ():
                if path != config_toml:
                    path.unlink()
            log = self.path / PROVENANCE
            text = json.dumps({files.RUN: self.run, "launches": [*launches(log), facts]}, indent=1) + "\n"
            files.replace_file(log, text.encode(), self.run)
        except OSError as error:
            place = error.filename2 or error.filename or self.path
            move = "move it away or " if isinstance(error, IsADirectoryError | FileExistsError) else ""
            raise UsageError(
                f"cannot write to {place}: {error.strerror}; {move}name another folder with --output"
            ) from None

    def compare(self, facts: dict[str, Any]) -> str:
        """Says that the launch before ran on other kernels, on any ranks; "" where it did not.

        This one goes on, with other bits.
        """
        *_, last = [{}, *launches(self.path / "provenance.json")]
        try:
            then, now = ({(kernels.words(f["blas"]), f["arithmetic"]) for f in g["kernels"]} for g in (last, facts))
            was, is_ = (kernels.described(f["kernels"]) for f in (last, facts))
        except (LookupError, TypeError):
            return ""  # of a version that did not say
        if then == now:
            return ""
        return (
            f"{self.path} was computed on another arithmetic so far ({was}; here {is_}): it goes on, but "
            "not with the bits of a run on one kernel alone"
        )

    def save(self, state: State[Any], of: Resolved, sha256: str, last: bool = False) -> bool:
        """Write a checkpoint; False with a warning where that fails, a StorageError for the last one of a launch."""
        try:
            checkpoint.save(self.checkpoints, state, self.labels(of, sha256), of.run.keep_checkpoints)
        except OSError as error:
            return self.failed(state, error.strerror or files.first_line(error), last)
        return True

    def labels(self, of: Resolved, sha256: str) -> dict[str, str]:
        """Labels a checkpoint with its run: a run of another config or of other data cannot go on from it."""
        sums = {"data_sha256": sha256, "start_sha256": self.start_sha256}
        return {files.RUN: self.run, "config": json.dumps(of.settings), **sums}

    def refit_of(self, of: str) -> tuple[Path, State[Any], dict[str, Any]] | None:
        """The state in which a refit was stopped, if it is the refit of that state of the run."""
        try:
            state, labels = checkpoint.read(self.refit)
        except (UsageError, *files.DAMAGE):
            return None
        return (self.refit, state, labels) if labels.get("of") == of else None

    def keep_refit(self, state: State[Any], of: str) -> None:
        """Write the state in which a refit is stopped; a warning where that fails."""
        content = files.image(*checkpoint.written(state, {files.RUN: self.run, "of": of}), sealed=True)
        try:
            files.replace_file(self.refit, content, self.run)
        except OSError as error:
            warn(f"{self.refit} could not be written: {error.strerror}; the refit begins again")

    def failed(self, state: State[Any], why: str, last: bool, rank: int = 0) -> bool:
        """A checkpoint could not be written: False with a warning, and a StorageError for the last one of a run."""
        text = f"the checkpoint of iteration {state.iteration} could not be written: {why}"
        if last:
            raise StorageError(f"{text}; {self.remedy()}")
        if rank == 0:
            warn(f"{text}; training goes on")
        return False

    def remedy(self) -> str:
        """The run goes on from the newest checkpoint that is left, once its folder can be written to."""
        newest = next((checkpoint.iteration_of(path) for path in checkpoint.saved(self.checkpoints)), None)
        place = "the start" if newest is None else f"iteration {newest}"
        return (
            f"free space in {self.path} (or make it writable), then the same command with --resume auto "
            f"goes on from {place}"
        )


class Nowhere:
    """In the place of a run directory where nothing is to be written.  Collective: no (rank 0)."""

    path = curve = start = model = refit = None
    run = ""

    def save(self, state: State[Any], of: Resolved, sha256: str, last: bool = False) -> bool:
        """There are no checkpoints, and nothing is lost by that."""
        return True

    def refit_of(self, of: str) -> None:
        """There is none."""

    def keep_refit(self, state: State[Any], of: str) -> None:
        """It is lost."""

    def remedy(self) -> str:
        """Nothing can fail."""
        return ""


def stamp() -> str:
    """The time of day, as provenance and model card have it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def provenance(
    arithmetics: list[dict[str, Any]], threads: int, mpi: tuple[str, str], sums: dict[str, str], argv: list[str]
) -> dict[str, Any]:
    """Lists what made a run: versions, machine, arithmetic, MPI (its package and library), data.

    arithmetics: those of all ranks, from `kernels.arithmetics`; later launches are compared with them.  sums: SHA-256
    of the data, by name.
    """
    bindings, library = mpi
    packages = ("numpy", "scipy", "h5py", bindings, "pydantic")
    own = {"macmpi": __version__, "python": platform.python_version()}
    return {
        "started": stamp(),
        "command": [files.readable(word) for word in argv],
        "versions": own | {name: version_of(name) or "none" for name in packages},
        "git_commit": _git_commit(),
        "mpi_library": library,
        "host": platform.node(),
        "machine": platform.machine(),
        "cores": cores(),
        "kernels": arithmetics,
        "ranks": sum(len(one["ranks"]) for one in arithmetics),
        "threads": threads,
        **sums,
    }


def _signs(folder: Path) -> list[tuple[Path, int, int, int]]:
    """Tells whether somebody has written what lies where a run writes: inode, size and time of each."""
    found = []
    for path in files_in(folder):
        with suppress(OSError):  # gone meanwhile
            status = os.lstat(path)
            found.append((path, status.st_ino, status.st_size, status.st_mtime_ns))
    return found


@cache
def _git_commit() -> str | None:
    """The commit of the source tree that runs, if it is a git checkout."""
    root = Path(macmpi.__file__).resolve().parent.parent
    if not os.path.exists(root / ".git"):
        return None
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
