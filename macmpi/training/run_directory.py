"""The run directory: config.toml, provenance.json, curve.jsonl, start.h5, checkpoints/, model.h5.  For rank 0 alone."""

from __future__ import annotations

import errno
import json
import os
import platform
import subprocess
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import macmpi
from macmpi import StorageError, UsageError, __version__, files
from macmpi.config import RUN_TIME_KEYS, Config, dump, flat
from macmpi.config.gone import gone
from macmpi.console import warn
from macmpi.machine.lock import Lock
from macmpi.parallel import kernels
from macmpi.parallel.allowance import cores
from macmpi.state import State
from macmpi.training import checkpoint

FREE_KEYS = RUN_TIME_KEYS | {"data.source"}
"""These may differ on resume.  Data are told by their content: the same data in another place are the same data."""

SAME_BITS = {"node": "replicated"}
"""Values of parallel.data that give the same bits: a run of one goes on from a run of the other."""

OTHERWISE = "continue it with --resume auto, replace it with --overwrite, or name another folder with --output"


class RunDirectory:
    """One run's folder.  overwrite: the run that it holds already is removed.  Collective: no (rank 0).

    facts: the provenance of this launch, once the folder is made.
    """

    def __init__(self, path: Path, overwrite: bool = False) -> None:
        self.path, self.overwrite = path, overwrite
        self.checkpoints = path / "checkpoints"
        self.curve = path / "curve.jsonl"
        self.start = path / "start.h5"
        self.model = path / "model.h5"
        self.lock = Lock(path / "lock")
        self.facts: dict[str, Any] = {}
        self.own_files = (path / "config.toml", path / "provenance.json", self.curve, self.start, self.model)

    def resume(self, mode: str, config: Config, without_points: bool = False) -> tuple[Path, State[Any], str] | None:
        """The checkpoint to go on from and the sum of its data, or None.  mode: "no", "auto" or a checkpoint's path.

        without_points: as of checkpoint.read.  Raises UsageError when the folder is in use by another run, holds
        one already, or when the config differs.
        """
        self.lock.take()
        found = checkpoint.newest(self.checkpoints, without_points) if mode == "auto" else _named(mode, without_points)
        if mode != "auto" and self._holds_a_run() and not self.overwrite:
            if found is None:
                raise UsageError(f"{self.path} holds a run already: {OTHERWISE}")
            if found[0].resolve().parent != self.checkpoints.resolve():
                raise UsageError(f"--resume {mode} is no checkpoint of the run that {self.path} holds: {OTHERWISE}")
        if found is None:
            return None
        path, state, labels = found
        try:
            saved, sha256 = dict(json.loads(labels["config"])), labels["data_sha256"]
            saved = {key: value for key, value in saved.items() if gone(key, value) != ""}
        except (LookupError, TypeError, ValueError, RecursionError):
            raise UsageError(f"a checkpoint of {self.path} does not say which config and data it is of") from None
        wanted = flat(config)
        differ = sorted(
            k
            for k in saved.keys() | wanted.keys()
            if k not in FREE_KEYS and _meant(k, saved.get(k)) != _meant(k, wanted.get(k))
        )
        if differ:
            now = {k: f"is {wanted[k]!r}" if k in wanted else "has gone" for k in differ}
            pairs = ", ".join(f"{k} (was {saved.get(k)!r}, {now[k]})" for k in differ)
            raise UsageError(f"cannot resume {self.path} with another config: {pairs}; use another --output")
        return path, state, sha256

    def check_data(self, sha256_then: str, sha256: str, config: Config) -> None:
        """Raises UsageError where a checkpoint is of other data."""
        if sha256_then != sha256:
            raise UsageError(
                f"cannot resume {self.path}: the data have changed since (data.source = {config.data.source!r}); "
                "use another --output"
            )

    def _holds_a_run(self) -> bool:
        return any(os.path.isfile(path) for path in self.own_files) or bool(checkpoint.saved(self.checkpoints))

    def create(self, config: Config, facts: dict[str, Any]) -> None:
        """Make the folder and write config.toml and provenance.json (one entry a launch).  Raises UsageError."""
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            self.lock.claim()
            self._remove_partial()
            if self.overwrite:
                self._remove_run()
            for path in (self.curve, self.start, self.model):
                if os.path.isdir(path):
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
            files.replace_file(self.path / "config.toml", dump(config).encode())
            log = self.path / "provenance.json"
            text = json.dumps({"launches": [*_launches(log), facts]}, indent=1) + "\n"
            files.replace_file(log, text.encode())
            self.facts = facts
        except OSError as error:
            place = error.filename2 or error.filename or self.path
            move = "move it away or " if isinstance(error, IsADirectoryError | FileExistsError) else ""
            raise UsageError(
                f"cannot write to {place}: {error.strerror}; {move}name another folder with --output"
            ) from None

    def _remove_partial(self) -> None:
        """Remove the half of a file that a launch has left that was killed while it wrote it.  Under the lock."""
        for path in self.own_files:
            files.partial_of(path).unlink(missing_ok=True)
        checkpoint.remove_partial(self.checkpoints)

    def _remove_run(self) -> None:
        """Remove the files that a run has written, and no others.  Under the lock."""
        for path in self.own_files:
            if os.path.isfile(path) or os.path.islink(path):
                path.unlink()
        for path in checkpoint.saved(self.checkpoints):
            path.unlink()

    def compare(self, facts: dict[str, Any]) -> str:
        """Says that the launch before ran on other kernels, on any ranks; "" where it did not.

        This one goes on, with other bits.
        """
        *_, last = [{}, *_launches(self.path / "provenance.json")]
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

    def save(self, state: State[Any], config: Config, sha256: str, last: bool = False) -> bool:
        """Write a checkpoint; False with a warning where that fails, a StorageError for the last one of a launch."""
        try:
            checkpoint.save(self.checkpoints, state, self.labels(config, sha256), config.run.keep_checkpoints)
        except OSError as error:
            self.failed(state, error.strerror or files.first_line(error), last)
            return False
        return True

    def labels(self, config: Config, sha256: str) -> dict[str, str]:
        """Labels a checkpoint with its run: a run of another config or of other data cannot go on from it."""
        return {"config": json.dumps(flat(config)), "data_sha256": sha256}

    def failed(self, state: State[Any], why: str, last: bool, rank: int = 0) -> None:
        """A checkpoint could not be written: a warning, and a StorageError for the last one of a run."""
        text = f"the checkpoint of iteration {state.iteration} could not be written: {why}"
        if last:
            raise StorageError(f"{text}; {self.remedy()}")
        if rank == 0:
            warn(f"{text}; training goes on")

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

    path = curve = start = model = None

    def __init__(self, made_by: Callable[[], dict[str, Any]]) -> None:
        self._made_by = made_by

    @property
    def facts(self) -> dict[str, Any]:
        """The provenance of this launch."""
        return self._made_by()

    def save(self, state: State[Any], config: Config, sha256: str, last: bool = False) -> bool:
        """There are no checkpoints, and nothing is lost by that."""
        return True

    def remedy(self) -> str:
        """Nothing can fail."""
        return ""


