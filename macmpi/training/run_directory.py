"""A run writes all its files into its run directory.  Only rank 0 does so, except for checkpoints.

The files in the directory show whether it holds no run yet or the same run, and how far this run has come.  A file
belongs to the run if it holds the run's id; an empty file belongs to nobody.  If there are other files where the run
would write, they are somebody else's: the run is refused, and never replaces or removes them.
"""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections.abc import Iterable
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

from macmpi import StorageError, UsageError, files, many
from macmpi.config.whole import Config, changes, differences, flat, gone
from macmpi.console import warn
from macmpi.parallel import kernels
from macmpi.parallel.team import Team
from macmpi.plan.plan import Plan
from macmpi.plan.resolved import Resolved
from macmpi.results import model_file
from macmpi.results.reading import launches
from macmpi.state import MacState, State
from macmpi.training import checkpoint
from macmpi.training.lock import ELSEWHERE, Lock, signs
from macmpi.training.request import Request

CONFIG, PROVENANCE = "config.toml", "provenance.json"
NAMES = (CONFIG, PROVENANCE, "curve.jsonl", "start.h5", "model.h5", "checkpoints/refit.h5")

REPLACE = "replace it with --overwrite, or name another folder with --output"
OTHERWISE = f"continue it with --resume auto, {REPLACE}"


