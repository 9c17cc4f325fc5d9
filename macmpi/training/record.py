"""A run records itself: by lines on the console, its learning curve, its nets with their card, and its provenance.

start.h5 is written before the first iteration, model.h5 with its card after the last.
"""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import macmpi
from macmpi import StorageError, __version__, files, many
from macmpi.console import decimals, duration, say, warn
from macmpi.data.dataset import Dataset
from macmpi.half_steps.method import MethodText
from macmpi.methods.stochastic.method import kept
from macmpi.parallel.launchers import cores
from macmpi.parallel.mpi import BINDINGS
from macmpi.plan.plan import Plan
from macmpi.results import model_file
from macmpi.results.card import About, Card, Error, Training, record_in, scores_by_name, thinned
from macmpi.results.model import Model
from macmpi.results.scores import Labels, Numbers
from macmpi.state import Errors, State
from macmpi.training.checkpoint import keeper_of
from macmpi.training.end import Best, Refit
from macmpi.training.process import version_of
from macmpi.training.run_directory import RunDirectory, ends

Column = tuple[str, str, Callable[[Any], str]]
"""A key of a record, its title, and its cell."""


def _nested(value: float) -> str:
    return f"{decimals(value):>9}"


COLUMNS: tuple[Column, ...] = (
    ("iteration", "iter", "{:>5d}".format),
    ("mu", "mu", "{:>7.0e}".format),
    ("E1_train", "E1 train", _nested),
    ("E1_val", "E1 val", _nested),
    ("error_val", "wrong val", "{:>9.2%}".format),
    ("E_Q", "E_Q", "{:>10.4g}".format),
    ("constraint", "constraint", "{:>10.2e}".format),
    ("zeros", "zeros", "{:>6.1%}".format),
    ("seconds_z", "Z s", "{:>7.2f}".format),
    ("seconds_w", "W s", "{:>7.2f}".format),
    ("seconds_comm", "exch s", "{:>7.3f}".format),
    ("seconds_wait", "wait s", "{:>7.3f}".format),
)


def columns_of(plan: Plan, text: MethodText) -> list[Column]:
    """Chooses the columns that a run needs; some belong only to certain losses and penalties."""
    has = {"error_val": plan.resolved.loss.labels, "zeros": plan.resolved.shaping.sparse}
    return [column for column in COLUMNS if column[0] not in text.without and has.get(column[0], True)]


class Curve:
    """Keeps the records of a run on rank 0, also in curve.jsonl, and prints a line for each; other ranks do nothing.

    path: the file; None: no file is written.
    resume_at: the iteration up to which the file's records are kept, without incomplete lines of a crash.  None: the
        file is begun.
    columns: the columns of the printed table.
    first: whether this is rank 0.
    run: the id of the run, which the first line holds.
    Raises StorageError.  Collective: no.
    """

    def __init__(
        self,
        path: Path | None,
        resume_at: int | None = None,
        columns: Sequence[Column] = (),
        first: bool = True,
        run: str = "",
    ) -> None:
        self._file = None
        self._mark = {files.RUN: run} if run else {}
        self._columns, self._first = columns, first
        self.records: list[dict[str, Any]] = []
        if path is None or not first:
            return
        if resume_at is not None and os.path.exists(path):
            kept = [r for line in path.read_text(errors="replace").splitlines() if (r := record_in(line)) is not None]
            self.records = [r for r in kept if r["iteration"] <= resume_at and r["phase"] != "postprocess"]
        try:
            files.replace_file(path, "".join(map(self._line, self.records)).encode(), run)
            self._file = path.open("a")
        except OSError as error:
            raise StorageError(f"{path} cannot be written: {error.strerror}") from None

    def header(self) -> None:
        """Prints the titles of the table."""
        if self._first:
            titles = "".join(f" {title:>{len(cell(1))}}" for _, title, cell in self._columns)
            say(f"{titles} {'elapsed':>8} {'left <=':>8}")

    def add(self, record: dict[str, Any], left: float | None) -> None:
        """Writes a record to the file and prints its line.

        left: the seconds until the last iteration allowed; None: unknown.
        """
        if not self._first:
            return
        self.records.append(record)
        if self._file is not None:
            try:
                self._file.write(self._line(record))
                self._file.flush()
            except OSError as error:
                warn(f"{self._file.name} cannot be written: {error.strerror}; training goes on")
        cells = "".join(" " + cell(record[key]) for key, _, cell in self._columns)
        rest = duration(left) if left is not None and math.isfinite(left) else "-"
        say(f"{cells} {duration(record['seconds']):>8} {rest:>8}")

    def _line(self, record: dict[str, Any]) -> str:
        """Writes a record as a line of the file; the first line has the id of the run."""
        mark, self._mark = self._mark, {}
        return json.dumps(record | mark) + "\n"

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()


def record_of(state: State, phase: str, errors: Errors) -> dict[str, Any]:
    """Makes the record of a state and its errors, without errors that the loss or the method does not have."""
    norms = errors.gradients
    values = {
        "iteration": state.iteration,
        "phase": phase,
        "mu": state.mu,
        "E1_train": errors.train,
        "E1_val": errors.validation,
        "E_Q": errors.E_Q,
        "constraint": errors.constraint,
        "error_train": errors.wrong_train,
        "error_val": errors.wrong_validation,
        "lagrangian": errors.lagrangian,
        "multiplier": errors.multiplier,
        "zeros": errors.zeros,
        "gradient_E_Q": norms and norms.penalised,
        "gradient_E1": norms and norms.nested,
        "multipliers_lack": norms and norms.lacking,
        "seconds": state.seconds,
    }
    return {name: value for name, value in values.items() if value is not None}