def stamp() -> str:
    """The time of day, as provenance and model card have it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def provenance(
    arithmetics: list[dict[str, Any]], threads: int, mpi: tuple[str, str], sha256: str, argv: list[str]
) -> dict[str, Any]:
    """Lists what made a run: versions, machine, arithmetic, MPI (its package and library), data.

    arithmetics: those of all ranks, from `kernels.arithmetics`; later launches are compared with them.
    """
    from importlib import metadata

    bindings, library = mpi
    versions = {"macmpi": __version__, "python": platform.python_version()}
    for name in ("numpy", "scipy", "h5py", bindings, "pydantic"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "none"
    return {
        "started": stamp(),
        "command": [files.readable(word) for word in argv],
        "versions": versions,
        "git_commit": _git_commit(),
        "mpi_library": library,
        "host": platform.node(),
        "machine": platform.machine(),
        "cores": cores(),
        "kernels": arithmetics,
        "ranks": sum(len(one["ranks"]) for one in arithmetics),
        "threads": threads,
        "data_sha256": sha256,
    }


def _named(mode: str, without_points: bool) -> tuple[Path, State[Any], dict[str, Any]] | None:
    """The checkpoint that --resume names is read; "no" names none.  Raises UsageError."""
    if mode == "no":
        return None
    if not os.path.isfile(mode):
        raise UsageError(f"--resume {mode} does not exist, or is no file")
    try:
        return (Path(mode), *checkpoint.read(Path(mode), without_points))
    except files.DAMAGE as error:
        raise UsageError(f"--resume {mode}: {files.first_line(error)}") from None


def _meant(key: str, value: Any) -> Any:
    """Says what a key's value means for the bits of a run."""
    return SAME_BITS.get(value, value) if key == "parallel.data" else value


def _launches(log: Path) -> list[Any]:
    """The entries of a provenance.json; none, with a warning, where it is damaged."""
    if not os.path.exists(log):
        return []
    try:
        return list(json.loads(log.read_text(encoding="utf-8"))["launches"])
    except (ValueError, LookupError, TypeError):
        warn(f"{log} is damaged and begins again")
        return []


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