class RunDirectory:
    """Is the folder of a run, and finds out what the folder holds for a requested run.

    run: the id of the run.
    sums: SHA-256 of its data, and of the scaling of the model that it begins with, if any.
    `judge` sets these:
    again: whether the folder holds a run.
    removed: the files of that run that --overwrite removes.
    checkpoint: the checkpoint from which the run continues.
    labels: config and data sums of the run in the folder.
    finished: the reason why nothing is left to do.
    Collective: no (rank 0), except for `save`.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.checkpoints = path, path / "checkpoints"
        *_, self.curve, self.start, self.model, self.refit = (path / name for name in NAMES)
        self.lock = Lock(path / "lock")
        self.run, self.sums = files.new_id(), dict[str, str]()
        self.again, self.finished = False, ""
        self.removed: list[Path] = []
        self.checkpoint: checkpoint.Found = None
        self.labels: dict[str, Any] = {}
        self._signs: Any = None

    def judge(self, asked: Request, of: Resolved) -> None:
        """Finds out what the folder holds for a run of this config, and takes the lock if its file exists.

        Raises UsageError if the run could not use the folder: another run is using it, its files belong to another run,
        or it cannot be written to.
        """
        in_the_way = self.lock.take()
        self._signs = signs(files_in(self.path))
        self._find(asked, of)
        if self.finished:
            return
        try:
            if in_the_way:
                raise in_the_way
            for folder in (self.path, self.checkpoints):
                files.check_folder(folder)
        except OSError as error:
            raise self._unwritten(error) from None

    def _find(self, asked: Request, of: Resolved) -> None:
        """Sets the attributes that `judge` promises, by what the files hold.  Raises UsageError."""
        folder, resume, without_points, named = self.path, asked.resume, not of.placement.all_rows, of.settings
        resumed = None if resume == "auto" else _named(resume, without_points)
        run, there = run_in(folder)
        self.run, self.again = run or self.run, bool(run)
        read = filter(None, (named[key] for key in ("data.source", "start.model", "start.coordinates")))
        check_inputs(folder, [*asked.inputs, *map(Path, read)], of, run)
        if run and folder / PROVENANCE not in there and (folder / CONFIG).read_bytes() != sealed(of.text, run):
            raise UsageError(_foreign(folder / CONFIG))  # a run that was killed early has only this file
        if asked.overwrite:
            self.removed = there
            return
        if resume == "auto":
            resumed = checkpoint.newest(self.checkpoints, without_points) if run else None
        elif run and resumed is None:
            raise UsageError(f"{folder} holds a run already: {OTHERWISE}")
        elif run and resumed and resumed[0].resolve().parent != self.checkpoints.resolve():
            raise UsageError(f"--resume {resume} is no checkpoint of the run that {folder} holds: {OTHERWISE}")
        has_model = self.model in there and not _is_empty(self.model)
        labels = _labels(folder) if resumed is None else resumed[2]
        saved = _config_in(labels)
        if saved is None and (resumed is not None or has_model):
            raise UsageError(
                f"{resumed[0] if resumed else folder} does not say which config and data it is of: {ELSEWHERE}"
            )
        if saved is not None and (differ := differences(saved, named)):
            raise UsageError(f"cannot resume {folder} with another config: {', '.join(differ)}; use another --output")
        end = dict[str, Any]()  # the model's attributes, which say how its run ended
        if has_model:
            with suppress(UsageError):  # the model is damaged
                end = model_file.load(self.model).attributes
        self.checkpoint, self.labels = resumed, labels
        self.finished = _finished(None if resumed is None else resumed[1], end, of)
        if resumed is None and has_model and not self.finished:
            raise UsageError(f"{folder} holds a model, but no checkpoint from which its run could go on: {REPLACE}")

    def __str__(self) -> str:
        said = f"the run begins{' again' if self.again else ''}"
        if self.finished:
            said = f"is finished {self.finished}"
        elif self.checkpoint is not None:
            said = f"the run goes on after iteration {self.checkpoint[1].iteration}"
        return f"{self.path}: {said}"

    def _unwritten(self, error: OSError) -> UsageError:
        place = error.filename2 or error.filename or self.path
        move = "move it away or " if isinstance(error, IsADirectoryError | FileExistsError) else ""
        return UsageError(f"cannot write to {place}: {error.strerror}; {move}name another folder with --output")

    def check_data(self, facts: dict[str, Any], source: str) -> None:
        """Notes the sums of this launch's data, and compares them with the sums in the folder.

        facts: the provenance, with these sums.
        source: the name of the data.
        Raises UsageError if the folder's run has other data, or was begun with another model.
        """
        of_another = "is not the model that the run began with, by which its data are scaled; put that back, or"
        changed = f"the data have changed since (data.source = {source!r});"
        for name, why in (("data_sha256", changed), ("start_sha256", f"start.model {of_another}")):
            self.sums[name] = facts[name]
            if self.labels and self.labels[name] != facts[name]:
                raise UsageError(f"cannot resume {self.path}: {why} use another --output")

    def create(self, of: Resolved, facts: dict[str, Any]) -> None:
        """Makes the folder and writes config.toml and provenance.json, which has an entry for each launch.

        Raises UsageError if that fails, or if the folder has changed since `judge`; then only the lock is written.
        """
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            writers = {self.run, files.run_of(self.lock.path)} - {""}
            self.lock.claim(self.run)
            if signs(files_in(self.path)) != self._signs:
                raise UsageError(f"another run has used {self.path} while this one read its data: start it again")
            for folder, run in product((self.path, self.checkpoints), writers):
                for path in folder.glob(f"*.{run}.tmp"):
                    path.unlink()  # from a launch that was killed while it wrote
            config_toml, content = self.path / CONFIG, sealed(of.text, self.run)
            if not os.path.exists(config_toml) or config_toml.read_bytes() != content:
                files.replace_file(config_toml, content, self.run)
            for path in self.removed:
                if path != config_toml:
                    path.unlink()
            log = self.path / PROVENANCE
            text = json.dumps({files.RUN: self.run, "launches": [*launches(log), facts]}, indent=1) + "\n"
            files.replace_file(log, text.encode(), self.run)
        except OSError as error:
            raise self._unwritten(error) from None

    def compare(self, facts: dict[str, Any]) -> str:
        """Writes that the last launch ran on other kernels, so this launch gives other bits; "" if it did not.

        facts: the provenance of this launch.
        """
        *_, last = [{}, *launches(self.path / PROVENANCE)]
        try:
            then, now = ({(kernels.words(f["blas"]), f["arithmetic"]) for f in g["kernels"]} for g in (last, facts))
            was, is_ = (kernels.described(f["kernels"]) for f in (last, facts))
        except (LookupError, TypeError):
            return ""  # from a version that did not record it
        if then == now:
            return ""
        return (
            f"{self.path} was computed on another arithmetic so far ({was}; here {is_}): it goes on, but "
            "not with the bits of a run on one kernel alone"
        )

    def save(self, state: State[Any], plan: Plan, team: Team, last: bool) -> bool:
        """Writes a checkpoint, and tells whether this succeeded; if not, it warns.

        The checkpoint names its config and its data; a run with another config or other data cannot continue from it.

        last: whether it is the last one of the launch; if it fails, StorageError is raised.  Collective: yes.
        """
        of = plan.begun.resolved
        labels = {files.RUN: self.run, "config": json.dumps(of.settings), **self.sums}
        try:
            checkpoint.keeper_of(plan).save(self.checkpoints, state, labels, of.run.keep_checkpoints, team)
            return True
        except StorageError as error:
            if not error.agreed:
                raise
            text = f"the checkpoint of iteration {state.iteration} could not be written: {error}"

        def failed() -> bool:
            if last:
                raise StorageError(f"{text}; {self.remedy()}")
            warn(f"{text}; training goes on")
            return False

        return team.from_root(failed)

    def refit_of(self, of: str) -> checkpoint.Found:
        """Reads the state of a stopped refit; returns None if there is none, or if it belongs to another refit.

        of: as in `keep_refit`.
        """
        try:
            state, labels = checkpoint.read(self.refit)
        except (UsageError, *files.DAMAGE):
            return None
        return (self.refit, state, labels) if labels.get("of") == of else None

    def keep_refit(self, state: State[Any], of: str) -> bool:
        """Writes the state of a stopped refit, and tells whether this succeeded; if not, it warns.

        of: identifies the refit for `refit_of`, by the state of its run and its number of iterations.
        """
        content = files.image(*checkpoint.written(state, {files.RUN: self.run, "of": of}), sealed=True)
        try:
            files.replace_file(self.refit, content, self.run)
        except OSError as error:
            warn(f"{self.refit} could not be written: {error.strerror}; the refit begins again")
            return False
        return True

    def remedy(self) -> str:
        """Writes how the run continues from the newest remaining checkpoint, once its folder can be written to."""
        newest = next((checkpoint.iteration_of(path) for path in checkpoint.saved(self.checkpoints)), None)
        place = "the start" if newest is None else f"iteration {newest}"
        return (
            f"free space in {self.path} (or make it writable), then the same command with --resume auto "
            f"goes on from {place}"
        )


# --- what a folder holds ----------------------------------------------------------------------------------------------


def sealed(text: str, run: str) -> bytes:
    """Makes the content of a run's config.toml, with the run's id and a sum that shows whether somebody edited it."""
    return f"# {run}, {_sum(text)}: edit a copy, for a run takes an edited one for somebody else's\n{text}".encode()


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def files_in(folder: Path) -> list[Path]:
    """Lists the files in a folder that have a name of a run's file, whoever has written them."""
    named = [*(folder / name for name in NAMES), *checkpoint.saved(folder / "checkpoints")]
    return [path for path in named if os.path.lexists(path)]


