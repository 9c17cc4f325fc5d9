"""A run writes its nets: start.h5 before the first iteration, model.h5 with its card after the last.  For rank 0."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from macmpi import StorageError
from macmpi.console import warn
from macmpi.data.dataset import Dataset
from macmpi.files import RUN
from macmpi.plan.plan import Plan
from macmpi.results import model_file
from macmpi.results.card import About, Card, Error, Training, scores_by_name, thinned
from macmpi.results.model import Model
from macmpi.results.scores import Labels, Numbers
from macmpi.state import Errors, State
from macmpi.training.best import Best
from macmpi.training.held import ends
from macmpi.training.refit import Refit
from macmpi.training.run_directory import Nowhere, RunDirectory, stamp
from macmpi.typing import Array


@dataclass(frozen=True)
class End:
    """The end of a run: its state before and after postprocessing, the best weights, the last errors, the refit.

    scores: of the best weights at the validation points; records: the learning curve; why: the run ended.  is_whole:
    nothing is left to do, no refit for one.
    """

    state: State[Any]
    after: State[Any]
    best: Best
    errors: Errors
    again: Refit | None
    scores: Numbers | Labels
    records: list[dict[str, Any]]
    why: str = ""
    is_whole: bool = True


TOLD = ("data_sha256", "start_sha256", "ranks", "threads", "started")
"""Facts of the provenance that a card has with the data and the training."""


def card_of(plan: Plan, data: Dataset, end: End, facts: dict[str, Any]) -> Card:
    """The card of a run that has ended.  facts: the provenance of its last launch.  Collective: no (rank 0)."""
    best, refit, of = end.best, end.again, plan.begun.resolved
    errors = {"last": _error(end.errors), "best": _error(best.errors)}
    if refit is not None and refit.better:
        errors["refit"] = Error(training=refit.error)
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
        data=About(
            of.settings["data.source"], data.sha256, plan.n_train, plan.n_val, plan.chain.n_in, plan.chain.n_out
        ),
        training=training,
        errors=errors,
        config=of.text,
        scores=scores_by_name(end.scores),
        curve=thinned(end.records, best.iteration),
        machine={name: fact for name, fact in facts.items() if name not in TOLD},
    )


def _error(errors: Errors) -> Error:
    wrong = errors.wrong_train, errors.wrong_validation
    return Error(errors.train, errors.validation, *wrong, errors.zeros)


def ended(directory: RunDirectory | Nowhere, plan: Plan, data: Dataset, end: End, facts: dict[str, Any]) -> Model:
    """The trained net, which model.h5 holds where there is a run directory.  Raises StorageError.

    facts: the provenance of this launch.  Collective: no (rank 0).
    """
    refit = {"refit": end.again.weights} if end.again is not None and end.again.better else {}
    weights = {"last": end.after.weights, "best": end.best.weights, **refit}
    card = card_of(plan, data, end, facts).to_json()
    model = Model.of(plan.chain, weights, data, plan.resolved.loss.link, card, end.records)
    write_model(directory, model, plan, end)
    return model


def write_model(directory: RunDirectory | Nowhere, model: Model, plan: Plan, end: End) -> None:
    """Writes model.h5, if there is a run directory.  Raises StorageError.  Collective: no (rank 0)."""
    if directory.model is None:
        return
    best = end.best
    labels = {
        RUN: directory.run,
        **{"iteration": end.after.iteration, "E1_train": end.errors.train, "E1_val": end.errors.validation},
        "best_iteration": best.iteration,
        **{"best_E1_train": best.errors.train, "best_E1_val": best.errors.validation},
        model_file.MADE_FROM: end.state.fingerprint if end.is_whole else "",
        model_file.ENDS: json.dumps(ends(plan.begun.resolved)),
        "finished": end.state.finished,
    }
    if end.again is not None and end.again.better:
        labels |= {"refit_iterations": end.again.iterations, "refit_E1": end.again.error}
    try:
        model_file.save(directory.model, model, labels, _coordinates(plan, end.state))
        if end.is_whole:
            directory.refit.unlink(missing_ok=True)
    except OSError as error:
        why = f"{directory.model} could not be written: {error.strerror}"
        raise StorageError(f"{why}; {directory.remedy()}") from None


def write_start(directory: RunDirectory | Nowhere, plan: Plan, data: Dataset, state: State[Any]) -> None:
    """Writes start.h5, if there is a run directory; a warning where that fails.  Collective: no (rank 0)."""
    if directory.start is None:
        return
    model = Model.of(plan.chain, {"last": state.weights}, data, plan.resolved.loss.link)
    try:
        model_file.save(directory.start, model, {RUN: directory.run, "iteration": 0}, _coordinates(plan, state))
    except OSError as error:
        warn(f"{directory.start} could not be written: {error.strerror}; training goes on")


def _coordinates(plan: Plan, state: State[Any]) -> Array | None:
    """The coordinates that a file of a model keeps: none of sharded points."""
    return None if plan.sharded else state.Z
