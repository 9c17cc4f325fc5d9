"""A folder is judged here alone, by what its files hold: it has no run, or this one, which has come so far.

A file is the run's own where it holds the run's id; an empty file is nobody's.  Whatever else lies where a run would
write is somebody's, and refused: it is never replaced or removed.  For rank 0 alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from macmpi import UsageError, files, many
from macmpi.config.whole import Config, changes, differences, flat, gone
from macmpi.machine.lock import ELSEWHERE
from macmpi.plan.resolved import Resolved
from macmpi.results import model_file
from macmpi.results.reading import launches
from macmpi.state import MacState, State
from macmpi.training import checkpoint
from macmpi.training.request import Request

CONFIG, PROVENANCE, MODEL = "config.toml", "provenance.json", "model.h5"
NAMES = (CONFIG, PROVENANCE, "curve.jsonl", "start.h5", MODEL, "checkpoints/refit.h5")

REPLACE = "replace it with --overwrite, or name another folder with --output"
OTHERWISE = f"continue it with --resume auto, {REPLACE}"

INPUTS = ("data.source", "start.model", "start.coordinates")
"""Keys that may name a file that the run reads."""


@dataclass(frozen=True)
class Held:
    """A folder holds this.  run: the id of its run, "" where there is none; removed: what --overwrite removes of it.

    found: the checkpoint to go on from, its state and its labels; labels: config and sums of the data of the run.
    finished: says why nothing is left to do, "" where something is.
    """

    run: str = ""
    removed: tuple[Path, ...] = ()
    found: tuple[Path, State[Any], dict[str, Any]] | None = None
    labels: dict[str, Any] = field(default_factory=dict)
    finished: str = ""

    def __str__(self) -> str:
        if self.finished:
            return f"is finished {self.finished}"
        if self.found is not None:
            return f"the run goes on after iteration {self.found[1].iteration}"
        return f"the run begins{' again' if self.run else ''}"


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


def judge(folder: Path, asked: Request, of: Resolved) -> Held:
    """Finds what a folder holds for a run of this config.  Raises UsageError where the run would go wrong there."""
    resume, without_points = asked.resume, of.placement.by_all
    found = None if resume == "auto" else _named(resume, without_points)
    run, there = run_in(folder)
    named = of.settings
    check_inputs(folder, [*asked.inputs, *(Path(named[key]) for key in INPUTS if named[key])], of, run)
    if run and folder / PROVENANCE not in there and (folder / CONFIG).read_bytes() != sealed(of.text, run):
        raise UsageError(_foreign(folder / CONFIG))  # a run that was killed before it wrote the other has this one
    if asked.overwrite:
        return Held(run, tuple(there))
    checkpoints = folder / "checkpoints"
    if resume == "auto":
        found = checkpoint.newest(checkpoints, without_points) if run else None
    elif run and found is None:
        raise UsageError(f"{folder} holds a run already: {OTHERWISE}")
    elif run and found and found[0].resolve().parent != checkpoints.resolve():
        raise UsageError(f"--resume {resume} is no checkpoint of the run that {folder} holds: {OTHERWISE}")
    has_model = folder / MODEL in there and not _is_empty(folder / MODEL)
    labels = _labels(folder) if found is None else found[2]
    saved = _config_in(labels, of)
    if saved is None and (found is not None or has_model):
        raise UsageError(f"{found[0] if found else folder} does not say which config and data it is of: {ELSEWHERE}")
    if saved is not None and (differ := differences(saved, named)):
        raise UsageError(f"cannot resume {folder} with another config: {', '.join(differ)}; use another --output")
    end = _end_of(folder / MODEL) if has_model else {}
    finished = _finished(None if found is None else found[1], end, of)
    if found is None and has_model and not finished:
        raise UsageError(f"{folder} holds a model, but no checkpoint from which its run could go on: {REPLACE}")
    return Held(run, (), found, labels, finished)


def _end_of(path: Path) -> dict[str, Any]:
    """The attributes of a model, which say of which end of a run it is; {} where it is not whole."""
    try:
        return model_file.load(path).attributes
    except UsageError:
        return {}


def _named(resume: str, without_points: bool) -> tuple[Path, State[Any], dict[str, Any]] | None:
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


def _config_in(labels: dict[str, Any], of: Resolved) -> dict[str, Any] | None:
    """The flat config among labels, without keys that have gone at their last default; None where there is none.

    Keys that an earlier version did not have yet are at their defaults, but that no run went on behind full MAC.
    """
    before = flat(Config()) | {"run.finish": of.finishing is None and of.settings["run.finish"]}
    try:
        labels["data_sha256"], labels["start_sha256"]
        return before | {k: v for k, v in dict(json.loads(labels["config"])).items() if gone(k, v) != ""}
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
