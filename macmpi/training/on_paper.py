"""--check of ranks, nodes and points that are not at hand: sizes, memory and seconds by plan, without data or MPI."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from macmpi import UsageError
from macmpi.config import Config
from macmpi.config.auto import decide
from macmpi.data.dataset import Sizes
from macmpi.data.split import sizes as split_sizes
from macmpi.nets.losses import loss_of
from macmpi.plan.cost import Machine, Seconds
from macmpi.plan.counted import predicted
from macmpi.plan.estimate import estimate
from macmpi.plan.fits import bytes_of_node, check_nodes, memory_here
from macmpi.plan.idle import idle
from macmpi.plan.plan import Plan, make_plan
from macmpi.plan.traffic import said
from macmpi.training.asked import Paper
from macmpi.training.calibration import Calibration, calibrated

ALPHA, BETA = 2e-6, 8e-11
"""Seconds a step of a message, and seconds a byte, where no cluster is described: 100 Gb/s."""


def sizes_of(config: Config, asked: Paper, read: Callable[[Config], Sizes]) -> Sizes:
    """The sizes of a data set of that many rows, columns and outputs; of the data themselves what is not asked.

    Raises UsageError.  Collective: no.
    """
    counts = split_sizes(asked.points, config.data) if asked.points else (0, 0)
    if not asked.without_data:
        found = read(config)
        return replace(found, n_train=counts[0], n_val=counts[1]) if asked.points else found
    labels = loss_of(config).labels
    if labels and asked.outputs < 2:
        raise UsageError(f'model.loss = "{config.model.loss}" needs the number of classes: give --outputs, 2 or more')
    outputs = asked.outputs or asked.columns
    return Sizes(asked.columns, outputs, *counts, not asked.outputs, np.arange(outputs) if labels else None)


def on_paper(config: Config, asked: Paper, read: Callable[[Config], Sizes], ranks: int = 1) -> list[str]:
    """Lines that answer --check.  ranks: of the launch, where none are asked.  Raises UsageError.  Collective: no."""
    asked = replace(asked, ranks=asked.ranks or ranks)
    if config.model.loss == "auto":
        config = replace(config, model=replace(config.model, loss="squared"))
    sizes = sizes_of(config, asked, read)
    config, _ = decide(config, sizes.n_in, sizes.autoencoder, sizes.shape)

    def planned(config: Config, ranks: int) -> Plan:
        return make_plan(config, *sizes.counts, ranks)

    plan = planned(config, asked.ranks)
    memory, whose = (asked.memory, "a node (--memory)") if asked.memory else (memory_here(), "this machine")
    check_nodes(plan, config, sizes.autoencoder, asked.nodes, memory, planned, whose)
    lines, _ = estimate(plan, config, sizes.autoencoder)
    needed, each = bytes_of_node(plan, config, sizes.autoencoder, asked.nodes), -(-asked.ranks // asked.nodes)
    rate = calibrated()
    machine = Machine(ALPHA, BETA, cores=each)
    seconds, alone = (
        predicted(p, config, sizes.autoencoder, rate.rate, machine) for p in (plan, replace(plan, ranks=1))
    )
    lines += [
        f"nodes        {asked.nodes:,} of {each:,} rank{'s' * (each > 1)}; about {needed / 1e9:,.1f} GB a node, of "
        f"{memory / 1e9:,.1f} GB that {whose} has",
        *said(plan, config),
        _iteration(seconds, alone, asked.ranks, config),
        _rests_on(rate, asked.ranks),
    ]
    return [*lines, *([f"idle         {line}"] if (line := idle(plan)) else [])]


def _iteration(seconds: Seconds, alone: Seconds, ranks: int, config: Config) -> str:
    total = seconds.total
    text = f"iteration    about {total:.3g} s predicted ({config.method.name})"
    if ranks == 1:
        return text
    lost: dict[str, Any] = {name.replace("_", " "): s for name, s in vars(seconds).items() if name != "ideal"}
    if config.method.name == "stochastic":  # most of its rounds are of points and of weights
        lost["uneven shares"] = lost.pop("uneven points") + lost.pop("uneven weights")
    worst = max(lost, key=lambda name: float(lost[name]))
    efficiency = alone.total / ranks / total
    return f"{text}, efficiency {efficiency:.2f} of one rank's {alone.total:.3g} s; most is lost to {worst}"


def _rests_on(rate: Calibration, ranks: int) -> str:
    between = f"; between ranks {ALPHA * 1e6:g} us a message and {BETA * 1e9:g} ns a byte, assumed" if ranks > 1 else ""
    return f"by           {rate.said}{between}"
