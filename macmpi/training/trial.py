"""--check predicts the time and memory of a run, also for another machine or other data.

It times some iterations, or predicts their seconds from the plan if they would take too long.
"""

from __future__ import annotations

import math
import os
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from macmpi import UsageError, many
from macmpi.config import Config
from macmpi.config.auto import Sizes
from macmpi.config.whole import with_value
from macmpi.console import warn
from macmpi.data.dataset import Dataset
from macmpi.data.loading import Source
from macmpi.data.parts import split_sizes
from macmpi.data.reading import with_connections
from macmpi.methods.choose import Method, choose
from macmpi.methods.starts import Origin, start
from macmpi.nets.losses import loss_of
from macmpi.parallel import launchers
from macmpi.parallel.clock import now
from macmpi.parallel.team import Team, on_root
from macmpi.plan import estimate
from macmpi.plan.cost import Machine, predicted
from macmpi.plan.plan import Plan, make_plan
from macmpi.plan.resolve import resolve_in_span
from macmpi.plan.resolved import Resolved
from macmpi.state import State
from macmpi.training.launch import loaded, name_unread, origin_of, sums_of
from macmpi.training.process import ready
from macmpi.training.request import MOST_RANKS, MachineQuestion, Request, source_of
from macmpi.training.run_directory import RunDirectory

BUDGET = 3.0
"""The trial is not begun if it would take more than this number of seconds, and ends after them."""

WARM, TIMED = 1, 6
"""WARM iterations are not timed, then at most TIMED are; TIMED more after a change of the state."""

LATER = 4
"""Iterations are timed again as after this number of changes of mu: by then half steps need fewer passes."""

LONG = ("elastic_embedding", "file", "model")
"""Starts that need files or take long are replaced by random weights; those that give coordinates of a net of radial
basis functions, by principal components.  Iterations take as long from there, whatever the layers are."""


def check(request: Request, source: Source, plan: Plan, team: Team) -> list[str]:
    """Writes the lines of --check: what was chosen, and the memory and seconds that the run would take.

    Raises UsageError.  Collective: yes.
    """
    on_root(team, lambda: origin_of(plan, source.outline()))
    team.from_root(source.warn)
    output = team.from_root(lambda: _folder(request, plan, source.outline()))
    team.all_or_raise(lambda: None)  # all have planned and wait, so that cores are free for rank 0
    rate = team.from_root(estimate.steady_rate)
    seconds = predicted(plan, rate, Machine(cores=plan.ranks)).total
    timed = tried(plan, source, seconds, team)
    team.from_root(lambda: name_unread(plan.resolved))  # after all data that the config names have been read
    by = f"({plan.resolved.method.name}), by {rate / 1e9:.3g} GFLOP/s a core"
    took = f"about {seconds:.2g} s predicted with a core a rank {by}"
    if timed is not None:
        took = f"{timed[0]:.2g} s measured here, the median of {timed[1]}"
    return [
        *request.chosen.replace("\n  ", "\n").splitlines(),
        *team.from_root(lambda: [*estimate.estimate(plan)[0], f"machine      {_machine(plan, source)}"]),
        f"iteration    {took}",
        f"output       {output}",
    ]


