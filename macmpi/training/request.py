"""A request describes a run that the command line or Python asks for, or a question to --check; it becomes a plan.

Sizes and loss come from the data; `plan/resolve.py` then decides everything else.  Modules that need NumPy are
imported where they are used, so that a mistake in the config is refused sooner.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from macmpi import UsageError, many, shown
from macmpi.console import warn
from macmpi.parallel.clock import now
from macmpi.parallel.command import Namespace
from macmpi.parallel.team import Team, on_root
from macmpi.training.process import StopRequest, Wish

if TYPE_CHECKING:
    from macmpi.config import Config
    from macmpi.config.auto import Decision, Sizes
    from macmpi.data.dataset import Points
    from macmpi.data.loading import Source
    from macmpi.plan.plan import Plan
    from macmpi.results.model import Model

Callback = Callable[[dict[str, Any]], Any]
"""A callback is given each record of the curve; a true answer asks for the run to stop."""


@dataclass(frozen=True)
class Request:
    """Describes a run as a caller asks for it.

    began: when the caller was started, by `clock.now`.
    output: the run directory; None: no file is written.
    resume, overwrite: as on the command line.
    max_time: seconds that the run has, from `began`.
    command: the words of the command line, for provenance.
    chosen: a text that says what "auto" stands for.
    ends_with_model: whether a stopped run ends with the best model so far.
    is_program: whether this process does nothing else.
    listen: makes the Wish that notes a stop.
    callback: a function that is called on rank 0 with each record of the curve.
    start: the model that start.method = "model" begins with, on rank 0, instead of a file.
    inputs: files, such as the config, that the user gave and that no run may replace.
    """

    began: float
    output: Path | None = None
    resume: str = "no"
    overwrite: bool = False
    max_time: float = float("inf")
    command: tuple[str, ...] = ()
    chosen: str = ""
    ends_with_model: bool = False
    is_program: bool = True
    listen: Callable[[], Wish] = StopRequest
    callback: Callback | None = None
    start: Model | None = None
    inputs: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """Holds the outcome of a launch.

    code: 0, or 70 if the run has diverged, or 75 if it was stopped.
    model: the net with its history, on rank 0, if there is one.
    """

    code: int
    model: Model | None = None


MOST_RANKS = 2**17  # plans are made rank by rank, in some seconds for this number
MOST = 10**12  # rows, columns and outputs: products of these are still integers of NumPy


@dataclass(frozen=True)
class MachineQuestion:
    """Is a question to --check about another machine or other data; 0 stands for this machine and the present data.

    ranks, nodes: the numbers of ranks and nodes.
    points, columns, outputs: the sizes of the data.
    memory: the memory of a node in bytes.
    """

    ranks: int = 0
    nodes: int = 1
    points: int = 0
    columns: int = 0
    outputs: int = 0
    memory: float = 0.0

    @property
    def without_data(self) -> bool:
        return bool(self.points and self.columns)


def machine_question(args: Namespace) -> MachineQuestion | None:
    """Reads the question from the options of --check; returns None if there is none.

    Raises UsageError if it makes no sense.  Collective: no.
    """
    options = [field.name for field in fields(MachineQuestion) if field.name != "memory"]
    given = {name: value for name in options if (value := getattr(args, name)) is not None}
    if not given and args.memory is None:
        return None
    asked = MachineQuestion(**given, memory=0.0 if args.memory is None else bytes_in(args.memory))
    name, value = min(given.items(), key=lambda item: item[1], default=("memory", 1))
    refusals = {
        f"--{name} goes with --check: a launch has the ranks that mpiexec starts": not args.check,
        f"--{name} {value}: a number from 1 on is needed": value < 1,
        f"--points, --columns and --outputs are at most {MOST:,}": max(given.values(), default=0) > MOST,
        f"--ranks {asked.ranks}: plans are made for up to {MOST_RANKS:,} ranks": asked.ranks > MOST_RANKS,
        f"--nodes {asked.nodes}: a node has at least a rank; more --ranks": asked.nodes > max(asked.ranks, 1),
        "--points 1: two rows are needed, one to train on and one to validate with": asked.points == 1,
        "--columns says what the data would be, and so does --points: give both": asked.columns and not asked.points,
        "--outputs goes with --columns and --points, of data not at hand": asked.outputs and not asked.columns,
    }
    for text in (text for text, wrong in refusals.items() if wrong):
        raise UsageError(text)
    return asked


def bytes_in(text: str) -> float:
    """Reads a number of bytes from "64G", "512M", "1.5T" or a plain number.  Raises UsageError."""
    amount = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if amount is None or not float(amount[1]):
        raise UsageError(f"--memory {text!r} is no amount of memory: 64G, 512M, 1.5T")
    return float(amount[1]) * 1024.0 ** ["", "K", "M", "G", "T"].index(amount[2].upper())


# --- the plan ---------------------------------------------------------------------------------------------------------


def planned(
    config: Config, team: Team, points: Points | None = None, start: Model | None = None
) -> tuple[Plan, Source, str]:
    """Makes the plan of a config, finds its data, and writes lines about the data and the values chosen for "auto".

    points: the points, if the caller has them instead of a file.
    start: the model from which training starts, if it is not in a file; on rank 0.
    Raises UsageError.  Collective: yes.
    """
    from macmpi.config.auto import in_short

    began = now()
    read = on_root(team, lambda: source_of(config, points, start))

    def told() -> tuple[Config, list[Decision], int, dict[str, Any]]:
        """Returns, on rank 0, the values from which other ranks make the source; points and losses are not sent."""
        source, decisions = read
        added = {name: getattr(source.rules, name) for name in ("like", "classes", "columns")}
        return source.config, decisions, source.before, added

    known, decisions, before, added = team.from_root(told)
    from macmpi.data.loading import Source  # this imports NumPy; rank 0 has accepted the config by now

    source = read[0] if read else Source(known)
    source.before, source.rules = before, replace(source.rules, **added)
    sizes = team.from_root(source.sizes)
    notes = source.notes(now() - began)
    plan = plan_of(source.config, sizes, decisions, team)
    team.from_root(lambda: source.settle(plan.chain.n_in if plan.resolved.columns else 0))
    return plan, source, "\n  ".join(line for line in (*notes, in_short(plan.resolved.decisions)) if line)


def source_of(
    config: Config, points: Points | None = None, start: Model | None = None
) -> tuple[Source, list[Decision]]:
    """Finds the data that a config names, and decides which loss "auto" stands for.

    If training starts from a model, the data get the model's scaling; data of a stream also get its columns and
    classes.

    points, start: as in `planned`.
    Raises UsageError.  Collective: no (rank 0).
    """
    from numpy import unique

    from macmpi.data.gathered import points_of, with_loss
    from macmpi.data.loading import Source
    from macmpi.data.reading import with_connections

    config = with_connections(config)
    goes_on, begun = config.stochastic.stream, _begun(config, start)
    columns = begun.read_as if begun and goes_on else None
    points = points or points_of(config, columns)
    config, decisions = with_loss(config, points)
    source = Source(config, points)
    like, given = None, unique(config.data.classes) if config.data.classes else None
    if given is not None and not (goes_on and config.model.loss == "cross_entropy"):
        raise UsageError("data.classes is read of labels of a stream alone (stochastic.stream = true): leave it out")
    if begun and goes_on:
        loss = tomllib.loads(begun.card.config)["model"]["loss"] if begun.stream and begun.card else config.model.loss
        labels = [None if names is None else names.tolist() for names in (given, begun.classes)]
        for name, own, of_model in (("model.loss", config.model.loss, loss), ("data.classes", *labels)):
            if own not in (None, of_model):
                raise UsageError(f"{name} = {shown(own)}: the model that goes on has {shown(of_model)}; leave it out")
        like, source.before, given = begun.running, begun.points, begun.classes
    elif begun:
        like, given = (begun.scaling_x, begun.scaling_y), None
    source.rules = replace(source.rules, like=like, classes=given, columns=columns)
    return source, decisions


def _begun(config: Config, start: Model | None) -> Model | None:
    """Loads the model that training starts from, if any.

    Returns None for a file that is no model: that is refused later, when its weights are read.
    """
    if start or config.start.method != "model":
        return start
    from macmpi.results.model_file import load

    try:
        return load(config.start.model)
    except UsageError:
        return None


def plan_of(config: Config, sizes: Sizes, decisions: list[Decision], team: Team) -> Plan:
    """Makes the plan on every rank; rank 0 goes first and may refuse it.  Raises UsageError.  Collective: yes."""
    from macmpi.parallel.launchers import ranks_here
    from macmpi.plan.estimate import check_memory, idle
    from macmpi.plan.plan import make_plan
    from macmpi.plan.resolve import resolve_in_span

    def made() -> Plan:
        return make_plan(resolve_in_span(config, sizes, decisions), sizes.n_train, sizes.n_val, team.size)

    def accepted() -> Plan:
        plan = made()
        check_memory(plan, ranks_here(os.environ) if plan.ranks > 1 else 1)
        if line := idle(plan):
            warn(line)
        keys, points = plan.resolved.baseline, many(plan.n_train, "training point", "is")
        if plan.resolved.method.name in ("sgd", "adam") and keys.batch > max(plan.n_train, type(keys).batch):
            warn(f"baseline.batch = {keys.batch}: there {points}; a minibatch is all of them")
        return plan

    return on_root(team, accepted) or made()
