"""A launch takes the run's folder, loads the points, finds a checkpoint or a start, and trains."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

from macmpi import Done, NumericalError, UsageError
from macmpi.console import warn
from macmpi.data.dataset import Dataset
from macmpi.data.loading import Source, read_codes
from macmpi.data.scaling import sum_of
from macmpi.methods.starts import Origin
from macmpi.parallel.kernels import arithmetics, mixture
from macmpi.parallel.team import Team, on_root
from macmpi.plan import estimate
from macmpi.plan.plan import Plan
from macmpi.plan.resolved import Resolved
from macmpi.results import model_file
from macmpi.results.model import Model
from macmpi.training.checkpoint import keeper_of
from macmpi.training.loop import DIVERGED, TrainingJob, train
from macmpi.training.record import provenance
from macmpi.training.request import Outcome, Request
from macmpi.training.run_directory import RunDirectory


def launch_training(request: Request, source: Source, plan: Plan, team: Team) -> Outcome:
    """Trains as a request says, in its run directory if it names one.

    Raises UsageError, and Done if nothing is left to do.  Collective: yes.
    """
    of, computed_on = plan.resolved, arithmetics(team)
    directory, keeper = None if request.output is None else RunDirectory(request.output), keeper_of(plan)

    def judged() -> None:
        if directory is not None:
            directory.judge(request, of)
        if directory is None or directory.checkpoint is None:  # a run that goes on has warned before
            source.warn()

    with nullcontext() if directory is None else directory.lock:
        on_root(team, judged)
        if directory is not None:
            keeper.check(directory.path, lambda: directory.checkpoint and directory.checkpoint[0], team)
        data = loaded(plan, source, team)

        def begun() -> tuple[Origin, dict[str, Any]]:
            """Returns the origin of the run and its provenance, on rank 0."""
            facts = provenance(computed_on, of.run.threads, team.library, sums_of(data, of), request.command)
            return prepare(request, directory, plan, data, facts), facts

        origin, facts = on_root(team, begun) or (Origin(), {})
        team.from_root(lambda: name_unread(of))
        state = keeper.handed_out(None if directory is None else directory.checkpoint, team)
        if directory is not None:
            directory.checkpoint = None
        if state is not None and (selected := state.own.architecture).units:
            plan = plan.resized(*selected)
        return train(TrainingJob(request, directory, state, origin, facts), plan, data, team)


def loaded(plan: Plan, source: Source, team: Team) -> Dataset:
    """Loads the points, into memory that the ranks of a node share if the plan says so.  Collective: yes."""
    if estimate.node_bytes(plan):
        team.share_memory(team.from_root(lambda: estimate.node_bytes(plan)))
    return source.load(team, (plan.work.train, plan.work.validation))


def sums_of(data: Dataset, of: Resolved) -> dict[str, str]:
    """Computes SHA-256 of the data, and of their scaling if it comes from the model with which a run begins."""
    begun_with = sum_of((data.scaling_x, data.scaling_y)) if of.start.method == "model" else ""
    return {"data_sha256": data.sha256, "start_sha256": begun_with}


def name_unread(of: Resolved) -> None:
    """Warns in one line of the keys that the run does not read.  Collective: no (rank 0)."""
    if of.unread:
        warn(f"not read, as other keys of this config leave them without a meaning: {', '.join(of.unread)}")


def prepare(
    request: Request, directory: RunDirectory | None, plan: Plan, data: Dataset, facts: dict[str, Any]
) -> Origin:
    """Reads the start of the run or its checkpoint, and makes the folder if what was read fits the run.

    facts: the provenance.
    Raises UsageError; Done if the run has ended; NumericalError if it ended because training went wrong.
    Collective: no (rank 0).
    """
    if directory is None:
        return origin_of(plan, data, request.start)
    directory.check_data(facts, plan.resolved.settings["data.source"])
    if directory.finished:
        card = model_file.load(directory.model).card
        if card is not None and card.training.ended == DIVERGED:
            raise NumericalError(
                f"{directory.path} ended as training went wrong: nothing is left to go on from; change the config, and "
                "name another --output"
            )
        raise Done(f"{directory.path} is finished {directory.finished}")
    origin = origin_of(plan, data, request.start) if directory.checkpoint is None else Origin()
    changed = directory.compare(facts) if directory.checkpoint else ""
    directory.create(plan.resolved, facts)
    if unlike := changed or mixture(facts["kernels"]):
        warn(unlike)
    return origin


def origin_of(plan: Plan, data: Dataset, given: Model | None = None) -> Origin:
    """Reads coordinates or weights for the start from a file, if the config names one.

    given: a model that is used instead of the file.
    Raises UsageError if they do not fit the run.
    """
    keys = plan.resolved.start
    if keys.method == "file":
        return Origin(coordinates=read_codes(Path(keys.coordinates), plan.n_train, plan.chain.site_sizes[0]))
    if keys.method != "model":
        return Origin()
    try:
        model = (given or model_file.load(keys.model)).with_weights(keys.weights)
        if plan.resolved.before:
            last = model.last_for(plan.chain, data)
            return Origin(last["weights"], last=last)
        return Origin(model.weights_for(plan.chain.net, data))
    except UsageError as error:
        name = "start.model" if given else f'start.model = "{keys.model}"'
        raise UsageError(f"{name}: {error}") from None
