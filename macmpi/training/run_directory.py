"""The run directory, in which a run writes all that it leaves behind.  For rank 0 alone, checkpoints apart.

It is judged by what its files hold: it has no run, or this one, which has come so far.  A file is the run's own where
it holds the run's id; an empty file is nobody's.  Whatever else lies where a run would write is somebody's, and
refused: it is never replaced or removed.
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
from macmpi.training.checkpoint import Found, keeper_of
from macmpi.training.lock import ELSEWHERE, Lock, signs
from macmpi.training.request import Request

CONFIG, PROVENANCE = "config.toml", "provenance.json"
NAMES = (CONFIG, PROVENANCE, "curve.jsonl", "start.h5", "model.h5", "checkpoints/refit.h5")

REPLACE = "replace it with --overwrite, or name another folder with --output"
OTHERWISE = f"continue it with --resume auto, {REPLACE}"


class RunDirectory:
    """One run's folder, and what it holds for the run that is asked for.  Collective: no (rank 0), but for `save`.

    run: the id of the run; sums: SHA-256 of its data, and of the scaling where it begins with a model, which has a say
    in it.  Once it is judged: again: it holds a run; removed: what --overwrite removes of that; checkpoint: the
    checkpoint to go on from; labels: config and sums of the data of the run; finished: says why nothing is left to do.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.checkpoints = path, path / "checkpoints"
        *_, self.curve, self.start, self.model, self.refit = (path / name for name in NAMES)
        self.lock = Lock(path / "lock")
        self.run, self.sums = files.new_id(), dict[str, str]()
        self.again, self.finished = False, ""
        self.removed: list[Path] = []
        self.checkpoint: Found = None
        self.labels: dict[str, Any] = {}
        self._signs: Any = None

    def judge(self, asked: Request, of: Resolved) -> None:
        """Finds what the folder holds for a run of this config, under the lock if it is there.

        Raises UsageError where the run would go wrong there, as where another one is using the folder, or what is to be
        written there could not be.
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
        """Finds by what the files hold what `judge` promises.  Raises UsageError."""
        folder, resume, without_points, named = self.path, asked.resume, not of.placement.all_rows, of.settings
        resumed = None if resume == "auto" else _named(resume, without_points)
        run, there = run_in(folder)
        self.run, self.again = run or self.run, bool(run)
        read = filter(None, (named[key] for key in ("data.source", "start.model", "start.coordinates")))
        check_inputs(folder, [*asked.inputs, *map(Path, read)], of, run)
        if run and folder / PROVENANCE not in there and (folder / CONFIG).read_bytes() != sealed(of.text, run):
            raise UsageError(_foreign(folder / CONFIG))  # a run that was killed before it wrote the other has this one
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
        end = dict[str, Any]()  # the attributes of a model say of which end of a run it is
        if has_model:
            with suppress(UsageError):  # it is not whole
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
        """Notes the sums of the data of this launch, which are among the facts; source: the name of the data.

        Raises UsageError where the folder's run is of other data, or was begun with another model.
        """
        of_another = "is not the model that the run began with, by which its data are scaled; put that back, or"
        changed = f"the data have changed since (data.source = {source!r});"
        for name, why in (("data_sha256", changed), ("start_sha256", f"start.model {of_another}")):
            self.sums[name] = facts[name]
            if self.labels and self.labels[name] != facts[name]:
                raise UsageError(f"cannot resume {self.path}: {why} use another --output")

    def create(self, of: Resolved, facts: dict[str, Any]) -> None:
        """Makes the folder and writes config.toml and provenance.json (one entry a launch).  Raises UsageError.

        Nothing is written but the lock where the folder has changed since it was judged.
        """
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            writers = {self.run, files.run_of(self.lock.path)} - {""}
            self.lock.claim(self.run)
            if signs(files_in(self.path)) != self._signs:
                raise UsageError(f"another run has used {self.path} while this one read its data: start it again")
            for folder, run in product((self.path, self.checkpoints), writers):
                for path in folder.glob(f"*.{run}.tmp"):
                    path.unlink()  # of a launch that was killed while it wrote
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
        """Says that the launch before ran on other kernels, on any ranks; "" where it did not.

        This one goes on, with other bits.
        """
        *_, last = [{}, *launches(self.path / PROVENANCE)]
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

    def save(self, state: State[Any], plan: Plan, team: Team, last: bool) -> bool:
        """Writes a checkpoint; False with a warning where that fails, a StorageError for the last one of a launch.

        The checkpoint names its config and its data, and a run with another config or other data cannot go on from it.
        Collective: yes.
        """
        of = plan.begun.resolved
        labels = {files.RUN: self.run, "config": json.dumps(of.settings), **self.sums}
        try:
            keeper_of(plan).save(self.checkpoints, state, labels, of.run.keep_checkpoints, team)
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

    def refit_of(self, of: str) -> Found:
        """Gives the state in which a refit was stopped; None where there is none, or it is the refit of another state.

        of: as in `keep_refit`.
        """
        try:
            state, labels = checkpoint.read(self.refit)
        except (UsageError, *files.DAMAGE):
            return None
        return (self.refit, state, labels) if labels.get("of") == of else None

    def keep_refit(self, state: State[Any], of: str) -> bool:
        """Writes the state in which a refit is stopped; where that fails it warns and gives False.

        of: names the state of the run that is refitted, and the iterations, by which `refit_of` knows it.
        """
        content = files.image(*checkpoint.written(state, {files.RUN: self.run, "of": of}), sealed=True)
        try:
            files.replace_file(self.refit, content, self.run)
        except OSError as error:
            warn(f"{self.refit} could not be written: {error.strerror}; the refit begins again")
            return False
        return True

    def remedy(self) -> str:
        """The run goes on from the newest checkpoint that is left, once its folder can be written to."""
        newest = next((checkpoint.iteration_of(path) for path in checkpoint.saved(self.checkpoints)), None)
        place = "the start" if newest is None else f"iteration {newest}"
        return (
            f"free space in {self.path} (or make it writable), then the same command with --resume auto "
            f"goes on from {place}"
        )


# --- what a folder holds ----------------------------------------------------------------------------------------------


def sealed(text: str, run: str) -> bytes:
    """The content of a run's config.toml, with the run's id and a sum by which an edited one is known."""
    return f"# {run}, {_sum(text)}: edit a copy, for a run takes an edited one for somebody else's\n{text}".encode()


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def files_in(folder: Path) -> list[Path]:
    """Lists what lies in a folder where a run writes, whoever has written it."""
    named = [*(folder / name for name in NAMES), *checkpoint.saved(folder / "checkpoints")]
    return [path for path in named if os.path.lexists(path)]


def _run_of(path: Path) -> str:
    """The id of the run that has written a file, and nobody since; "" where there is none."""
    run = files.run_of(path)
    if run and path.name == CONFIG:
        head, _, text = path.read_text(encoding="utf-8", errors="replace").partition("\n")
        return run if _sum(text) in head else ""
    return run


def run_in(folder: Path) -> tuple[str, list[Path]]:
    """The id of the run that a folder holds, that of its config.toml, or "", and what lies where a run writes.

    Raises UsageError where some of that is somebody else's.
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
    """Raises UsageError where an input of a run lies where the run would write.

    of: the run's config; of the same content in config.toml nothing is lost.
    """
    kept = None if of is None else sealed(of.text, run)
    written = [p for p in files_in(folder) if p.name != CONFIG or not os.path.isfile(p) or p.read_bytes() != kept]
    for path in inputs:
        if files.same_file(path, written):
            raise UsageError(
                f"{path} is an input of this run, and lies where it would be replaced: copy it to another place and "
                "name the copy, or name another folder with --output"
            )


