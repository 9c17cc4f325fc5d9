"""The run directory, in which a run writes all that it leaves behind: config.toml, provenance.json, checkpoints, nets.

start.h5 comes before the first iteration, model.h5 with its card after the last.  For rank 0 alone, checkpoints apart.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import macmpi
from macmpi import StorageError, UsageError, __version__, files
from macmpi.console import warn
from macmpi.data.dataset import Dataset
from macmpi.machine.hosts import version_of
from macmpi.machine.lock import Lock, signs
from macmpi.methods.stochastic.method import kept
from macmpi.parallel import kernels
from macmpi.parallel.launchers import cores
from macmpi.parallel.team import Team
from macmpi.plan.plan import Plan
from macmpi.plan.resolved import Resolved
from macmpi.results import model_file
from macmpi.results.card import About, Card, Error, Training, scores_by_name, thinned
from macmpi.results.model import Model
from macmpi.results.reading import launches
from macmpi.results.scores import Labels, Numbers
from macmpi.state import Errors, State
from macmpi.training import checkpoint
from macmpi.training.checkpoint import keeper_of
from macmpi.training.held import CONFIG, PROVENANCE, Held, ends, files_in, judge, sealed
from macmpi.training.request import Request
from macmpi.training.weights import Best, Refit


class RunDirectory:
    """One run's folder.  Collective: no (rank 0), but for `save`.

    run: the id of the run; start_sha256: of the scaling of the points, where the run began with a model, which has a
    say in it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.curve = path / "curve.jsonl"
        self.start = path / "start.h5"
        self.model = path / "model.h5"
        self.refit = self.checkpoints / "refit.h5"
        self.lock = Lock(path / "lock")
        self.run, self.start_sha256 = files.new_id(), ""
        self.held = Held()
        self._signs: Any = None

    def judge(self, asked: Request, of: Resolved) -> None:
        """Finds what the folder holds for a run of this config, as of `held.judge`, under the lock if it is there.

        Raises UsageError, also where another run is using the folder, or what is to be written there could not be.
        """
        in_the_way = self.lock.take()
        self._signs = signs(files_in(self.path))
        self.held = judge(self.path, asked, of)
        self.run = self.held.run or self.run
        if self.held.finished:
            return
        try:
            if in_the_way:
                raise in_the_way
            for folder in (self.path, self.checkpoints):
                files.check_folder(folder)
        except OSError as error:
            raise self._unwritten(error) from None

    def _unwritten(self, error: OSError) -> UsageError:
        place = error.filename2 or error.filename or self.path
        move = "move it away or " if isinstance(error, IsADirectoryError | FileExistsError) else ""
        return UsageError(f"cannot write to {place}: {error.strerror}; {move}name another folder with --output")

    def check_data(self, facts: dict[str, Any], source: str) -> None:
        """Raises UsageError where the run of the folder is of other data, or was begun with another model."""
        of_another = "is not the model that the run began with, by which its data are scaled; put that back, or"
        for name, why in (
            ("data_sha256", f"the data have changed since (data.source = {source!r});"),
            ("start_sha256", f"start.model {of_another}"),
        ):
            if self.held.labels and self.held.labels[name] != facts[name]:
                raise UsageError(f"cannot resume {self.path}: {why} use another --output")

    def create(self, of: Resolved, facts: dict[str, Any]) -> None:
        """Make the folder and write config.toml and provenance.json (one entry a launch).  Raises UsageError.

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
            for path in self.held.removed:
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

    def save(self, state: State[Any], plan: Plan, sha256: str, team: Team, last: bool) -> bool:
        """Write a checkpoint; False with a warning where that fails, a StorageError for the last one of a launch.

        It says of which config and data (sha256) it is: a run of others cannot go on from it.  Collective: yes.
        """
        of = plan.begun.resolved
        sums = {"data_sha256": sha256, "start_sha256": self.start_sha256}
        labels = {files.RUN: self.run, "config": json.dumps(of.settings), **sums}
        try:
            keeper_of(plan).save(self.checkpoints, state, labels, of.run.keep_checkpoints, team)
        except StorageError as error:
            if not error.agreed:
                raise
            text = f"the checkpoint of iteration {state.iteration} could not be written: {error}"
        else:
            return True

        def failed() -> bool:
            if last:
                raise StorageError(f"{text}; {self.remedy()}")
            warn(f"{text}; training goes on")
            return False

        return team.from_root(failed)

    def refit_of(self, of: str) -> tuple[Path, State[Any], dict[str, Any]] | None:
        """The state in which a refit was stopped, if it is the refit of that state of the run."""
        try:
            state, labels = checkpoint.read(self.refit)
        except (UsageError, *files.DAMAGE):
            return None
        return (self.refit, state, labels) if labels.get("of") == of else None

    def keep_refit(self, state: State[Any], of: str) -> bool:
        """Write the state in which a refit is stopped; False with a warning where that fails."""
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


class Nowhere:
    """In the place of a run directory where nothing is to be written."""

    path = curve = start = model = refit = None
    run, held, lock = "", Held(), nullcontext()

    def judge(self, *words: object) -> None:
        """There is no folder."""

    def save(self, *words: object) -> bool:
        """There are no checkpoints, and nothing is lost by that."""
        return True

    def refit_of(self, of: str) -> None:
        """There is none."""

    def keep_refit(self, state: State[Any], of: str) -> bool:
        """It is lost, as nobody wants to go on with it."""
        return True

    def remedy(self) -> str:
        """Nothing can fail."""
        return ""


# --- nets -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class End:
    """The end of a run: its state before and after postprocessing, the best weights, the last errors, a better refit.

    scores: of the best weights at the validation points; records: the learning curve; why: the run ended.  is_whole:
    nothing is left to do, no refit for one.
    """

    state: State[Any]
    after: State[Any]
    best: Best
    errors: Errors
    refit: Refit | None
    scores: Numbers | Labels
    records: list[dict[str, Any]]
    why: str
    is_whole: bool


TOLD = ("data_sha256", "start_sha256", "ranks", "threads", "started")
"""Facts of the provenance that a card has with the data and the training."""


def card_of(plan: Plan, data: Dataset, end: End, facts: dict[str, Any]) -> Card:
    """The card of a run that has ended.  facts: the provenance of its last launch."""
    best, of = end.best, plan.begun.resolved
    errors = {"last": Error.of(end.errors), "best": Error.of(best.errors)}
    training = Training(
        method=of.method.name,
        iterations=end.after.iteration,
        best_iteration=best.iteration,
        constant=best.constant,
        ended=end.why,
        seconds=end.after.seconds,
        ranks=plan.ranks,
        threads=of.run.threads,
        started=str(facts.get("started", "")),
        written=stamp(),
        ridges=end.state.own.architecture.ridges,
    )
    return Card(
        data=About(of.settings["data.source"], data.sha256, plan.n_train, plan.n_val, plan.net.n_in, plan.net.n_out),
        training=training,
        errors=errors | ({"refit": Error(training=end.refit.error)} if end.refit else {}),
        config=of.text,
        scores=scores_by_name(end.scores),
        curve=thinned(end.records, best.iteration),
        machine={name: fact for name, fact in facts.items() if name not in TOLD},
    )


def ended(directory: RunDirectory | Nowhere, plan: Plan, data: Dataset, end: End, facts: dict[str, Any]) -> Model:
    """The trained net, which model.h5 holds where there is a run directory.  Raises StorageError.

    facts: the provenance of this launch.
    """
    best, refit = end.best, end.refit
    weights = {"last": end.after.weights, "best": best.weights} | ({"refit": refit.weights} if refit else {})
    card = card_of(plan, data, end, facts).to_json()
    model = Model.of(plan.chain, weights, data, plan.resolved.loss.link, card, end.records)
    if plan.resolved.stochastic.stream and np.isfinite(end.state.weights).all():
        passes = -(-(end.state.iteration + end.state.under_way) // plan.resolved.stochastic.records)
        points = plan.resolved.before + passes * plan.n_train
        model = replace(model, stream=kept(end.state.weights, end.state.own, points))
    if directory.model is None:
        return model
    labels = {
        **{files.RUN: directory.run, "iteration": end.after.iteration, "finished": end.state.finished},
        **{"E1_train": end.errors.train, "E1_val": end.errors.validation},
        **{"best_E1_train": best.errors.train, "best_E1_val": best.errors.validation},
        "best_iteration": best.iteration,
        model_file.MADE_FROM: end.state.fingerprint if end.is_whole else "",
        model_file.ENDS: json.dumps(ends(plan.begun.resolved)),
        **({"refit_iterations": refit.iterations, "refit_E1": refit.error} if refit else {}),
    }
    try:
        model_file.write(directory.model, model, labels, keeper_of(plan).codes(end.state))
        if end.is_whole:
            directory.refit.unlink(missing_ok=True)
    except OSError as error:
        why = f"{directory.model} could not be written: {error.strerror}"
        raise StorageError(f"{why}; {directory.remedy()}") from None
    return model


def write_start(directory: RunDirectory | Nowhere, plan: Plan, data: Dataset, state: State[Any]) -> None:
    """Writes start.h5, if there is a run directory; a warning where that fails."""
    if directory.start is None:
        return
    model, labels = Model.of(plan.chain, {"last": state.weights}, data, plan.resolved.loss.link), {"iteration": 0}
    try:
        model_file.write(directory.start, model, {files.RUN: directory.run} | labels, keeper_of(plan).codes(state))
    except OSError as error:
        warn(f"{directory.start} could not be written: {error.strerror}; training goes on")


# --- provenance -------------------------------------------------------------------------------------------------------


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