def _machine(plan: Plan, source: Source) -> str:
    """Says how much memory the ranks of this machine need and how much it has; warns if that is less.

    Collective: no.
    """
    memory, nodes = launchers.memory(), -(-plan.ranks // (launchers.ranks_here(os.environ) if plan.ranks > 1 else 1))
    need = bytes_of_node(plan, nodes)
    amounts = _amounts(need, memory)
    if need > memory.bytes:
        remedy = _remedy(plan, plan.resolved.config, source.sizes(), nodes, memory.bytes)
        warn(f"{amounts}: the run may be killed; use {remedy}")
    return amounts


def _amounts(need: float, memory: launchers.Memory) -> str:
    return f"about {estimate.in_gb(need)} a node, and {memory.source} {estimate.in_gb(memory.bytes)}"


def _folder(request: Request, plan: Plan, data: Dataset) -> str:
    """Says what would become of the output folder, or why the run would be refused.

    data: its outline; if it has no points, as no rank reads all of them, the data are not compared.  Collective: no.
    """
    assert request.output is not None, "the command line has an output"
    directory, of = RunDirectory(request.output), plan.resolved
    try:
        with directory.lock:
            directory.judge(request, of)
            if len(data.X):
                directory.check_data(sums_of(data, of), of.settings["data.source"])
        return str(directory)
    except UsageError as error:
        return str(error)


def tried(plan: Plan, source: Source, seconds: float, team: Team) -> tuple[float, int] | None:
    """Times iterations as at the start of the run and as later in the run.

    Returns the mean seconds of an iteration over the run, from the medians of both kinds, and the number of timed
    iterations; None if they would take too long.  Starts that take long are replaced (`LONG`).

    seconds: the predicted seconds of an iteration.
    Cost: the start, and at most BUDGET seconds.  Collective: yes.
    """
    if team.from_root(lambda: seconds * (WARM + 2) > BUDGET):
        return None
    ready()
    if (word := plan.resolved.start.method) in LONG:
        instead: Literal["pca", "uniform"] = "pca" if plan.has_basis and word != "model" else "uniform"
        begins = replace(plan.resolved.start, method=instead, model="", coordinates="")
        plan = replace(plan, resolved=replace(plan.resolved, start=begins))
    method = choose(plan, loaded(plan, source, team), team)
    state = start(method, Origin())
    method.begin(state)
    early = _timed(method, state, team, WARM)
    _move_on(plan.resolved, state)
    late = _timed(method, state, team, 0)
    share = 1.0 - _growing(plan.resolved) / (2.0 * max(plan.resolved.run.max_iterations, 1))
    return (1.0 - share) * float(np.median(early)) + share * float(np.median(late)), len(early) + len(late)


def _growing(of: Resolved) -> int:
    """Counts the iterations during which their cost may change, as minibatches grow, or in full MAC as mu grows."""
    keys, most = of.stochastic, max(of.run.max_iterations, 1)
    if of.method.name != "stochastic":
        return most
    if keys.batch == "all" or of.chain.reuses:
        return 0
    return min(math.ceil(keys.grow_every * (keys.batch_max / keys.batch - 1.0)) * keys.records, most)


def _move_on(of: Resolved, state: State[Any]) -> None:
    """Changes a state in place so that iterations are as later in a run: with larger minibatches, or a larger mu."""
    if of.method.name == "stochastic":
        state.iteration = max(min(_growing(of), of.run.max_iterations - 1), 0)
    elif of.method.name == "mac":
        state.mu = min(of.schedule.mu0 * of.schedule.factor**LATER, of.schedule.mu_max)


def _timed(method: Method, state: State[Any], team: Team, warm: int) -> list[float]:
    """Times some iterations by the slowest rank, without the first `warm` ones.  Collective: yes."""
    took: list[float] = []
    began = now()
    while len(took) < warm + TIMED and team.from_root(lambda: len(took) <= warm or now() - began < BUDGET / 2):
        swept = now()
        method.sweep(state)
        took.append(team.max_over_ranks({"took": now() - swept})["took"])
        method.evaluate(state)
    return took[warm:]


# --- a machine or data that are not at hand ---------------------------------------------------------------------------


def answer(config: Config, asked: MachineQuestion, ranks: int = 1) -> list[str]:
    """Writes the lines of --check for another machine or other data.

    asked: the sizes of machine and data.
    ranks: the number of ranks of this launch, if the question names none.
    Raises UsageError.  Collective: no.
    """
    config, sizes = _data_of(config, asked)
    ranks = asked.ranks or ranks
    plan, held = _plan(config, sizes, ranks), -(-ranks // asked.nodes)
    memory = launchers.Memory(asked.memory, "a node (--memory) has") if asked.memory else launchers.memory()
    need, on_node = bytes_of_node(plan, asked.nodes), many(held, "rank")
    amounts = _amounts(need, memory)
    if need > memory.bytes:
        remedy = f"use {_remedy(plan, config, sizes, asked.nodes, memory.bytes)}"
        raise UsageError(f"{on_node} on a node with {plan.n_train:,} points: {amounts}: {remedy}")
    rate, machine, plans = estimate.steady_rate(), Machine(cores=held), (plan, replace(plan, ranks=1))
    seconds, alone = (predicted(p, rate, machine).total for p in plans)
    name, links = plan.resolved.method.name, f"{machine.alpha * 1e6:g} us a message, {machine.beta * 1e9:g} ns a byte"
    return [
        *estimate.estimate(plan)[0],
        f"nodes        {asked.nodes:,} of {on_node}; {amounts}",
        f"iteration    about {seconds:.3g} s predicted ({name}), efficiency {alone / ranks / seconds:.2f}",
        f"by           {rate / 1e9:.3g} GFLOP/s a core, measured now; {links}, assumed",
        *(f"idle         {line}" for line in [estimate.idle(plan)] if line),
    ]


def _data_of(config: Config, asked: MachineQuestion) -> tuple[Config, Sizes]:
    """Returns the config and the sizes of the data in a question; sizes that it does not name come from the data."""
    n_train, n_val = split_sizes(asked.points, config.data) if asked.points else (0, 0)
    if not asked.without_data:
        source, _ = source_of(config)
        sizes = source.sizes()
        return source.config, replace(sizes, n_train=n_train, n_val=n_val) if asked.points else sizes
    config = with_connections(config)
    if config.model.loss == "auto":
        config = replace(config, model=replace(config.model, loss="squared"))
    labels, outputs = loss_of(config).labels, asked.outputs or asked.columns
    if labels and asked.outputs < 2:
        raise UsageError(f'model.loss = "{config.model.loss}" needs the number of classes: give --outputs, 2 or more')
    classes = np.arange(outputs) if labels else None
    return config, Sizes(asked.columns, outputs, n_train, n_val, not asked.outputs, classes)


def _plan(config: Config, sizes: Sizes, ranks: int) -> Plan:
    return make_plan(resolve_in_span(config, sizes), sizes.n_train, sizes.n_val, ranks)


def bytes_of_node(plan: Plan, nodes: int) -> float:
    """Returns the bytes that the ranks of the busiest of `nodes` nodes need, including shared memory.

    Collective: no.
    """
    return -(-plan.ranks // nodes) * estimate.estimate(plan)[1] + estimate.node_bytes(plan)


def _remedy(plan: Plan, config: Config, sizes: Sizes, nodes: int, memory: float) -> str:
    """Names what would fit into memory: the same ranks on more nodes, more ranks, or another parallel.data.

    memory: the bytes of a node.
    """

    def is_enough(config: Config, ranks: int, nodes: int) -> bool:
        try:
            return bytes_of_node(_plan(config, sizes, ranks), nodes) <= memory
        except UsageError:
            return False

    P, each, ways = plan.ranks, estimate.estimate(plan)[1], list[str]()
    if (most := int((memory - bytes_of_node(plan, P) + each) // each)) >= 1:
        ways.append(f"more nodes (at least {-(-P // most):,} for {many(P, 'rank')})")
    more = range(1, (MOST_RANKS // P).bit_length()) if most < 1 and not plan.placement.all_rows else ()
    if enough := next((P << i for i in more if is_enough(config, P << i, P << i)), None):
        ways.append(f"more ranks and nodes ({enough:,} are enough, a rank a node)")
    for data in plan.placement.others:
        other = replace(config, parallel=replace(config.parallel, data=data))  # type: ignore[arg-type]
        if is_enough(other, P, nodes):
            ways.append(f'parallel.data = "{data}"')
    if plan.finishing and is_enough(with_value(config, "run.finish", False), P, nodes):
        ways.append("run.finish = false")
    return ", or ".join(ways) or "fewer hidden units, or fewer points"