def _run_of(path: Path) -> str:
    """Returns the id of the run that has written a file; "" if there is none, or if somebody has edited it since."""
    run = files.run_of(path)
    if run and path.name == CONFIG:
        head, _, text = path.read_text(encoding="utf-8", errors="replace").partition("\n")
        return run if _sum(text) in head else ""
    return run


def run_in(folder: Path) -> tuple[str, list[Path]]:
    """Returns the id of the run that a folder holds, from its config.toml, or "", and its `files_in`.

    Raises UsageError if some of these files belong to somebody else.
    """
    there = files_in(folder)
    runs = {path: _run_of(path) for path in there}
    run = runs.get(folder / CONFIG, "")
    others = [path for path in there if (not run or runs[path] != run) and not _is_empty(path)]
    if os.path.lexists(folder / "checkpoints") and not os.path.isdir(folder / "checkpoints"):
        others.append(folder / "checkpoints")
    if others:
        raise UsageError(_foreign(others[0]))
    return run, there


def _foreign(path: Path) -> str:
    said = "is no file of a run in this folder, but somebody else's, edited since, or of an earlier macmpi"
    return f"{path} {said}: {ELSEWHERE}"


def _is_empty(path: Path) -> bool:
    return os.path.isfile(path) and not path.stat().st_size