# --- lines of the console ---------------------------------------------------------------------------------------------


def describe(plan: Plan, data: Dataset, ranks: int, text: MethodText) -> str:
    """Writes the first lines on the console: the net, the points, the number of ranks, and the method."""
    chain = plan.net
    sizes = "-".join(str(n) for n in chain.layer_sizes)
    kind = "classifier" if plan.resolved.loss.labels else "autoencoder" if data.autoencoder else "regression"
    line = (
        f"macmpi: {sizes} {kind}, {chain.existing:,} weights, "
        f"{plan.n_train:,} training and {many(plan.n_val, 'validation point')}, {many(ranks, 'rank')}"
    )
    line += f"\n  {plan.in_span}" if plan.in_span else ""
    if plan.has_basis:
        line += "\n  E1 train holds the ridge on the linear weights, as in eq. (6)"
    return f"{line}\n  {text.how}"


def changed(sizes: Iterable[int], record: dict[str, Any]) -> str:
    """Writes the sizes of a net that a selection has changed, and widths and ridges if they are selected."""
    more = [f"{key} {', '.join(f'{v:g}' for v in record[key])}" for key in ("widths", "ridges") if key in record]
    return "; ".join(["-".join(map(str, sizes)), *more])


def closing(
    state: State, errors: Errors, text: MethodText, best: Best, scores: Sequence[str] = (), diverged: bool = False
) -> list[str]:
    """Writes how the run ended, and the model's weights and their scores at the validation points.

    errors: the errors at the end.
    best: the weights of the model, unless a refit replaces them.
    scores: the lines of these scores.
    """
    reason = {"converged": text.settled, "max_iterations": "the last iteration allowed"}
    head = "went wrong" if diverged else "finished"
    why = reason.get(state.finished, state.finished) or "stopped"
    lines = [
        f"{head} ({why}) after {many(state.iteration, 'iteration')}, {duration(state.seconds)} of training",
        f"  {text.end + (', the best' if best.last else ''):28s} E1 {Error.of(errors)}",
    ]
    if best.constant:
        lines.append("  nothing better than a constant was learnt from these points: the model predicts that constant")
    elif not best.last:
        lines.append(f"  {f'the best, iteration {best.iteration}':28s} E1 {Error.of(best.errors)}")
    return lines + [f"  {'' if i else 'validation points':28s} {line}" for i, line in enumerate(scores)]


# --- nets -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class End:
    """Holds the outcome of a run.

    state, after: the state before and after postprocessing.
    best: the best weights of the run.
    errors: the errors of the state after postprocessing.
    refit: the refit, if it is better than the best weights.
    scores: the scores of the best weights at the validation points.
    records: the learning curve.
    why: the reason why the run ended.
    is_whole: whether nothing is left to do, such as a refit.
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
"""Facts of the provenance that a card does not repeat, since its data and training have them."""


def card_of(plan: Plan, data: Dataset, end: End, facts: dict[str, Any]) -> Card:
    """Makes the card of a run that has ended.  facts: the provenance of its last launch."""
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


def ended(directory: RunDirectory | None, plan: Plan, data: Dataset, end: End, facts: dict[str, Any]) -> Model:
    """Makes the trained net, and writes it to model.h5 if there is a run directory.

    facts: the provenance of this launch.
    Raises StorageError.
    """
    best, refit = end.best, end.refit
    weights = {"last": end.after.weights, "best": best.weights} | ({"refit": refit.weights} if refit else {})
    card = card_of(plan, data, end, facts).to_json()
    model = Model.of(plan.chain.net, weights, data, plan.resolved.loss.link, card, end.records)
    if plan.resolved.stochastic.stream and np.isfinite(end.state.weights).all():
        passes = -(-(end.state.iteration + end.state.under_way) // plan.resolved.stochastic.records)
        points = plan.resolved.before + passes * plan.n_train
        model = replace(model, stream=kept(end.state.weights, end.state.own, points))
    if directory is None:
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


def write_start(directory: RunDirectory | None, plan: Plan, data: Dataset, state: State[Any]) -> None:
    """Writes start.h5, if there is a run directory; warns if that fails."""
    if directory is None:
        return
    model, labels = Model.of(plan.chain.net, {"last": state.weights}, data, plan.resolved.loss.link), {"iteration": 0}
    try:
        model_file.write(directory.start, model, {files.RUN: directory.run} | labels, keeper_of(plan).codes(state))
    except OSError as error:
        warn(f"{directory.start} could not be written: {error.strerror}; training goes on")


# --- provenance -------------------------------------------------------------------------------------------------------


def stamp() -> str:
    """Writes the present date and time in the format of provenance and model card."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def provenance(
    arithmetics: list[dict[str, Any]], threads: int, library: str, sums: dict[str, str], argv: Sequence[str]
) -> dict[str, Any]:
    """Collects the facts on which a run's numbers depend: versions, machine, arithmetic, the library of MPI, data.

    arithmetics: the arithmetic of each rank, from `kernels.arithmetics`; later launches are compared with them.
    threads: the number of BLAS threads.
    library: the MPI library.
    sums: SHA-256 of the data, by name.
    argv: the words of the command.
    """
    packages = ("numpy", "scipy", "h5py", BINDINGS, "pydantic")
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
    """Returns the commit of the source tree that runs, if it is a git checkout."""
    root = Path(macmpi.__file__).resolve().parent.parent
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    with suppress(OSError, subprocess.CalledProcessError):
        if os.path.exists(root / ".git"):
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return None
