"""From a plan to training: the folder is taken, the points are loaded, and a checkpoint or a start is found."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from macmpi import Done, NumericalError, UsageError
from macmpi.config import Config
from macmpi.config.ignored import ignored
from macmpi.config.resized import resized
from macmpi.console import warn
from macmpi.data.dataset import Dataset, Sizes, share_arrays
from macmpi.data.source import Source
from macmpi.data.user_file import read_codes
from macmpi.methods.starts import Origin
from macmpi.parallel.kernels import arithmetics, mixture, words
from macmpi.parallel.mpi import BINDINGS
from macmpi.parallel.team import Team, on_root
from macmpi.plan.choices import longer
from macmpi.plan.estimate import node_bytes, selecting
from macmpi.plan.plan import Plan, make_plan
from macmpi.results import model, model_file
from macmpi.state import State
from macmpi.training.decided import Decided
from macmpi.training.loop import DIVERGED, Job, train
from macmpi.training.request import Outcome, Request
from macmpi.training.run_directory import Nowhere, RunDirectory, provenance
from macmpi.training.sharded_checkpoint import check_same_checkpoint, check_same_folder, rows_of
from macmpi.training.stored import rows_of_points, with_rows

Found = tuple[Path, State[Any], str] | None
"""A checkpoint, its state, and the sum of its data."""


def launch_training(request: Request, known: Decided, plan: Plan, team: Team) -> Outcome:
    """Train as it is asked for.  Raises UsageError, and Done where nothing is left to do.  Collective: yes."""
    config, source, sizes = known.config, known.source, known.sizes
    computed_on = arithmetics(team)
    arithmetic = words(computed_on[0]["blas"])
    if request.output is None:
        data = loaded(config, plan, source, sizes, team)
        first = on_root(team, lambda: origin_of(config, plan, data, request.start)) or Origin()
        team.from_root(lambda: name_ignored(config))
        mpi = BINDINGS, team.library
        made_by = partial(provenance, computed_on, config.run.threads, mpi, data.sha256, list(request.command))
        return train(Job(config, request, Nowhere(made_by), None, first, arithmetic), plan, data, team)
    directory = RunDirectory(request.output, request.overwrite)
    with directory.lock:
        found: Found = on_root(team, lambda: directory.resume(request.resume, config, plan.sharded))
        if plan.sharded:
            check_same_folder(request.output, team)
            if path := team.from_root(lambda: found and found[0]):
                check_same_checkpoint(path, team)
        data = loaded(config, plan, source, sizes, team)
        mpi = BINDINGS, team.library
        facts = partial(provenance, computed_on, config.run.threads, mpi, data.sha256, list(request.command))
        origin = on_root(team, lambda: prepare(directory, found, config, plan, data, facts, request.start)) or Origin()
        team.from_root(lambda: name_ignored(config))
        state = state_of(found, plan, team)
        found = None
        if state is not None and (selected := state.own.architecture).units:
            plan = make_plan(resized(config, *selected), *sizes.counts, team.size)
        return train(Job(config, request, directory, state, origin, arithmetic), plan, data, team)


def loaded(config: Config, plan: Plan, source: Source, sizes: Sizes, team: Team) -> Dataset:
    """The points, in memory that the ranks of a node share where the plan wants that.  Collective: yes."""
    if plan.per_node:
        team.share_memory(team.from_root(lambda: node_bytes(plan, sizes.autoencoder, selecting(config))))
    return source.load(team, (plan.work.train, plan.work.validation))


def name_ignored(config: Config) -> None:
    """One line about keys that the run does not read.  Collective: no (rank 0)."""
    if keys := ignored(config):
        warn(f'method.name = "{config.method.name}" does not read {", ".join(keys)} in this config')


def prepare(
    directory: RunDirectory,
    found: Found,
    config: Config,
    plan: Plan,
    data: Dataset,
    facts: Callable[[], dict[str, Any]],
    given: model.Model | None = None,
) -> Origin:
    """Finds what the run starts from.  The folder is made once the checkpoint may go on, or the start fits.

    facts: the provenance; given: as of `origin_of`.  Raises UsageError, and where the run has ended Done, or
    NumericalError if it went wrong.
    Collective: no (rank 0).
    """
    if found is not None:
        _, state, sha256 = found
        directory.check_data(sha256, data.sha256, config)
        ended = state.finished == "converged" or state.iteration >= config.run.max_iterations
        if ended and model_file.is_made_from(directory.model, state):  # --iterations reopens only the latter
            card = model_file.load(directory.model).card
            if card is not None and card.training.ended == DIVERGED:
                raise NumericalError(
                    f"{directory.path} ended after {state.iteration} iterations as training went wrong: nothing is "
                    "left to go on from; change the config, and name another --output"
                )
            raise Done(f"{directory.path} is finished {_nothing_left(state, config)}")
    origin = origin_of(config, plan, data, given) if found is None else Origin()
    made_by = facts()
    changed = directory.compare(made_by) if found else ""
    directory.create(config, made_by)
    if unlike := changed or mixture(made_by["kernels"]):
        warn(unlike)
    return origin


def _nothing_left(state: State[Any], config: Config) -> str:
    """A finished run has settled, or has come to its last iteration, which --iterations can move."""
    if state.finished == "converged":
        return (
            f"(settled after {state.iteration} iterations): nothing is left to do; "
            f"{longer(config)}, with another --output, trains longer"
        )
    return f"({state.iteration} iterations); --iterations N with a larger N goes on, another --output starts again"


def origin_of(config: Config, plan: Plan, data: Dataset, given: model.Model | None = None) -> Origin:
    """Reads what the start takes from a file, if the config asks for one.  Raises UsageError when it does not fit.

    given: the model in the place of a file.
    """
    if config.start.method == "file":
        return Origin(coordinates=read_codes(Path(config.start.coordinates), plan.n_train, plan.chain.site_sizes[0]))
    if config.start.method != "model":
        return Origin()
    try:
        found = (given or model_file.load(config.start.model)).with_weights(config.start.weights)
        return Origin(found.weights_for(plan.chain, data))
    except UsageError as error:
        name = "start.model" if given else f'start.model = "{config.start.model}"'
        raise UsageError(f"{name}: {error}") from None


def state_of(found: Found, plan: Plan, team: Team) -> State[Any] | None:
    """Rank 0's checkpoint on every rank, with the coordinates of the points that it holds.  Collective: yes."""
    path, state, _ = found or (None, None, None)
    rows = []
    if state is not None and not plan.sharded:
        own = rows_of_points(state)
        rows, state = list(own.values()), with_rows(state, dict.fromkeys(own))
    path, state = team.from_root(lambda: (path, state))
    if path is None or state is None:
        return None
    if plan.sharded:
        return team.all_or_raise(lambda: rows_of(path, state, plan.work.train, team.rank))
    return with_rows(state, dict(zip(rows_of_points(state), share_arrays(team, rows), strict=True)))