def check_inputs(folder: Path, inputs: Iterable[Path], of: Resolved | None = None, run: str = "") -> None:
    """Raises UsageError if an input of a run lies where the run would replace it.

    of, run: the run's values and its id; a config.toml that the run would not change may be an input.
    """
    kept = None if of is None else sealed(of.text, run)
    written = [p for p in files_in(folder) if p.name != CONFIG or not os.path.isfile(p) or p.read_bytes() != kept]
    for path in inputs:
        if files.same_file(path, written):
            raise UsageError(
                f"{path} is an input of this run, and lies where it would be replaced: copy it to another place and "
                "name the copy, or name another folder with --output"
            )


def _named(resume: str, without_points: bool) -> checkpoint.Found:
    """Reads the checkpoint that --resume names; "no" names none.  Raises UsageError."""
    if resume == "no":
        return None
    if not os.path.isfile(resume):
        raise UsageError(f"--resume {resume} does not exist, or is no file")
    try:
        return (Path(resume), *checkpoint.read(Path(resume), without_points))
    except files.DAMAGE as error:
        raise UsageError(f"--resume {resume}: {files.first_line(error)}") from None


def _labels(folder: Path) -> dict[str, Any]:
    """Collects the labels of a run without a checkpoint from its config and its last launch; {} if these lack some."""
    try:
        tables = tomllib.loads((folder / CONFIG).read_text(encoding="utf-8"))
        launch = launches(folder / PROVENANCE)[-1]
        config = {f"{table}.{key}": value for table, keys in tables.items() for key, value in keys.items()}
        return {"config": json.dumps(config), **{name: str(launch[name]) for name in ("data_sha256", "start_sha256")}}
    except (OSError, LookupError, TypeError, ValueError, AttributeError):
        return {}


def _config_in(labels: dict[str, Any]) -> dict[str, Any] | None:
    """Reads the flat config from the labels of a checkpoint or run; returns None if there is none.

    Keys that an earlier version did not have have their defaults.  Keys that have been removed since are left out if
    they had their last defaults.
    """
    try:
        labels["data_sha256"], labels["start_sha256"]
        return flat(Config()) | {k: v for k, v in dict(json.loads(labels["config"])).items() if gone(k, v) != ""}
    except (LookupError, TypeError, ValueError, RecursionError):
        return None


def ends(of: Resolved) -> dict[str, Any]:
    """Returns the keys that say when a run ends, except for the number of iterations, which may be raised later."""
    return {k: v for k, v in of.settings.items() if changes(k) == "end" and k != "run.max_iterations"}


def _finished(state: State[Any] | None, end: dict[str, Any], resolved: Resolved) -> str:
    """Says why nothing is left to do; "" if the run may go on.

    state: the state of the newest checkpoint, if there is one.  If full MAC has settled there at the last iteration
        allowed, more iterations go on with steps of all points.
    end: the attributes of the model.
    """
    of = end.get(model_file.MADE_FROM)
    if not of or end.get(model_file.ENDS) != json.dumps(ends(resolved)) or (state and of != state.fingerprint):
        return ""
    iteration, why = (state.iteration, state.finished) if state else (end["iteration"], end["finished"])
    if why == "converged" and not (state and resolved.finishing and isinstance(state.own, MacState)):
        return (
            f"(settled after {many(iteration, 'iteration')}): nothing is left to do; "
            f"{resolved.schedule.longer}, with another --output, trains longer"
        )
    if iteration < resolved.run.max_iterations:
        return ""
    more = "--iterations N with a larger N goes on, " if state else ""
    return f"({many(iteration, 'iteration')}); {more}another --output starts again"