def _named(resume: str, without_points: bool) -> Found:
    """The checkpoint that --resume names is read; "no" names none.  Raises UsageError."""
    if resume == "no":
        return None
    if not os.path.isfile(resume):
        raise UsageError(f"--resume {resume} does not exist, or is no file")
    try:
        return (Path(resume), *checkpoint.read(Path(resume), without_points))
    except files.DAMAGE as error:
        raise UsageError(f"--resume {resume}: {files.first_line(error)}") from None


def _labels(folder: Path) -> dict[str, Any]:
    """The labels of a run that has no checkpoint, from its config and its last launch; {} where it does not say."""
    try:
        tables = tomllib.loads((folder / CONFIG).read_text(encoding="utf-8"))
        launch = launches(folder / PROVENANCE)[-1]
        config = {f"{table}.{key}": value for table, keys in tables.items() for key, value in keys.items()}
        return {"config": json.dumps(config), **{name: str(launch[name]) for name in ("data_sha256", "start_sha256")}}
    except (OSError, LookupError, TypeError, ValueError, AttributeError):
        return {}


def _config_in(labels: dict[str, Any]) -> dict[str, Any] | None:
    """The flat config among labels, without keys that have gone at their last default; None where there is none.

    Keys that an earlier version did not have yet are at their defaults.
    """
    try:
        labels["data_sha256"], labels["start_sha256"]
        return flat(Config()) | {k: v for k, v in dict(json.loads(labels["config"])).items() if gone(k, v) != ""}
    except (LookupError, TypeError, ValueError, RecursionError):
        return None


def ends(of: Resolved) -> dict[str, Any]:
    """The keys that say when a run ends, but for the number of iterations, of which a larger one may be wanted."""
    return {k: v for k, v in of.settings.items() if changes(k) == "end" and k != "run.max_iterations"}


def _finished(state: State[Any] | None, end: dict[str, Any], resolved: Resolved) -> str:
    """Says why nothing is left to do; "" where a run with this model has not ended as it is wanted.

    state: of the newest checkpoint, if there is one: where full MAC has settled without an iteration left to go on with
    steps of all points, more iterations do.  end: attributes of the model.
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
